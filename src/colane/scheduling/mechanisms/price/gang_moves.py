"""Running jobs of several GPUs go to free ones on which they are faster, where that pays what moving costs them.

Worth and cost are both parts of the job's own price, so the price drops out: a job gains the difference of its speeds
for as long as it runs, and pays as a job of one GPU does (`changes`). Those over several nodes are gathered elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import is_untouched, stopped_s
from colane.model.job import Job, JobId, JobState
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.price.changes import STOP_S, dearness, may_move
from colane.scheduling.mechanisms.topology.fastest import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.free import any_free


@dataclass(frozen=True, slots=True)
class GangMoves(UsualMoving):
    """See the module.

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
