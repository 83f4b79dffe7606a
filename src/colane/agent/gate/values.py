"""What the gate's rules are told and what they answer: jobs, bounds, orders, and how jobs fare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from colane.model.profile import Memory

Lane = tuple[int, int]
"""Device and lane number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJob:
    """A job of this node as far as turns go.

    Attributes:
        job: Its id.
        lanes: Its lanes, in order.
        weight: Its share under `fair`.
        priority: Higher goes first under `priority`.
        serves: It answers requests, or is about to end: it goes first.
        answers: It answers requests.
        steps_total: Steps until it is done, None when unknown.
        paused: It stays parked until this is taken back.
        flush: It gives cached GPU memory back when it yields.
        hold: Once it is parked it gives its lanes up, and goes on by the agent's word alone.
        at_rest: It gives them up before it is parked: it makes no step, and is held at its next boundary.
        must_rest: For that it must say that it uses no device before it asks: on GPUs its next step would not be seen.
        memory: What it books of each of its devices; None where that is not known.
        leaks: Why it has no turns for good: it was seen to compute in those of others. Empty while it was not.
    """

    job: int
    lanes: tuple[Lane, ...]
    weight: float = 1.0
    priority: int = 0
    serves: bool = False
    answers: bool = False
    steps_total: int | None = None
    paused: bool = False
    flush: bool = False
    hold: bool = False
    at_rest: bool = False
    must_rest: bool = False
    memory: Memory | None = None
    leaks: str = ""


class GateTimeouts(NamedTuple):
    """How long is waited for a job that was asked and does not come.

    Attributes:
        yield_s: For one that runs.
        silent_s: For one that answers requests and has answered none: it may wait for the first one.
        first_step_s: For one that has not done a step; only for saying so.
    """

    yield_s: float = 30.0
    first_step_s: float = 600.0
    silent_s: float = 2.0


class GatePhase(Enum):
    """What a job does."""

    AWAY = auto()
    """It starts, or is left out."""
    RUNNING = auto()
    READY = auto()
    """It waits at a boundary for its turn."""
    IDLE = auto()
    """It waits for something else, and said so."""


class TurnTimes(NamedTuple):
    """When a job last gave its turn up, its device idle, and when it last got one, by the machine's monotonic clock."""

    yielded_s: float
    resumed_s: float


class Seen(NamedTuple):
    """What is reported of a job's turns.

    Attributes:
        state: `running`, `waiting`, `paused`, `ungated` or `kept`.
        service_s: Time it has held its lanes.
        wait_s: Time it has waited for them.
        share_ratio: Part of the time it wanted its lanes in which it had them, since its co-runners last changed.
        is_parked: It is suspended, and waits at a boundary.
        note: Why it has no turns; empty while it has.
        quantum_s: How long its turns last, rounded up to whole steps; None where they end otherwise.
        handoff_s: Mean time from one turn to the next in its lane; None before any was seen.
        asks: It was held as it stood, and would step again.
    """

    state: str
    service_s: float
    wait_s: float
    share_ratio: float
    is_parked: bool = False
    note: str = ""
    quantum_s: float | None = None
    handoff_s: float | None = None
    asks: bool = False


class Orders(NamedTuple):
    """What is to be done.

    Attributes:
        go: Jobs that are let go.
        flags: Of every job, whether it asks at its boundaries.
        next_s: When to look again; None when only events matter.
    """

    go: Sequence[int]
    flags: Mapping[int, bool]
    next_s: float | None
