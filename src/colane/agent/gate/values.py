"""What the gate's rules are told and what they answer: jobs, bounds, orders, and how jobs fare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from colane.model.profile import Memory

Lane = tuple[int, int]  # device and lane number


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJob:
    """A job of this node as far as turns go."""

    job: int  # its id
    lanes: tuple[Lane, ...]  # its lanes, in order
    weight: float = 1.0  # its share under `fair`
    priority: int = 0  # higher goes first under `priority`
    serves: bool = False  # it answers requests, or is about to end: it goes first
    answers: bool = False  # it answers requests
    steps_total: int | None = None  # steps until it is done, None when unknown
    paused: bool = False  # it stays parked until this is taken back
    flush: bool = False  # it gives cached GPU memory back when it yields
    hold: bool = False  # once it is parked it gives its lanes up, and goes on by the agent's word alone
    at_rest: bool = False  # it gives them up before it is parked: it makes no step, and is held at its next boundary
    # for that it must say that it uses no device before it asks: on GPUs its next step would not be seen
    must_rest: bool = False
    memory: Memory | None = None  # what it books of each of its devices; None where that is not known
    leaks: str = ""  # why it has no turns for good: it was seen to compute in those of others. Empty while it was not


class GateTimeouts(NamedTuple):
    """How long is waited for a job that was asked and does not come."""

    yield_s: float = 30.0  # for one that runs
    first_step_s: float = 600.0  # for one that has not done a step; only for saying so
    silent_s: float = 2.0  # for one that answers requests and has answered none: it may wait for the first one


class GatePhase(Enum):
    """What a job does."""

    AWAY = auto()  # it starts, or is left out
    RUNNING = auto()
    READY = auto()  # it waits at a boundary for its turn
    IDLE = auto()  # it waits for something else, and said so


class TurnTimes(NamedTuple):
    """When a job last gave its turn up, its device idle, and when it last got one, by the machine's monotonic clock."""

    yielded_s: float
    resumed_s: float


class Seen(NamedTuple):
    """What is reported of a job's turns."""

    state: str  # `running`, `waiting`, `paused`, `ungated` or `kept`
    service_s: float  # time it has held its lanes
    wait_s: float  # time it has waited for them
    share_ratio: float  # part of the time it wanted its lanes in which it had them, since its co-runners last changed
    is_parked: bool = False  # it is suspended, and waits at a boundary
    note: str = ""  # why it has no turns; empty while it has
    quantum_s: float | None = None  # how long its turns last, rounded up to whole steps; None where they end otherwise
    handoff_s: float | None = None  # mean time from one turn to the next in its lane; None before any was seen
    asks: bool = False  # it was held as it stood, and would step again
    answers: bool = False  # it answers requests


class Orders(NamedTuple):
    """What is to be done."""

    go: Sequence[int]  # jobs that are let go
    flags: Mapping[int, bool]  # of every job, whether it asks at its boundaries
    next_s: float | None  # when to look again; None when only events matter
