"""Which GPUs a job with a deadline would have for its own, or by when it could be kept at the earliest.

After ElasticFlow's admission control: a job is given the fewest GPUs with which it ends in time (its minimum
satisfactory share), as far as those promised before it are kept. Its shares of time slots are GPUs here, for most jobs
run on one number of GPUs and are not stopped from slot to slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.limits import LimitBook
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.job_spec import PromisedGpus
from colane.model.limits import Quotas
from colane.model.resources import host_capacity, host_needs, ranks_held
from colane.model.sentences import fill
from colane.model.words import count
from colane.scheduling.engine.times import RunTimes
from colane.scheduling.mechanisms.deadlines.keeping import DeadlineJobs
from colane.scheduling.mechanisms.deadlines.run_time import takes_s
from colane.scheduling.mechanisms.deadlines.timetable import Seated, earliest_s, is_kept
from colane.scheduling.mechanisms.guarantees.keeping import GroupJobs, room_beside

MARGIN_RATIO: Final = 1.1  # a run time that is predicted may be exceeded by a tenth; a time limit may not

NEWCOMER: Final = JobId(2**62)  # behind all others of its deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What is allowed for besides steps."""

    stop_s: float = 0.0  # from the decision to stop a job until its GPUs are free
    launch_s: float = 0.0  # from the start of a process to its stepping
    settle_s: float = 0.0  # how long a job that has just started cannot be stopped yet
    margin_ratio: float = MARGIN_RATIO  # part of a predicted run time that is counted on


class NoPromise(NamedTuple):
    """Why a deadline cannot be kept."""

    problem: str  # in a sentence, with the fix
    earliest_s: float | None = None  # in how many seconds from now it could be; None where nothing says so


class ComingPromise(NamedTuple):
    """A job that has been promised its GPUs and that the state does not know yet."""

    job: JobId
    spec: JobSpec
    promised: PromisedGpus


UNKNOWN_LENGTH: Final = (
    "cannot be promised, as it is not known how long the job takes: say --time-limit, or --steps-total of a "
    "family whose step time was measured"
)
UNKNOWN_PACE: Final = (
    "cannot be promised, as it is not known how long a step of the job takes: say --time-limit, or run one job of its "
    "family first, on devices that others leave alone"
)
HELD: Final = (
    "cannot be promised to an array or a job that waits for a time or for others: leave out array, hold, begin, after, "
    "singleton"
)
OVER_NODES: Final = "cannot be promised to a job over several nodes: leave out multi_node"
ENDLESS: Final = (
    "cannot be promised: the GPUs that it could have are held by jobs that cannot be stopped and of which no time "
    "limit says when they end"
)

RESERVED: Final = (
    "cannot be promised: {nodes} may be kept for others before then ({by}): ask for an earlier end, or leave it out"
)

GUARANTEED: Final = (
    "cannot be promised: {guaranteed} of {there:GPU} are guaranteed to groups, and of the others too few are left "
    "beside {taken} of jobs that cannot be stopped: leave it out"
)


def promise(
    view: ClusterView,
    spec: JobSpec,
    allowed: Allowed,
    coming: Sequence[ComingPromise] = (),
    limits: LimitBook | None = None,
    quotas: Quotas | None = None,
    *,
    is_held: bool = False,
) -> PromisedGpus | NoPromise:
    """Return the GPUs by which a job that is submitted now meets its deadline, others kept, or why none do.

    Args:
        view: The cluster as it is.
        spec: The job, with a deadline.
        allowed: What is allowed for.
        coming: Others of this moment.
        limits: Keeps account of what users and groups may have running; None where that is not bounded.
        quotas: What they may have; None where nothing is bounded.
        is_held: Whether it may not start yet, or is an array.
    """
    if is_held:
        return NoPromise(HELD)
    if spec.multi_node:
        return NoPromise(OVER_NODES)
    reached = limits.reached(spec, [one.spec for one in coming]) if limits is not None else ""
    reached = reached or _promised_out(view, spec, spec.gpus_min, coming, quotas)
    if reached:
        return NoPromise(f"cannot be promised now, as {reached}: ask again when jobs under it have ended")
    found = _Search(view, spec, allowed, coming)
    if not found.is_length_known:
        return NoPromise(found.kept_out or (UNKNOWN_PACE if spec.steps_total else UNKNOWN_LENGTH))
    settle_s = 2 * (allowed.launch_s + allowed.settle_s) + allowed.stop_s  # of a first step as long as a launch
    for is_sooner in (False, True):  # one that would be too late behind others may be in time before them
        for place in found.places():
            if len(place.gpus) > spec.gpus_min and _promised_out(view, spec, len(place.gpus), coming, quotas):
                break
            due_s = earliest_s(found.seated, place, found.left_s) if is_sooner else place.due_s
            if due_s <= place.due_s and is_kept(found.seated, place._replace(due_s=due_s), found.left_s):
                return PromisedGpus(place.gpus, due_s - place.takes_s, settle_s, due_s if is_sooner else None)
    return found.refusal()


