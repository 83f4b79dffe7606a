"""Splitting jobs that share a GPU: one of them leaves it, so that the others, or in the end all, go faster.

Two ask for it: the guard, where jobs are slower together than was predicted, and policies, where they are slower than
one after another would be (`scheduling.mechanisms.sharing.splitting`). They say when and which; what may leave at all,
and by which means, is decided here for both, by the same measure as for a job that leaves for another (`means`).
"""

from __future__ import annotations

from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import Means, means_of
from colane.model.job import Job
from colane.model.reason import Reason, Why

Facts = dict[str, str | int | float]


class SplitReasons(NamedTuple):
    """What is said of one that leaves.

    Attributes:
        parked: Of one that is parked.
        stopped: Of one that is stopped.
    """

    parked: Why
    stopped: Why


def may_split_off(draft: Draft, job: Job) -> bool:
    """Whether a job may leave those it shares a GPU with: now, and losing no more than its owner allowed."""
    return draft.is_undecided(job.id) and job.is_movable and means_of(draft, job) is not None


def split_off(
    draft: Draft, load: GpuLoad, job: Job, facts: Facts, reasons: SplitReasons, *,
    away_s: float = 0.0, learn: bool = False, isolate: bool = False,
) -> None:  # fmt: skip
    """Let a job that may leave those it shares a GPU with.

    Args:
        draft: Where that is decided.
        load: The GPU.
        job: The job that leaves.
        facts: By what numbers.
        reasons: What is said of it.
        away_s: How long the others are expected to need the GPU.
        learn: Whether what they achieved together is learnt first.
        isolate: Whether the job shares no GPU from then on.
    """
    beside = tuple([other for other in load.jobs if other != job.id])
    if means_of(draft, job, away_s=away_s) is Means.PARK:
        draft.park(job, Reason(reasons.parked, facts, beside), isolate=isolate)
    else:
        draft.stop(job, Reason(reasons.stopped, facts, beside), learn=learn, isolate=isolate)
