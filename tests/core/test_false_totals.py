"""A declared total of steps that proves false costs its owner the credit; jobs that keep to theirs earn it back."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    Submitted,
)
from colane.core.usage import TRUTHS_MIN
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset
from colane.server.store import documents
from tests.scheduling.life import step_time

from .audit import audit
from .worlds import make_node


class Cluster:
    """One GPU; jobs of ann and bob, whose lengths are what they say."""

    def __init__(self, policy: str = "colane") -> None:
        self.core = Core(preset(policy), ClusterState(Beliefs()))
        self.now_s, self.next = 0.0, 1
        self.step(NodeRegistered(make_node("n0", 1)), ProfileDeclared(step_time(1.0)))

    def step(self, *events: Event) -> Outcome:
        self.now_s += 1.0
        return self.core.step(events, self.now_s)

    def submit(self, user: str, total: int | None) -> int:
        number, self.next = self.next, self.next + 1
        spec = JobSpec(name="j", family="f", user=user, steps_total=total, share=False)
        self.step(Submitted(JobId(number), spec))
        return number

    def job(self, number: int) -> Job:
        return self.core.state.jobs[JobId(number)]

    def makes(self, number: int, steps: int) -> Outcome:
        attempt = self.job(number).attempt
        if self.job(number).state is JobState.ASSIGNED:
            self.step(Launched(JobId(number), attempt, 100 + number, self.now_s))
        return self.step(Progressed(JobId(number), attempt, self.sample(steps)))

    def sample(self, steps: int) -> Progress:
        return Progress(at_s=self.now_s, steps=steps, first_step_s=self.now_s, last_step_s=self.now_s)

    def ends(self, number: int, steps: int, code: int = 0) -> Outcome:
        attempt, ending = self.job(number).attempt, Exit(code, None, "")
        return self.step(
            Ended(JobId(number), attempt, "exited", ending, self.now_s, self.now_s + 1.0, self.sample(steps))
        )

    def owed(self, user: str) -> int:
        return self.core.state.usage.truths_owed(user)

    def believes(self, number: int) -> bool:
        return self.job(number).effective.steps_total is not None


def test_a_job_that_lies_goes_first_once_and_then_as_a_job_of_unknown_length() -> None:
    cluster = Cluster()
    running = cluster.submit("ann", 1)
    waiting = [cluster.submit("ann", 1), cluster.submit("bob", 60)]
    assert cluster.believes(running)
    outcome = cluster.makes(running, 2)
    assert [cluster.believes(number) for number in (running, *waiting)] == [False, False, True]
    assert [(one.user, one.truths_owed) for one in outcome.used] == [("ann", TRUTHS_MIN)], "it is stored"
    assert cluster.job(running).spec.steps_total == 1, "the declaration stays"
    assert not cluster.believes(cluster.submit("ann", 1)), "of the owner's next jobs neither"
    assert cluster.believes(cluster.submit("bob", 1))
    audit(cluster.core.state)


@pytest.mark.parametrize(
    ("steps", "is_believed", "owed"), [(100, True, 0), (101, False, 0), (110, False, 0), (111, False, TRUTHS_MIN)]
)
def test_a_few_steps_more_make_a_job_one_of_unknown_length_and_cost_nothing(
    steps: int, is_believed: bool, owed: int
) -> None:
    cluster = Cluster()
    number = cluster.submit("ann", 100)
    cluster.makes(number, steps)
    assert (cluster.believes(number), cluster.owed("ann")) == (is_believed, owed)


@pytest.mark.parametrize("at_end", [False, True])
def test_jobs_in_a_row_that_keep_to_theirs_mend_it_and_another_lie_begins_anew(at_end: bool) -> None:
    cluster = Cluster()
    number = cluster.submit("ann", 1)
    if not at_end:
        cluster.makes(number, 100)
    cluster.makes(number, 1)
    cluster.ends(number, 100)
    assert cluster.owed("ann") == TRUTHS_MIN, "a lie counts once, seen late or early"
    for left in range(TRUTHS_MIN - 1, 0, -1):
        number = cluster.submit("ann", 10)
        cluster.makes(number, 9)
        cluster.ends(number, 10)
        assert (cluster.owed("ann"), cluster.believes(cluster.submit("ann", 10))) == (left, False)
        cluster.step(CancelRequested(JobId(cluster.next - 1), "ann"))
        cluster.ends(cluster.next - 1, 0, 1)
    number = cluster.submit("ann", 10)
    cluster.makes(number, 20)
    assert cluster.owed("ann") == TRUTHS_MIN
    cluster.ends(number, 20)
    for _ in range(TRUTHS_MIN):
        number = cluster.submit("ann", 10)
        cluster.makes(number, 9)
        cluster.ends(number, 10)
    assert cluster.owed("ann") == 0
    assert cluster.believes(cluster.submit("ann", 10))


@pytest.mark.parametrize(("total", "steps", "code"), [(10, 5, 1), (None, 5, 0), (10, 0, 0)])
def test_what_proves_nothing_mends_nothing(total: int | None, steps: int, code: int) -> None:
    """A failure, a job that has declared none, and one of which no step was seen."""
    cluster = Cluster()
    liar = cluster.submit("ann", 1)
    cluster.makes(liar, 100)
    cluster.ends(liar, 100)
    number = cluster.submit("ann", total)
    cluster.makes(number, steps)
    cluster.ends(number, steps, code)
    assert cluster.owed("ann") == TRUTHS_MIN


def test_it_is_the_same_after_a_restart_and_once_gpus_are_charged() -> None:
    cluster = Cluster()
    number = cluster.submit("ann", 1)
    cluster.makes(number, 100)
    outcome = cluster.ends(number, 100)
    stored = [documents.USED.read(documents.USED.write(one)) for one in outcome.used]
    state = ClusterState.restore([], [], Beliefs(), used=stored)
    assert state.usage.truths_owed("ann") == TRUTHS_MIN
    assert state.usage.of("ann", cluster.now_s) == cluster.core.state.usage.of("ann", cluster.now_s) > 0
    old = documents.USED.read({"user": "ann", "gpu_s": 60.0, "at_s": 5.0})
    assert old.truths_owed == 0


def test_jobs_of_no_user_in_particular_cost_no_one_the_credit() -> None:
    cluster = Cluster()
    number = cluster.submit("", 1)
    cluster.makes(number, 100)
    assert not cluster.believes(number)
    assert cluster.believes(cluster.submit("", 1))
