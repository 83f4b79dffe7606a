"""What is told of one job: speed, what is left, its word, and that the answer has each of these fields."""

from __future__ import annotations

from typing import Any, cast

import pytest

from colane.api.jobs import FactsObject
from colane.core.cluster.co_runners import CoRunners, Pacing
from colane.facts.job import LeftBy, StateWord, job_facts, lane_left_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec, JobState, StateChange
from colane.model.job_spec import Constraints
from colane.model.phases import Attempt, Hold, HoldKind, Parking, SuspendVia, Suspension, Totals
from colane.model.placement import Placement, Slot
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.perf.lengths import Lengths
from colane.perf.rate import Factor, Factors, Rate, RateSource

NOW_S = 1_000.0
PLACE = Placement((Slot(GpuId("n1", 0), 0),), ())
SAMPLE: dict[str, Any] = {
    "at_s": NOW_S, "steps": 101, "step_mean_s": 0.5, "first_step_s": 100.0, "last_step_s": NOW_S - 0.1,
}  # fmt: skip


def job(state: JobState = JobState.RUNNING, *, spec: dict[str, Any] | None = None, **fields: Any) -> Job:
    told = {"name": "a", "family": "a", "gpus": 1, "steps_total": 301, **(spec or {})}
    place = {"placement": PLACE, "run": Attempt(start_s=50.0), "first_start_s": 50.0}
    story = (StateChange(0.0, JobState.QUEUED, Reason(Why.SUBMITTED)), StateChange(60.0, state, Reason(Why.STEPPING)))
    where = {} if state is JobState.QUEUED else place
    return Job(JobId(1), JobSpec(**told), 0.0, state, **{"story": story, "since_s": 60.0, **where, **fields})


def pacing(steps_per_s: float | None = None, turns: float = 1.0, mates: tuple[int, ...] = ()) -> Pacing:
    factors = Factors(turns=Factor(turns, RateSource.MEASURED))
    step_s = None if steps_per_s is None else 1 / steps_per_s
    rate = Rate(None, step_s, factors.slowdown, RateSource.MEASURED, 1, 0.0, factors)
    shares = CoRunners(tuple(map(JobId, mates)), (), 0.5, 2.0, None) if mates else None
    return Pacing(rate, shares)


def sample(**fields: Any) -> Progress:
    return Progress(**{**SAMPLE, **fields})


def facts(one: Job | None = None, seen: Progress | None = None, *known: Any, **named: Any) -> FactsObject:
    shown, paced = job() if one is None else one, known[0] if known else None
    return job_facts(shown, sample() if seen is None else seen, paced, NOW_S, **named)


def test_speed_and_time_left_count_the_waiting_for_turns() -> None:
    alone = facts()
    assert (alone["now_steps_per_s"], alone["in_turn_steps_per_s"], alone["left_s"], alone["left_by"]) == (
        2,
        2,
        100,
        LeftBy.STEPS,
    )
    assert alone["whole_steps_per_s"] == pytest.approx(100 / 899.9)
    waits = sample(turn="waiting", turn_share_ratio=0.25)
    shares = facts(None, waits, pacing(mates=(2,)))
    assert (shares["now_steps_per_s"], shares["in_turn_steps_per_s"], shares["left_s"]) == (0.5, 2, 400)
    assert (shares["share_got_ratio"], shares["share_asked_ratio"]) == (0.25, 0.5)
    assert facts(None, waits, pacing())["left_s"] == 100, "without others in its lane it does not wait"
    assert facts(None, sample(turn="waiting", turn_share_ratio=0.0), pacing(mates=(2,)))["left_s"] == 100
    assert lane_left_s(job(), waits) == 100, "for so long it needs its lane"


def test_before_its_first_sample_its_speed_is_the_one_it_is_believed_to_have() -> None:
    told = job_facts(job(), None, pacing(4.0, turns=2.0), NOW_S)
    assert (told["now_steps_per_s"], told["in_turn_steps_per_s"], told["is_speed_believed"], told["left_s"]) == (
        4,
        8,
        True,
        301 / 4,
    )
    assert job_facts(job(JobState.LAUNCHING), None, pacing(4.0), NOW_S)["left_s"] == 301 / 4
    assert job_facts(job(), None, pacing(), NOW_S)["left_s"] is None


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.PAUSED, JobState.STOPPING, JobState.CHECKPOINTING])
def test_what_does_not_run_has_no_speed_and_no_time_left(state: JobState) -> None:
    told = facts(job(state), sample(), pacing(4.0))
    assert (told["now_steps_per_s"], told["in_turn_steps_per_s"], told["left_s"], told["left_by"]) == (
        None,
        None,
        None,
        None,
    )


