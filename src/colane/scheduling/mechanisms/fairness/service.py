"""Orders by what jobs have had: least attained service, the smallest part of a fair share, the worst finish time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from typing import Final

from colane.core.cluster.draft import Draft
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.facts.ran import attained_s, earlier_s, present_s
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import BoundOrder, ClassKey, Rank
from colane.scheduling.engine.live import LiveJobs, once
from colane.scheduling.engine.times import RunTimes, kept_times
from colane.scheduling.engine.walks import Entry, Lines, by_gain, each_ranked, priority_of, ranked
from colane.scheduling.mechanisms.fairness.aim import TypeRequest
from colane.scheduling.mechanisms.fairness.in_rounds import TypeRequests, in_rounds, present_round, requests_for_lacks
from colane.scheduling.mechanisms.fairness.shares import FairShares


@dataclass(frozen=True, slots=True)
class LeastAttained:
    """Least attained service in queues (Tiresias: Gu et al., NSDI 2019, section 3, 2D-LAS discretised).

    Attained service is GPUs times the time a job has run. Jobs below the first threshold go before all others, those
    below the next before the rest; within a queue the first to come. A waiting job takes the place of running ones of
    later queues alone. Run times need not be known. No job is promoted back for having waited long.

    Attributes:
        queues_gpu_s: Attained service from which on a job is in the second queue, in the third, ...
    """

    queues_gpu_s: tuple[float, ...] = (18_000.0,)
    quantum_s: float = 0.0

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        kept, now_s = draft.view.derived(LiveJobs).kept(draft.view, pool), draft.now_s
        demotions_s = partial(_demotions_s, sorted(self.queues_gpu_s))

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), float(bisect_right(once(kept.jobs, job, demotions_s), now_s)), float(job.id)

        def until_s(job: Job) -> float:
            return next((demotion_s for demotion_s in once(kept.jobs, job, demotions_s) if demotion_s > now_s), inf)

        return BoundOrder(
            walk=ranked(draft, _newcomers_by_arrival(draft, pool, rank)),
            rank=rank,
            displaces=_is_in_earlier_queue,
            quantum_s=self.quantum_s,
            because="it has had less service",
            turns_s=until_s,
        )


SLIVER_S: Final = 1e-3
"""A job that was stopped as it left a queue has left it, though its times in Unix seconds round to a little less."""


def _demotions_s(queues_gpu_s: Sequence[float], job: Job) -> list[float]:
    return [_demotion_s(job, threshold_gpu_s) for threshold_gpu_s in queues_gpu_s]


def _demotion_s(job: Job, threshold_gpu_s: float) -> float:
    """When a job leaves a queue if it runs on; minus infinity if it has, infinity if it waits."""
    left_gpu_s = threshold_gpu_s - job.gpu_count * earlier_s(job)
    if left_gpu_s <= job.gpu_count * SLIVER_S:
        return -inf
    if job.placement is None or job.start_s is None:
        return inf
    if job.run.paused_since_s is None:
        return job.start_s + job.run.paused_before_s + left_gpu_s / job.gpu_count
    has_run_s = job.run.paused_since_s - job.start_s - job.run.paused_before_s
    return inf if job.gpu_count * (has_run_s + SLIVER_S) < left_gpu_s else -inf


def _is_in_earlier_queue(waiting: Rank, running: Rank) -> bool:
    """Within a queue those that wait go behind those that run: else old jobs would stop one another for ever."""
    return waiting[:2] < running[:2]


class Solver(StrEnum):
    """How an allocation over several GPU types is found."""

    NONE = "none"  # by each job's preference, where it starts
    LP = "lp"  # by Gavel's linear program, round by round


@dataclass(frozen=True, slots=True)
class SmallestPart:
    """Max-min fair share over time (Gavel: Narayanan et al., OSDI 2020, section 4.1).

    Gavel gives every job an equal part of the cluster's time, capped by what it asks for, and serves in each round the
    jobs with the largest fair share / time received. Here no job waits for a round: free GPUs go at once to the job
    with the smallest received / entitled, where entitled is its fair share now times its age. On several GPU types time
    counts by normalised throughput, and each job prefers the type on which it is fastest compared with the others, in
    place of Gavel's linear program. Time on a shared GPU counts in full.
    """

    quantum_s: float = 360.0  # a job runs at least this long before it is displaced; Gavel's round
    surplus_min: float = 1.1  # a running job's part must be more than this many times a waiting one's to be displaced
    solver: Solver = Solver.NONE  # on several GPU types, solve the linear program and move jobs between types

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        shares = FairShares(draft.view, pool, kept_times(draft, pool))
        if self.solver is Solver.LP and len(shares.types) > 1:
            return in_rounds(draft, pool, self.quantum_s, requests_for_lacks(draft, pool, self.quantum_s, shares))
        level, (round_s, end_s) = shares.level, present_round(draft, pool, self.quantum_s)

        def rank(job: Job) -> Rank:
            if job.placement is None and not job.totals.served:
                return priority_of(job.spec), 0.0
            age_s = max(self.quantum_s, round_s - job.submit_s)
            entitled_gpu_s = min(level, job.gpu_count) * age_s
            received_gpu_s = shares.received_gpu_s(job, round_s)
            return priority_of(job.spec), received_gpu_s / entitled_gpu_s if entitled_gpu_s else 0.0

        return BoundOrder(
            walk=ranked(draft, _newcomers_by_arrival(draft, pool, rank)),
            rank=rank,
            displaces=partial(by_gain, self.surplus_min),
            quantum_s=self.quantum_s,
            gain_min=self.surplus_min,
            because="it has had less of its fair share",
            until_s=end_s,
            preferred=lambda _job, spec, types: shares.preferred(spec, types),
        )


@dataclass(frozen=True, slots=True)
class WorstFinish:
    """Finish-time fairness (Themis: Mahajan et al., NSDI 2020).

    Rho is a job's finish time here over its finish time alone on its part (1/N for N jobs) of the pool; the largest
    goes first. On several GPU types it chooses its type first, and jobs are moved between types. Themis lets jobs bid
    for GPUs in partial auctions; here rho is worked out from believed run times, and no bid has to be
    truthful. A job of unknown length is taken to be half done.
    """

    lease_s: float = 1200.0  # a job runs at least this long before it is displaced (Themis: 20 minutes)
    # a waiting job's rho must be more than this many times a running one's to take its place; on several types the
    # lease alone spares it
    rho_gain_min: float = 1.1

    @property
    def quantum_s(self) -> float:
        """The lease."""
        return self.lease_s

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        shares = FairShares(draft.view, pool, kept_times(draft, pool))
        rhos = _Rhos(draft.view, shares, kept_times(draft, pool), self.lease_s)
        if len(shares.types) > 1:
            return in_rounds(draft, pool, self.lease_s, self._requests(rhos, shares))
        round_s, end_s = present_round(draft, pool, self.lease_s)

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), -rhos.rho(job, round_s)

        return BoundOrder(
            walk=ranked(draft, each_ranked(draft, rank)),
            rank=rank,
            displaces=self._displaces,
            quantum_s=self.lease_s,
            gain_min=self.rho_gain_min,
            because="it would finish later than its fair share allows",
            until_s=end_s,
        )

    def _requests(self, rhos: _Rhos, shares: FairShares) -> TypeRequests:
        """The largest rho first, on the fastest type first."""

        def requests(job: Job, round_s: float) -> Iterator[TypeRequest]:
            rho = rhos.rho(job, round_s)
            for kind, speed in shares.usable(job.effective):
                key = (priority_of(job.spec), -round(rho, 9), -round(speed, 9), job.submit_s)
                yield TypeRequest(key, job.id, kind, speed)

        return requests

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        return waiting[1] < running[1] * self.rho_gain_min


class _Rhos:
    def __init__(self, view: ClusterView, shares: FairShares, times: RunTimes, lease_s: float) -> None:
        self._view = view
        self._times = times
        self._lease_s = lease_s
        self._part = shares.gpus / shares.jobs if shares.jobs else inf
        self._shares = shares

    def rho(self, job: Job, now_s: float) -> float:
        """Finish time over that on an equal part of every GPU type; half of a job of unknown length is done."""
        total_s, left = self._times.run_s(job.effective), self._times.left(self._view, job)
        if total_s is None or left is None:
            done_s = attained_s(job, now_s) if job.effective.preemptible else present_s(job, now_s)
            total_s = max(self._lease_s, 2 * done_s)
            left_s = total_s - done_s
        else:
            left_s = left.at(job, now_s)
        fastest = max([speed for _, speed in self._shares.usable(job.effective)], default=1.0)
        alone_s = total_s * fastest * max(1.0, job.effective.gpus / self._part if self._part else inf)
        shared_s = max(0.0, now_s - job.submit_s) + left_s
        return shared_s / alone_s if alone_s else inf


def _newcomers_by_arrival(draft: Draft, pool: str, rank: Callable[[Job], Rank]) -> Lines:
    """Lines for orders in which jobs of a class that have never run rank by arrival: others are ranked one by one."""
    jobs, returned = draft.view.jobs, draft.view.derived(LiveJobs).pool(pool).returned
    by_class: dict[ClassKey, list[Job]] = {}
    for job in returned.values():
        by_class.setdefault((job.spec.priority, job.need), []).append(job)

    def by_rank(key: ClassKey, line: Line) -> Iterator[Entry]:
        old, new = by_class.get(key), _newcomers(line, returned, jobs, rank)
        return _merged(new, sorted([(rank(job), job.id) for job in old])) if old else new

    return by_rank


def _merged(new: Iterator[Entry], old: list[Entry]) -> Iterator[Entry]:
    """Both in one order."""
    place = 0
    for entry in new:
        while place < len(old) and old[place] < entry:
            yield old[place]
            place += 1
        yield entry
    yield from old[place:]


def _newcomers(
    line: Line, returned: Mapping[JobId, Job], jobs: Mapping[JobId, Job], rank: Callable[[Job], Rank]
) -> Iterator[Entry]:
    """Those that have never run."""
    for job in line:
        if job not in returned:
            yield rank(jobs[job]), job
