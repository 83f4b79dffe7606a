"""What an agent observes of a running job, and of the bandwidth between the cores and the memory of its node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, final

from colane.model.bounds import Count, LongText, MeasuredRatio, Seconds, Size, within, word
from colane.model.versions import RESTS, TURNS

UNGATED = "ungated"  # it runs outside its lane, without turns

KEPT = "kept"  # it waits at its boundary until one that runs without turns is back, for want of memory


MAY_REST, ASKS = "possible", "asks"
"""Of a job that makes no step: it can be parked as it stands; parked so, it would step again."""

STALLED_STEPS: Final = 10
STALLED_MIN_S: Final = 5.0
"""A job that has made no step for so many of its step times, and for so long, has stalled: a report is seconds old."""
STALLED_LONGEST: Final = 2.0
"""Nor has one that does what it did before between two steps, such as an evaluation, until twice that time is over."""
STALLED_IN_LANE_MIN_S: Final = 60.0
"""One that takes turns with others has waited for its turn before, and a sample does not say when that was over."""
PAST_END_MIN_S: Final = 60.0  # no plan counts any more on the end of a job that is so long past its believed end
WITHOUT_TURN: Final = frozenset({"waiting", "paused", KEPT})
"""How a job stands in its lane while no step is expected of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sample of one attempt. Counters only grow; None is unknown.

    Attributes:
        at_s: When the sample was taken.
        steps: Steps done.
        steps_total: Steps until done, as the job said.
        first_step_s: When its first step ended.
        last_step_s: When its latest step ended.
        step_mean_s: Mean of the recent steps, with all that comes between them; those that warm up are left out.
        step_median_s: Median of the recent steps.
        step_max_s: The longest of the recent steps, such as one behind an evaluation.
        loss: Latest loss the job reported.
        persistent_bytes: P on its busiest GPU, of all its processes there, as the device sees it.
        peak_bytes: P + E on its busiest GPU.
        memory_by: What measured the two (`nvml`, `estimate`, `resident-set`); empty when nothing did.
        overhead_bytes: What one of its processes holds there outside its allocator's blocks.
        cpu_s: CPU time of its whole process tree so far.
        occupancy_ratio: Occupancy of its GPU while it ran, 0..1.
        bandwidth_ratio: Memory-bandwidth use of its GPU while it ran, 0..1.
        others_ratio: Mean part of its devices that work that is not ours used while it ran, 0..1.
        others_s: How much of the time that was, since its agent began to watch it: differences of it tell of windows.
        occupancy_by: What measured the two ratios (`cpu-time`, `nvml-gpm`, ...).
        note: Why it cannot be followed as usual; empty when it can.
        turn: How it stands in its lane (`running`, `waiting`, `paused`, `ungated`, `kept`); empty when it shares none.
        turn_service_s: Time it has held its lanes while it shared them.
        turn_wait_s: Time it has waited for them.
        turn_share_ratio: Part of the time it wanted its lanes in which it had them, since its co-runners last changed.
        turn_quantum_s: How long its turns last, rounded up to whole steps; None where they end otherwise.
        turn_handoff_s: Mean time from one turn to the next in its lane; None before any was seen.
        on_host_bytes: GPU memory of it that lies on the host; None while it is on its GPU, or to come back.
        host_refusal: Why its memory cannot be moved to the host, as was asked; empty when it can.
        rest: Whether it can be parked while it makes no step (`possible`: it is seen once it would step again), or
            waits so and would step again (`asks`); empty where it cannot.
        saved_s: When it last said that its state is saved; None where it has not.
        steps_saved: Steps of the whole job in what it saved then.
        save_problem: Why it could not save its state when it was last asked to; empty where it could.
        saves_asked: Which asking of its attempt that answers.
        noise_scale: Noise of its gradient against the gradient, in samples; None where it says nothing of it.
        saves: Whether it saves its state by itself when it is asked (`Reporter.save`).
        reforms: Whether its ranks can go on as fewer without a restart (`Reporter.reforms`).
        ranks: As how many they go on since, once the others are gone; 0 as they were started.
        answers: How many requests it has answered; None of a job that tells of none.
        idle_s: How long it has waited for requests.
        latency_p50_s: Of its last answers half took no longer, from the request on, waiting for its turn included.
        latency_p95_s: The same of 95 %.
        latency_p99_s: The same of 99 %.
    """

    at_s: Seconds
    steps: Count = 0
    steps_total: Count | None = None
    first_step_s: Seconds | None = None
    last_step_s: Seconds | None = None
    step_mean_s: Seconds | None = None
    step_median_s: Seconds | None = None
    step_max_s: Seconds | None = None
    loss: float | None = None
    persistent_bytes: Size | None = None
    peak_bytes: Size | None = None
    memory_by: LongText = ""
    overhead_bytes: Size | None = None
    cpu_s: Seconds | None = None
    occupancy_ratio: MeasuredRatio | None = None
    bandwidth_ratio: MeasuredRatio | None = None
    others_ratio: MeasuredRatio | None = None
    others_s: Seconds | None = None
    occupancy_by: LongText = ""
    note: LongText = ""
    turn: Annotated[str, word(TURNS)] = ""
    turn_service_s: Seconds | None = None
    turn_wait_s: Seconds | None = None
    turn_share_ratio: MeasuredRatio | None = None
    turn_quantum_s: Seconds | None = None
    turn_handoff_s: Seconds | None = None
    on_host_bytes: Size | None = None
    host_refusal: LongText = ""
    rest: Annotated[str, word(RESTS)] = ""
    saved_s: Seconds | None = None
    steps_saved: Count | None = None
    save_problem: LongText = ""
    saves_asked: Count = 0
    noise_scale: Annotated[float, within(above=0)] | None = None
    saves: bool = False
    reforms: bool = False
    ranks: Count = 0
    answers: Count | None = None
    idle_s: Seconds | None = None
    latency_p50_s: Seconds | None = None
    latency_p95_s: Seconds | None = None
    latency_p99_s: Seconds | None = None


class Stall(NamedTuple):
    """How long a running job has made no step, and how long one usually takes it."""

    no_step_s: float
    step_s: float


def stall(progress: Progress | None, since_s: float) -> Stall | None:
    """Return how a running job stalls, None where it does not or too little is known.

    Args:
        progress: Its latest sample, by whose own clock it is judged.
        since_s: When it came into its present state: before, it need not have been able to step.
    """
    if progress is None or progress.last_step_s is None or progress.turn in WITHOUT_TURN:
        return None
    step_s = progress.step_mean_s if progress.step_median_s is None else progress.step_median_s
    if step_s is None:
        return None
    no_step_s = progress.at_s - max(progress.last_step_s, since_s)
    least_s = max(
        STALLED_IN_LANE_MIN_S if progress.turn else STALLED_MIN_S, STALLED_LONGEST * (progress.step_max_s or 0.0)
    )
    return Stall(no_step_s, step_s) if no_step_s >= max(STALLED_STEPS * step_s, least_s) else None


@final
class BandwidthSample(NamedTuple):
    """What an agent saw over one interval. Ratios are parts of all the bandwidth that the node has.

    Attributes:
        at_s: When the interval ended.
        used_ratio: What all jobs together used; None where it is not known what the node has.
        by_job: What each job used.
        by: What measured it, as `BY_RESCTRL`.
        can_limit: Whether the machine can bound the bandwidth of a job (Intel MBA, AMD's QoS).
    """

    at_s: float
    used_ratio: float | None
    by_job: tuple[tuple[int, float], ...] = ()
    by: str = ""
    can_limit: bool = False


BY_RESCTRL: Final = "resctrl"
BY_WORLD: Final = "world"  # a simulation knows it
BY_MISSES: Final = "cache-misses"
BY_CPU_TIME: Final = "cpu-time"
"""No counter at all: an estimate, as if every busy core used an equal part of the bandwidth."""


class LateAnswers(NamedTuple):
    """A server's objective, and what it answers within instead, 99 of 100 times: seconds."""

    latency_s: float
    p99_s: float


def late_answers(progress: Progress | None, latency_s: float | None) -> LateAnswers | None:
    """How a server misses its objective; None where it keeps it, has none, or no answer of it was seen."""
    p99_s = None if progress is None else progress.latency_p99_s
    if latency_s is None or p99_s is None or p99_s <= latency_s:
        return None
    return LateAnswers(latency_s, p99_s)
