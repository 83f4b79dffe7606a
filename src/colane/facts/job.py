"""What is told of one job: its state in a word, its place, speed, share, what is left, and where its time went.

A pure function of the job's record, its latest sample and what is believed of it; the service asks it once for each
answer. What is told of a job is of the moment of its latest sample; what runs by the clock is of `now_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, cast

from colane.api.jobs import ExpectedObject, FactsObject, TimeSpentObject
from colane.core.cluster.co_runners import Pacing
from colane.facts.ran import had_s, limit_left_s, present_s, steps_told
from colane.foresee.said import BURSTS_MIN, QuoteBounds, Shown
from colane.model.arrays import number_of
from colane.model.job import Job, JobKind, JobState
from colane.model.phases import COMING_UP, STEPPING
from colane.model.progress import Progress, Stall, stall
from colane.model.time_spent import time_spent
from colane.model.words import about, percent
from colane.perf.estimates import LengthEstimates
from colane.perf.rate import Rate, RateSource

# -- When a job is expected to start and to end, as every screen tells it.

WIDE: Final = 30.0  # where the last is so many times the first, only the last is said

SURE: Final = 0.9
MAY_BE: Final = 0.1  # with at least this probability it is said that it may be within a minute

SOON_S: Final = 60.0
NOT_KNOWN: Final = f"not known: fewer than {BURSTS_MIN} such waits seen"


def expected(bounds: QuoteBounds, shown: Shown, now_s: float) -> ExpectedObject:
    """Return what is told of what was worked out some time ago, from now on."""
    past_s = max(0.0, now_s - shown.at_s)
    low_s, middle_s, high_s = (max(0.0, one - past_s) for one in bounds[:3])
    known = bounds.is_known and not shown.problem
    unknown = f"not known: {shown.problem}" if shown.problem else NOT_KNOWN
    return {
        "p10_s": low_s if known else None,
        "p50_s": middle_s if known else None,
        "p90_s": high_s if known else None,
        "at_once_ratio": bounds.at_once if known else None,
        "said_s": shown.at_s,
        "basis": "told" if shown.is_told else "learnt",
        "sentence": sentence(low_s, middle_s, high_s, bounds.at_once) if known else unknown,
    }


def expected_of(shown: Shown | None, now_s: float) -> tuple[ExpectedObject | None, ExpectedObject | None]:
    """Return what is told of a job's start, None of one that runs, and of its end; None where nothing is foreseen."""
    if shown is None:
        return None, None
    return None if shown.start is None else expected(shown.start, shown, now_s), expected(shown.end, shown, now_s)


def start_in_s(shown: Shown | None, now_s: float) -> float | None:
    """Return in how many seconds a job starts: the median that is told, else by the middle of what is believed."""
    start, _ = expected_of(shown, now_s)
    if shown is None or start is None or start["p50_s"] is not None:
        return None if start is None else start["p50_s"]
    return None if shown.start_point_s is None else max(0.0, shown.start_point_s - max(0.0, now_s - shown.at_s))


def sentence(low_s: float, middle_s: float, high_s: float, at_once: float = 0.0) -> str:
    """Return an interval in words: in two parts where it may come within a minute, and may not."""
    if high_s < SOON_S or at_once > SURE:
        return "within a minute"
    if at_once >= MAY_BE:
        return f"{percent(at_once)}: at once; else within {about(high_s)}"
    if high_s > WIDE * max(low_s, SOON_S):
        return f"within {about(high_s)}"
    return f"in {about(middle_s)} ({about(low_s)} to {about(high_s)})"


class StateWord(StrEnum):
    """What a job does where its state alone does not say it; else the word is the state's."""

    LAUNCHING = "launching"  # its process has not been started yet
    RUNNING = "running"  # its process runs, whether or not it has made a step, or may be moved
    HELD = "held"  # it waits, and something keeps it from starting
    SUSPENDED = "suspended"  # its owner or an operator keeps it from going on
    PARKED = "parked"  # it waits for its GPUs while others have them, its memory on the host


class LeftBy(StrEnum):
    """What tells how long a job will still run, the surest first."""

    STEPS = "steps"  # its steps, as its owner says or else its script, at its present speed
    LIMIT = "limit"  # its time limit, where that comes before its end, or is all that is told
    FAMILY = "family"  # how long jobs of its family ran, in the law by which it is ranked


class Speed(NamedTuple):
    """How fast a job that runs steps, in steps/s; None is unknown."""

    now: float | None = None  # all in all, the waiting for its turns included; 0 while it makes no step any more
    in_turn: float | None = None  # while it has its turn; the same without turns
    whole: float | None = None  # on average since the first step of its attempt
    is_believed: bool = False  # nothing of it was measured yet: it is what is believed of jobs like it where it runs