def _promised_out(
    view: ClusterView, spec: JobSpec, gpus: int, coming: Sequence[ComingPromise], quotas: Quotas | None
) -> str:
    """Which limit on GPUs of deadlines a job would exceed with so many; empty where it would none."""
    if quotas is None:
        return ""
    known = [(job.spec.user, job.constraints.promised) for job in view.derived(DeadlineJobs).all()]
    given = [*known, *[(one.spec.user, one.promised) for one in coming]]
    for bound in quotas.bounds(spec.user):
        most = bound.limits.deadline_gpus
        if most is None:
            continue
        mine = [promised for user, promised in given if bound.name in {one.name for one in quotas.bounds(user)}]
        if sum([len(promised.gpus) for promised in mine if promised is not None]) + gpus > most:
            return f"{bound.name}'s limit of {count(most, 'GPU')} for deadlines is reached"
    return ""


def ends_at_s(times: RunTimes, view: ClusterView, job: Job, allowed: Allowed, *, is_kept: bool = False) -> float:
    """When a running job leaves its GPUs at the latest, or may be asked to; infinite where nothing says so.

    Args:
        times: How long jobs run.
        view: The cluster.
        job: The job.
        allowed: What is allowed for.
        is_kept: Whether it is within what its group is guaranteed, and so stopped for no other.
    """
    now_s = view.now_s
    began_s = now_s if job.start_s is None else job.start_s
    if job.constraints.promised is not None:
        loads = [view.gpu(gpu) for gpu in job.gpus_held]
        run_s = takes_s(times, view, job.effective, loads, allowed.margin_ratio) if loads else None
        return inf if run_s is None else max(now_s, began_s + allowed.launch_s + run_s)
    may_be_stopped = job.effective.preemptible and not is_kept
    if job.is_leaving or (job.is_movable and may_be_stopped):
        return now_s
    if job.suspended or job.is_on_host:
        return inf
    ends = inf if job.effective.time_limit_s is None else began_s + allowed.launch_s + job.effective.time_limit_s
    if may_be_stopped and not job.parked:
        if job.first_step_s is None:
            ends = min(ends, now_s + allowed.launch_s + allowed.settle_s)
        elif job.state is JobState.RUNNING_PROTECTED:
            ends = min(ends, _unprotected_s(now_s, job.first_step_s, began_s, allowed))
    return max(now_s, ends)


def _unprotected_s(now_s: float, first_step_s: float, began_s: float, allowed: Allowed) -> float:
    """When a job that has made its first step may be stopped, by the time its launch took (paper E, 4.2)."""
    took = (first_step_s - began_s) / allowed.launch_s if allowed.launch_s else 1.0
    over_s = first_step_s + took * allowed.settle_s
    return over_s if over_s > now_s else now_s + allowed.settle_s  # protected anew, after a move


class _Beside:
    """What is left for one newcomer beside what groups are guaranteed, as it could not be stopped for them.

    Attributes:
        within: Running jobs that are within the guarantee of their group.
        has_left_out: Whether a node had enough GPUs but for what is guaranteed.
    """

    def __init__(self, view: ClusterView, spec: JobSpec, coming: Sequence[ComingPromise]) -> None:
        jobs, bounds = view.derived(GroupJobs, view.guarantees), {each.group: each.gpus for each in view.guarantees}
        self.within = frozenset(jobs.all_within(view.guarantees))
        room = room_beside(view, spec.pool, view.guarantees)
        owed = {group: gpus - jobs.has(group) for group, gpus in bounds.items()}
        taken = set(room.taken)
        for one in coming:
            group, gpus = jobs.group_of(one.spec.user), one.promised.gpus
            if len(gpus) <= owed.get(group, 0):
                owed[group] -= len(gpus)
            elif one.spec.pool == spec.pool:
                taken.update(gpus)
        self._owed = owed.get(jobs.group_of(spec.user), 0)
        self.has_left_out = False
        self._room = room._replace(taken=frozenset(taken))

    def left_of(self, loads: Sequence[GpuLoad], gpus: int) -> list[GpuLoad]:
        """Those of the GPUs of a node, in their order, that it may have as one of so many."""
        if gpus <= self._owed:
            return list(loads)
        left, found = self._room.there - self._room.guaranteed - len(self._room.taken), list[GpuLoad]()
        for load in loads:
            is_taken = load.id in self._room.taken
            if is_taken or left > 0:
                found.append(load)
                left -= not is_taken
        self.has_left_out = self.has_left_out or len(found) < gpus <= len(loads)
        return found

    def refusal(self) -> str:
        """Why it may have none, with the fix."""
        return fill(GUARANTEED, {**self._room._asdict(), "taken": len(self._room.taken)})


