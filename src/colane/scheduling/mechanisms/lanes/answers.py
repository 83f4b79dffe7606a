"""Whether resident inference jobs answer in time when they take turns with others in a lane.

A server goes before training at every step boundary (`lanes.turns`), so an answer waits for one training step at most,
the longest there is, and for the other servers of the lane; then its own step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.job import JobId, JobKind, JobSpec
from colane.model.reason import Reason, Why
from colane.perf.situation import Situation


class Miss(NamedTuple):
    """An objective that a lane would not keep."""

    latency_s: float
    bound_s: float


def answer_bound_s(steps: Sequence[tuple[JobKind, float]]) -> float:
    """Longest an answer takes in a lane of jobs given as (kind, step time); the same for every server in it."""
    training = [step_s for kind, step_s in steps if kind is not JobKind.INFERENCE]
    return max(training, default=0.0) + sum(step_s for kind, step_s in steps if kind is JobKind.INFERENCE)


def missed(draft: Draft, load: GpuLoad, lane: int, spec: JobSpec) -> Miss | None:
    """The tightest objective that would not be kept if the job joined that lane; None when all would be."""
    members = [draft.view.job(booking.job).effective for booking in load.bookings if booking.lane == lane]
    specs = [*members, spec]
    objectives = [one.latency_s for one in specs if one.kind is JobKind.INFERENCE and one.latency_s is not None]
    if not members or not objectives:
        return None
    bound_s = answer_bound_s([(one.kind, _step_s(draft, one, load.gpu.type)) for one in specs])
    return Miss(min(objectives), bound_s) if bound_s > min(objectives) else None


def miss_reason(load: GpuLoad, jobs: tuple[JobId, ...], miss: Miss) -> Reason:
    """Why a job does not join a lane."""
    return Reason(Why.TOO_SLOW_TO_ANSWER, {"gpu": str(load.id), **miss._asdict()}, jobs)


def _step_s(draft: Draft, spec: JobSpec, gpu_type: str) -> float:
    """Believed step time; nothing can be promised beside a job of unknown steps."""
    return draft.beliefs.rate(spec, Situation(gpu_type)).step_s or inf
