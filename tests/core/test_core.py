"""The life of jobs through the core, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    Submitted,
    SuspendRequested,
)
from colane.core.lifecycle import InvalidMoveError, diagram, move
from colane.model.hardware import GpuId
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import PromisedGpus
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .worlds import GIB, make_node, make_profile

ONE = JobId(1)
SPEC = JobSpec(name="train", family="vgg11", batch_size=64)


def make_core(policy: str = "fifo", gpus: int = 1) -> Core:
    core = Core(create(policy), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", gpus))], 0.0)
    return core


def only(outcome: Outcome) -> Job:
    assert len(outcome.jobs) == 1
    return outcome.jobs[0]


def sample(at_s: float, steps: int, **more: float) -> Progress:
    at = {"first_step_s": 2.0, "last_step_s": at_s} if steps else {}
    return Progress(at_s=at_s, steps=steps, **at, **more)  # type: ignore[arg-type]


def states(core: Core, *events: tuple[float, object]) -> list[JobState]:
    return [only(core.step([event], at_s)).state for at_s, event in events]  # type: ignore[list-item]


def test_a_whole_life() -> None:
    core = make_core()
    seen = states(
        core,
        (1.0, Submitted(ONE, SPEC)),
        (1.5, Launched(ONE, 1, 77, 1.5)),
        (2.0, Progressed(ONE, 1, sample(2.0, 1))),
        (3.5, Progressed(ONE, 1, sample(3.5, 9))),
    )
    assert seen == [JobState.ASSIGNED, JobState.LAUNCHING, JobState.RUNNING_PROTECTED, JobState.RUNNING]
    job = only(core.step([Ended(ONE, 1, "exited", Exit(0, None), 1.5, 9.0)], 9.1))
    assert (job.state, job.first_start_s, job.end_s) == (JobState.SUCCEEDED, 1.5, 9.0)
    assert core.state.jobs == {}
    assert [line.state for line in job.story] == [
        JobState.QUEUED,
        JobState.ASSIGNED,
        JobState.LAUNCHING,
        JobState.RUNNING_PROTECTED,
        JobState.RUNNING,
        JobState.SUCCEEDED,
    ]


@pytest.mark.parametrize(
    ("outcome", "code", "signal", "state", "why"),
    [
        ("exited", 1, None, JobState.FAILED, Why.EXIT_CODE),
        ("signalled", None, 9, JobState.FAILED, Why.KILLED_BY_SIGNAL),
        ("out-of-memory", 1, None, JobState.OUT_OF_MEMORY, Why.OUT_OF_MEMORY),
        ("not-started", None, None, JobState.FAILED, Why.NOT_STARTED),
    ],
)
def test_each_way_to_fail_has_its_end(
    outcome: str, code: int | None, signal: int | None, state: JobState, why: Why
) -> None:
    core = make_core()
    core.step([Submitted(ONE, SPEC)], 1.0)
    job = only(core.step([Ended(ONE, 1, outcome, Exit(code, signal, "why"), 1.0, 2.0)], 2.0))
    assert job.state is state
    assert job.reason is not None
    assert job.reason.why is why
    assert sentence_of(job.reason)
    assert core.state.gpus[GpuId("n0", 0)].is_free


def test_the_death_of_its_supervisor_is_no_failure_of_a_job_but_not_without_end() -> None:
    core = make_core()
    core.step([Submitted(ONE, SPEC)], 1.0)
    died = Exit(None, None)
    for attempt in range(1, core.config.node_losses_max + 1):
        again = only(core.step([Ended(ONE, attempt, "supervisor-died", died, 1.0, 2.0)], 2.0))
        assert (again.state, again.attempt, again.totals.failures) == (JobState.ASSIGNED, attempt + 1, 0)
        assert again.totals.losses == attempt
    last = only(core.step([Ended(ONE, again.attempt, "supervisor-died", died, 1.0, 2.0)], 2.0))
    assert last.state is JobState.FAILED
    assert last.reason is not None
    assert sentence_of(last.reason) == "its supervisor died, so the process was stopped"


@pytest.mark.parametrize("ends", ["fails", "is held"])
def test_a_promise_for_a_deadline_ends_with_the_run_that_failed_and_with_a_hold(ends: str) -> None:
    core = make_core()
    promised = PromisedGpus((GpuId("n0", 0),), 50.0)
    spec = replace(SPEC, retries=1, deadline_s=100.0, time_limit_s=20.0)
    if ends == "is held":
        core.step([Submitted(JobId(2), SPEC)], 0.5)
    core.step([Submitted(ONE, spec, promised=promised)], 1.0)
    assert core.state.jobs[ONE].constraints.promised == promised
    if ends == "is held":
        core.step([SuspendRequested(ONE, "me")], 2.0)
    else:
        core.step([Launched(ONE, 1, 7, 1.5), Ended(ONE, 1, "exited", Exit(3, None), 1.5, 3.0)], 3.0)
        assert core.state.jobs[ONE].attempt == 2, "it is tried again"
    assert core.state.jobs[ONE].constraints.promised is None


def test_retries_are_counted_and_end() -> None:
    core = make_core()
    core.step([Submitted(ONE, replace(SPEC, retries=1))], 1.0)
    again = core.step([Ended(ONE, 1, "exited", Exit(3, None), 1.0, 2.0)], 2.0)
    assert (only(again).state, only(again).attempt) == (JobState.ASSIGNED, 2)
    last = only(core.step([Ended(ONE, 2, "exited", Exit(3, None), 2.0, 3.0)], 3.0))
    assert last.state is JobState.FAILED
    assert last.reason is not None
    assert sentence_of(last.reason) == "attempt 2 ended (exited with code 3); no retries left"


def test_an_old_attempt_is_not_believed() -> None:
    core = make_core()
    core.step([Submitted(ONE, replace(SPEC, retries=1))], 1.0)
    core.step([Ended(ONE, 1, "exited", Exit(3, None), 1.0, 2.0)], 2.0)
    late = core.step([Ended(ONE, 1, "exited", Exit(0, None), 1.0, 2.0)], 2.5)
    assert late.jobs == ()
    assert [why for _, why in late.stale] == ["attempt 1 is not attempt 2"]


def test_cancelling_keeps_the_gpu_until_the_process_is_gone() -> None:
    core = make_core()
    core.step([Submitted(ONE, SPEC), Submitted(JobId(2), SPEC)], 1.0)
    stopping = only(core.step([CancelRequested(ONE, "ann")], 2.0))
    assert stopping.state is JobState.STOPPING
    assert sentence_of(core.why(JobId(2), 2.0)).startswith("Resources: needs 1 GPU on one node")
    done = core.step([Ended(ONE, 1, "signalled", Exit(None, 15), 1.0, 3.0)], 3.0)
    assert [(job.id, job.state) for job in done.jobs] == [(1, JobState.CANCELLED), (2, JobState.ASSIGNED)]


def test_a_waiting_job_is_cancelled_at_once() -> None:
    core = make_core(gpus=1)
    core.step([Submitted(ONE, SPEC), Submitted(JobId(2), SPEC)], 1.0)
    assert only(core.step([CancelRequested(JobId(2), "ann")], 2.0)).state is JobState.CANCELLED


def test_time_limit_counts_from_the_process_start() -> None:
    core = make_core()
    core.step([Submitted(ONE, replace(SPEC, time_limit_s=10.0))], 1.0)
    assert core.step([Launched(ONE, 1, 7, 5.0)], 5.0).wake_s == 15.0
    assert core.step([], 14.9).jobs == ()
    assert only(core.step([], 15.0)).state is JobState.STOPPING
    over = only(core.step([Ended(ONE, 1, "signalled", Exit(None, 15), 5.0, 15.2)], 15.2))
    assert over.state is JobState.TIMED_OUT


@pytest.mark.parametrize(
    ("end_s", "code", "expected"),
    [(14.9, 0, JobState.SUCCEEDED), (15.2, 0, JobState.TIMED_OUT), (14.9, 1, JobState.TIMED_OUT)],
)
def test_a_job_that_had_ended_before_its_limit_has_not_reached_it_though_that_is_heard_later(
    end_s: float, code: int, expected: JobState
) -> None:
    core = make_core()
    core.step([Submitted(ONE, replace(SPEC, time_limit_s=10.0))], 1.0)
    core.step([Launched(ONE, 1, 7, 5.0)], 5.0)
    assert only(core.step([], 15.0)).state is JobState.STOPPING
    over = only(core.step([Ended(ONE, 1, "exited", Exit(code, None), 5.0, end_s)], 25.0))
    assert (over.state, over.end_s) == (expected, end_s)


def test_steps_asked_for_end_a_job_as_a_success() -> None:
    core = make_core()
    core.step([Submitted(ONE, replace(SPEC, steps_limit=30))], 1.0)
    core.step([Launched(ONE, 1, 7, 1.0)], 1.0)
    assert only(core.step([Progressed(ONE, 1, sample(4.0, 30))], 4.0)).state is JobState.STOPPING
    done = only(core.step([Ended(ONE, 1, "signalled", Exit(None, 15), 1.0, 5.0)], 5.0))
    assert done.state is JobState.SUCCEEDED


def test_a_lost_node_sends_its_jobs_back_to_their_place_in_line() -> None:
    core = make_core()
    core.step([Submitted(ONE, SPEC), Submitted(JobId(2), SPEC)], 1.0)
    lost = core.step([NodeLost("n0")], 2.0)
    assert lost.lost_nodes == ("n0",)
    assert list(core.state.queues["default"]) == [1, 2]
    back = core.step([NodeRegistered(make_node("n0", 1))], 3.0)
    assert [(job.id, job.attempt) for job in back.jobs] == [(1, 2)]


def test_a_node_lost_too_often_fails_its_job() -> None:
    core = make_core()
    core.step([Submitted(ONE, SPEC)], 0.0)
    for k in range(1, 4):
        core.step([NodeLost("n0")], 2.0 * k)
        core.step([NodeRegistered(make_node("n0", 1))], 2.0 * k + 1)
    assert only(core.step([NodeLost("n0")], 9.0)).state is JobState.FAILED


def test_an_unhealthy_gpu_takes_no_new_job() -> None:
    core = make_core(gpus=1)
    node = core.state.nodes["n0"].node
    sick = replace(node, gpus=(replace(node.gpus[0], healthy=False),))
    core.step([NodeRegistered(sick)], 1.0)
    assert only(core.step([Submitted(ONE, SPEC)], 2.0)).state is JobState.QUEUED


def test_a_solo_run_teaches_a_profile_and_co_runners_a_measured_set() -> None:
    core = make_core("colocate")
    core.step([Submitted(ONE, SPEC)], 1.0)
    core.step([Launched(ONE, 1, 7, 1.0)], 1.0)
    memory = {"persistent_bytes": GIB, "peak_bytes": 2 * GIB, "occupancy_ratio": 0.3}
    core.step([Progressed(ONE, 1, sample(2.0, 1, **memory))], 2.0)
    learnt = core.step([Progressed(ONE, 1, sample(12.0, 101, **memory))], 12.0)
    core.step([Ended(ONE, 1, "exited", Exit(0, None), 1.0, 12.5)], 12.5)
    profile = learnt.profiles[0]
    assert profile.key == ProfileKey("vgg11", 64, 1, "V100")
    assert profile.step_s is not None
    assert profile.step_s.value == pytest.approx(0.1)
    assert profile.occupancy is not None
    assert profile.occupancy.value == pytest.approx(0.3 * 0.1 * 2e8)

    both = core.step([Submitted(JobId(2), SPEC), Submitted(JobId(3), SPEC)], 20.0)
    assert [decision.reason.why for decision in both.decisions] == [Why.FREE_GPU, Why.SHARES]
    for job in (JobId(2), JobId(3)):
        core.step([Launched(job, 1, 7, 20.0)], 20.0)
        core.step([Progressed(job, 1, sample(21.0, 1))], 21.0)
    core.step([Progressed(JobId(2), 1, sample(33.0, 101))], 33.0)
    measured = core.step([Progressed(JobId(3), 1, sample(33.0, 101))], 33.0).measurements[0]
    core.step([Ended(JobId(2), 1, "exited", Exit(0, None), 20.0, 33.0)], 33.0)
    assert measured.step_together_s == pytest.approx((0.12, 0.12))
    assert measured.delta == pytest.approx(0.2 / 0.12)
    assert measured.slowdowns == pytest.approx((1.2, 1.2))


def test_a_set_under_measurement_starts_as_one_on_a_gpu_of_its_own() -> None:
    core = make_core(gpus=2)
    core.step([ProfileDeclared(make_profile("vgg11", "V100", 1e6, GIB))], 0.0)
    member = replace(SPEC, measurement_group="set-1", measurement_group_size=2)
    first = only(core.step([Submitted(ONE, member)], 1.0))
    assert first.state is JobState.QUEUED
    assert sentence_of(core.why(ONE, 1.0)) == "Dependency: 1 of 2 jobs of its set under measurement are queued"
    core.step([Submitted(JobId(2), member), Submitted(JobId(3), SPEC)], 2.0)
    assert core.state.gpus[GpuId("n0", 0)].jobs == (1, 2)
    assert core.state.gpus[GpuId("n0", 1)].jobs == (3,)


def test_a_set_that_does_not_fit_waits_and_holds_up_no_other() -> None:
    core = make_core(gpus=1)
    core.step([ProfileDeclared(make_profile("vgg11", "V100", 1e6, 9 * GIB))], 0.0)
    big = replace(SPEC, measurement_group="big", measurement_group_size=2)
    core.step([Submitted(ONE, big), Submitted(JobId(2), big)], 1.0)
    assert core.why(ONE, 1.0).why is Why.NO_MEMORY
    small = replace(SPEC, family="small", measurement_group="small", measurement_group_size=2)
    outcome = core.step([Submitted(JobId(3), small), Submitted(JobId(4), small)], 2.0)
    assert outcome.rejected is None
    assert core.state.gpus[GpuId("n0", 0)].jobs == (3, 4)


def test_a_move_outside_the_table_tells_the_story() -> None:
    core = make_core()
    job = only(core.step([Submitted(ONE, SPEC)], 1.0))
    with pytest.raises(InvalidMoveError, match=r"job 1 may not move from assigned to paused; its story: 1\.000 queued"):
        move(job, JobState.PAUSED, 2.0, Reason(Why.SUBMITTED))
    assert "ASSIGNED --> LAUNCHING" in diagram()


def test_why_names_the_jobs_in_the_way() -> None:
    core = make_core()
    core.step([Submitted(JobId(k), SPEC) for k in (1, 2, 3)], 1.0)
    assert sentence_of(core.why(JobId(2), 1.0)) == (
        "Resources: needs 1 GPU on one node, at most 0 free; GPUs are held by job 1"
    )
    assert sentence_of(core.why(JobId(3), 1.0)) == "Priority: waits in order behind job 2"


def test_sizes_are_told_as_people_read_them() -> None:
    facts = {"need_bytes": 17_179_869_184, "have_bytes": 950}
    assert sentence_of(Reason(Why.NO_HOST_MEMORY, facts)) == (
        "Resources: needs 17.2 GB of host memory, at most 950 bytes free"
    )
    asked = Reason(Why.NO_FREE_GPU, {"need": 2, "gpu_type": "V100", "have": 1}, (3, 4))
    assert sentence_of(asked) == (
        "Resources: needs 2 V100 GPUs on one node, at most 1 free; GPUs are held by jobs 3, 4"
    )


def test_a_job_whose_first_step_comes_late_is_not_said_to_report_none() -> None:
    core = Core(create("fifo"), ClusterState(Beliefs()), CoreConfig(opaque_after_s=10.0))
    core.step([NodeRegistered(make_node("n0", 1)), Submitted(ONE, SPEC)], 1.0)
    core.step([Launched(ONE, 1, 7, 1.0)], 1.0)
    silent = only(core.step([], 11.0))
    assert (silent.state, silent.first_step_s) == (JobState.RUNNING, None)
    sample = Progress(at_s=30.0, steps=3, first_step_s=28.0)
    late = only(core.step([Progressed(ONE, 1, sample)], 30.0))
    assert (late.state, late.first_step_s) == (JobState.RUNNING_PROTECTED, 28.0)
    assert late.reason is not None
    assert late.reason.why is Why.STEPPING
    assert core.step([Progressed(ONE, 1, replace(sample, steps=9))], 31.0).jobs == ()
    due_s = 28.0 + 3 * 27.0
    assert only(core.step([], due_s)).state is JobState.RUNNING, "protected for three launch times like any other"
