"""Suspending jobs on a user's word: held in the queue, paused at a boundary, and what counts meanwhile."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    Progressed,
    ResumeRequested,
    Submitted,
    SuspendRequested,
)
from colane.core.reducers.suspension import refusal
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, SuspendVia
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .audit import audit
from .worlds import make_node

ONE, TWO = JobId(1), JobId(2)
SPEC = JobSpec(name="train", family="vgg11", time_limit_s=100.0)


class OneGpu:
    """A core with one GPU and a clock."""

    def __init__(self, spec: JobSpec = SPEC, gpus: int = 1, policy: str = "fifo") -> None:
        self.core = Core(
            create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=30.0, protection_factor=0.0)
        )
        self.at(0.0, NodeRegistered(make_node("n0", gpus)))
        self.at(1.0, Submitted(ONE, spec))

    def at(self, now_s: float, *events: Event) -> Outcome:
        outcome = self.core.step(events, now_s)
        audit(self.core.state)
        return outcome

    def running(self) -> None:
        """Job 1 runs since 10 and has done 120 steps."""
        self.at(10.0, Launched(ONE, 1, 7, 10.0))
        self.steps(12.0, 120)
        self.at(12.0)

    def steps(self, now_s: float, steps: int) -> Outcome:
        sample = Progress(at_s=now_s, steps=steps, first_step_s=11.0, last_step_s=now_s)
        return self.at(now_s, Progressed(ONE, 1, sample))

    def job(self, number: JobId = ONE) -> Job:
        return self.core.state.jobs[number]


def suspend(job: JobId = ONE) -> SuspendRequested:
    return SuspendRequested(job, "ann")


def resume(job: JobId = ONE) -> ResumeRequested:
    return ResumeRequested(job, "ann")


def test_a_running_job_is_paused_keeps_its_gpu_and_goes_on() -> None:
    world = OneGpu()
    world.running()
    assert world.job().state is JobState.RUNNING
    outcome = world.at(20.0, suspend(), Submitted(TWO, SPEC))
    assert (world.job().state, world.job().suspended) == (JobState.PAUSED, True)
    assert sentence_of(world.job().story[-1].reason).startswith("suspended by ann")
    assert "n0" in outcome.nodes
    assert world.job(TWO).state is JobState.QUEUED
    world.at(21.0, resume())
    assert (world.job().state, world.job().suspended) == (JobState.RUNNING, False)
    assert world.job().story[-1].reason.why is Why.RESUMED


def test_asking_twice_changes_nothing_and_tells_no_node() -> None:
    world = OneGpu()
    world.running()
    world.at(20.0, suspend())
    again = world.at(21.0, suspend())
    assert (again.jobs, again.nodes, again.stale) == ((), (), ())
    world.at(22.0, resume())
    again = world.at(23.0, resume())
    assert (again.jobs, again.nodes, again.stale) == ((), (), ())


def test_a_protected_job_may_be_paused() -> None:
    world = OneGpu()
    world.core.config = CoreConfig(protection_factor=1000.0)
    world.running()
    assert world.job().state is JobState.RUNNING_PROTECTED
    world.at(20.0, suspend())
    assert world.job().state is JobState.PAUSED


def test_a_waiting_job_is_held_others_pass_it_and_it_finds_its_old_place() -> None:
    world = OneGpu()
    world.running()
    three = JobId(3)
    world.at(20.0, Submitted(TWO, SPEC), Submitted(three, SPEC))
    world.at(21.0, suspend(TWO))
    assert world.core.why(TWO, 21.0).why is Why.HELD
    assert "ann" in sentence_of(world.core.why(TWO, 21.0))
    assert list(world.core.state.queues["default"]) == [three]
    world.at(22.0, Ended(ONE, 1, "exited", Exit(0, None), 10.0, 22.0))
    assert world.job(three).state is JobState.ASSIGNED
    world.at(23.0, resume(TWO))
    assert list(world.core.state.queues["default"]) == [TWO]
    world.at(24.0, Ended(three, 1, "exited", Exit(0, None), 23.0, 24.0))
    assert world.job(TWO).state is JobState.ASSIGNED


def test_a_held_job_alone_in_the_queue_starts_when_it_is_let_go() -> None:
    world = OneGpu()
    world.running()
    world.at(20.0, Submitted(TWO, SPEC), suspend(TWO))
    world.at(21.0, Ended(ONE, 1, "exited", Exit(0, None), 10.0, 21.0))
    assert world.job(TWO).state is JobState.QUEUED
    world.at(22.0, resume(TWO))
    assert world.job(TWO).state is JobState.ASSIGNED


def test_time_in_which_a_job_was_suspended_does_not_count_towards_its_limit() -> None:
    world = OneGpu()
    world.running()
    world.at(50.0, suspend())
    world.at(200.0)
    assert world.job().state is JobState.PAUSED
    outcome = world.at(250.0, resume())
    assert outcome.wake_s == 310.0
    world.at(309.0)
    assert world.job().state is JobState.RUNNING
    world.at(310.0)
    assert (world.job().state, world.job().ending) == (JobState.STOPPING, JobState.TIMED_OUT)


def test_a_limit_that_falls_due_after_a_pause_within_it_is_moved() -> None:
    world = OneGpu()
    world.running()
    world.at(50.0, suspend())
    world.at(60.0, resume())
    world.at(110.0)
    assert world.job().state is JobState.RUNNING
    world.at(120.0)
    assert world.job().ending is JobState.TIMED_OUT


def test_after_a_restart_a_paused_job_is_paused_and_its_limit_counts_on() -> None:
    world = OneGpu()
    world.running()
    world.at(50.0, suspend())
    nodes = [(node.node, node.generation) for node in world.core.state.nodes.values()]
    state = ClusterState.restore(nodes, world.core.state.jobs.values(), Beliefs())
    world.core = Core(create("fifo"), state, CoreConfig())
    world.at(200.0)
    assert world.job().state is JobState.PAUSED
    assert world.at(250.0, resume()).wake_s == 310.0


def test_a_suspended_job_whose_node_is_lost_waits_until_it_is_resumed() -> None:
    world = OneGpu()
    world.running()
    world.at(20.0, suspend())
    world.at(21.0, NodeLost("n0"))
    world.at(22.0, NodeRegistered(make_node("n1", 1)))
    assert world.job().state is JobState.QUEUED
    assert world.core.why(ONE, 22.0).why is Why.HELD
    world.at(23.0, resume())
    assert world.job().state is JobState.ASSIGNED


def test_steps_of_a_paused_job_do_not_make_it_look_slow() -> None:
    """Its solo profile is learnt from the time before the pause and from that after it, not across."""
    world = OneGpu()
    world.running()
    for second in range(13, 31):
        world.steps(float(second), second * 10)
    world.at(31.0, suspend())
    world.at(1000.0, resume())
    for second in range(1001, 1011):
        world.steps(float(second), second * 10)
    world.at(1011.0, Ended(ONE, 1, "exited", Exit(0, None), 10.0, 1011.0))
    (profile,) = world.core.state.beliefs.profiles.values()
    assert profile.step_s is not None
    assert profile.step_s.value == pytest.approx(0.1, rel=0.1)


def test_a_job_that_cannot_be_suspended_is_told_why() -> None:
    world = OneGpu()
    world.at(10.0, Launched(ONE, 1, 7, 10.0))
    world.at(45.0)
    assert world.job().state is JobState.RUNNING
    assert "reports no steps" in str(refusal(world.core.state, world.job(), None))
    assert "version 3" in str(
        refusal(world.core.state, world.job(), Progress(at_s=1.0, note="steps are not followed: version 3"))
    )
    assert world.at(46.0, suspend()).stale[0][1] == refusal(world.core.state, world.job(), None)
    assert world.at(47.0, suspend(JobId(9)), resume(JobId(9))).stale[0][1] == "no such live job"
    assert world.job().state is JobState.RUNNING
    world.at(48.0, CancelRequested(ONE, "ann"))
    assert "is stopping; only a job that waits or runs" in str(refusal(world.core.state, world.job(), None))


def test_ranks_on_several_nodes_and_jobs_under_measurement_are_left_alone() -> None:
    world = OneGpu(JobSpec(name="gang", family="g", gpus=2, multi_node=True))
    world.at(2.0, NodeRegistered(make_node("n1", 1)))
    world.at(10.0, Launched(ONE, 1, 7, 10.0, "n0"), Launched(ONE, 1, 8, 10.0, "n1"))
    world.steps(12.0, 20)
    assert "several nodes" in str(refusal(world.core.state, world.job(), world.core.state.progress[ONE]))
    measured = OneGpu(JobSpec(name="a", family="a", measurement_group="set", measurement_group_size=2))
    assert "measured" in str(refusal(measured.core.state, measured.job(), None))


@pytest.mark.parametrize("via", list(SuspendVia))
@pytest.mark.parametrize("ends", [Exit(0, None), Exit(143, None), Exit(None, 9)])
@pytest.mark.parametrize("is_launched", [False, True])
def test_one_that_is_launching_leaves_its_gpus_and_is_held(via: SuspendVia, ends: Exit, *, is_launched: bool) -> None:
    """It has made no step, and may make none for long: nothing of it is lost that a boundary would keep."""
    world = OneGpu()
    if is_launched:
        world.at(10.0, Launched(ONE, 1, 7, 10.0))
    world.at(11.0, SuspendRequested(ONE, "ann", via), Submitted(TWO, SPEC))
    assert (world.job().state, world.job().suspended) == (JobState.STOPPING, True)
    assert sentence_of(world.job().story[-1].reason).startswith("suspended by ann as it launched")
    again = world.at(12.0, SuspendRequested(ONE, "ann", via))
    assert (again.jobs, again.nodes, again.stale) == ((), (), ())
    world.at(13.0, Ended(ONE, 1, "signalled" if ends.code is None else "exited", ends, 10.0, 13.0, was_stopped=True))
    assert (world.job().state, world.job(TWO).state) == (JobState.QUEUED, JobState.ASSIGNED)
    assert world.core.why(ONE, 14.0).why is Why.HELD
    assert world.job().totals.failures == 0
    world.at(15.0, resume(), CancelRequested(TWO, "ann"))
    world.at(16.0, Ended(TWO, 1, "exited", Exit(0, None), None, 16.0))
    assert world.job().state is JobState.ASSIGNED


def test_one_that_is_let_go_on_before_it_has_left_waits_for_a_gpu_at_once() -> None:
    world = OneGpu()
    world.at(11.0, suspend())
    world.at(12.0, resume())
    world.at(13.0, Ended(ONE, 1, "signalled", Exit(None, 15), None, 13.0, was_stopped=True))
    assert (world.job().state, world.job().attempt) == (JobState.ASSIGNED, 2)
