"""Gives groups the GPUs they are guaranteed, before the policy decides anything.

What a group does not use others borrow; once one of its jobs waits that is within the guarantee, borrowers leave for it
as soon as they have saved their state. Its jobs of several GPUs get the best connected place of a node, as in a
cluster of their own (HiveD, OSDI 2020, section 4). Who could not be stopped may not borrow what is guaranteed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.plan import Stop
from colane.model.reason import Reason, Why
from colane.model.resources import Guarantee
from colane.perf.topology import best_order, comm_of, distinct_sets, excess, shape_of_node


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Keeps guaranteed GPUs for their groups, and takes them back from others."""

    def keeps_nothing(self, view: ClusterView, _pool: str) -> bool:
        return not view.guarantees

    def keep(self, draft: Draft, pool: str) -> None:
        guarantees = draft.view.guarantees
        if guarantees:
            _Pool(draft, pool, guarantees).keep()


class _Pool:
    """One pool in one plan."""

    def __init__(self, draft: Draft, pool: str, guarantees: tuple[Guarantee, ...]) -> None:
        self._draft = draft
        self._pool = pool
        self._guarantees = guarantees
        self._jobs = draft.view.derived(GroupJobs, guarantees)
        self._within = {job for each in guarantees for job in self._jobs.within(each.group, each.gpus)}

    def keep(self) -> None:
        for job in self._within:
            if self._draft.view.job(job).spec.pool == self._pool:
                self._draft.leave_alone(job)
        for each in self._guarantees:
            self._serve_group(each)
        self._hold_back()

    def _serve_group(self, each: Guarantee) -> None:
        """Start its waiting jobs, in order of priority and arrival, as far as they are within its guarantee."""
        left = each.gpus - self._jobs.has(each.group)
        for job in sorted(self._jobs.waiting.get(each.group, {}).values(), key=_turn):
            spec = job.effective.at(job.effective.gpus_min)
            is_ours = job.spec.pool == self._pool and not job.home and spec.fits_one_node
            if is_ours and spec.gpus <= left and self._draft.is_undecided(job.id) and self._serve(job, spec, each):
                left -= spec.gpus

    def _serve(self, job: Job, spec: JobSpec, each: Guarantee) -> bool:
        """Start it, or have borrowers leave; whether there is a place for it."""
        draft, found = self._draft, list[tuple[float, int, list[GpuLoad]]]()
        for gpu_type in draft.view.gpu_types_for(spec):
            for node in draft.view.nodes.values():
                if node.node.pool == self._pool and node.node.takes_jobs:
                    loads = [draft.load(gpu) for gpu in node.ids.values()]
                    place = self._place(job, spec, node, [load for load in loads if load.gpu.type == gpu_type])
                    if place:
                        far = _far(node, spec, place)
                        found.append((far, len({one for load in place for one in load.jobs}), place))
        if not found:
            return False
        _, _, place = min(found, key=lambda one: (one[0], one[1], one[2][0].id))
        node = draft.view.nodes[place[0].id.node]
        if all(load.is_free for load in place) and draft.has_room(node, spec):
            facts: dict[str, str | int | float] = {
                "gpus": ", ".join(str(load.id) for load in place), "group": each.group, "guaranteed": each.gpus,
            }  # fmt: skip
            draft.start(job, place, Reason(Why.GUARANTEED, facts))
            return True
        self._vacate(job, place, each)
        return True

    def _place(self, job: Job, spec: JobSpec, node: NodeState, loads: Sequence[GpuLoad]) -> list[GpuLoad]:
        """GPUs of a node that are free, or that borrowers leave: the best connected, of those what the fewest leave."""
        need_bytes = spec.gpu_memory_bytes or 0
        able = [load for load in loads if self._may_be_taken(job, load) and load.capacity_bytes >= need_bytes]
        able.sort(key=lambda load: (not load.is_free, len(load.bookings), load.id))
        if len(able) < spec.gpus:
            return []
        best = able[: spec.gpus]
        if spec.gpus > 1:
            shape, least, at = shape_of_node(node.node), inf, _places(node)
            for count in range(spec.gpus, len(able) + 1):  # ever more that borrowers would leave
                place = {at[load.id]: load for load in able[:count]}
                for gpus in distinct_sets(shape, sum([1 << number for number in place]), spec.gpus):
                    far = excess(shape, gpus, comm_of(spec))
                    if far < least:
                        best, least = [place[number] for number in best_order(shape, gpus, spec.comm_pattern)], far
                if not least:
                    break
        return best

    def _may_be_taken(self, job: Job, load: GpuLoad) -> bool:
        if (
            not load.is_usable
            or load.returning
            or load.id in self._draft.held
            or load is not self._draft.view.gpu(load.id)
        ):
            return False
        return all(self._leaves(job, self._draft.view.job(other)) for other in load.jobs)

    def _leaves(self, job: Job, other: Job) -> bool:
        """Whether another leaves a GPU for a job: it does already for that, or it borrows."""
        if other.is_leaving:
            return other.preempted_for in {job.id, None}
        borrows = other.id not in self._within and other.is_movable and other.effective.preemptible
        return borrows and self._draft.is_undecided(other.id)

    def _vacate(self, job: Job, place: Sequence[GpuLoad], each: Guarantee) -> None:
        draft = self._draft
        because = f"group {each.group} has fewer GPUs than the {each.gpus} it is guaranteed"
        there = {other: draft.view.job(other) for load in place for other in load.jobs}
        for other in there.values():
            if not other.is_leaving and draft.is_undecided(other.id):
                draft.act(Stop(other.id, Reason(Why.PREEMPTED, {"because": because}, (job.id,)), job.id))
        draft.hold(job, place)
        draft.leave_alone(job.id)
        draft.wait(job.id, Reason(Why.PREEMPTING, {}, tuple(sorted(there))))
        draft.plan_after_moves(self._pool)

    # -- those that cannot be stopped

    def _hold_back(self) -> None:
        """Leave those waiting that could not be stopped for a guarantee, but for as many as fit beside all of them."""
        draft = self._draft
        gpus = [draft.load(gpu) for node in draft.view.nodes.values() for gpu in node.ids.values()]
        room = sum([load.is_usable and draft.view.nodes[load.id.node].node.pool == self._pool for load in gpus])
        there, guaranteed = room, sum([each.gpus for each in self._guarantees])
        room -= guaranteed
        running = chain.from_iterable([each.values() for each in self._jobs.running.values()])
        room -= sum([job.gpu_count for job in running if job.id not in self._within and self._stays(job)])
        waiting = chain.from_iterable([each.values() for each in self._jobs.waiting.values()])
        for job in sorted([job for job in waiting if self._stays(job)], key=_turn):
            if draft.is_undecided(job.id):
                if job.effective.gpus_min <= room:
                    room -= job.effective.gpus_min
                else:
                    draft.leave_alone(job.id)
                    facts = {"need": job.effective.gpus_min, "guaranteed": guaranteed, "there": there}
                    draft.wait(job.id, Reason(Why.GUARANTEED_TO_OTHERS, facts))

    def _stays(self, job: Job) -> bool:
        """Whether a job of the pool could not be stopped once it runs."""
        return job.spec.pool == self._pool and not job.effective.preemptible


