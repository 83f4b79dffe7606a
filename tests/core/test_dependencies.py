"""Jobs that start after others: every condition against every end, in any order, through restarts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.events import CancelRequested, Ended, Event, Launched, NodeRegistered, ResumeRequested, Submitted
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import IfNever
from colane.model.phases import Dependency, DependsOn, Hold, HoldKind
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from colane.server.submitting.asked_conditions import parse_asked
from tests.core.worlds import make_node

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)


def after(*conditions: str) -> tuple[Hold, ...]:
    asked, _ = parse_asked(",".join(conditions)) if conditions else ([], False)
    return tuple(Hold(HoldKind.AFTER, "", None, Dependency(each.on, each.job)) for each in asked)


def submitted(job: int, *conditions: str, if_never: IfNever = IfNever.CANCEL) -> Submitted:
    return Submitted(JobId(job), JobSpec(name=f"j{job}", family="f", if_never=if_never), after(*conditions))


def make_core(gpus: int = 4, state: ClusterState | None = None) -> Core:
    core = Core(create("fifo"), state or ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n", gpus))], 0.0)
    return core


def launched(job: int, at_s: float) -> Launched:
    return Launched(JobId(job), 1, 100 + job, at_s, "n")


def ended(job: int, at_s: float, code: int = 0) -> Ended:
    return Ended(JobId(job), 1, "exited", Exit(code, None), 1.0, at_s, None, "n")


def endings(core: Core, job: int, how: str, at_s: float) -> list[Event]:
    """What makes a job that waits for nothing move as is said."""
    core.step([launched(job, at_s)], at_s)
    moves: dict[str, list[Event]] = {
        "starts": [],
        "succeeds": [ended(job, at_s + 1)],
        "fails": [ended(job, at_s + 1, 3)],
        "is cancelled": [CancelRequested(JobId(job), "ann"), ended(job, at_s + 1, 1)],
    }
    return moves[how]


MET = {
    ("start", "starts"), ("start", "succeeds"), ("start", "fails"), ("start", "is cancelled"),
    ("any", "succeeds"), ("any", "fails"), ("any", "is cancelled"),
    ("ok", "succeeds"), ("fail", "fails"), ("fail", "is cancelled"),
}  # fmt: skip
NEVER = {("ok", "fails"), ("ok", "is cancelled"), ("fail", "succeeds")}


@pytest.mark.parametrize(
    ("word", "how", "if_never"),
    [*product([each.value for each in DependsOn], ["starts", "succeeds", "fails", "is cancelled"], IfNever)],
)
def test_each_condition_against_each_end(word: str, how: str, if_never: IfNever) -> None:
    core = make_core()
    core.step([submitted(1)], 1.0)
    outcome = core.step([submitted(2, f"{word}:1", if_never=if_never)], 2.0)
    assert outcome.decisions == ()
    assert core.why(TWO, 2.0).why is Why.AFTER
    events = endings(core, 1, how, 3.0)
    core.step(events, 5.0)
    job = core.state.jobs.get(TWO)
    if (word, how) in MET:
        assert job is not None
        assert job.state is JobState.ASSIGNED
        assert Why.AFTER_MET in [line.reason.why for line in job.story]
    elif (word, how) not in NEVER:
        assert job is not None
        assert (job.state, core.why(TWO, 5.0).why) == (JobState.QUEUED, Why.AFTER)
    elif if_never is IfNever.CANCEL:
        assert job is None
    else:
        assert job is not None
        assert [hold.kind for hold in job.holds] == [HoldKind.USER]
        assert "job 1 has ended as" in sentence_of(core.why(TWO, 5.0))
        assert core.step([ResumeRequested(TWO, "ann")], 6.0).decisions


def test_all_conditions_must_come_true_and_the_sentence_names_those_that_are_left() -> None:
    core = make_core()
    core.step([submitted(1), submitted(2), submitted(3, "ok:1", "any:2")], 1.0)
    assert sentence_of(core.why(THREE, 1.0)) == "Dependency: it starts once job 1 has succeeded and job 2 has ended"
    core.step([launched(1, 2.0), launched(2, 2.0), ended(2, 3.0, 1)], 3.0)
    assert sentence_of(core.why(THREE, 3.0)) == "Dependency: it starts once job 1 has succeeded"
    assert core.step([ended(1, 4.0)], 4.0).decisions[0].action.job == THREE


def test_a_chain_is_cancelled_to_its_end_in_one_step_and_each_says_for_which() -> None:
    core = make_core()
    core.step([submitted(1), *(submitted(job, f"ok:{job - 1}") for job in range(2, 1_000))], 1.0, whole=True)
    outcome = core.step([CancelRequested(ONE, "ann")], 2.0)
    core.step([launched(1, 2.0)], 2.0)
    outcome = core.step([ended(1, 3.0, 1)], 3.0)
    assert len(outcome.jobs) == 999
    assert core.state.jobs == {}
    assert core.state.dependents == {}
    last = outcome.jobs[-1]
    assert last.reason is not None
    assert sentence_of(last.reason) == (
        "DependencyNeverSatisfied: job 998 has ended as cancelled, so ok:998 never comes true"
    )


def test_a_job_that_ends_in_the_step_of_a_submission_counts() -> None:
    core = make_core()
    core.step([submitted(1)], 1.0)
    core.step([launched(1, 2.0)], 2.0)
    outcome = core.step([ended(1, 3.0), submitted(2, "ok:1")], 3.0)
    assert [decision.action.job for decision in outcome.decisions] == [TWO]


def test_a_release_by_the_owner_does_not_end_what_is_waited_for() -> None:
    core = make_core()
    held = Submitted(TWO, JobSpec(name="b", family="f"), (Hold(HoldKind.USER, "ann"), *after("ok:1")))
    core.step([submitted(1), held], 1.0)
    assert core.why(TWO, 1.0).why is Why.HELD
    core.step([ResumeRequested(TWO, "ann")], 2.0)
    assert core.why(TWO, 2.0).why is Why.AFTER
    core.step([launched(1, 3.0)], 3.0)
    assert core.step([ended(1, 4.0)], 4.0).decisions


def test_a_start_that_is_put_off_comes_at_its_time() -> None:
    core = make_core()
    core.step([Submitted(ONE, JobSpec(name="a", family="f"), (Hold(HoldKind.USER, "ann"),))], 1.0)
    later = Hold(HoldKind.BEGIN, "then", 50.0)
    outcome = core.step([ResumeRequested(ONE, "ann", later)], 2.0)
    assert (outcome.decisions, outcome.wake_s, core.why(ONE, 2.0).why) == ((), 50.0, Why.BEGINS_LATER)
    assert core.step([], 50.0).decisions


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[tuple[str, int]]], list[int]]:
    """For each job what it waits for among earlier ones, and with which code it ends."""
    count = draw(st.integers(2, 8))
    words = st.sampled_from([each.value for each in DependsOn])
    waits = [
        draw(st.lists(st.tuples(words, st.integers(1, job - 1)), max_size=2, unique=True)) if job > 1 else []
        for job in range(1, count + 1)
    ]
    return waits, draw(st.lists(st.sampled_from([0, 1]), min_size=count, max_size=count))


@given(graphs(), st.integers(0, 20))
@settings(deadline=None)
def test_no_job_starts_before_its_conditions_and_every_job_comes_to_an_end(
    graph: tuple[list[list[tuple[str, int]]], list[int]], restart: int
) -> None:
    """Also through a restart of the scheduler after any event."""
    waits, codes = graph
    core = make_core(gpus=1)
    now_s, states, started = 1.0, dict[int, JobState](), set[int]()
    submit = [
        submitted(job, *(f"{word}:{other}" for word, other in waits[job - 1])) for job in range(1, len(waits) + 1)
    ]

    def see(jobs: tuple[Job, ...]) -> None:
        for job in jobs:
            for word, other in waits[job.id - 1] if job.state is JobState.ASSIGNED else []:
                on = Dependency(DependsOn(word), other)
                assert on.holds_for(states.get(other, JobState.QUEUED), has_started=other in started)
            states[job.id] = job.state
            if job.first_start_s is not None:
                started.add(job.id)

    see(core.step(submit, now_s).jobs)
    for turn in range(3 * len(waits)):
        if turn == restart:
            core = make_core(1, ClusterState.restore([], core.state.jobs.values(), Beliefs()))
        now_s += 1.0
        running = [job for job in core.state.jobs.values() if job.placement is not None]
        if not running:
            break
        job = running[0]
        event: Event = launched(job.id, now_s) if job.start_s is None else ended(job.id, now_s, codes[job.id - 1])
        see(core.step([event], now_s).jobs)
    assert core.state.jobs == {}
    assert core.state.dependents == {}
