"""Jobs that ended by one fatal error on a GPU that they shared through MPS: only its cause has failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.core.reducers.failing import MPS_FAULT, MPS_FAULT_OF_OTHER, MPS_FAULT_UNKNOWN
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset
from tests.core.audit import audit
from tests.core.worlds import GIB, make_node, make_profile

ONE, TWO = JobId(1), JobId(2)
PLAIN = JobSpec(name="a", family="a", batch_size=64)


class World:
    """Two jobs that run on one GPU of two."""

    def __init__(self, spec: JobSpec = PLAIN) -> None:
        self.core = Core(preset("fair"), ClusterState(Beliefs()), CoreConfig(protection_factor=0.0))
        self.ended: dict[JobId, Job] = {}
        self.at(0.0, NodeRegistered(make_node("n0", 1)), ProfileDeclared(make_profile("a", "V100", 1e8, 4 * GIB)))
        self.at(1.0, Submitted(ONE, spec), Submitted(TWO, replace(spec, retries=0)))
        for job in (ONE, TWO):
            self.at(2.0, Launched(job, 1, 7, 2.0))
            self.at(3.0, Progressed(job, 1, Progress(at_s=3.0, steps=5, first_step_s=2.5)))

    def at(self, now_s: float, *events: object) -> None:
        outcome = self.core.step(events, now_s)  # type: ignore[arg-type]
        audit(self.core.state)
        self.ended |= {job.id: job for job in outcome.jobs if job.has_ended}

    def end(self, now_s: float, job: JobId, outcome: str, detail: str = "job 1 caused it") -> None:
        attempt = self.job(job).attempt
        self.at(now_s, Ended(job, attempt, outcome, Exit(1, None, detail), 2.0, now_s, node="n0"))

    def job(self, job: JobId) -> Job:
        return self.ended.get(job) or self.core.state.jobs[job]


def test_the_job_that_caused_it_has_failed_and_one_that_went_down_with_it_runs_again_uncounted() -> None:
    world = World()
    world.end(4.0, TWO, MPS_FAULT_OF_OTHER)
    world.end(4.0, ONE, MPS_FAULT, "job 2 ended with it")
    cause, other = world.job(ONE), world.job(TWO)
    assert (cause.state, cause.reason.why if cause.reason else None) == (JobState.FAILED, Why.MPS_FAULT)
    assert (other.state, other.attempt, other.totals.failures) == (JobState.ASSIGNED, 2, 0)
    assert other.constraints.isolated is False
    why = next(line.reason for line in other.story if line.reason.why is Why.MPS_FAULT_OF_OTHER)
    assert sentence_of(why) == (
        "ended by a fatal error of another job on the GPU they shared through MPS on n0: job 1 caused it; "
        "it counts as no failure"
    )


def test_a_job_that_caused_it_is_tried_again_within_its_retries_with_a_gpu_to_itself() -> None:
    world = World(replace(PLAIN, retries=1))
    world.end(4.0, ONE, MPS_FAULT, "job 2 ended with it")
    cause = world.job(ONE)
    assert (cause.state, cause.totals.failures, cause.constraints.isolated) == (JobState.QUEUED, 1, True)
    world.end(5.0, TWO, "exited")
    assert world.job(ONE).state is JobState.ASSIGNED
    world.at(6.0, Launched(ONE, 2, 8, 6.0))
    world.end(7.0, ONE, "exited")
    assert world.job(ONE).state is JobState.FAILED


def test_where_it_cannot_be_told_each_runs_alone_and_the_one_whose_error_it_was_fails_then() -> None:
    world = World()
    world.end(4.0, ONE, MPS_FAULT_UNKNOWN, "which of jobs 1, 2 caused it cannot be told")
    world.end(4.0, TWO, MPS_FAULT_UNKNOWN, "which of jobs 1, 2 caused it cannot be told")
    one, two = world.job(ONE), world.job(TWO)
    assert (one.totals.failures, two.totals.failures) == (0, 0)
    assert {one.state, two.state} == {JobState.ASSIGNED, JobState.QUEUED}, "one after the other"
    first, second = (ONE, TWO) if one.state is JobState.ASSIGNED else (TWO, ONE)
    world.at(5.0, Launched(first, 2, 9, 5.0))
    world.end(6.0, first, "exited")
    assert world.job(first).state is JobState.FAILED
    assert (world.job(second).state, world.job(second).totals.failures) == (JobState.ASSIGNED, 0)


@pytest.mark.parametrize("outcome", [MPS_FAULT, MPS_FAULT_OF_OTHER, MPS_FAULT_UNKNOWN])
def test_a_node_is_not_blamed_for_it(outcome: str) -> None:
    """Many jobs of several users that end so within their first seconds make no node a bad one."""
    core = Core(preset("fair"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node(f"n{number}", 1)) for number in range(3)], 0.0)
    for number in range(1, 31):
        job = JobId(number)
        core.step([Submitted(job, JobSpec(name="j", family=f"f{number % 7}", user=f"u{number % 5}"))], float(number))
        placement = core.state.jobs[job].placement
        assert placement is not None
        core.step([Launched(job, 1, 7, number + 0.1)], number + 0.1)
        ended = Ended(job, 1, outcome, Exit(1, None, ""), number + 0.1, number + 0.5, node=placement.node)
        core.step([ended], number + 0.5)
        if job in core.state.jobs and core.state.jobs[job].placement is not None:
            again = core.state.jobs[job].placement
            assert again is not None
            core.step(
                [Ended(job, 2, "exited", Exit(0, None), number + 0.6, number + 0.7, node=again.node)], number + 0.7
            )
    assert [name for name, known in core.state.nodes.items() if known.node.closed is not None] == []