def _turn(job: Job) -> tuple[int, JobId]:
    return -job.spec.priority, job.id


def _far(node: NodeState, spec: JobSpec, place: Sequence[GpuLoad]) -> float:
    """How much worse connected a place is than the best of an empty node like it: 0 to 1, by how much the job talks."""
    at = _places(node)
    return excess(shape_of_node(node.node), tuple(sorted([at[load.id] for load in place])), comm_of(spec))


def _places(node: NodeState) -> dict[GpuId, int]:
    """Where each GPU of a node is among those of its shape."""
    return {gpu: place for place, gpu in enumerate(node.ids.values())}


class GroupJobs(NodesMatterNot):
    """Live jobs with GPUs by group; a user of several groups counts for the first by name.

    Args:
        guarantees: Of the groups.
    """

    def __init__(self, guarantees: tuple[Guarantee, ...]) -> None:
        self._of_user: dict[str, str] = {}
        for each in reversed(guarantees):
            self._of_user.update(dict.fromkeys(each.members, each.group))
        self.running: dict[str, dict[JobId, Job]] = {}
        self.waiting: dict[str, dict[JobId, Job]] = {}

    def group_of(self, job: Job) -> str:
        """The group a job counts for; empty where it is of none."""
        return self._of_user.get(job.spec.user, "")

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other."""
        job = new or old
        if job is None or not job.spec.gpus:
            return
        group = self.group_of(job)
        self.running.setdefault(group, {}).pop(job.id, None)
        self.waiting.setdefault(group, {}).pop(job.id, None)
        if new is not None and new.is_waiting:
            self.waiting[group][new.id] = new
        elif new is not None and new.gpus_held and not new.is_leaving:
            self.running[group][new.id] = new

    def has(self, group: str) -> int:
        """GPUs that jobs of a group have and keep."""
        return sum([job.gpu_count for job in self.running.get(group, {}).values()])

    def within(self, group: str, gpus: int) -> set[JobId]:
        """Those of its running jobs that are within so many GPUs, the oldest first: all others borrow."""
        found, left = set[JobId](), gpus
        for job in sorted(self.running.get(group, {}).values(), key=lambda job: job.id):
            if job.gpu_count <= left:
                found.add(job.id)
                left -= job.gpu_count
        return found
