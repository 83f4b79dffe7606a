"""Jobs that their agents send back for want of memory: what was seen is booked, nothing is counted, nothing loops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import (
    Ended,
    GpusObserved,
    Launched,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    ResumeRequested,
    Submitted,
)
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.phases import HoldKind
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.registry import preset

from .audit import audit
from .worlds import GIB, make_node, make_profile

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)
DETAIL = "with it, jobs would need 20 GB of device 0, which has 17 GB"


class World:
    """One GPU of 16 GiB, on which jobs take turns; job 1 runs, of 4 GiB between steps and 4 more within."""

    def __init__(self, node: Node | None = None, factors: tuple[float, float] = (1.1, 1.05)) -> None:
        config = PerfConfig(persistent_factor=factors[0], total_factor=factors[1])
        state = ClusterState(Beliefs(config))
        self.core = Core(preset("fair"), state, CoreConfig(protection_factor=0.0))
        self.at(
            0.0, NodeRegistered(node or make_node("n0", 1)), ProfileDeclared(make_profile("a", "V100", 1e8, 8 * GIB))
        )
        self.at(0.0, ProfileDeclared(make_profile("b", "V100", 1e8, 8 * GIB)))
        self.at(1.0, self.submitted(ONE, "a"))
        self.at(2.0, Launched(ONE, 1, 7, 2.0))

    def at(self, now_s: float, *events: object) -> Outcome:
        outcome = self.core.step(events, now_s)  # type: ignore[arg-type]
        audit(self.core.state)
        return outcome

    @staticmethod
    def submitted(job: JobId, family: str) -> Submitted:
        return Submitted(job, JobSpec(name=family, family=family, batch_size=64))

    def see(self, now_s: float, job: JobId, persistent: int, peak: int, steps: int = 0) -> None:
        first_s = 3.0 if steps else None
        sample = Progress(
            at_s=now_s,
            steps=steps,
            first_step_s=first_s,
            persistent_bytes=persistent,
            peak_bytes=peak,
            memory_by="nvml",
        )
        self.at(now_s, Progressed(job, 1, sample))

    def send_back(self, now_s: float, job: JobId) -> None:
        attempt = self.job(job).attempt
        self.at(now_s, Ended(job, attempt, "no-memory", Exit(None, None, DETAIL), None, now_s, node="n0"))

    def job(self, job: JobId) -> Job:
        return self.core.state.jobs[job]


@pytest.mark.parametrize("steps", [0, 5])
def test_what_a_lane_mate_holds_is_booked_and_the_job_waits_for_room(steps: int) -> None:
    world = World()
    world.at(3.0, world.submitted(TWO, "b"))
    assert world.job(TWO).state is JobState.ASSIGNED
    world.see(4.0, ONE, 8 * GIB - GIB // 10, 12 * GIB, steps)
    world.send_back(4.0, TWO)
    back = world.job(TWO)
    assert (back.state, back.totals.failures, back.attempt, back.totals.sent_back) == (JobState.QUEUED, 0, 1, 1)
    assert back.reason is not None
    assert (back.reason.why, back.reason.jobs) == (Why.SENT_BACK, (ONE,))
    assert sentence_of(back.reason) == f"sent back by n0 before it was started, beside job 1: {DETAIL}"
    assert world.core.why(TWO, 5.0).why is Why.NO_LANE
    for now_s in range(5, 60):
        world.see(float(now_s), ONE, 8 * GIB - GIB // 10, 12 * GIB, steps)
    assert (world.job(TWO).state, world.job(TWO).attempt) == (JobState.QUEUED, 1), "not sent there again"
    world.at(61.0, Ended(ONE, 1, "exited", Exit(0, None), 2.0, 61.0))
    assert world.job(TWO).state is JobState.ASSIGNED
    world.at(62.0, Launched(TWO, 2, 8, 62.0))
    assert world.job(TWO).totals.sent_back == 0


def test_a_job_that_is_sent_back_where_the_others_were_seen_to_need_it_all_is_counted_nothing_either() -> None:
    world = World()
    world.at(3.0, world.submitted(TWO, "b"))
    world.see(4.0, ONE, 12 * GIB, 14 * GIB, 5)
    assert world.job(TWO).state is JobState.STOPPING, "outgrown, before its agent has said so"
    world.send_back(4.0, TWO)
    back = world.job(TWO)
    assert (back.state, back.totals.failures, back.story[-1].reason.why) == (JobState.QUEUED, 0, Why.OUTGROWN)


def test_growth_too_small_to_be_learnt_in_passing_is_booked_then() -> None:
    world = World(factors=(1.0, 1.0))
    world.see(3.0, ONE, 6 * GIB, 12 * GIB, 5)  # with two: 4 GiB of P more, 16 in all
    world.at(4.0, world.submitted(TWO, "b"))
    assert world.job(TWO).state is JobState.ASSIGNED
    world.see(5.0, ONE, 6 * GIB + GIB // 10, 12 * GIB + GIB // 10, 6)
    world.send_back(5.0, TWO)
    assert (world.job(TWO).state, world.job(TWO).attempt) == (JobState.QUEUED, 1)


def test_memory_of_others_that_is_seen_then_is_booked_before() -> None:
    world = World()
    world.at(3.0, Ended(ONE, 1, "exited", Exit(0, None), 2.0, 3.0))
    world.at(4.0, world.submitted(TWO, "b"))
    (gpu,) = make_node("n0", 1).gpus
    world.at(5.0, GpusObserved("n0", (replace(gpu, foreign_bytes=10 * GIB),)))
    world.send_back(5.0, TWO)
    assert (world.job(TWO).state, world.job(TWO).attempt) == (JobState.QUEUED, 1)
    world.at(9.0, GpusObserved("n0", (gpu,)))
    assert world.job(TWO).state is JobState.ASSIGNED


def test_a_job_for_which_what_was_booked_does_not_help_is_held_and_lost_to_no_other() -> None:
    world = World()
    world.at(3.0, world.submitted(TWO, "b"))
    for number in range(1, 4):
        assert (world.job(TWO).state, world.job(TWO).attempt) == (JobState.ASSIGNED, number)
        world.send_back(4.0 + number, TWO)
    held = world.job(TWO)
    assert (held.state, held.is_held(HoldKind.USER)) == (JobState.QUEUED, True)
    assert (held.totals.failures, held.totals.sent_back) == (0, 0)
    assert [line.reason.why for line in held.story[-2:]] == [Why.SENT_BACK, Why.HELD]
    assert "n0 sent it back 3 times in a row" in sentence_of(world.core.why(TWO, 9.0))
    world.at(10.0, ResumeRequested(TWO, "me"))
    assert world.job(TWO).state is JobState.ASSIGNED


def test_a_job_without_steps_that_holds_less_than_was_booked_teaches_nothing() -> None:
    world = World()
    before = world.core.state.beliefs.speeds_version
    world.see(3.0, ONE, 1 * GIB, 1 * GIB)
    assert world.core.state.beliefs.speeds_version == before
