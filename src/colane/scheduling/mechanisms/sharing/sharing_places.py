"""Whether a job may come to a GPU with jobs or take the place of one there, and which could leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad, book
from colane.core.cluster.situations import situation_in
from colane.model.job import Job, JobId, JobKind, JobSpec
from colane.perf.rate import RateSource, Situation
from colane.scheduling.engine.live import PoolJobs

SEEN: Final = frozenset({RateSource.GIVEN, RateSource.ORACLE, RateSource.MEASURED, RateSource.DECLARED})
"""Sources of what is known of a set of co-runners, other than others like it."""


def made_for(draft: Draft, live: PoolJobs, job: Job) -> GpuLoad | None:
    """The GPU that another leaves for a job of one GPU."""
    for other in live.going.values():
        if other.preempted_for == job.id and len(other.gpus_held) == 1:
            load = draft.load(other.gpus_held[0])
            if load.id not in draft.held:
                return load
    return None


def is_known_alone(draft: Draft, spec: JobSpec, gpu_type: str) -> bool:
    """Whether it is known how fast a job of one GPU is alone: else the cost of sharing could not be seen.

    C and M may be known without it: from a trace of its kernels.
    """
    beliefs = draft.beliefs
    return not beliefs.learns or beliefs.rate(spec, Situation(gpu_type, 1)).alone is not None


def is_seen(draft: Draft, load: GpuLoad) -> bool:
    """Whether it is known what the jobs of a GPU do to each other, from them and not from others like them."""
    if len(load.bookings) < 2 or not draft.beliefs.learns:
        return True
    first = draft.view.jobs[load.bookings[0].job].effective
    keys = tuple([booking.key for booking in load.bookings[1:]])
    situation = Situation(load.gpu.type, 1, None, load.gpu.way, keys)
    return draft.beliefs.rate(first, situation).factors.gpu.source in SEEN


def may_share(spec: JobSpec, *, gangs: bool = False) -> bool:
    """Whether a job may have co-runners at all; one of several GPUs only where `gangs` may."""
    return spec.share and (spec.gpus == 1 or (gangs and spec.gpus > 1))


def is_late(draft: Draft, load: GpuLoad, spec: JobSpec, lane: int | None = None) -> bool:
    """Whether a server with a lane to itself would not keep its objective if a job came to its GPU: there, or that job.

    Of those that take turns `in_lane.missed` tells. The newcomer comes to a lane, else to one of its own. One whose
    steps are not known yet is not said to be late.
    """
    jobs = draft.view.jobs
    if spec.latency_s is None and all(jobs[job].effective.latency_s is None for job in load.jobs):
        return False
    newcomer = Job(JobId(0), spec, 0.0)
    joined = load.with_booking(
        book(newcomer, load.next_lane if lane is None else lane, draft.beliefs.terms(spec, load.gpu.type))
    )
    lanes = [booking.lane for booking in joined.bookings]
    for booking in joined.bookings:
        one = spec if booking.job == newcomer.id else jobs[booking.job].effective
        if one.latency_s is not None and lanes.count(booking.lane) == 1:
            situation = situation_in(joined, booking.job, jobs)
            if (draft.beliefs.rate(one, situation).step_s or 0.0) > one.latency_s:
                return True
    return False


def answer_bound_s(steps: Sequence[tuple[JobKind, float]]) -> float:
    """Longest an answer takes in a lane of jobs given as (kind, step time); the same for every server in it.

    A server goes before training at every step boundary (`lanes.turns`), so an answer waits for one training step at
    most, the longest there is, and for the other servers of the lane; then its own step runs.
    """
    training = [step_s for kind, step_s in steps if kind is not JobKind.INFERENCE]
    return max(training, default=0.0) + sum(step_s for kind, step_s in steps if kind is JobKind.INFERENCE)


def may_join(draft: Draft, load: GpuLoad, spec: JobSpec) -> bool:
    """Whether a job may come to a GPU, memory apart: it is kept for none, all may share, its node has room.

    The memory of each there is known: one of unknown needs may have come in this very plan.
    """
    if load.id in draft.held or not load.is_shareable or not load.admits(spec.sharing_domain):
        return False
    return draft.has_room_beside(draft.view.nodes[load.id.node], spec)
