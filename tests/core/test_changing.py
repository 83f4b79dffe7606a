"""Time limits that change while a job waits, runs or is paused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core.events import LimitsChanged, Submitted
from colane.model.job import JobState
from colane.model.job_spec import NewLimit
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.scheduling.registry import POLICIES

from .test_suspension import ONE, SPEC, TWO, OneGpu, resume, suspend


def limit(seconds: float | None) -> LimitsChanged:
    return LimitsChanged(ONE, "ann", NewLimit(seconds))


@pytest.mark.parametrize(("before_s", "after_s"), [(50.0, 100.0), (None, 100.0), (500.0, 100.0)])
def test_it_ends_at_its_new_limit_and_not_at_its_old_one(before_s: float | None, after_s: float) -> None:
    world = OneGpu(replace(SPEC, time_limit_s=before_s))
    world.running()  # since 10
    outcome = world.at(20.0, limit(after_s))
    assert sentence_of(world.job().story[-1].reason) == "from now on time limit 100 s, by ann"
    assert outcome.wake_s is not None
    world.at(109.9)
    assert world.job().state is JobState.RUNNING
    world.at(110.0)
    assert (world.job().state, world.job().reason.why) == (JobState.STOPPING, Why.TIME_LIMIT)  # type: ignore[union-attr]


def test_without_a_limit_it_goes_on_and_below_what_it_has_run_it_ends_now() -> None:
    world = OneGpu()
    world.running()
    world.at(20.0, limit(None))
    world.at(1000.0)
    assert world.job().state is JobState.RUNNING
    world.at(1001.0, limit(300.0))
    assert (world.job().state, world.job().ending) == (JobState.STOPPING, JobState.TIMED_OUT)


def test_one_that_is_paused_is_timed_when_it_goes_on() -> None:
    world = OneGpu()
    world.running()
    world.at(20.0, suspend())
    world.at(50.0, limit(30.0))
    world.at(200.0, resume())
    assert world.job().state is JobState.RUNNING
    world.at(220.0)
    assert world.job().state is JobState.STOPPING


def test_the_same_limit_is_no_news() -> None:
    world = OneGpu()
    world.running()
    before = world.job().story
    assert world.at(20.0, limit(SPEC.time_limit_s)).jobs == ()
    assert world.job().story == before


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_that_waits_keeps_its_place(policy: str) -> None:
    world = OneGpu(policy=policy)
    world.running()
    waiting = replace(SPEC, share=False)
    world.at(20.0, Submitted(TWO, waiting))
    world.at(21.0, LimitsChanged(TWO, "ann", NewLimit(5.0)))
    assert world.job(TWO).effective.time_limit_s == 5.0
    world.at(22.0, LimitsChanged(TWO, "ann", NewLimit(None)))
    assert world.job(TWO).is_waiting
    assert world.job(TWO).effective == replace(waiting, time_limit_s=None)
    world.at(23.0, LimitsChanged(TWO, "ann", NewLimit(waiting.time_limit_s)))
    assert world.job(TWO).effective == world.job(TWO).spec == waiting
