"""The cheapest means by which a running job leaves its GPUs, for another or those beside it, and which may at all.

Parked, it loses nothing but the time its memory takes to the host and back, and is bound to its node, on GPUs to its
very GPU. Stopped, it loses the time of its launch, may go on anywhere, and must have been allowed to by its owner.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId
from colane.model.plan import Park, Stop
from colane.model.reason import Reason, Why

REFORM_S: Final = 0.1  # what forming a group anew takes, with the step that it ends in (benchmarks/reform_group.py)

BOUND_S: Final = 5.0
"""What being bound to a node is believed to cost: a job that launches again in less is stopped rather than parked."""


BOUND_RATIO: Final = 0.1
"""Part of the time its place is taken that being bound to it is believed to cost: it could go on elsewhere."""


def is_settled(draft: Draft, load: GpuLoad) -> bool:
    """Whether no job is on its way off a GPU: then it is settled what comes next there."""
    jobs = draft.view.jobs
    return not any(jobs[booking.job].is_leaving for booking in load.bookings)


def is_untouched(draft: Draft, load: GpuLoad) -> bool:
    """Whether a GPU is as it was when the plan began, no job leaves it, and it is kept for none."""
    same = load is draft.view.gpu(load.id) and load.id not in draft.held
    same = same and all(draft.is_undecided(booking.job) for booking in load.bookings)
    return same and not load.returning and load.is_usable and is_settled(draft, load)


def may_leave(view: ClusterView, job: Job) -> bool:
    """Whether there is any means for a job that is movable."""
    return job.effective.preemptible or view.parking_refusal(job) is None


class Means(Enum):
    """How a running job leaves its GPUs."""

    PARK = auto()
    STOP = auto()


def means_of(draft: Draft, job: Job, host_bytes: int = 0, away_s: float = 0.0) -> Means | None:
    """The cheapest means by which a job may leave its GPUs; None where there is none in this draft.

    Args:
        draft: Where that is decided.
        job: The job.
        host_bytes: Host memory that others that leave with it will take of its node.
        away_s: How long its place is expected to be taken.
    """
    if draft.parking_refusal(job, host_bytes) is not None:
        return Means.STOP if job.effective.preemptible else None
    if not job.effective.preemptible:
        return Means.PARK
    bound_s = max(BOUND_S, BOUND_RATIO * away_s)
    parks = _parked_s(draft.view, job) + bound_s < stopped_s(draft.view, job)
    return Means.PARK if parks else Means.STOP


def cheapest(
    draft: Draft, victim: Job, for_job: JobId, because: str, host_bytes: int, away_s: float = 0.0
) -> Stop | Park | None:
    """How a job leaves its GPUs for another; None where it cannot.

    Args:
        draft: Where that is decided.
        victim: The job that leaves.
        for_job: The job it leaves for.
        because: Ends the sentence of the reason.
        host_bytes: Host memory that others that leave with it will take of its node.
        away_s: How long its place is expected to be taken.
    """
    facts: dict[str, str | int | float] = {"because": because}
    means = means_of(draft, victim, host_bytes, away_s)
    if means is Means.PARK:
        return Park(victim.id, Reason(Why.PARKED, facts, (for_job,)), for_job)
    return None if means is None else Stop(victim.id, Reason(Why.PREEMPTED, facts, (for_job,)), for_job)


def launch_s(job: Job) -> float:
    """How long its launch took, to its first step; 0 where no step was seen."""
    if job.run.launch_s is not None:
        return job.run.launch_s
    if job.start_s is None or job.first_step_s is None:
        return 0.0
    return max(0.0, job.first_step_s - job.start_s)


def shrink_s(job: Job) -> float:
    """What going on with fewer GPUs is believed to take it: a launch, unless its ranks need none for that."""
    contract = job.effective.checkpoint
    return REFORM_S if contract is not None and contract.reforms else launch_s(job)


def unsaved_s(view: ClusterView, job: Job) -> float:
    """Work of a job that is lost if it is stopped now: its steps since it last said that its state is saved.

    0 where it saves when it is asked to, as far as it has always done so, and where it never says.
    """
    progress, saves = view.progress(job.id), job.effective.checkpoint is not None and not job.totals.saves_failed
    if saves or progress is None or progress.steps_saved is None or progress.step_mean_s is None:
        return 0.0
    return max(0, progress.steps - progress.steps_saved) * progress.step_mean_s


def stopped_s(view: ClusterView, job: Job) -> float:
    """What being stopped, and going on later, is believed to take a job: what is not saved, and its launch."""
    return launch_s(job) + unsaved_s(view, job)


def _parked_s(view: ClusterView, job: Job) -> float:
    """The same of being parked: its memory is moved to the host and back, as its node is believed to do that."""
    if job.placement is None:
        return 0.0
    node = view.nodes[job.placement.node].node
    return 2 * (node.park_s + view.bytes_to_move(job) / node.to_host_bytes_per_s)


def leaving_s(view: ClusterView, job: Job, action: Stop | Park) -> float:
    """What leaving its GPUs so and going on later is believed to take a job."""
    return _parked_s(view, job) if isinstance(action, Park) else stopped_s(view, job)


def least_lost_s(view: ClusterView, job: Job) -> float:
    """The same by the cheapest means it has, in whole seconds, so that what hardly differs counts as equal."""
    lost_s = stopped_s(view, job) if job.effective.preemptible else inf
    if lost_s > BOUND_S and view.parking_refusal(job) is None:
        lost_s = min(lost_s, _parked_s(view, job) + (BOUND_S if job.effective.preemptible else 0.0))
    return lost_s if lost_s == inf else float(round(lost_s))


# -- leaving those beside it, so that they, or in the end all, go faster: the guard asks where jobs are slower together
# than was predicted, policies where they are slower than one after another would be. Both say when and which.


Facts = dict[str, str | int | float]


class SplitReasons(NamedTuple):
    """What is said of one that leaves."""

    parked: Why  # of one that is parked
    stopped: Why  # of one that is stopped


def may_split_off(draft: Draft, job: Job) -> bool:
    """Whether a job may leave those it shares a GPU with: now, and losing no more than its owner allowed."""
    may_go = draft.is_undecided(job.id) and not draft.is_spared(job.id)
    return may_go and job.is_movable and means_of(draft, job) is not None


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
