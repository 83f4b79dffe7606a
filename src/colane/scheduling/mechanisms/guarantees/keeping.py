"""Gives groups the GPUs they are guaranteed, before the policy decides anything.

What a group does not use others borrow; once one of its jobs waits that is within the guarantee, borrowers leave for it
as soon as they have saved their state. Its jobs of several GPUs get the best connected place of a node, or of as few
nodes as hold them, as in a cluster of their own (HiveD, OSDI 2020, section 4). Who could not be stopped may not borrow
what is guaranteed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.job_spec import JobKind
from colane.model.plan import Start, Stop
from colane.model.reason import Reason, Why
from colane.model.resources import Guarantee
from colane.scheduling.engine.contracts import Bind

KEPT_FROM_S: Final = 86_400.0
"""A job that could not be stopped and has waited for a day has no other take what is left beside all guarantees."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Keeps guaranteed GPUs for their groups, and takes them back from others."""

    def is_settled(self, _view: ClusterView, _pool: str) -> bool:
        return True  # a group had what it is owed before

    def keep(self, draft: Draft, pool: str, bind: Bind) -> bool:
        guarantees = draft.view.guarantees
        return bool(guarantees) and _Pool(draft, pool, guarantees, bind).keep()

    def fill(self, draft: Draft, pool: str, bind: Bind) -> None:
        """Take GPUs back for those that the policy has found no place."""
        _Pool(draft, pool, draft.view.guarantees, bind).take_back()


class _Part(NamedTuple):
    """What a job is to have of a node."""

    node: NodeState  # the node
    gpus: Sequence[GpuLoad]  # its GPUs in order of rank
    far: float  # how much worse connected they are than the best of an empty node like it, 0 to 1
    leaving: int  # how many jobs are on them that would have to leave


