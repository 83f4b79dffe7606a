"""EASY backfill: the first job that finds nothing gets a reservation, and others pass it only if they do not delay it.

A reservation is the earliest time at which the job is sure to find a place, and what may run before it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.model.job_spec import is_among
from colane.model.placement import Placement
from colane.model.plan import Start
from colane.model.reason import Reason, Why
from colane.model.resources import host_capacity, host_needs
from colane.scheduling.engine.contracts import Candidate, SchedulingContext, Verdict
from colane.scheduling.engine.refusals import behind, refuse
from colane.scheduling.engine.times import RunTimes
from colane.scheduling.engine.usual import UsualRule


@dataclass(slots=True)
class Reservation:
    """A node a job will find room on, from when, and what is left there beside it from then on.

    `at_s` is by the bounds on run times; it lies in the past while jobs run longer than their bounds, and is
    infinite where the bound of a job in the way is unknown. What the job does not book is spared without end.
    """

    node: NodeState
    gpu_type: str
    at_s: float
    spare_gpus: int
    spare_cores: float
    spare_host_memory_bytes: float
    spare_host_bandwidth: float = inf

    def allows(self, spec: JobSpec, gpu_type: str, end_s: float | None) -> bool:
        """Whether a job may start on the node: it ends before, or is small enough to stay."""
        if end_s is not None and end_s <= self.at_s:
            return True
        gpus, need = spec.gpus if gpu_type == self.gpu_type else 0, host_needs(spec, spec.gpus)
        fits = gpus <= self.spare_gpus and need.cores <= self.spare_cores
        fits = fits and need.host_memory_bytes <= self.spare_host_memory_bytes
        return fits and need.host_bandwidth_bytes_per_s <= self.spare_host_bandwidth

    def use(self, spec: JobSpec, gpu_type: str, end_s: float | None) -> None:
        """A job starts on the node."""
        if end_s is None or end_s > self.at_s:
            need = host_needs(spec, spec.gpus)
            self.spare_gpus -= spec.gpus if gpu_type == self.gpu_type else 0
            self.spare_cores -= need.cores
            self.spare_host_memory_bytes -= need.host_memory_bytes
            self.spare_host_bandwidth -= need.host_bandwidth_bytes_per_s


class _Hold(NamedTuple):
    """What a running job holds of a node, and until when at the latest."""

    end_s: float
    gpus: tuple[GpuId, ...]
    cores: int
    host_memory_bytes: int
    host_bandwidth: int


class Ends:
    """When running jobs, those just started among them, end at the latest: decision to start plus bound.

    The end of a job never changes while it runs, so that time alone never lets a job pass that could not before.
    It is infinite where no bound is known.
    """

    def __init__(self, draft: Draft, times: RunTimes) -> None:
        self._draft = draft
        self._times = times
        self._started: dict[str, list[_Hold]] = {}
        for action in draft.actions:
            if isinstance(action, Start):
                spec = draft.view.job(action.job).effective
                for name in action.placement.nodes:
                    hold = self._hold(spec, action.placement, name, draft.now_s)
                    self._started.setdefault(name, []).append(hold)

    def on(self, node: NodeState) -> list[_Hold]:
        """What is held of a node, the first to end first."""
        jobs, holds = self._draft.view.jobs, list(self._started.get(node.node.name, ()))
        for job_id in node.jobs:
            job = jobs[job_id]
            if job.placement is not None:
                hold = self._hold(job.effective, job.placement, node.node.name, _assigned_s(job))
                holds.append(hold if job.is_returning or not job.is_on_host else hold._replace(gpus=()))
        holds.sort(key=_END)
        return holds

    def _hold(self, spec: JobSpec, placement: Placement, name: str, since_s: float) -> _Hold:
        gpus = tuple([slot.gpu for slot in placement.slots_on(name)])
        books = spec.cores, spec.host_memory_bytes, spec.host_bandwidth_bytes_per_s
        parts = [spec.part(total, len(gpus)) for total in books]
        bound_s = spec.time_limit_s
        if bound_s is None and gpus:
            bound_s = self._times.bound_s(spec, self._draft.view.gpu(gpus[0]).gpu.type, len(placement.slots))
        return _Hold(inf if bound_s is None else since_s + bound_s, gpus, *parts)


_END = itemgetter(0)


def _assigned_s(job: Job) -> float:
    return job.submit_s if job.run.assigned_s is None else job.run.assigned_s


def reserve(draft: Draft, spec: JobSpec, times: RunTimes) -> Reservation | None:
    """The node that has room for a job first; None when none ever has."""
    ends = Ends(draft, times)
    best: Reservation | None = None
    nodes = sorted(draft.view.nodes.values(), key=lambda node: node.order)
    for node in nodes:
        if node.node.pool != spec.pool or not _is_large_enough(node, spec):
            continue
        holds = ends.on(node)
        for kind in draft.view.gpu_types_for(spec):
            found = _on_node(draft, spec, node, kind, holds)
            if found is not None and (best is None or found.at_s < best.at_s):
                best = found
    return best


def _is_large_enough(node: NodeState, spec: JobSpec) -> bool:
    enough = len(node.node.gpus) >= spec.gpus and node.node.takes_jobs and is_among(spec.nodes, node.node.name)
    return enough and host_needs(spec, spec.gpus) <= host_capacity(node.node)


def _on_node(draft: Draft, spec: JobSpec, node: NodeState, kind: str, holds: list[_Hold]) -> Reservation | None:
    free_at_s = _free_at_s(draft, spec, node, kind, holds)
    if len(free_at_s) < spec.gpus:
        return None
    at_s = free_at_s[spec.gpus - 1]
    need = host_needs(spec, spec.gpus)
    need_bytes, need_bandwidth = need.host_memory_bytes, need.host_bandwidth_bytes_per_s
    cores = len(draft.cores_free(node)) if need.cores else 0
    host_bytes = draft.host_memory_free_bytes(node) if need_bytes else 0
    bandwidth = draft.host_bandwidth_free(node) if need_bandwidth else 0.0
    for hold in holds:
        has_host = cores >= need.cores and host_bytes >= need_bytes and bandwidth >= need_bandwidth
        if hold.end_s > at_s and has_host:
            break
        at_s = max(at_s, hold.end_s)
        cores += hold.cores
        host_bytes += hold.host_memory_bytes
        bandwidth += hold.host_bandwidth
    if cores < need.cores or host_bytes < need_bytes or bandwidth < need_bandwidth:
        return None
    spare = bisect_right(free_at_s, at_s) - spec.gpus
    spare_cores = cores - need.cores if need.cores else inf
    spare_host_bytes = host_bytes - need_bytes if need_bytes else inf
    spare_bandwidth = bandwidth - need_bandwidth if need_bandwidth else inf
    return Reservation(node, kind, at_s, spare, spare_cores, spare_host_bytes, spare_bandwidth)


def _free_at_s(draft: Draft, spec: JobSpec, node: NodeState, kind: str, holds: list[_Hold]) -> list[float]:
    """When each GPU of a type that suits the job is free; a GPU is when the last of its jobs has ended."""
    memory = draft.beliefs.terms(spec, kind).memory
    need_bytes = sum(memory) if memory is not None else 0
    last_s = {gpu.number: hold.end_s for hold in holds for gpu in hold.gpus}
    return sorted(
        last_s.get(gpu.index, -inf)
        for gpu in node.node.gpus
        if gpu.type == kind and gpu.healthy and need_bytes <= max(0, gpu.memory_bytes - gpu.foreign_bytes)
    )


# -- the rule


@dataclass(frozen=True, slots=True)
class Backfill:
    """EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001).

    The first job that finds nothing gets a reservation: the node that has room for it first, by the time limits of the
    jobs that run (where there is none, by steps times believed step time, else by what nine of ten jobs of the family
    are believed to take at most). Others may pass it only if they do not delay it: on other nodes, or on that node if
    they end before or leave it enough. Where no bound is known, no job passes. A job no node of its pool can ever hold
    is passed.
    """

    depth_max: int = 1000  # looking for jobs that may pass ends when this many could not

    def bind(self, context: SchedulingContext) -> BackfillRule | None:
        """Bind the rule; nothing is reserved while no job could start."""
        if not context.bound_sources:
            return None
        context.skips_hopeless = False
        return BackfillRule(context, self.depth_max)


class BackfillRule(UsualRule):
    """`Backfill` for one plan."""

    def __init__(self, context: SchedulingContext, depth_max: int) -> None:
        self.judges = True
        self._context = context
        self._depth_max = self._left = depth_max
        self._times = RunTimes(context.draft)
        self._head: Job | None = None
        self._reservation: Reservation | None = None
        self._is_barred = False

    def walks(self) -> None:
        """The job that is first now gets the reservation, as in a plan made anew."""
        self._left, self._is_barred = self._depth_max, False
        self._head = self._reservation = None
        self._context.reason = self._context.queue.reason

    def allows(self, _job: Job, spec: JobSpec, candidate: Candidate) -> bool:
        reservation = self._reservation
        if reservation is None:
            return True
        if not self._touches(candidate, reservation):
            return True
        if reservation.allows(spec, candidate.gpus[0].gpu.type, self._end_s(candidate, spec)):
            return True
        self._is_barred = True
        return False

    def took(self, job: Job, spec: JobSpec, candidate: Candidate) -> None:
        reservation, self._is_barred = self._reservation, False
        if reservation is not None and job is not self._head and self._touches(candidate, reservation):
            reservation.use(spec, candidate.gpus[0].gpu.type, self._end_s(candidate, spec))

    def refused(self, job: Job, verdict: Verdict) -> Verdict:
        if self._reservation is None:
            return self._reserve(job, verdict) if self._may_others_start() else Verdict.STOP
        draft, barred = self._context.draft, self._is_barred
        self._is_barred, self._left = False, self._left - 1
        if barred and self._head is not None:
            draft.wait(job.id, Reason(Why.WOULD_DELAY, {}, (self._head.id,)))
            verdict = Verdict.NEXT_JOB
        return verdict if self._left > 0 else Verdict.STOP

    def _may_others_start(self) -> bool:
        """Whether a reservation matters: a job may start behind this one, or a user asks why it waits."""
        context, draft = self._context, self._context.draft
        if context.explains:
            return True
        classes = draft.view.queue(context.pool).classes
        return any(source.may_help(classes) != {} for source in context.bound_sources)

    def _reserve(self, job: Job, verdict: Verdict) -> Verdict:
        """The head of the line; one that no node can ever hold is not it."""
        draft = self._context.draft
        found = reserve(draft, self._context.least(job), self._times)
        if found is None:
            return verdict
        self._head, self._reservation, self._context.reason = job, found, self._reason
        self._context.watch_overdue()
        draft.wait_rest(self._context.pool, behind(job.id))
        if found.at_s == inf:
            refuse(draft, job, self._context.least(job))
            return Verdict.STOP
        in_s = max(0.0, found.at_s - draft.now_s)
        facts: dict[str, str | int | float] = {"node": found.node.node.name, "in_s": in_s}
        draft.reserved[found.node.node.name] = job.id
        draft.wait(job.id, Reason(Why.RESERVED, facts, tuple(found.node.jobs)))
        return Verdict.NEXT_JOB

    @staticmethod
    def _touches(candidate: Candidate, reservation: Reservation) -> bool:
        name = reservation.node.node.name
        return any(gpu.id.node == name for gpu in candidate.gpus)

    def _end_s(self, candidate: Candidate, spec: JobSpec) -> float | None:
        bound_s = self._times.bound_s(spec, candidate.gpus[0].gpu.type, len(candidate.gpus))
        return None if bound_s is None else self._context.draft.now_s + bound_s

    def _reason(self, _job: Job, candidate: Candidate) -> Reason:
        head = () if self._head is None else (self._head.id,)
        return Reason(Why.BACKFILL, {"gpu": str(candidate.gpus[0].id)}, head)