GOING: Final = STEPPING | COMING_UP
"""States of a job that comes to its end if nothing else happens."""


class TimeLeft(NamedTuple):
    """How long a job that runs will still run, in seconds: the same belief by which decisions are made."""

    left_s: float | None = None  # as decisions go by it; None where nothing tells
    by: LeftBy | None = None  # what tells it; None likewise
    p10_s: float | None = None  # one of ten like it has less left; the same where it is told, as the others
    p50_s: float | None = None  # half have
    p90_s: float | None = None  # nine of ten have


def job_facts(
    job: Job,
    sample: Progress | None,
    pacing: Pacing | None,
    now_s: float,
    lengths: LengthEstimates | None = None,
    elements: Sequence[Job] = (),
    shown: Shown | None = None,
) -> FactsObject:
    """Return what is told of a job, live or ended.

    Args:
        job: The job.
        sample: Its latest sample.
        pacing: How fast it is believed to go, and with which co-runners; None where that was not asked.
        now_s: The time.
        lengths: How long jobs of its family ran.
        elements: Of an array those that are live jobs.
        shown: What is foreseen of its start and its end.
    """
    until_s = now_s if job.end_s is None else job.end_s
    steps, total = steps_done(job, sample), steps_told(job)
    found = speed(job, sample, pacing)
    left = left_of(job, sample, pacing, now_s, lengths)
    done = min(1.0, steps / total) if total else None
    if done is None and left.p50_s is not None and left.by is LeftBy.FAMILY:
        done = present_s(job, now_s) / max(1.0, present_s(job, now_s) + left.p50_s)
    first_s = job.submit_s if job.first_start_s is None else job.first_start_s
    start, end = expected_of(shown, now_s)
    runs = bool(job.gpus_held) and job.state is not JobState.ASSIGNED
    shares = (
        None if pacing is None or pacing.co_runners is None or not pacing.co_runners.lane_mates else pacing.co_runners
    )
    return {
        "word": state_word(job, elements),
        "gpus": [str(gpu) for gpu in job.gpus_held],
        "nodes": [] if job.placement is None else [*job.placement.nodes],
        "steps": steps,
        "steps_total": total,
        "done_ratio": done,
        "is_length_guessed": done is not None and not total,
        "left_s": left.left_s,
        "left_p10_s": left.p10_s,
        "left_p50_s": left.p50_s,
        "left_p90_s": left.p90_s,
        "left_by": left.by,
        "limit_left_s": limit_left_s(job, now_s),
        "now_steps_per_s": found.now,
        "in_turn_steps_per_s": found.in_turn,
        "whole_steps_per_s": found.whole,
        "is_speed_believed": found.is_believed,
        "speed_ratio": pacing.rate.ratio if pacing is not None and runs and is_told(pacing.rate) else None,
        "share_got_ratio": None if shares is None else share_got(sample),
        "share_asked_ratio": None if shares is None else shares.share_ratio,
        "ran_s": ran_s(job, until_s),
        "spent_s": max(0.0, until_s - first_s),
        "saved_ago_s": None if job.saved_s is None or job.has_ended else max(0.0, now_s - job.saved_s),
        "time_spent": cast("TimeSpentObject", time_spent(job.story, job.story_left_out, until_s)._asdict()),
        "expected_start": start,
        "expected_end": end,
    }


def is_told(rate: Rate) -> bool:
    """Whether anything tells of a job's speed: what is taken where nothing is known is no figure of it."""
    return rate.source is not RateSource.DEFAULT


def state_word(job: Job, elements: Sequence[Job] = ()) -> str:
    """What a job does, in a word; an array whose `elements`, those that are live jobs, run in part runs, too."""
    if any(one.placement is not None for one in elements) or job.state in GOING - {JobState.ASSIGNED}:
        return StateWord.RUNNING.value
    if job.state is JobState.ASSIGNED:
        return StateWord.LAUNCHING.value
    if job.state is JobState.QUEUED:
        return (StateWord.HELD if job.holds else job.state).value
    if job.state is JobState.PAUSED and job.suspended:
        return StateWord.SUSPENDED.value
    return (StateWord.PARKED if job.state is JobState.PAUSED and job.parked else job.state).value


def waiting(job: Job) -> int:
    """How many jobs wait in one: of an array its elements that are no jobs of their own yet."""
    if job.state is not JobState.QUEUED:
        return 0
    return 1 if job.array is None else number_of(job.array.pending)


def steps_done(job: Job, sample: Progress | None) -> int:
    """Steps made so far; a later attempt that goes on from what was saved has these from its start."""
    return job.totals.steps_kept if sample is None else max(sample.steps, job.totals.steps_kept)


def stalled(job: Job, sample: Progress | None) -> Stall | None:
    """Return how a job that runs makes no steps any more; None of all others, and of one that serves requests."""
    if job.state not in STEPPING or job.spec.kind is JobKind.INFERENCE:
        return None
    return stall(sample, _steps_since_s(job))


