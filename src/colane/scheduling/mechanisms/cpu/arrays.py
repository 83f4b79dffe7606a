"""CODA's GPU arrays (paper D, section V): what small and large jobs take back from borrowers.

A job goes to GPUs of its own sub-array first, else borrows of the other (`topology.free`, `NodesBy.ARRAYS`). Idle cores
that are kept for jobs with GPUs are lent to jobs without; when a job with GPUs needs them, the borrowers are aborted.
When a large job finds no whole node in its sub-array, small borrowers there are stopped and go on elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobKind, JobSpec
from colane.model.phases import LEAVING, MOVABLE
from colane.model.plan import Stop
from colane.model.reason import Reason, Why
from colane.model.resources import Resources, host_needs
from colane.scheduling.engine.contracts import Candidate, Classes, Order, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, SourceDefaults
from colane.scheduling.mechanisms.topology.array_demand import LARGE_GPUS, SubArrays

ABORTS_MAX = 3
"""A borrower is stopped for others so often, and begins anew; the paper says nothing, and some would never end."""


class AtCap(StrEnum):
    """What becomes of a borrower of cores that was stopped for others as often as it may be."""

    ENDS = "ends"  # it may borrow again, and when it is stopped once more it is not queued again
    WAITS = "waits"  # it borrows no more: it waits for cores of its own array, and is not stopped again


@dataclass(frozen=True, slots=True)
class ReclaimCores(SourceDefaults):
    """What is lent, taken back: the node with the fewest victims, there the newest ones."""

    aborts_max: int = ABORTS_MAX  # see `ABORTS_MAX`
    at_cap: AtCap = AtCap.ENDS  # what becomes of a job that was stopped so often

    def bind(self, context: SchedulingContext) -> BoundTakeBack:
        return BoundTakeBack(context, self.aborts_max, self.at_cap)

    def min_runtime_before_preemption_s(self, order: Order) -> float:
        return order.quantum_s


class Reclaim(NamedTuple):
    """GPUs of a node for a job or some of its ranks, and the jobs that have to leave for them."""

    node: NodeState  # where
    gpus: tuple[GpuLoad, ...]  # free ones, and those of victims or of jobs that are stopping
    victims: tuple[Job, ...]  # jobs to stop
    leaving: tuple[JobId, ...]  # jobs that are stopping already
    promised: Resources  # what of the host that comes free it will use


class BoundTakeBack(BoundSourceDefaults):
    """`ReclaimCores` for one plan."""

    moves_small: bool = True  # whether small jobs leave nodes of the 4-GPU sub-array for a large one

    def __init__(self, context: SchedulingContext, aborts_max: int, at_cap: AtCap) -> None:
        self._context = context
        self._draft = context.draft
        self._arrays = SubArrays(context)
        self._aborts_max = aborts_max
        self._at_cap = at_cap
        self._taken: set[JobId] = set()
        self._promised: dict[int, Resources] = {}
        context.draft.plan_after_moves(context.pool)

    def may_help(self, classes: Classes) -> Classes | None:
        return classes

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """Over several nodes where no one can be made free and the job may span them."""
        kinds = self._draft.view.gpu_types_for(spec)
        best = self._best_node(spec, kinds) if spec.fits_one_node else None
        if best is not None:
            yield self._candidate(job, (best,))
        elif spec.multi_node:
            shares = next(filter(None, (self._over_nodes(spec, kind) for kind in kinds)), ())
            if any(_is_change(share) for share in shares):
                yield self._candidate(job, shares)

    def _best_node(self, spec: JobSpec, kinds: Sequence[str]) -> Reclaim | None:
        """The whole job on the node where the fewest have to leave."""
        best: Reclaim | None = None
        for node in self._draft.view.nodes.values():
            if node.node.pool == spec.pool and len(node.node.gpus) >= spec.gpus:
                found = self._reclaim(node, spec, spec.gpus, kinds)
                if found is None or not _is_change(found):
                    continue
                if best is None or len(found.victims) < len(best.victims):
                    best = found
                    if not found.victims:
                        break
        return best

    def _over_nodes(self, spec: JobSpec, kind: str) -> tuple[Reclaim, ...]:
        """Its ranks on nodes with free GPUs of a type, those with the most first; empty where there are too few."""
        draft, left, found = self._draft, spec.gpus, list[Reclaim]()
        nodes = [node for node in draft.view.nodes.values() if node.node.pool == spec.pool]
        free = {node.order: len(draft.free_gpus(node, kind)) for node in nodes}
        for node in sorted(nodes, key=lambda node: (-free[node.order], node.order)):
            share = self._largest_share(node, spec, min(left, free[node.order]), kind)
            if share is not None:
                found.append(share)
                left -= len(share.gpus)
            if not left:
                return tuple(found)
        return ()

    def _largest_share(self, node: NodeState, spec: JobSpec, ranks: int, kind: str) -> Reclaim | None:
        """As many ranks of a job as a node can be made to hold, up to so many."""
        count = spec.ranks_of(ranks)
        while count:
            found = self._reclaim(node, spec, count, (kind,))
            if found is not None:
                return found
            count = spec.ranks_of(count - 1)
        return None

    def _candidate(self, job: Job, shares: tuple[Reclaim, ...]) -> Candidate:
        def accepted() -> None:
            for share in shares:
                self._taken.update([victim.id for victim in share.victims])
                order = share.node.order
                self._promised[order] = self._promised.get(order, Resources()) + share.promised

        victims = [victim for share in shares for victim in share.victims]
        room = tuple([self._stop(victim, job) for victim in victims])
        waits_for = (*[victim.id for victim in victims], *[victim for share in shares for victim in share.leaving])
        gpus = tuple([gpu for share in shares for gpu in share.gpus])
        reason = Reason(Why.PREEMPTING, {}, waits_for)
        return Candidate(gpus, reason, room=room, waits_for=waits_for, accepted=accepted, is_later=True)

    def _stop(self, victim: Job, for_job: Job) -> Stop:
        """A job that borrowed cores once too often ends by it."""
        if not victim.spec.gpus and victim.totals.preemptions >= self._aborts_max:
            reason = Reason(Why.ABORTS_USED_UP, {"aborts": victim.totals.preemptions}, (for_job.id,))
            return Stop(victim.id, reason, for_job.id, final=True)
        because = "it gives back the cores it borrowed", "it gives back the GPUs it borrowed"
        return Stop(
            victim.id, Reason(Why.PREEMPTED, {"because": because[victim.spec.gpus > 0]}, (for_job.id,)), for_job.id
        )

    def _reclaim(self, node: NodeState, spec: JobSpec, ranks: int, kinds: Sequence[str]) -> Reclaim | None:
        """What has to happen on a node that so many ranks may start there; None where that is not possible."""
        gpus, movers = self._gpus(node, spec, ranks, kinds)
        if len(gpus) < ranks or not self._draft.may_use(node, spec):
            return None
        leaving = self._leaving(node)
        need, free = host_needs(spec, ranks), self._draft.host_free(node)
        coming = sum([_booked(job, node) for job in (*leaving, *movers)], Resources())
        lack = need - free - (coming - self._promised.get(node.order, Resources()))
        victims = () if lack <= Resources() else self._borrowers(node, lack)
        if victims is None:
            return None
        promised = Resources(
            0,
            max(0, need.cores - free.cores),
            max(0, need.host_memory_bytes - free.host_memory_bytes),
            max(0.0, need.host_bandwidth_bytes_per_s - free.host_bandwidth_bytes_per_s),
        )
        return Reclaim(node, tuple(gpus), (*movers, *victims), tuple([job.id for job in leaving]), promised)

    def _gpus(
        self, node: NodeState, spec: JobSpec, ranks: int, kinds: Sequence[str]
    ) -> tuple[list[GpuLoad], tuple[Job, ...]]:
        """GPUs for so many ranks of a job, and the jobs to move off them."""
        draft = self._draft
        gpus = [load for kind in kinds for load in draft.free_gpus(node, kind) if draft.fits_alone(load, spec)]
        gpus = gpus[:ranks]
        if not self.moves_small or len(gpus) == ranks or ranks < spec.gpus or spec.gpus < LARGE_GPUS:
            return gpus, ()
        if node.order not in self._arrays.large:
            return gpus, ()
        movers: list[Job] = []
        for job in self._small_ones(node):
            loads = [draft.load(gpu) for gpu in job.gpus_held]
            if any(load.id in draft.held or len(load.bookings) > 1 for load in loads):
                continue
            movers.append(job)
            gpus += loads
            if len(gpus) >= spec.gpus:
                break
        return gpus[: spec.gpus], tuple(movers)

    def _small_ones(self, node: NodeState) -> list[Job]:
        """Borrowers of the 4-GPU sub-array that can go on elsewhere: the largest first, of these the newest."""
        jobs = [self._draft.view.job(job) for job in node.jobs]
        may = [
            job for job in jobs if 0 < job.gpu_count < LARGE_GPUS and job.effective.preemptible and self._may_stop(job)
        ]
        may = [job for job in may if job.totals.preemptions < self._aborts_max]
        return sorted(may, key=lambda job: (-job.gpu_count, -(job.start_s or 0.0), -job.id))

    def _may_stop(self, job: Job) -> bool:
        """Whether it may now; of one too new for that it is asked again when it is not."""
        if job.state not in MOVABLE or not self._draft.is_undecided(job.id) or job.start_s is None:
            return False
        spared_until_s = job.start_s + self._context.queue.quantum_s
        is_new = job.spec.gpus > 0 and self._draft.now_s < spared_until_s
        if is_new:
            self._draft.plan_again(self._context.pool, spared_until_s)
        return not is_new

    def _leaving(self, node: NodeState) -> list[Job]:
        jobs = [self._draft.view.job(job) for job in node.jobs]
        return [job for job in jobs if job.state in LEAVING or job.id in self._taken]

    def _borrowers(self, node: NodeState, lack: Resources) -> tuple[Job, ...] | None:
        """Jobs to abort for what lacks: one that is enough, else the newest; last of all those that would end by it.

        Training goes before all jobs without GPUs that may begin anew (section V), also those on cores of their own
        array: else a job that needs more than is kept waits as long as such jobs come. None where that is not enough.
        """
        jobs = [self._draft.view.job(job) for job in node.jobs]
        may = [job for job in jobs if may_borrow(job, self._aborts_max, self._at_cap) and self._may_stop(job)]
        may.sort(key=lambda job: (job.totals.preemptions >= self._aborts_max, -(job.start_s or 0.0), -job.id))
        for job in may:
            if lack <= _booked(job, node):
                return (job,)
        chosen: list[Job] = []
        for job in may:
            booked = _booked(job, node)
            if not _helps(booked, lack):
                continue
            chosen.append(job)
            lack -= booked
            if lack <= Resources():
                return tuple(chosen)
        return None


def may_borrow(job: Job, aborts_max: int, at_cap: AtCap) -> bool:
    """Whether a job without GPUs may have cores that it could have to give back: its owner lets it begin anew.

    One that answers requests may not, whatever its owner said: it is stopped for no other.
    """
    may = not job.spec.gpus and job.spec.abortable and job.spec.kind is not JobKind.INFERENCE
    return may and (at_cap is AtCap.ENDS or job.totals.preemptions < aborts_max)


def _is_change(share: Reclaim) -> bool:
    """Whether any job leaves."""
    return bool(share.victims or share.leaving)


def _booked(job: Job, node: NodeState) -> Resources:
    """What a job holds of a node's host."""
    placement, name = job.placement, node.node.name
    if placement is None:
        return Resources()
    need = host_needs(job.effective, len(placement.slots_on(name)))
    cores = len(placement.cores_on(name))
    return Resources(0, cores, need.host_memory_bytes, need.host_bandwidth_bytes_per_s)


def _helps(booked: Resources, lack: Resources) -> bool:
    """Whether any of what lacks is held there."""
    return (
        (lack.cores > 0 and booked.cores > 0)
        or (lack.host_memory_bytes > 0 and booked.host_memory_bytes > 0)
        or (lack.host_bandwidth_bytes_per_s > 0 and booked.host_bandwidth_bytes_per_s > 0)
    )
