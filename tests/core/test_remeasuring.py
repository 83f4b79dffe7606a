"""Jobs that have changed since they were measured alone: their co-runners step aside until then."""

from __future__ import annotations

import pytest

from colane.core.events import Progressed
from colane.model.job import JobId, JobState
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset

from .test_guard import LANES, NO_HOST, ONE, TWO, Shared, moves_of, spec
from .worlds import GIB

A = ProfileKey("a", 64, 1, "V100")


class Telling(Shared):
    """Samples come with how busy the jobs keep their GPU."""

    def go_on(self, seconds: float, one_s: float, two_s: float | None = None, *, busy: float = 0.9) -> None:
        """Jobs 1 and 2 make steps of so long, the second one where that is said; samples come every second."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            for job, step_s in ((ONE, one_s), (TWO, two_s)):
                if step_s is None:
                    continue
                self.done[job] += 1.0 / step_s
                sample = Progress(
                    at_s=self.now_s, steps=int(self.done[job]), first_step_s=3.0, last_step_s=self.now_s,
                    occupancy_ratio=busy,
                )  # fmt: skip
                self.at(self.now_s, Progressed(job, 1, sample))

    def give_up(self, job: JobId) -> None:
        """A parked job's memory has been moved to the host."""
        at_s, steps = self.now_s, int(self.done[job])
        moved = Progress(at_s=at_s, steps=steps, first_step_s=3.0, last_step_s=at_s, on_host_bytes=GIB)
        self.at(at_s, Progressed(job, 1, moved))

    def step_s(self) -> float | None:
        found = self.core.state.beliefs.profiles[A].step_s
        return None if found is None else found.value


def test_the_co_runners_of_a_job_faster_than_ever_alone_step_aside_and_lose_no_step() -> None:
    world = Telling(spec("a"), spec("b"))
    world.go_on(30, 0.1, 0.1)
    assert world.job(TWO).state is JobState.RUNNING
    changed(world)
    aside = world.job(TWO)
    assert (aside.state, aside.parked, aside.attempt) == (JobState.PAUSED, True, 1)
    reason = aside.story[-1].reason
    assert (reason.why, reason.jobs) == (Why.MEASURED_ANEW, (ONE,))
    assert "job 1 has been measured there alone again" in sentence_of(reason)
    assert world.job(ONE).state is JobState.RUNNING
    assert world.step_s() is None


def test_it_is_measured_alone_and_a_job_that_stepped_aside_stays_away_where_sharing_would_not_pay() -> None:
    world = changed()
    world.give_up(TWO)
    world.go_on(30, 0.02)
    assert world.step_s() == pytest.approx(0.02, rel=0.1)
    world.go_on(60, 0.02)
    assert world.core.state.gpus[world.job(ONE).gpus_held[0]].jobs == (ONE,)
    keys = [A, ProfileKey("b", 64, 1, "V100")]
    prediction = world.core.state.beliefs.predict(keys, "mps")
    assert prediction is None or not prediction.source.startswith("measured"), "that set was measured of another job"


def test_of_twins_that_were_measured_together_one_stays_away_until_the_other_is_known_again() -> None:
    world = Telling(spec("a"), spec("a"))
    world.core.policy = preset("colane")
    world.go_on(60, 0.1, 0.1, busy=0.3)
    beliefs = world.core.state.beliefs
    assert isinstance(beliefs, Beliefs)
    assert len(beliefs.points("V100", "mps")) == 1
    changed(world)
    world.give_up(TWO)
    assert (world.job(TWO).state, world.job(TWO).gpus_held) == (JobState.PAUSED, ())
    assert beliefs.curve(spec("a"), "V100").steps == {}
    world.go_on(60, 0.02, busy=1.0)
    assert world.step_s() == pytest.approx(0.02, rel=0.1)


def test_a_job_that_stepped_aside_comes_back_where_sharing_pays() -> None:
    world = Telling(spec("a"), spec("b"))
    world.core.policy = preset("colane")
    changed(world)
    world.give_up(TWO)
    world.go_on(240, 0.02, busy=0.01)  # until the other has outlived the minute that a job of a new family is given
    assert world.job(TWO).gpus_held == world.job(ONE).gpus_held


def test_all_stay_where_none_can_step_aside_and_nothing_is_believed_of_that_speed() -> None:
    world = changed(Telling(spec("a"), spec("b"), LANES, NO_HOST), steps_aside=False)
    assert (world.job(ONE).state, world.job(TWO).state) == (JobState.RUNNING, JobState.RUNNING)
    assert Why.MEASURED_ANEW not in moves_of(world.job(TWO))
    assert world.step_s() is None


def test_a_job_a_little_faster_than_alone_is_left_alone() -> None:
    world = Telling(spec("a"), spec("b"))
    world.go_on(300, 0.08, 0.08)
    assert [world.job(job).state for job in (ONE, TWO)] == [JobState.RUNNING] * 2
    assert world.step_s() == pytest.approx(0.1)


def changed(world: Telling | None = None, *, steps_aside: bool = True) -> Telling:
    """Jobs 1 and 2, of which 1 has become twice as fast as it ever was alone."""
    world = world or Telling(spec("a"), spec("b"))
    for _ in range(300):
        world.go_on(1, 0.05, 0.1)
        if world.step_s() is None:
            break
    assert (world.job(TWO).state is JobState.PAUSED) == steps_aside
    return world