def _steps_since_s(job: Job) -> float:
    """Since when it has been in states in which it steps, as far back as its story goes; of a new one, its submission.

    Not only in its present one: when its protection ends, nothing has changed for it.
    """
    since_s = job.submit_s if job.since_s is None else job.since_s
    for move in reversed(job.story):
        if move.state not in STEPPING:
            break
        since_s = move.at_s
    return since_s


def speed(job: Job, sample: Progress | None, pacing: Pacing | None) -> Speed:
    """How fast it steps; nothing of a job that does not run."""
    believed = None if pacing is None else pacing.rate.steps_per_s
    if job.state not in GOING:
        return Speed()
    whole = None if sample is None else _whole(job, sample)
    in_turn = 1 / sample.step_mean_s if sample is not None and sample.step_mean_s else None
    if in_turn is None and job.state not in STEPPING:
        return Speed(is_believed=bool(believed))
    if stalled(job, sample) is not None:
        return Speed(0.0, in_turn, whole)
    if in_turn is not None:
        return Speed(in_turn * _turns(sample, pacing), in_turn, whole)
    if not believed or pacing is None:
        return Speed(None, None, whole)
    return Speed(believed, believed * pacing.rate.factors.turns.slowdown, whole, is_believed=True)


def _turns(sample: Progress | None, pacing: Pacing | None) -> float:
    """Part of the time in which it has its turn: step times are measured without the waiting. 1 without turns."""
    shares = pacing is not None and pacing.co_runners is not None and bool(pacing.co_runners.lane_mates)
    if sample is None or not shares or sample.turn not in {"running", "waiting"}:
        return 1.0
    return sample.turn_share_ratio or 1.0


def share_got(sample: Progress | None) -> float | None:
    """Part of the time a job that takes turns wanted its lanes in which it had them, since its co-runners changed."""
    return None if sample is None or not sample.turn else sample.turn_share_ratio


def _whole(job: Job, sample: Progress) -> float | None:
    """Steps of its attempt after its first, by the time since that one."""
    if sample.first_step_s is None or sample.last_step_s is None or sample.last_step_s <= sample.first_step_s:
        return None
    kept = job.totals.steps_kept if sample.steps > job.totals.steps_kept else 0
    return max(0, sample.steps - kept - 1) / (sample.last_step_s - sample.first_step_s)


def left_of(
    job: Job, sample: Progress | None, pacing: Pacing | None, now_s: float, lengths: LengthEstimates | None = None
) -> TimeLeft:
    """How long a job that runs, or is about to, will still run at its present speed; see `job_facts`.

    What decides is what is told (`scheduling.engine.times.Expected`): its steps, else its limit, else the law of its
    family. Of one that makes no steps any more it is unknown, of one that serves, as when requests come is not known,
    and where no job of the family has ended: of that all that is believed is what is true of all families.
    """
    if job.state not in GOING or job.spec.kind is JobKind.INFERENCE or stalled(job, sample) is not None:
        return TimeLeft()
    found, total, most_s = speed(job, sample, pacing), steps_told(job), limit_left_s(job, now_s)
    believed = pacing.rate.steps_per_s if found.is_believed and pacing is not None else None
    per_s = believed if found.now is None else found.now
    left_s = max(0, total - steps_done(job, sample)) / per_s if total is not None and per_s else None
    if most_s is not None and (left_s is None or most_s < left_s):
        return TimeLeft(most_s, LeftBy.LIMIT, most_s, most_s, most_s)
    if left_s is not None:
        return TimeLeft(left_s, LeftBy.STEPS, left_s, left_s, left_s)
    family = job.effective.family
    if lengths is None or pacing is None or not pacing.rate.ratio or not lengths.tells(family):
        return TimeLeft()
    index_s, *parts_s = [each / pacing.rate.ratio for each in lengths.rest(family, had_s(job, now_s))]
    return TimeLeft(index_s, LeftBy.FAMILY, *parts_s)


def lane_left_s(job: Job, sample: Progress | None) -> float | None:
    """Time it needs its lane for: 0 before its steps are measured, None where their number is unknown."""
    total = steps_told(job)
    if total is None:
        return None
    step_s = None if sample is None else sample.step_mean_s
    return 0.0 if step_s is None else max(0, total - steps_done(job, sample)) * step_s


def ran_s(job: Job, until_s: float) -> float:
    """How long its present or last attempt has run, pauses left out."""
    if not job.has_ended:
        return present_s(job, until_s)
    has_waited = len(job.story) > 1 and job.story[-2].state is JobState.QUEUED
    return 0.0 if job.start_s is None or has_waited else max(0.0, until_s - job.start_s - job.paused_s(until_s))
