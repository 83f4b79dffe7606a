"""Jobs of several GPUs by price: whether they take places, and others theirs, and whether they move while they run.

A job that takes the places of others ends sooner by as long as the last of them would have kept it waiting; each of
them ends later by as long as it runs, as far as its GPUs are theirs. What leaving costs them is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import is_untouched, stopped_s
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.reason import Reason, Why
from colane.scheduling.engine.choices import horizon_s, most_valued, value_of
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.moving_costs import MOVE_PART, STOP_S, dearness, may_move
from colane.scheduling.engine.sized_rates import left_with_s
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.topology.connected import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.free import any_free

GANG_GROWTH: Final = 1.5
"""Each later move costs so many times the one before: less than of jobs of one GPU, as nothing else bounds them."""


@dataclass(frozen=True, slots=True)
class ByExchange:
    """The candidate of most value, but for places that others leave: these by exchange.

    Value is the job's speed there, less what others lose, less what it costs spread over what it has left. Of equal
    ones the first; one that brings no more than it takes is not taken.

    Among jobs of one GPU alone the chooser has decided. Where another objective than the mean time to the end is
    aimed at, it is no exchange that saves time: those leave that the order names, where that is of most value.
    """

    def choose(
        self, context: SchedulingContext, job: Job, _spec: JobSpec, candidates: Iterator[Candidate]
    ) -> Candidate | None:
        over_s = horizon_s(context.queue.left_s(job))
        return most_valued(candidates, partial(_value, context, job, over_s))


def _value(context: SchedulingContext, job: Job, over_s: float, candidate: Candidate) -> float:
    victims = _equals(context, job, candidate) if context.queue.exchanges else []
    return _exchanged(context, job, candidate, victims) if victims else value_of(candidate, over_s)


def _equals(context: SchedulingContext, job: Job, candidate: Candidate) -> list[Job]:
    """Who leaves for a job that is neither more urgent nor overdue.

    One that has no GPU changes places with none.
    """
    victims = [context.draft.view.job(action.job) for action in candidate.room]
    if job.home or any(victim.spec.priority < job.spec.priority for victim in victims) or context.is_overdue(job):
        return []
    return [] if any(not victim.gpus_held for victim in victims) else victims


def _exchanged(context: SchedulingContext, job: Job, candidate: Candidate, victims: list[Job]) -> float:
    """What a change of places is worth, over how long the last of them would have kept the job waiting."""
    if job.gpu_count == 1 and all(victim.gpu_count == 1 for victim in victims):
        return 0.0
    queue, taken = context.queue, {load.id for load in candidate.gpus}
    mine_s = left_with_s(context.draft, queue, job, len(candidate.gpus)) or 0.0
    waits_s = max([left_with_s(context.draft, queue, victim, victim.gpu_count) or 0.0 for victim in victims])
    net_s = waits_s
    for victim in victims:
        part = sum([gpu in taken for gpu in victim.gpus_held]) / victim.gpu_count
        dearer = MOVE_PART * GANG_GROWTH**victim.moves
        net_s -= part * mine_s + queue.weigh(victim) * (candidate.cost_s + dearer * mine_s * part)
    return net_s / waits_s if net_s > 0 else 0.0


# -- running gangs


@dataclass(frozen=True, slots=True)
class GangMoves(UsualMoving):
    """Running gangs go to free GPUs on which they are faster, where that pays what moving costs them.

    Worth and cost are both parts of the job's own price, so the price drops out: a gang gains the difference of its
    speeds for as long as it runs, and pays as a job of one GPU does (`changes`). Those over several nodes are gathered
    elsewhere.

    Attributes:
        moves: Whether running jobs are moved at all.
    """

    moves: bool = True

    def plan(self, context: SchedulingContext) -> None:
        """Make the moves of a pool that pay, that which is worth most first, until none does."""
        if not self.moves or not any_free(context):
            return
        mover = _Mover(context)
        while best := max(mover.found(), key=_most_first, default=None):
            mover.move(best)


class _Faster(NamedTuple):
    """A faster place for a job that runs: what it is worth, costs taken off, and by how much faster it is."""

    net: float
    rise: float
    job: Job
    gpus: tuple[GpuLoad, ...]


class _Mover:
    def __init__(self, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._queue = context.queue
        self._fastest = BoundFastest(context)
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)

    def found(self) -> Iterator[_Faster]:
        """Every move that pays."""
        for job_id in list(self._live.gangs_past_min_runtime(self._draft.now_s, self._queue.quantum_s)):
            job = self._draft.view.job(job_id)
            if self._may_go(job):
                yield from self._elsewhere(job)

    def move(self, faster: _Faster) -> None:
        """Do so."""
        job, gpu = faster.job, faster.gpus[0]
        facts: dict[str, str | int | float] = {"had": str(job.gpus_held[0]), "gpu": str(gpu.id), "rise": faster.rise}
        self._draft.resize(job, faster.gpus, Reason(Why.MOVED, facts, gpu.jobs))

    def _may_go(self, job: Job) -> bool:
        """Whether a job saves its state, has its GPUs for itself, and has not been moved too often."""
        if job.state is not JobState.RUNNING or not job.effective.preemptible or not may_move(job, self._draft.now_s):
            return False
        if len(job.gpus_held) != job.effective.gpus or not self._draft.is_undecided(job.id):
            return False
        return all(is_untouched(self._draft, self._draft.load(gpu)) for gpu in job.gpus_held)

    def _elsewhere(self, job: Job) -> Iterator[_Faster]:
        draft, left_s = self._draft, self._queue.left_s(job) or 0.0
        has = speed_on(draft, job.effective, [draft.load(gpu) for gpu in job.gpus_held])
        cost = (stopped_s(draft.view, job) + STOP_S) / max(1.0, left_s) + dearness(job, draft.now_s)
        for candidate in self._fastest.candidates(job, job.effective) if has + cost < 1.0 else ():
            rise = candidate.ratio - has
            if rise > cost:
                yield _Faster(self._queue.weigh(job) * (rise - cost), rise, job, candidate.gpus)


def _most_first(faster: _Faster) -> tuple[float, JobId]:
    return faster.net, JobId(-faster.job.id)
