"""Jobs parked by the rule for idle jobs: they leave their GPUs as they stand, and come back once they would step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    IdleParkRequested,
    NodeLost,
    NodeRegistered,
    Outcome,
    ResumeRequested,
    Submitted,
    SuspendRequested,
)
from colane.core.reducers.idling import refusal
from colane.model.hardware import CPU_DEVICE_TYPE, GpuId
from colane.model.job import JobId, JobKind, JobState, SuspendVia
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.scheduling.registry import create

from .audit import audit, audit_decisions
from .test_parking import ONE, SPEC, THREE, TWO, Site
from .worlds import GIB, World


class IdleSite(Site):
    """A node with one device, whose agent sees jobs that would step again."""

    def __init__(self, gpu_type: str = CPU_DEVICE_TYPE, gpus: int = 1, **config: Any) -> None:
        super().__init__(gpus=gpus, gpu_type=gpu_type, **config)
        self.size_bytes = 0 if gpu_type == CPU_DEVICE_TYPE else 2 * GIB
        self.run(ONE)
        self.sample(ONE, rest="possible")

    def idle(self, job: JobId = ONE) -> Outcome:
        return self.do(IdleParkRequested(job, 2520.0))

    def leaves(self, job: JobId = ONE) -> Outcome:
        return self.sample(job, on_host_bytes=self.size_bytes, rest="possible")

    def asks(self, job: JobId = ONE, **changes: Any) -> Outcome:
        return self.sample(job, rest="asks", **{"on_host_bytes": self.size_bytes, **changes})

    def last(self) -> str:
        reason = self.job().reason
        assert reason is not None
        return sentence_of(reason)


@pytest.mark.parametrize("gpu_type", [CPU_DEVICE_TYPE, "V100"])
def test_it_gives_its_gpu_to_another_and_comes_back_once_it_would_step(gpu_type: str) -> None:
    site = IdleSite(gpu_type)
    site.idle()
    assert site.job().state is JobState.PAUSED
    assert site.last() == (
        "idle for 2520 s, no step and no kernel: parked by the rule for idle jobs, it gives n0/0 up until it would "
        "step again"
    )
    site.do(Submitted(TWO, SPEC))
    assert site.job(TWO).state is JobState.QUEUED, "the job has not left yet"
    site.leaves()
    assert site.job(TWO).state is JobState.ASSIGNED
    assert "n0/0 is free for others" in site.last()
    assert "it would step again" in site.last()
    site.end(TWO)
    assert site.job().state is JobState.PAUSED, "a free GPU alone does not bring it back"
    outcome = site.asks()
    assert len(outcome.decisions) == 1
    assert (site.job().state, site.job().suspended, site.job().parked) == (JobState.RUNNING, False, False)
    assert site.job().story[-2].reason.why is Why.STEPS_AGAIN


def test_it_waits_in_line_where_another_has_its_gpu() -> None:
    site = IdleSite()
    site.idle()
    site.leaves()
    site.run(TWO)
    site.asks()
    assert (site.job().state, site.job().is_waiting) == (JobState.PAUSED, True)
    assert site.last() == "was parked idle, and would step again: it goes on when its node has a GPU for it"
    site.end(TWO)
    assert site.job().state is JobState.RUNNING


def test_one_that_would_step_before_it_has_left_goes_on_at_once() -> None:
    site = IdleSite()
    site.idle()
    site.asks(on_host_bytes=None)
    assert (site.job().state, site.job().parked, site.job().gpus_held) == (JobState.RUNNING, False, (GpuId("n0", 0),))
    site.idle()
    assert site.job().state is JobState.RUNNING, "its agent says still that it would step"
    site.sample(ONE, rest="possible")
    site.idle()
    assert site.job().state is JobState.PAUSED


def test_a_refusal_of_its_agent_lets_it_go_on_and_it_is_not_asked_again() -> None:
    site = IdleSite("V100")
    site.idle()
    site.sample(ONE, host_refusal="2 processes of it use the GPU", rest="possible")
    assert (site.job().state, site.job().suspended, site.job().parked) == (JobState.RUNNING, False, False)
    assert site.last() == ("goes on, for its GPU memory cannot be moved to the host: 2 processes of it use the GPU")
    (stale,) = site.idle().stale
    assert stale[1].endswith("could not be moved to the host: 2 processes of it use the GPU")


def test_what_cannot_be_parked_is_told_and_left_alone() -> None:
    site = IdleSite("V100")

    def told(**changes: Any) -> str:
        job = site.job()
        return refusal(site.core.state, job, replace(site.core.state.progress[ONE], **changes)) or ""

    assert told() == ""
    assert told(rest="") == (
        "it would not be seen that job 1 wants to step again: no process of it that reports steps can be watched, nor "
        "is it a notebook between two cells"
    )
    site.do(NodeRegistered(replace(site.node, host_refusal="the driver is too old")))
    assert told() == "the GPU memory of job 1 cannot be moved to the host: the driver is too old"
    site.idle()
    assert site.job().state is JobState.RUNNING


def test_one_that_answers_requests_and_one_that_waits_are_left_alone() -> None:
    site = IdleSite(gpus=2)
    site.run(TWO, replace(SPEC, kind=JobKind.INFERENCE))
    site.sample(TWO, rest="possible")
    site.do(Submitted(THREE, SPEC))
    for job, problem in (
        (TWO, "job 2 answers requests, so that no plan parks it"),
        (THREE, "job 3 is queued; only a job that runs and is not protected can be parked"),
        (JobId(9), "no such live job"),
    ):
        assert [why for _, why in site.idle(job).stale] == [problem]


@pytest.mark.parametrize("on_host", [False, True])
def test_a_user_who_suspends_it_has_it_wait_also_once_it_would_step(on_host: bool) -> None:
    site = IdleSite()
    site.idle()
    if on_host:
        site.leaves()
    site.do(SuspendRequested(ONE, "ann", SuspendVia.LANE))
    site.asks()
    assert (site.job().state, site.job().suspended, site.job().is_waiting) == (JobState.PAUSED, True, False)
    site.do(ResumeRequested(ONE, "ann"))
    assert site.job().state is JobState.RUNNING


def test_a_user_may_resume_it_and_cancel_it() -> None:
    site = IdleSite()
    site.idle()
    site.leaves()
    site.do(ResumeRequested(ONE, "ann"))
    assert site.job().state is JobState.RUNNING
    site.sample(ONE, rest="possible")
    site.idle()
    site.leaves()
    site.do(CancelRequested(ONE, "ann"))
    assert site.job().state is JobState.STOPPING


def test_one_whose_node_is_lost_starts_again_without_anybodys_word() -> None:
    site = IdleSite()
    site.idle()
    site.leaves()
    site.do(NodeLost("n0"))
    assert (site.job().state, site.job().holds) == (JobState.QUEUED, ())


@pytest.mark.parametrize("name", ["fifo", "colane", "srtf", "slurm-fifo"])
def test_every_state_is_true_and_every_job_ends_where_idle_jobs_are_parked(name: str) -> None:
    done = Counter[str]()
    for seed in range(12):
        world = World(create(name), seed, CoreConfig(protection_factor=0.0), idles=True)
        for _ in range(60):
            outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
            assert outcome.rejected is None
            audit(world.core.state)
            audit_decisions(world.core.state, outcome)
            done.update(job.reason.why for job in outcome.jobs if job.reason is not None)
        world.settle()
        assert world.ended.keys() == world.submitted.keys()
    assert done[Why.IDLE_PARKED] > 10
    assert done[Why.STEPS_AGAIN] > 3