def test_a_server_and_a_job_that_hangs_have_no_end() -> None:
    assert facts(job(spec={"kind": JobKind.INFERENCE}))["left_s"] is None
    hangs = facts(None, sample(last_step_s=NOW_S - 500))
    assert (hangs["now_steps_per_s"], hangs["left_s"]) == (0, None)


LENGTHS = Lengths()
for _ in range(200):
    LENGTHS.note("a", 5_000.0)


@pytest.mark.parametrize(
    ("spec", "fields", "seen", "left_s", "by"),
    [
        ({}, {}, {}, 100, LeftBy.STEPS),
        ({"steps_total": None}, {"constraints": Constraints(steps_total_said=201)}, {}, 50, LeftBy.STEPS),
        ({}, {"constraints": Constraints(steps_total_said=201)}, {}, 100, LeftBy.STEPS),  # its owner's word goes first
        ({"steps_total": None}, {}, {}, None, LeftBy.FAMILY),
        ({"steps_total": None, "family": "new"}, {}, {}, None, None),
        ({}, {"constraints": Constraints(steps_total_doubted=True)}, {}, None, LeftBy.FAMILY),
        ({"steps_limit": 201}, {}, {}, 50, LeftBy.STEPS),
        ({"time_limit_s": 960.0}, {}, {}, 10, LeftBy.LIMIT),
        ({"steps_total": None, "time_limit_s": 960.0}, {}, {}, 10, LeftBy.LIMIT),
        ({"time_limit_s": 960.0}, {"run": Attempt(start_s=50.0, paused_before_s=40.0)}, {}, 50, LeftBy.LIMIT),
        ({}, {"totals": Totals(steps_kept=151)}, {"steps": 51}, 75, LeftBy.STEPS),
    ],
)
def test_what_tells_how_long_is_left(
    spec: dict[str, Any], fields: dict[str, Any], seen: dict[str, Any], left_s: float | None, by: LeftBy | None
) -> None:
    told = facts(job(spec=spec, **fields), sample(**seen), pacing(), lengths=LENGTHS)
    assert told["left_by"] is by
    if by is LeftBy.FAMILY:
        had_s = NOW_S - 50.0
        parts_s = told["left_s"], told["left_p10_s"], told["left_p50_s"], told["left_p90_s"]
        assert parts_s == LENGTHS.rest("a", had_s), "as decisions believe"
        assert told["is_length_guessed"]
    else:
        assert told["left_s"] == told["left_p10_s"] == told["left_p90_s"] == left_s


def spent(told: FactsObject) -> float:
    return sum(cast("dict[str, float]", told["time_spent"]).values())


USER = Hold(HoldKind.USER, "ann", None)


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (job(JobState.QUEUED), "queued"),
        (job(JobState.QUEUED, holds=(USER,)), StateWord.HELD),
        (job(), "running"),
        (job(JobState.PAUSED), "paused"),
        (job(JobState.PAUSED, suspension=Suspension(SuspendVia.LANE, "ann")), StateWord.SUSPENDED),
        (job(JobState.PAUSED, parking=Parking(None)), StateWord.PARKED),
        (job(JobState.FAILED), "failed"),
    ],
)
def test_the_word_says_what_it_does(one: Job, word: str) -> None:
    assert facts(one)["word"] == word


def test_where_its_time_went_adds_up_to_now() -> None:
    told = facts()
    assert spent(told) == told["spent_s"] + 50 == NOW_S
    story = (*job().story, StateChange(500.0, JobState.SUCCEEDED, Reason(Why.EXITED)))
    ended = facts(job(JobState.SUCCEEDED, end_s=500.0, placement=None, story=story))
    assert (ended["spent_s"], ended["ran_s"], spent(ended)) == (450, 450, 500)
    again = (*job().story, StateChange(400.0, JobState.QUEUED, Reason(Why.SUBMITTED)), story[-1])
    assert facts(job(JobState.SUCCEEDED, end_s=500.0, placement=None, story=again))["ran_s"] == 0, (
        "it ended in the queue"
    )