class _Pool:
    """One pool in one plan."""

    def __init__(self, draft: Draft, pool: str, guarantees: tuple[Guarantee, ...], bind: Bind) -> None:
        self._draft = draft
        self._bind = bind
        self._pool = pool
        self._guarantees = guarantees
        self._jobs = draft.view.derived(GroupJobs, guarantees)
        self._within = self._jobs.all_within(guarantees)
        self._owed: set[JobId] = set()
        self._started: set[JobId] | None = None
        self._leaves_some = False

    def keep(self) -> bool:
        """Start those within a guarantee where they have GPUs for themselves; whether others are left to the policy."""
        for each in self._guarantees:
            within = [self._draft.view.job(job) for job in self._jobs.within(each.group, each.gpus)]
            here = [job.id for job in within if job.spec.pool == self._pool and job.gpus_held]
            self._draft.spare(here, each.members, self._jobs.has(each.group) - each.gpus)
        for each in self._guarantees:
            self._serve_group(each)
        self._hold_back()
        return self._leaves_some

    def take_back(self) -> None:
        """Have borrowers leave for those that the policy started nowhere."""
        starts = [action.job for action in self._draft.actions if isinstance(action, Start)]
        self._started = {*starts, *self._draft.held.values()}
        for each in self._guarantees:
            self._serve_group(each)

    def _serve_group(self, each: Guarantee) -> None:
        """Start its waiting jobs, in the order of the policy, as far as they are within its guarantee."""
        started, waiting = self._started or set(), self._jobs.waiting.get(each.group, {})
        left = each.gpus - self._jobs.has(each.group)
        left -= sum([waiting[job].effective.gpus_min for job in started if job in waiting])
        unplaced = list[Job]()
        for job in self._in_order(each.group) if left > 0 else ():
            spec = job.effective.at(job.effective.gpus_min)
            is_ours = job.spec.pool == self._pool and not job.home and job.id not in started
            if is_ours and spec.gpus <= left and self._draft.is_undecided(job.id):
                if self._serve(job, spec, each):
                    left -= spec.gpus
                else:
                    unplaced.append(job)
        for job in unplaced:  # what holds its GPUs cannot be stopped: the policy finds it a place, if any does
            if job.effective.gpus_min <= left:
                left -= job.effective.gpus_min
                self._owed.add(job.id)

    def _in_order(self, group: str) -> list[Job]:
        waiting = list(self._jobs.waiting.get(group, {}).values())
        if len(waiting) < 2:
            return waiting
        place = self._bind(self._draft, self._pool).place
        return sorted([job for job in waiting if job.spec.pool == self._pool], key=lambda job: (place(job), job.id))

    def _serve(self, job: Job, spec: JobSpec, each: Guarantee) -> bool:
        """Start it, or have borrowers leave; whether there is a place for it."""
        draft, types = self._draft, self._draft.view.gpu_types_for(spec)
        parts = self._on_one_node(job, spec, types) if spec.fits_one_node else []
        if not parts and spec.multi_node:
            parts = next(filter(None, [self._over_nodes(job, spec, gpu_type) for gpu_type in types]), [])
        if not parts:
            return False
        place = [load for part in parts for load in part.gpus]
        has_room = all(draft.has_room(part.node, spec, len(part.gpus)) for part in parts)
        if has_room and all(load.is_free for load in place):
            facts: dict[str, str | int | float] = {
                "gpus": ", ".join([str(load.id) for load in place]), "group": each.group, "guaranteed": each.gpus,
            }  # fmt: skip
            draft.start(job, place, Reason(Why.GUARANTEED, facts))
            return True
        if self._started is None and spec.gpus == 1:
            self._owed.add(job.id)
            self._leaves_some = True
        else:
            self._vacate(job, place, each)
        return True

    def _on_one_node(self, job: Job, spec: JobSpec, types: Sequence[str]) -> list[_Part]:
        """The best connected place that a node has for it, of those one that the fewest leave; none without one."""
        found = [self._part(job, spec, spec.gpus, node, kind) for kind in types for node in self._nodes()]
        parts = [part for part in found if part is not None]
        return [min(parts, key=lambda part: (part.far, part.leaving, part.gpus[0].id))] if parts else []

    def _over_nodes(self, job: Job, spec: JobSpec, gpu_type: str) -> list[_Part]:
        """Places on as few nodes as hold all of its ranks, of those where the fewest leave; none where too few may be.

        A node is taken for as many ranks as it may have, most first, and the last one for what is left.
        """
        most = {node.node.name: spec.ranks_of(len(self._able(job, spec, node, gpu_type))) for node in self._nodes()}
        parts, left = list[_Part](), spec.gpus
        while left:
            able = {name: spec.ranks_of(min(count, left)) for name, count in most.items()}
            ranks = max(able.values(), default=0)
            if not ranks:
                return []
            nodes = [node for node in self._nodes() if able.get(node.node.name, 0) == ranks]
            found = [self._part(job, spec, ranks, node, gpu_type) for node in nodes]
            best = min(
                [part for part in found if part is not None], key=lambda part: (part.leaving, part.far, part.gpus[0].id)
            )
            parts.append(best)
            del most[best.node.node.name]
            left -= ranks
        return parts

    def _nodes(self) -> list[NodeState]:
        nodes = self._draft.view.nodes.values()
        return [node for node in nodes if node.node.pool == self._pool and node.node.takes_jobs]

    def _able(self, job: Job, spec: JobSpec, node: NodeState, gpu_type: str) -> list[GpuLoad]:
        """GPUs of a type that are free on a node, or that borrowers leave: those first that the fewest leave."""
        loads, need_bytes = [self._draft.load(gpu) for gpu in node.ids.values()], spec.gpu_memory_bytes or 0
        loads = loads if self._draft.may_use(node, spec) else []
        able = [
            load
            for load in loads
            if load.gpu.type == gpu_type and self._may_be_taken(job, load) and load.capacity_bytes >= need_bytes
        ]
        able.sort(key=lambda load: (not load.is_free, len(self._stay([load])), load.id))
        return able

    def _part(self, job: Job, spec: JobSpec, ranks: int, node: NodeState, gpu_type: str) -> _Part | None:
        """The best connected of them for so many ranks; None where there are too few."""
        able = self._able(job, spec, node, gpu_type)
        if len(able) < ranks:
            return None
        best = self._draft.view.best_connected(node, spec, ranks, [load.id for load in able])
        loads = [self._draft.load(gpu) for gpu in best.gpus]
        return _Part(node, loads, best.far, len(self._stay(loads)))

    def _stay(self, loads: Sequence[GpuLoad]) -> set[JobId]:
        """Jobs on these that are not on their way off them already."""
        return {one for load in loads for one in load.jobs if not self._draft.view.job(one).is_leaving}

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
        draft, staying = self._draft, [job for job in self._jobs.staying.values() if job.spec.pool == self._pool]
        if not staying:
            return
        there, guaranteed, taken = room_beside(draft.view, self._pool, self._guarantees)
        room = there - guaranteed - len(taken)
        aged = {job.id for job in staying if draft.now_s >= job.submit_s + KEPT_FROM_S}
        for job in sorted(staying, key=lambda job: (job.id not in aged, -job.spec.priority, job.id)):
            if draft.is_undecided(job.id) and job.id not in self._owed:
                if job.effective.gpus_min <= room:
                    room -= job.effective.gpus_min
                else:
                    draft.leave_alone(job.id)
                    facts: dict[str, str | int | float] = {"need": job.effective.gpus_min, "guaranteed": guaranteed}
                    facts |= {"there": there, "stays": _why_it_stays(job)}
                    draft.wait(job.id, Reason(Why.GUARANTEED_TO_OTHERS, facts))
                    room = 0 if job.id in aged else room


