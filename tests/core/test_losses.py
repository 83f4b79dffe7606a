"""GPUs that fall ill while jobs run on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import CancelRequested, Ended, GpusObserved, Launched, NodeRegistered, Outcome, Submitted
from colane.model.hardware import Gpu
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .worlds import make_node

ONE, TWO = JobId(1), JobId(2)
SPEC = JobSpec(name="train", family="vgg11", batch_size=64, share=False)
FAILED = Exit(1, None, "CUDA error: unspecified launch failure")
KILLED = Exit(None, 9)


def core_of(gpus: int, *jobs: tuple[JobId, JobSpec]) -> Core:
    """One node, and jobs that run on it."""
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", gpus))], 0.0)
    for job, spec in jobs:
        core.step([Submitted(job, spec)], 1.0)
        core.step([Launched(job, 1, 70 + job, 1.5)], 1.5)
    return core


def observed(core: Core, *ill: int) -> GpusObserved:
    gpus: tuple[Gpu, ...] = core.state.nodes["n0"].node.gpus
    return GpusObserved("n0", tuple(replace(gpu, healthy=gpu.index not in ill) for gpu in gpus))


def job_of(outcome: Outcome, job: JobId) -> Job:
    return next(one for one in outcome.jobs if one.id == job)


def gone(core: Core, job: JobId, attempt: int, at_s: float, how: Exit = KILLED) -> Job:
    outcome = "signalled" if how.signal else "exited"
    return job_of(core.step([Ended(job, attempt, outcome, how, 1.5, at_s)], at_s), job)


def test_jobs_on_a_lost_gpu_start_again_elsewhere_and_their_neighbours_go_on() -> None:
    core = core_of(3, (ONE, SPEC), (TWO, SPEC))
    hit = core.step([observed(core, 0)], 5.0)
    assert [job.id for job in hit.jobs] == [ONE]
    assert (job_of(hit, ONE).state, job_of(hit, ONE).ending) == (JobState.STOPPING, JobState.QUEUED)
    assert hit.nodes == ("n0",), "its agent is told"
    again = gone(core, ONE, 1, 6.0)
    assert (again.state, again.attempt) == (JobState.ASSIGNED, 2)
    assert again.placement is not None
    assert [str(gpu) for gpu in again.placement.gpus] == ["n0/2"]
    assert again.totals.failures == 0, "the loss is not its fault"
    reasons = [line.reason for line in again.story if line.reason.why is Why.GPU_LOST]
    assert {sentence_of(reason) for reason in reasons} == {"GPU n0/0 does not work any more"}
    assert core.state.jobs[TWO].state is JobState.LAUNCHING


def test_a_process_that_dies_of_its_gpu_did_not_fail() -> None:
    core = core_of(1, (ONE, SPEC))
    outcome = core.step([observed(core, 0), Ended(ONE, 1, "exited", FAILED, 1.5, 5.0)], 5.0)
    assert job_of(outcome, ONE).state is JobState.QUEUED
    assert job_of(outcome, ONE).totals.failures == 0


def test_a_failure_on_a_gpu_that_was_ill_before_is_the_gpus() -> None:
    core = core_of(2, (ONE, replace(SPEC, gpus=2)))
    core.state.put_node(replace(core.state.nodes["n0"].node, gpus=observed(core, 1).gpus))
    assert gone(core, ONE, 1, 5.0, FAILED).state is JobState.QUEUED


def test_a_failure_on_a_well_gpu_is_its_own() -> None:
    core = core_of(2, (ONE, SPEC))
    core.step([observed(core, 1)], 4.0)
    assert gone(core, ONE, 1, 5.0, FAILED).state is JobState.FAILED


def test_losses_are_bounded() -> None:
    core = core_of(1, (ONE, SPEC))
    for attempt in range(1, 4):
        core.step([observed(core, 0)], 10.0 * attempt)
        assert gone(core, ONE, attempt, 10.0 * attempt + 1).state is JobState.QUEUED
        core.step([observed(core)], 10.0 * attempt + 2)
        core.step([Launched(ONE, attempt + 1, 7, 10.0 * attempt + 3)], 10.0 * attempt + 3)
    core.step([observed(core, 0)], 50.0)
    last = gone(core, ONE, 4, 51.0)
    assert (last.state, last.story[-1].reason.why) == (JobState.FAILED, Why.GPU_LOST)


def test_a_gpu_that_stays_ill_stops_no_job_twice() -> None:
    core = core_of(1, (ONE, SPEC))
    core.step([observed(core, 0)], 5.0)
    assert core.step([observed(core, 0)], 6.0).jobs == ()
    assert gone(core, ONE, 1, 7.0).state is JobState.QUEUED
    assert core.step([observed(core, 0)], 8.0).jobs == ()


def test_a_cancelled_job_stays_cancelled() -> None:
    core = core_of(1, (ONE, SPEC))
    core.step([CancelRequested(ONE, "me")], 4.0)
    core.step([observed(core, 0)], 5.0)
    assert gone(core, ONE, 1, 6.0).state is JobState.CANCELLED


@pytest.mark.parametrize("ill", [(0,), (0, 1)])
def test_a_node_that_registers_again_with_ill_gpus(ill: tuple[int, ...]) -> None:
    core = core_of(2, (ONE, SPEC), (TWO, SPEC))
    sick = replace(core.state.nodes["n0"].node, gpus=observed(core, *ill).gpus)
    outcome = core.step([NodeRegistered(sick)], 5.0)
    stopping = [job.id for job in outcome.jobs if job.state is JobState.STOPPING]
    assert stopping == [JobId(gpu + 1) for gpu in ill]