class _Search:
    """The places of one job.

    Attributes:
        seated: Jobs that wait for GPUs of their own.
        left_s: When GPUs that any of them or the job may have are left.
        is_length_known: Whether how long the job takes is known anywhere.
    """

    def __init__(self, view: ClusterView, spec: JobSpec, allowed: Allowed, coming: Sequence[ComingPromise]) -> None:
        self._view = view
        self._spec = spec
        self._allowed = allowed
        self._times = RunTimes(Draft(view))
        self._beside = _Beside(view, spec, coming) if view.guarantees else None
        self.left_s: dict[GpuId, float] = {}
        self.seated = [*self._waiting(), *self._coming(coming)]
        self.is_length_known = False
        self._reserved: dict[str, str] = {}
        self._places = sorted(self._all_places(), key=self._worth)

    def places(self) -> Iterator[Seated]:
        """The fewest GPUs first, of those the ones for which fewest others leave."""
        return iter(self._places)

    @property
    def kept_out(self) -> str:
        """Why it may have no GPUs, where reservations or what is guaranteed to groups keep it out; else empty."""
        if self._reserved:
            by = ", ".join(dict.fromkeys(self._reserved.values()))
            return fill(RESERVED, {"nodes": ", ".join(self._reserved), "by": by})
        return "" if self._beside is None or not self._beside.has_left_out else self._beside.refusal()

    def refusal(self) -> NoPromise:
        """By when it could be kept."""
        found_s = min([earliest_s(self.seated, place, self.left_s) for place in self._places], default=inf)
        if found_s == inf:
            return NoPromise(ENDLESS if self._places else self.kept_out or ENDLESS)
        in_s = found_s - self._view.now_s
        promised = len(self.seated)
        before = f", with {count(promised, 'deadline')} promised before it" if promised else ""
        told = (
            f"cannot be kept: the earliest that can is in {_span(in_s)}{before}; ask for {_span(in_s)} or more, or "
            "leave it out"
        )
        return NoPromise(told, in_s)

    def _worth(self, place: Seated) -> tuple[int, int, float, tuple[GpuId, ...]]:
        busy = sum([not self._view.gpu(gpu).is_free for gpu in place.gpus])
        return len(place.gpus), busy, max([self.left_s[gpu] for gpu in place.gpus]), place.gpus

    def _waiting(self) -> Iterator[Seated]:
        for job in self._view.derived(DeadlineJobs).of(self._spec.pool):
            promised = job.constraints.promised
            if promised is None or job.placement is not None:
                continue
            if all(gpu in self._loads(gpu.node) for gpu in promised.gpus):
                yield self._seated(job.due_s or inf, job.id, job.effective, promised.gpus)

    def _coming(self, coming: Iterable[ComingPromise]) -> Iterator[Seated]:
        for one in coming:
            if one.spec.pool == self._spec.pool:
                due_s = one.promised.due_s or self._view.now_s + (one.spec.deadline_s or inf)
                yield self._seated(due_s, one.job, one.spec, one.promised.gpus)

    def _seated(self, due_s: float, job: JobId, spec: JobSpec, seats: tuple[GpuId, ...]) -> Seated:
        loads = [self._view.gpu(gpu) for gpu in seats]
        for load in loads:
            self._note(load)
        run_s = takes_s(self._times, self._view, spec, loads, self._allowed.margin_ratio)
        return Seated(due_s, job, seats, inf if run_s is None else self._whole(run_s, loads))

    def _whole(self, run_s: float, loads: Sequence[GpuLoad]) -> float:
        """With what it takes others to save their state and to go."""
        there = [self._view.job(job).effective.checkpoint for load in loads for job in load.jobs]
        lead_s = max([contract.lead_s for contract in there if contract is not None], default=0.0)
        return lead_s + self._allowed.stop_s + self._allowed.launch_s + run_s

    def _loads(self, node: str) -> dict[GpuId, GpuLoad]:
        known = self._view.nodes.get(node)
        return {} if known is None else {gpu: self._view.gpu(gpu) for gpu in known.ids.values()}

    def _note(self, load: GpuLoad) -> None:
        """When those on a GPU leave it."""
        if load.id not in self.left_s:
            jobs, now_s = self._view.jobs, self._view.now_s
            kept = frozenset[JobId]() if self._beside is None else self._beside.within
            ends_s = [
                ends_at_s(self._times, self._view, jobs[job], self._allowed, is_kept=job in kept) for job in load.jobs
            ]
            self.left_s[load.id] = inf if load.returning else max(ends_s, default=now_s)

    def _all_places(self) -> Iterator[Seated]:
        """Of each size and each node the GPUs that are left first."""
        spec, now_s = self._spec, self._view.now_s
        due_s = now_s + (spec.deadline_s or inf)
        for gpus in spec.sizes or (spec.gpus,):
            sized = spec.at(gpus)
            for gpu_type in self._view.gpu_types_for(spec):
                for node in self._view.nodes.values():
                    loads = self._of_node(node, sized, gpu_type)
                    if not loads:
                        continue
                    run_s = takes_s(self._times, self._view, sized, loads, self._allowed.margin_ratio)
                    self.is_length_known = self.is_length_known or run_s is not None
                    if run_s is not None:
                        seats = tuple([load.id for load in loads])
                        yield Seated(due_s, NEWCOMER, seats, self._whole(run_s, loads))

    def _of_node(self, node: NodeState, spec: JobSpec, gpu_type: str) -> list[GpuLoad]:
        """The GPUs of a node that a job would have; none where it does not hold it, or never surely has its cores."""
        if node.node.pool != spec.pool or not node.node.takes_jobs:
            return []
        if ranks_held(node.node, spec, gpu_type, usable_only=True) < spec.gpus:
            return []
        due_s, now_s = self._view.now_s + (spec.deadline_s or inf), self._view.now_s
        for one in node.node.reservations:
            if spec.user not in one.users and one.from_s < due_s and one.to_s > now_s:
                self._reserved[node.node.name] = one.told
                return []
        need, loads = spec.gpu_memory_bytes or 0, list[GpuLoad]()
        for load in self._loads(node.node.name).values():
            if load.gpu.type == gpu_type and load.is_usable and load.capacity_bytes >= need:
                self._note(load)
                loads.append(load)
        loads.sort(key=lambda load: (self._freed_s(load.id), self.left_s[load.id], not load.is_free, load.id))
        if self._beside is not None:  # those taken by jobs that cannot be stopped, and as many more as are left
            loads = self._beside.left_of(loads, spec.gpus)
        chosen = sorted(loads[: spec.gpus], key=lambda load: load.id)
        if len(chosen) < spec.gpus or not self._has_host(node, spec, chosen):
            return []
        return chosen

    def _freed_s(self, gpu: GpuId) -> float:
        """How long those that wait for a GPU of their own have it."""
        return sum([one.takes_s for one in self.seated if gpu in one.gpus])

    def _has_host(self, node: NodeState, spec: JobSpec, chosen: Sequence[GpuLoad]) -> bool:
        """Whether a node has the cores and the memory that it books beside jobs that are on none of its GPUs."""
        need = host_needs(spec, spec.gpus)
        if need <= host_needs(spec, 0) and not any((need.cores, need.host_memory_bytes)):
            return True
        leaving = {job for load in chosen for job in load.jobs}
        others = [self._view.job(job) for job in node.jobs if job not in leaving]
        booked = need
        for job in others:
            ranks = len(job.placement.slots_on(node.node.name)) if job.placement is not None else 0
            booked += host_needs(job.effective, ranks)
        return booked <= host_capacity(node.node)


def _span(seconds: float) -> str:
    """A time that may be asked for as it is written: rounded up."""
    if seconds < 600:
        return f"{-(-seconds // 1):.0f}s"
    return f"{-(-seconds // 60):.0f}m"