def _why_it_stays(job: Job) -> str:
    """Why a job could not be stopped: it serves, is no longer asked to save its state, or never said it can."""
    if job.spec.kind is JobKind.INFERENCE:
        return "serves"
    return "saves-too-late" if job.constraints.not_preemptible else "not-declared"


class GroupJobs(NodesMatterNot):
    """Live jobs with GPUs by group; a user of several groups counts for the first by name.

    A job that waits for GPUs that it was promised for its deadline has them already here.

    Args:
        guarantees: Of the groups.
    """

    def __init__(self, guarantees: tuple[Guarantee, ...] = ()) -> None:
        self._of_user: dict[str, str] = {}
        for each in reversed(guarantees):
            self._of_user.update(dict.fromkeys(each.members, each.group))
        self.running: dict[str, dict[JobId, Job]] = {}
        self.waiting: dict[str, dict[JobId, Job]] = {}
        self.staying: dict[JobId, Job] = {}  # those that wait and could not be stopped once they run
        self._oldest: dict[str, list[JobId]] = {}  # those that run
        self._has: Counter[str] = Counter()

    def group_of(self, user: str) -> str:
        """The group whose guarantee a user's jobs count for; empty where there is none."""
        return self._of_user.get(user, "")

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other."""
        job = new or old
        if job is None or not job.spec.gpus:
            return
        group = self.group_of(job.spec.user)
        running, waiting = self.running.setdefault(group, {}), self.waiting.setdefault(group, {})
        ran, oldest = running.pop(job.id, None), self._oldest.setdefault(group, [])
        waiting.pop(job.id, None)
        self.staying.pop(job.id, None)
        keeps = new is not None and bool(new.gpus_held) and not new.is_leaving
        if new is not None and new.is_waiting and new.constraints.promised is None:
            waiting[new.id] = new
            if cannot_be_stopped(new):
                self.staying[new.id] = new
        elif new is not None and (new.is_waiting or keeps):
            running[new.id] = new
            self._has[group] += _count(new)
            if ran is None:
                insort(oldest, new.id)
        if ran is not None:
            self._has[group] -= _count(ran)
            if job.id not in running:
                del oldest[bisect_left(oldest, job.id)]

    def has(self, group: str) -> int:
        """GPUs that jobs of a group have and keep."""
        return self._has[group]

    def within(self, group: str, gpus: int) -> set[JobId]:
        """Those of its running jobs that are within so many GPUs, the oldest first: all others borrow."""
        found, left = set[JobId](), gpus
        for job_id in self._oldest.get(group, ()):
            if left <= 0:
                break
            count = _count(self.running[group][job_id])
            if count <= left:
                found.add(job_id)
                left -= count
        return found

    def all_within(self, guarantees: Sequence[Guarantee]) -> set[JobId]:
        """Those of all groups."""
        return {job for each in guarantees for job in self.within(each.group, each.gpus)}


def gpus_of(job: Job) -> Sequence[GpuId]:
    """The GPUs that a job has, or was promised for its deadline and waits for."""
    promised = job.constraints.promised
    return promised.gpus if promised is not None and job.is_waiting else job.gpus_held


def _count(job: Job) -> int:
    return len(gpus_of(job)) if job.is_waiting else job.gpu_count


class Room(NamedTuple):
    """What jobs that cannot be stopped may have of a pool beside all that is guaranteed."""

    there: int  # GPUs that may be used
    guaranteed: int  # how many of them are guaranteed to groups
    # those that such jobs have or were promised for their deadlines, beyond what is guaranteed to them
    taken: frozenset[GpuId]


def room_beside(view: ClusterView, pool: str, guarantees: tuple[Guarantee, ...]) -> Room:
    """What there is of it now."""
    jobs = view.derived(GroupJobs, guarantees)
    within = jobs.all_within(guarantees)
    nodes = [node for node in view.nodes.values() if node.node.pool == pool]
    there = sum([view.gpu(gpu).is_usable for node in nodes for gpu in node.ids.values()])
    taken = [
        gpu
        for running in jobs.running.values()
        for job in running.values()
        if job.id not in within and job.spec.pool == pool and cannot_be_stopped(job)
        for gpu in gpus_of(job)
    ]
    return Room(there, sum([each.gpus for each in guarantees]), frozenset(taken))


def cannot_be_stopped(job: Job) -> bool:
    """Whether a job stays where it is once it runs, whatever waits."""
    return job.constraints.promised is not None or not job.effective.preemptible
