"""The contention eliminator in the core: who is held back by what was measured, and what that books."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.config import CoreConfig
from colane.core.events import (
    BandwidthObserved,
    Ended,
    Event,
    Launched,
    NodeRegistered,
    Outcome,
    Progressed,
    Submitted,
)
from colane.cpu.contention import ContentionConfig
from colane.model.hardware import GpuId, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import JobKind
from colane.model.phases import Throttle
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, SetThrottle, Start
from colane.model.progress import BY_CPU_TIME, BandwidthSample, Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset

from .audit import audit, audit_decisions
from .worlds import make_node

CONFIG = CoreConfig(protection_factor=0.0, opaque_after_s=1.0, contention=ContentionConfig())
TRAIN, HOG, MILD = JobId(1), JobId(2), JobId(3)


class Contended:
    """A node of 16 cores and two GPUs: a training job of 10 steps/s, and jobs without GPUs."""

    def __init__(self, *others: JobSpec, config: CoreConfig = CONFIG, node: Node | None = None, calm: int = 5) -> None:
        self.core = Core(preset("fifo"), ClusterState(Beliefs()), config)
        self.outcomes: list[Outcome] = []
        self.now_s, self.steps = 0.0, 0.0
        self.at(NodeRegistered(node or make_node("n0", 2)))
        specs = [JobSpec(name="train", family="t", gpus=1, cores=2), *others]
        for number, spec in enumerate(specs, 1):
            self.at(Submitted(JobId(number), spec))
            self.at(Launched(JobId(number), 1, 100 + number, self.now_s))
        self.go(calm, used=None)

    def at(self, *events: Event) -> Outcome:
        outcome = self.core.step(events, self.now_s)
        audit(self.core.state)
        audit_decisions(self.core.state, outcome)
        assert outcome.rejected is None, outcome.rejected
        self.outcomes.append(outcome)
        return outcome

    def go(self, intervals: int, *, used: float | None, speed: float = 1.0, by_job: Any = ((2, 0.6), (3, 0.2))) -> None:
        """So many intervals in which the training job goes at part of its speed and the node uses so much."""
        for _ in range(intervals):
            self.now_s += 10.0
            self.steps += 100 * speed
            if used is not None:
                measured = BandwidthSample(self.now_s, used, by_job, BY_CPU_TIME)
                self.at(BandwidthObserved("n0", measured))
            if TRAIN in self.core.state.jobs:
                sample = Progress(at_s=self.now_s, steps=int(self.steps), first_step_s=1.0, last_step_s=self.now_s)
                self.at(Progressed(TRAIN, 1, sample))

    def end(self, job: JobId) -> None:
        self.at(Ended(job, 1, "exited", Exit(0, None), None, self.now_s))

    def job(self, number: JobId) -> Job:
        return self.core.state.jobs[number]

    def cores(self, number: JobId) -> int:
        throttle, placement = self.job(number).throttle, self.job(number).placement
        assert placement is not None
        return len(placement.cores) if throttle is None else len(throttle.cores)

    def changes(self) -> list[Why]:
        actions = [one.action for outcome in self.outcomes for one in outcome.decisions]
        return [action.reason.why for action in actions if isinstance(action, SetThrottle)]


def hog(cores: int = 8, **fields: Any) -> JobSpec:
    return JobSpec(name="hog", family="h", gpus=0, cores=cores, **fields)


def test_a_hog_is_held_back_while_it_slows_training_and_let_go_once_all_is_calm() -> None:
    world = Contended(hog())
    world.go(3, used=0.9, speed=0.6)
    assert world.cores(HOG) < 8
    held = world.cores(HOG)
    world.go(5, used=0.4)
    assert world.cores(HOG) == held
    world.go(40, used=0.4)
    assert world.cores(HOG) == 8
    assert world.job(HOG).throttle is None
    assert set(world.changes()) == {Why.THROTTLED, Why.LET_GO}


def believed_step_s(world: Contended) -> float:
    (profile,) = [one for one in world.core.state.beliefs.profiles.values() if one.key.family == "t"]
    assert profile.step_s is not None
    return profile.step_s.value


def test_what_training_does_beside_a_hog_teaches_nothing_and_goes_on_teaching_when_it_is_short_alone() -> None:
    # No job is held back for it: where it stays short, what is believed stays what it was.
    watched = replace(CONFIG, contention=ContentionConfig(drop_ratio=0.9))
    world = Contended(hog(), config=watched)
    world.go(5, used=0.4)
    calm_s = believed_step_s(world)
    assert calm_s == pytest.approx(0.1)
    world.go(40, used=0.9, speed=0.5)
    assert believed_step_s(world) == calm_s
    world.go(40, used=0.9, speed=0.5, by_job=((1, 0.9),))
    assert believed_step_s(world) > calm_s, "what training is by its own doing it always is"


def test_its_story_says_with_numbers_which_job_was_slowed_and_what_was_measured() -> None:
    world = Contended(hog())
    world.go(2, used=0.9, speed=0.6)
    reason = world.job(HOG).story[-1].reason
    assert reason.why is Why.THROTTLED
    assert reason.jobs == (TRAIN,)
    assert sentence_of(reason) == (
        "held back to 4 cores for job 1, slowed to 60 %: n0 uses 90 % of its memory bandwidth (cpu-time), this job 60 %"
    )
    world.end(TRAIN)
    world.go(1, used=0.9)
    assert sentence_of(world.job(HOG).story[-1].reason) == (
        "let go to all it had: no training job makes steps there any more; n0 uses 90 % of its memory bandwidth "
        "(cpu-time)"
    )


@pytest.mark.parametrize("suffers", [True, False])
def test_training_that_comes_to_a_hog_is_taken_for_slowed_until_its_own_speed_is_known(*, suffers: bool) -> None:
    world, slow = Contended(hog(), calm=0), 0
    for interval in range(240):
        used = 0.1 + 0.1 * world.cores(HOG)
        is_slow = suffers and used >= 0.75
        slow += is_slow
        world.go(1, used=used, speed=0.5 if is_slow else 1.0, by_job=((2, used - 0.1),))
        if interval == 3:
            assert world.cores(HOG) < 8
            assert "for job 1, whose own speed is not known yet: n0" in sentence_of(world.job(HOG).story[-1].reason)
    held = [why for why in world.changes() if why is Why.THROTTLED]
    if suffers:
        assert slow < 240 / 10
        assert len(held) > 1
    else:
        assert world.job(HOG).throttle is None
        assert len(held) == 1


@pytest.mark.parametrize(("used", "speed"), [(0.9, 0.97), (0.7, 0.5)])
def test_no_job_is_held_back_for_bandwidth_or_slowness_alone(used: float, speed: float) -> None:
    world = Contended(hog())
    world.go(30, used=used, speed=speed)
    assert world.changes() == []


def test_a_job_that_answers_requests_is_never_held_back_and_off_no_job_is() -> None:
    serves = Contended(hog(kind=JobKind.INFERENCE))
    serves.go(30, used=0.9, speed=0.5)
    assert serves.changes() == []
    off = Contended(hog(), config=replace(CONFIG, contention=None))
    off.go(30, used=0.9, speed=0.5)
    assert off.changes() == []


def test_the_largest_consumer_goes_first_down_to_a_core_then_the_next() -> None:
    world = Contended(hog(cores=4), hog(cores=4))
    world.go(60, used=0.9, speed=0.5)
    assert (world.cores(HOG), world.cores(MILD)) == (1, 1)
    order = [
        one.action.job for outcome in world.outcomes for one in outcome.decisions if isinstance(one.action, SetThrottle)
    ]
    assert order == [HOG, HOG, MILD, MILD]


def test_cores_it_gave_up_are_for_jobs_without_gpus_alone_and_come_back() -> None:
    world = Contended(hog(cores=12))
    world.go(3, used=0.9, speed=0.5)
    withheld = world.job(HOG).throttle
    assert withheld is not None
    assert len(withheld.withheld) == 12 - world.cores(HOG)
    world.at(Submitted(MILD, JobSpec(name="more", family="t", gpus=1, cores=4)))
    assert world.job(MILD).state is JobState.QUEUED
    late = JobId(4)
    world.at(Submitted(late, JobSpec(name="small", family="c", gpus=0, cores=4)))
    placement = world.job(late).placement
    assert placement is not None
    assert set(placement.cores) & set(withheld.withheld)
    world.end(TRAIN)
    world.go(1, used=0.9)
    lent = world.job(HOG).throttle
    assert lent is not None
    assert set(lent.withheld) == set(placement.cores) & set(withheld.withheld)
    world.end(late)
    world.go(1, used=0.9)
    assert world.job(HOG).throttle is None
    assert world.cores(HOG) == 12


def test_one_that_books_no_cores_is_confined_to_half_of_the_nodes_away_from_the_training_job() -> None:
    world = Contended(hog(cores=0))
    world.go(2, used=0.9, speed=0.5)
    throttle, train = world.job(HOG).throttle, world.job(TRAIN).placement
    assert throttle is not None
    assert train is not None
    assert len(throttle.cores) == 8
    assert not set(throttle.cores) & set(train.cores)
    assert throttle.withheld == ()
    assert world.core.state.nodes["n0"].cores_booked == set(train.cores)


def test_where_all_cores_are_near_the_training_job_those_it_has_booked_are_given_up_first() -> None:
    made = make_node("n0", 1)
    node = replace(made, gpus=tuple(replace(gpu, cores=made.cores) for gpu in made.gpus))
    world = Contended(hog(cores=0), node=node)
    world.go(2, used=0.9, speed=0.5)
    throttle, train = world.job(HOG).throttle, world.job(TRAIN).placement
    assert throttle is not None
    assert train is not None
    assert train.cores == (0, 1)
    assert throttle.cores == tuple(range(2, 2 + len(node.cores) // 2))


def test_where_bandwidth_can_be_bounded_cores_stay() -> None:
    world = Contended(hog())
    for _ in range(3):
        world.go(1, used=None, speed=0.5)
        sample = BandwidthSample(world.now_s, 0.9, ((2, 0.6),), "resctrl", can_limit=True)
        world.at(BandwidthObserved("n0", sample))
    throttle = world.job(HOG).throttle
    assert throttle is not None
    assert (len(throttle.cores), throttle.withheld) == (8, ())
    assert throttle.bandwidth_ratio < 1
    assert "% of the memory bandwidth for job 1" in sentence_of(world.job(HOG).story[-1].reason)


def test_a_job_that_is_stopped_gives_all_back() -> None:
    world = Contended(hog())
    world.go(3, used=0.9, speed=0.5)
    world.end(HOG)
    assert world.core.state.nodes["n0"].cores_withheld == {}


def test_the_judge_refuses_what_may_not_be() -> None:
    world = Contended(hog(cores=4), hog(cores=4, kind=JobKind.INFERENCE))
    state = world.core.state
    own, reason = world.job(HOG).placement, Reason(Why.THROTTLED)
    assert own is not None

    def flaws(job: JobId, throttle: Throttle | None) -> list[str]:
        return [one.code for one in check(state, Plan(state.version, (SetThrottle(job, throttle, reason),)))]

    half = Throttle(own.cores[:2], own.cores[2:])
    assert flaws(HOG, half) == []
    assert flaws(TRAIN, half) == ["not-throttled"]
    assert flaws(MILD, half) == ["not-throttled"]
    assert flaws(HOG, Throttle((), own.cores)) == ["wrong-cores"]
    assert flaws(HOG, Throttle((99,), own.cores)) == ["wrong-cores"]
    assert flaws(HOG, half._replace(bandwidth_ratio=0.0)) == ["wrong-cores"]
    assert flaws(HOG, half._replace(withheld=())) == ["core-booked-twice"]


def test_the_judge_refuses_a_job_with_gpus_on_cores_that_are_withheld() -> None:
    world = Contended(hog(cores=12))
    world.go(3, used=0.9, speed=0.5)
    throttle = world.job(HOG).throttle
    assert throttle is not None
    world.at(Submitted(MILD, JobSpec(name="more", family="t", gpus=1, cores=4)))
    placement = Placement((Slot(GpuId("n0", 1), 0),), throttle.withheld[:4])
    plan = Plan(world.core.state.version, (Start(MILD, placement, Reason(Why.FREE_GPU, {"gpu": "n0/1"})),))
    assert [one.code for one in check(world.core.state, plan)] == ["core-withheld"]


def fewer(world: Contended, *cores: int) -> None:
    node = world.core.state.nodes["n0"].node
    world.at(NodeRegistered(replace(node, cores=cores)))


def test_jobs_go_on_with_what_is_left_of_their_cores_when_the_node_loses_some() -> None:
    world = Contended(hog(cores=6))
    train, other = world.job(TRAIN).placement, world.job(HOG).placement
    assert train is not None
    assert other is not None
    lost = {train.cores[0], *other.cores[:4]}
    fewer(world, *(core for core in range(16) if core not in lost))
    assert (world.cores(TRAIN), world.cores(HOG)) == (1, 2)
    assert world.job(HOG).attempt == world.job(TRAIN).attempt == 1
    assert world.job(HOG).reason is not None
    assert sentence_of(world.job(HOG).story[-1].reason) == "has 2 cores instead of 6: its node has lost the others"
    assert world.core.state.nodes["n0"].cores_free == 16 - 5 - 3


def test_one_that_lost_all_of_its_own_has_a_free_one_and_one_held_back_keeps_what_is_left() -> None:
    world = Contended(hog(cores=6))
    train = world.job(TRAIN).placement
    assert train is not None
    fewer(world, *(core for core in range(16) if core not in train.cores))
    assert world.cores(TRAIN) == 1
    world = Contended(hog(cores=8))
    world.go(2, used=0.9, speed=0.6)
    throttle = world.job(HOG).throttle
    assert throttle is not None
    gone = {throttle.cores[0], throttle.withheld[0]}
    fewer(world, *(core for core in range(16) if core not in gone))
    now = world.job(HOG).throttle
    assert now is not None
    assert (now.cores, now.withheld) == (throttle.cores[1:], throttle.withheld[1:])
