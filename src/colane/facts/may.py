"""What may be done with a job now, and by which users.

What the service would refuse is not offered, nor what would change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from colane.core.cluster.state import ClusterState
from colane.core.reducers import suspension
from colane.model.job import Job
from colane.model.phases import HoldKind
from colane.model.progress import Progress
from colane.verbs.of_jobs import Deed


class Asker(NamedTuple):
    """Which user asks, as far as a job is concerned."""

    owns: bool  # it is the job's owner, or an operator
    is_user: bool  # it is the job's owner


def may_do(
    state: ClusterState | None, job: Job, sample: Progress | None, asker: Asker, elements: Sequence[Job] = ()
) -> tuple[Deed, ...]:
    """Return what one user may do with a job now.

    Args:
        state: Where it runs; None while it is not known, and of a job that has ended.
        job: The job.
        sample: Its latest sample.
        asker: Which user asks.
        elements: Of an array those that are live jobs.
    """
    return tuple(_may(state, job, sample, asker, elements))


def _may(
    state: ClusterState | None, job: Job, sample: Progress | None, asker: Asker, elements: Sequence[Job]
) -> Iterator[Deed]:
    if job.has_ended:
        if asker.is_user:
            yield Deed.AGAIN
        return
    if not asker.owns:
        return
    is_kept = job.suspended or job.is_held(HoldKind.USER)
    if is_kept or job.is_held(HoldKind.BEGIN):
        yield Deed.RESUME
    elif state is not None and job.id in state.jobs and suspension.refusal(state, job, sample) is None:
        yield Deed.SUSPEND
    if may_requeue(job, elements):
        yield Deed.REQUEUE
    yield Deed.CANCEL


def may_requeue(job: Job, elements: Sequence[Job] = ()) -> bool:
    """Whether a live job has a place that it can leave, and is on no way to its end; or an element of an array does."""
    if job.array is not None:
        return any(one.may_be_requeued for one in elements)
    return job.may_be_requeued and job.spec.measurement_group is None
