"""In what company a job is, and how much slower that is predicted to make it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from colane.core.load import Booking, GpuLoad
from colane.core.state import ClusterState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.model.lane import TurnRule, Turns


class Company(NamedTuple):
    """How a job shares its GPUs. Slowdowns are step time now / step time alone, at least 1 where predicted.

    Attributes:
        mates: Jobs in its lanes, which take turns with it.
        others: Jobs in other lanes of its GPUs, which run beside it.
        share_ratio: Part of its lanes' time that it may ask for; None where the rule promises none.
        predicted: Slowdown it is predicted to have; None where the turn rule may keep it waiting for long.
        measured: Slowdown it has; None while too few steps were seen, or its time alone is unknown.
    """

    mates: tuple[JobId, ...]
    others: tuple[JobId, ...]
    share_ratio: float | None
    predicted: float | None
    measured: float | None


class Expected(NamedTuple):
    """What is predicted for a job on one GPU."""

    share_ratio: float | None
    slowdown: float | None


PROMISING = frozenset({TurnRule.FAIR, TurnRule.RR})
"""Rules under which everybody's turn comes soon."""


def expect(state: ClusterState, job: Job, load: GpuLoad, active: Sequence[Booking], turns: Turns) -> Expected:
    """What is predicted for a job on a GPU with these active bookings, its own among them.

    Jobs in different lanes are predicted to be slowed alike, by the number of lanes over their speed-up; without a
    prediction they are taken to bring no gain, so that each is as slow as if they took turns. The busiest job of every
    other lane counts. Taking turns divides what is left by the shares.
    """
    mine = next(booking for booking in active if booking.job == job.id)
    share = _share(state, mine, active, turns)
    beside = [mine, *_busiest(mine, active)]
    beliefs = state.beliefs
    prediction = beliefs.predict([booking.key for booking in beside], load.gpu.sharing) if len(beside) > 1 else None
    speedup = prediction.speedup if prediction is not None and prediction.speedup > 0 else 1.0
    slowdown = max(1.0, len(beside) / speedup)
    return Expected(share, None if share is None else slowdown / share)


def _share(state: ClusterState, mine: Booking, active: Sequence[Booking], turns: Turns) -> float | None:
    """Part of its lane's time that a job may ask for."""
    lane = [booking for booking in active if booking.lane == mine.lane]
    if len(lane) == 1:
        return 1.0
    if turns.rule not in PROMISING:
        return None
    part = {booking.job: _weight(state, booking, turns.rule) for booking in lane}
    return part[mine.job] / sum(part.values())


def _weight(state: ClusterState, booking: Booking, rule: TurnRule) -> float:
    """Under `rr` everybody has as many steps, so time goes by their length."""
    if rule is TurnRule.FAIR:
        return state.jobs[booking.job].spec.weight
    profile = state.beliefs.profiles.get(booking.key)
    return profile.step_s.value if profile is not None and profile.step_s is not None else 1.0


def _busiest(mine: Booking, active: Sequence[Booking]) -> Iterator[Booking]:
    lanes: dict[int, list[Booking]] = {}
    for booking in active:
        if booking.lane != mine.lane:
            lanes.setdefault(booking.lane, []).append(booking)
    for members in lanes.values():
        yield max(members, key=lambda booking: (booking.load.occupancy if booking.load else 0.0, booking.job))


def shared_gpus(state: ClusterState, job: Job) -> list[GpuId]:
    """GPUs of a job on which others are, too."""
    return [gpu for gpu in job.gpus_held if len(state.gpus[gpu].bookings) > 1]
