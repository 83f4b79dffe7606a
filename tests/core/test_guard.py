"""The guard: what is slower with co-runners than predicted is split, or it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.co_runners import CoRunners
from colane.core.config import CoreConfig
from colane.core.events import (
    Ended,
    GpusObserved,
    Launched,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.facts.job import job_facts
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import SAVED, CheckpointContract
from colane.model.placement import TurnRule
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset
from colane.server.views.jobs_and_nodes import job_view

from .audit import audit
from .worlds import GIB, make_node, make_profile

ONE, TWO = JobId(1), JobId(2)
LANES = CoreConfig(protection_factor=0.0, guard_after_s=30.0)
NODE = make_node("n0", 1)
NO_TURNS = replace(LANES, turn_rule=TurnRule.FIFO)
"""No job is promised a share, so none is brought to take turns ..."""
NO_HOST = replace(NODE, host_refusal="its driver is of version 550, moving takes 570")
"""... and none can be parked: there is nothing left but stopping."""


def spec(family: str, *, preemptible: bool = False) -> JobSpec:
    return JobSpec(name=family, family=family, batch_size=64, preemptible=preemptible)


class Shared:
    """Jobs 1 and 2, whose steps take 0.1 s alone, beside each other on one GPU; their samples come every 5 s."""

    def __init__(self, first: JobSpec, second: JobSpec, config: CoreConfig = LANES, node: Node = NODE) -> None:
        self.core = Core(preset("colocate"), ClusterState(Beliefs()), config)
        self.at(0.0, NodeRegistered(node))
        for family in ("a", "b"):
            self.at(0.0, ProfileDeclared(make_profile(family, "V100", 1e6, 2 * GIB)))
        self.at(1.0, Submitted(ONE, first), Submitted(TWO, second))
        self.at(2.0, Launched(ONE, 1, 7, 2.0), Launched(TWO, 1, 8, 2.0))
        self.done: dict[JobId, float] = {ONE: 0.0, TWO: 0.0}
        self.turns: dict[JobId, str] = {}
        self.now_s = 2.0

    def at(self, now_s: float, *events: object) -> Outcome:
        outcome = self.core.step(events, now_s)  # type: ignore[arg-type]
        audit(self.core.state)
        return outcome

    def go(self, seconds: float, slowdown: float) -> None:
        """Both step, so many times slower than alone."""
        for _ in range(int(seconds / 5)):
            self.now_s += 5.0
            for job in (ONE, TWO):
                if self.job(job).state in (JobState.LAUNCHING, JobState.RUNNING_PROTECTED, JobState.RUNNING):
                    self.done[job] += 50 / slowdown
                    steps = int(self.done[job])
                    turn = self.turns.get(job, "")
                    sample = Progress(at_s=self.now_s, steps=steps, first_step_s=3.0, last_step_s=self.now_s, turn=turn)
                    self.at(self.now_s, Progressed(job, 1, sample))

    def job(self, number: JobId) -> Job:
        return self.core.state.jobs[number]

    def co_runners(self, number: JobId = ONE) -> CoRunners:
        found = self.core.co_runners(number)
        assert found is not None
        return found


def test_no_job_is_separated_for_waiting_for_one_that_is_out_of_turns() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True))
    world.go(20, 1.0)
    sample = Progress(at_s=world.now_s, steps=int(world.done[TWO]), first_step_s=3.0, turn="ungated", note="...")
    world.at(world.now_s, Progressed(TWO, 1, sample))
    world.turns = {TWO: "ungated"}
    world.go(300, 3.0)
    assert [world.job(job).state for job in (ONE, TWO)] == [JobState.RUNNING] * 2
    assert Why.TURNS_INSTEAD not in moves_of(world.job(TWO))


def test_jobs_as_fast_as_predicted_are_left_alone() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True))
    world.go(300, 1.1)
    assert (world.job(ONE).state, world.job(TWO).state) == (JobState.RUNNING, JobState.RUNNING)
    co_runners = world.co_runners()
    assert co_runners.others == (TWO,)
    assert co_runners.lane_mates == ()
    assert co_runners.predicted == pytest.approx(1.0, abs=0.1)
    assert co_runners.measured == pytest.approx(1.1, rel=0.05)


def test_the_newest_preemptible_job_is_separated_with_the_reason_and_gets_a_gpu_to_itself() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True), NO_TURNS, NO_HOST)
    world.go(70, 1.9)
    newest = world.job(TWO)
    assert (newest.state, newest.ending) == (JobState.STOPPING, JobState.QUEUED)
    reason = newest.story[-1].reason
    assert reason.why is Why.TOO_SLOW_TOGETHER
    assert reason.jobs == (ONE,)
    assert reason.facts["measured"] == pytest.approx(1.9, rel=0.05)
    assert reason.facts["predicted"] == pytest.approx(1.0, abs=0.1)
    assert "1.90 times slower" in sentence_of(reason)
    world.at(200.0, Ended(TWO, 1, "signalled", Exit(None, 15), 2.0, 200.0))
    assert world.job(TWO).state is JobState.QUEUED
    assert world.job(TWO).effective.share is False
    assert world.job(ONE).state is JobState.RUNNING
    world.at(300.0, Ended(ONE, 1, "exited", Exit(0, None), 2.0, 300.0))
    assert world.job(TWO).state is JobState.ASSIGNED


def test_a_job_that_was_to_save_first_gets_a_gpu_to_itself_however_it_left() -> None:
    saving = replace(spec("b", preemptible=True), checkpoint=CheckpointContract("SIGUSR1", 60.0))
    for end in (Exit(None, 9), Exit(SAVED, None)):
        world = Shared(spec("a", preemptible=True), saving, NO_TURNS, NO_HOST)
        world.go(70, 1.9)
        assert world.job(TWO).state is JobState.CHECKPOINTING
        world.at(200.0, Tick())  # its time to save is over
        assert world.job(TWO).state is JobState.STOPPING
        world.at(201.0, Ended(TWO, 1, "exited" if end.code else "signalled", end, 2.0, 201.0))
        world.at(300.0, Ended(ONE, 1, "exited", Exit(0, None), 2.0, 300.0))
        assert world.job(TWO).effective.share is False
        assert world.job(TWO).spec is saving
        view = job_view(world.job(TWO), None, "colocate", job_facts(world.job(TWO), None, None, 0.0))
        assert (view["needs"]["share"], view["constraints"]) == (True, {"isolated": True})


def moves_of(job: Job) -> list[Why]:
    return [line.reason.why for line in job.story]


@pytest.mark.parametrize("preemptible", [False, True])
def test_a_pair_slower_than_predicted_takes_turns_within_a_minute_and_loses_no_step(preemptible: bool) -> None:
    config = CoreConfig(protection_factor=0.0)
    world = Shared(spec("a", preemptible=preemptible), spec("b", preemptible=preemptible), config)
    world.go(60, 1.5)
    newest = world.job(TWO)
    assert (newest.state, newest.attempt, newest.story[-1].reason.why) == (JobState.RUNNING, 1, Why.TURNS_INSTEAD)
    assert "side by side, job 2 went 1.50 times slower than alone" in sentence_of(newest.story[-1].reason)
    co_runners = world.co_runners()
    assert (co_runners.lane_mates, co_runners.others, co_runners.predicted) == ((TWO,), (), 2.0)
    done = world.job(ONE).attempt, world.done[ONE]
    world.go(300, 2.05)
    assert (world.job(ONE).state, world.job(TWO).state) == (JobState.RUNNING, JobState.RUNNING), "as slow as predicted"
    assert (world.job(ONE).attempt, world.done[ONE] > done[1]) == (1, True)


def test_a_job_that_is_too_slow_in_turns_too_is_parked_and_goes_on_alone() -> None:
    world = Shared(spec("a", preemptible=True), spec("b"))
    world.go(40, 1.5)
    world.go(60, 3.5)
    parked = world.job(TWO)
    assert (parked.state, parked.attempt, parked.parked) == (JobState.PAUSED, 1, True)
    assert moves_of(parked)[-2:] == [Why.TURNS_INSTEAD, Why.PARKED_TOO_SLOW]
    at_s = world.now_s
    moved = Progress(at_s=at_s, steps=int(world.done[TWO]), first_step_s=3.0, last_step_s=at_s, on_host_bytes=2 * GIB)
    world.at(at_s, Progressed(TWO, 1, moved))
    world.at(at_s + 10, Submitted(JobId(3), spec("a")))
    world.at(at_s + 20, Ended(ONE, 1, "exited", Exit(0, None), 2.0, at_s + 20))
    assert world.job(TWO).effective.share is False
    assert world.job(TWO).attempt == 1


def test_one_whose_launch_costs_less_than_its_memory_is_stopped_as_for_any_other_job() -> None:
    world = Shared(spec("a"), spec("b", preemptible=True), NO_TURNS)
    world.go(70, 1.9)
    assert (world.job(TWO).state, world.job(TWO).ending) == (JobState.STOPPING, JobState.QUEUED)
    loses_it = Shared(spec("a"), spec("b"), NO_TURNS)
    loses_it.go(70, 1.9)
    assert (loses_it.job(TWO).state, loses_it.job(TWO).parked) == (JobState.PAUSED, True)


def test_what_the_co_runners_achieved_is_learnt_before_they_are_separated() -> None:
    world = Shared(spec("a"), spec("b", preemptible=True), NO_TURNS, NO_HOST)
    world.go(70, 2.5)
    assert world.job(TWO).state is JobState.STOPPING
    beliefs = world.core.state.beliefs
    keys = [ProfileKey(family, 64, 1, "V100") for family in ("a", "b")]
    prediction = beliefs.predict(keys, "mps")
    assert prediction is not None
    assert prediction.source.startswith("measured")
    assert prediction.speedup == pytest.approx(0.8, rel=0.05)


def test_an_older_job_goes_if_the_newest_may_not_be_stopped() -> None:
    world = Shared(spec("a", preemptible=True), spec("b"), NO_TURNS, NO_HOST)
    world.go(70, 1.9)
    assert (world.job(ONE).state, world.job(TWO).state) == (JobState.STOPPING, JobState.RUNNING)


def test_where_no_job_may_be_stopped_it_is_said_once_and_none_is() -> None:
    world = Shared(spec("a"), spec("b"), NO_TURNS, NO_HOST)
    world.go(300, 1.9)
    for number in (ONE, TWO):
        job = world.job(number)
        assert job.state is JobState.RUNNING
        said = [line.reason.why for line in job.story].count(Why.SLOW_TOGETHER)
        assert said == 1
    assert "none of them can take turns, be parked or be stopped" in sentence_of(world.core.why(ONE, 400.0))


def test_it_takes_some_time_and_can_be_switched_off() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True))
    world.go(30, 1.9)
    assert world.job(TWO).state is JobState.RUNNING
    world = Shared(
        spec("a", preemptible=True), spec("b", preemptible=True), CoreConfig(guard=False, protection_factor=0.0)
    )
    world.go(300, 1.9)
    assert world.job(TWO).state is JobState.RUNNING


def test_with_a_co_runner_suspended_the_others_are_measured_as_alone() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True))
    world.go(20, 1.9)
    world.at(23.0, SuspendRequested(TWO, "ann"))
    world.go(100, 1.05)
    assert world.job(ONE).state is JobState.RUNNING
    assert world.co_runners(ONE).measured == pytest.approx(1.05, rel=0.05)


@pytest.mark.parametrize(
    ("rule", "share", "predicted"),
    [
        (TurnRule.FAIR, 0.75, 1 / 0.75),
        (TurnRule.RR, 0.5, 2.0),
        (TurnRule.FIFO, None, None),
        (TurnRule.SRTF, None, None),
    ],
)
def test_jobs_that_take_turns_are_predicted_by_their_shares(
    rule: TurnRule, share: float | None, predicted: float | None
) -> None:
    """Two jobs of 4 GiB each between steps and 4 more within one: 16 GiB hold both in one lane only."""
    core = Core(preset("fair"), ClusterState(Beliefs()), replace(LANES, turn_rule=rule))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    for family in ("a", "b"):
        core.step([ProfileDeclared(make_profile(family, "V100", 1e6, 8 * GIB))], 0.0)
    heavy = replace(spec("a"), weight=3.0)
    core.step([Submitted(ONE, heavy), Submitted(TWO, spec("b"))], 1.0)
    co_runners = core.co_runners(ONE)
    assert co_runners is not None
    assert co_runners.lane_mates == (TWO,)
    assert co_runners.share_ratio == share
    assert co_runners.predicted == pytest.approx(predicted) if predicted else co_runners.predicted is None


def test_a_job_alone_has_no_co_runners() -> None:
    core = Core(preset("colocate"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1)), Submitted(ONE, spec("a"))], 0.0)
    assert core.co_runners(ONE) is None


def others_use(world: Shared, ratio: float) -> None:
    (gpu,) = world.core.state.nodes["n0"].node.gpus
    world.at(world.now_s, GpusObserved("n0", (replace(gpu, others_ratio=ratio),)))


def test_co_runners_are_not_blamed_for_what_others_do_on_the_gpu() -> None:
    world = Shared(spec("a", preemptible=True), spec("b", preemptible=True), NO_TURNS, NO_HOST)
    world.go(60, 1.1)
    others_use(world, 0.6)
    world.go(300, 4.0)
    assert world.job(ONE).state is world.job(TWO).state is JobState.RUNNING
    others_use(world, 0.0)
    world.go(60, 1.1)
    assert world.job(TWO).state is JobState.RUNNING
    world.go(60, 4.0)
    assert JobState.STOPPING in {world.job(ONE).state, world.job(TWO).state}, "now they are co-runners"


def test_no_job_joins_a_gpu_that_others_use_by_prediction() -> None:
    world = Shared(spec("a"), spec("b"))
    others_use(world, 0.6)
    world.at(3.0, Submitted(JobId(3), spec("a")))
    assert world.job(JobId(3)).state is JobState.QUEUED
    assert "uses 60 % of it" in sentence_of(world.core.why(JobId(3), 3.0))
    others_use(world, 0.1)
    assert world.job(JobId(3)).state is JobState.ASSIGNED


def test_a_gpu_that_others_use_is_taken_last() -> None:
    core = Core(preset("fifo"), ClusterState(Beliefs()), LANES)
    core.step([NodeRegistered(make_node("n0", 2)), NodeRegistered(make_node("n1", 1))], 0.0)
    used = tuple(replace(gpu, others_ratio=0.5) for gpu in core.state.nodes["n0"].node.gpus[:1])
    core.step([GpusObserved("n0", (*used, *core.state.nodes["n0"].node.gpus[1:]))], 1.0)
    core.step([Submitted(JobId(number), spec("a")) for number in (1, 2, 3)], 2.0)
    audit(core.state)
    placed = [core.state.jobs[JobId(number)].placement for number in (1, 2, 3)]
    assert [str(place.gpus[0]) for place in placed if place is not None] == ["n0/1", "n1/0", "n0/0"]
