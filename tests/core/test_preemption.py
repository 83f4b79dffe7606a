"""What preemptive policies build on: stops, what a job has had so far, being asked again, GPUs kept for a job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import CancelRequested, Ended, Launched, NodeRegistered, Progressed, Submitted
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, Served
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.topology.free import first_fit

from .worlds import GIB, make_node

ONE, TWO = JobId(1), JobId(2)
SPEC = JobSpec(name="train", family="vgg11", preemptible=True)
STOPPED = Exit(None, 15)


@dataclass
class Impatient:
    """Starts what fits; stops what may be moved while a job waits; notes when it is asked."""

    again_s: float
    name: str = "impatient"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    def __post_init__(self) -> None:
        self.asked_s: list[float] = []

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        draft = Draft(view)
        self.asked_s.append(view.now_s)
        for job in map(view.job, list(view.queue("default"))):
            gpus = first_fit(draft, job.effective)
            if gpus is not None:
                draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
                continue
            for running in [view.job(holder) for holder in view.holders("default")]:
                if running.state is JobState.RUNNING and running.effective.preemptible:
                    draft.stop(running, Reason(Why.CANCELLED, {"by": "test"}))
        draft.plan_again("default", self.again_s)
        draft.plan_after_moves("default")
        return draft.plan()


def make_core(policy: Impatient, spec: JobSpec = SPEC) -> Core:
    """One GPU, job 1 launched on it at 10, job 2 waits."""
    core = Core(policy, ClusterState(Beliefs()), CoreConfig(opaque_after_s=30.0))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([Submitted(ONE, spec), Submitted(TWO, spec)], 1.0)
    core.step([Launched(ONE, 1, 7, 10.0)], 10.0)
    return core


def test_a_stopped_job_keeps_what_it_has_had_by_gpu_type() -> None:
    core = make_core(Impatient(inf))
    core.step([], 40.0)
    assert core.state.jobs[ONE].state is JobState.STOPPING
    core.step([Ended(ONE, 1, "signalled", STOPPED, 10.0, 45.0)], 45.0)
    assert core.state.jobs[ONE].totals.served == (Served("V100", 35.0, 1, idle_s=5.0),)  # five of them to stop
    assert core.state.jobs[TWO].totals.served == ()


def test_failed_attempts_count_as_well_each_on_its_type() -> None:
    core = make_core(Impatient(inf), replace(SPEC, retries=3, preemptible=False))
    core.step([Ended(ONE, 1, "exited", Exit(1, None), 10.0, 30.0)], 30.0)
    assert core.state.jobs[ONE].totals.served == (Served("V100", 20.0, 1),)
    core.step([NodeRegistered(make_node("n1", 1, "A100"))], 31.0)
    placed = {job.id: job.placement.node for job in core.state.jobs.values() if job.placement is not None}
    assert placed == {ONE: "n0", TWO: "n1"}
    core.step([Launched(ONE, 2, 8, 40.0), Launched(TWO, 1, 9, 40.0)], 40.0)
    core.step([Ended(ONE, 2, "exited", Exit(1, None), 40.0, 45.0)], 45.0)
    assert core.state.jobs[ONE].totals.served == (Served("V100", 25.0, 1),)
    core.step([Ended(TWO, 1, "exited", Exit(1, None), 40.0, 47.0)], 47.0)
    assert core.state.jobs[TWO].totals.served == (Served("A100", 7.0, 1),)


def test_a_pool_is_asked_about_again_at_the_time_wished_for_and_no_more_after_it() -> None:
    policy = Impatient(20.0)
    core = make_core(policy, replace(SPEC, preemptible=False))
    asked = len(policy.asked_s)
    assert core.step([], 19.0).wake_s == 20.0
    assert len(policy.asked_s) == asked
    policy.again_s = inf
    core.step([], 20.0)
    assert policy.asked_s[asked:] == [20.0]
    assert core.step([], 21.0).wake_s == 40.0, "only the timer of the launch is left"


def test_a_watched_pool_is_asked_about_when_a_preemptible_job_may_be_moved() -> None:
    for preemptible, asked_more in ((True, [40.0, 40.0]), (False, [])):
        policy = Impatient(inf)
        core = make_core(policy, replace(SPEC, preemptible=preemptible))
        asked = len(policy.asked_s)
        core.step([], 40.0)
        assert policy.asked_s[asked:] == asked_more


def test_a_job_that_reports_steps_may_be_moved_after_its_protection() -> None:
    core = make_core(Impatient(inf))
    core.step([Progressed(ONE, 1, Progress(at_s=12.0, steps=1, first_step_s=12.0, last_step_s=12.0))], 12.0)
    assert core.step([], 17.9).jobs == ()
    assert [job.state for job in core.step([], 18.0).jobs] == [JobState.STOPPING]


@pytest.fixture
def draft() -> Draft:
    """Two GPUs, 16 cores and 64 GiB, all free; job 1 asks for two GPUs, ten cores and 50 GiB on another type."""
    core = Core(Impatient(inf), ClusterState(Beliefs()), CoreConfig(opaque_after_s=30.0))
    core.step([NodeRegistered(make_node("n0", 2))], 0.0)
    spec = replace(SPEC, gpus=2, cores=10, host_memory_bytes=50 * GIB, gpu_type="A100")
    core.step([Submitted(ONE, spec)], 1.0)
    return Draft(ClusterView(core.state, 1.0))


def holder(draft: Draft) -> Job:
    return draft.view.job(ONE)


def test_no_job_starts_on_what_is_held(draft: Draft) -> None:
    node = draft.view.nodes["n0"]
    draft.hold(holder(draft), [draft.free_gpus(node, "V100")[0]])
    assert [load.id.number for load in draft.free_gpus(node, "V100")] == [1]
    assert draft.free(("default", "V100")).most_free == 1
    assert len(draft.cores_free(node)) == 6
    assert draft.host_memory_free_bytes(node) == 14 * GIB
    assert draft.held == {(node.node.name, 0): ONE}
    assert draft.view.free(("default", "V100")).most_free == 2, "the state itself is untouched"


def test_no_more_is_held_than_there_is(draft: Draft) -> None:
    node = draft.view.nodes["n0"]
    for number in (0, 1):
        draft.hold(holder(draft), [draft.load((node.node.name, number))])  # type: ignore[arg-type]
    assert draft.cores_free(node) == []
    assert draft.host_memory_free_bytes(node) == 0
    assert first_fit(draft, replace(SPEC, gpus=1)) is None


def test_a_watched_pool_is_asked_about_when_a_job_is_being_stopped() -> None:
    policy = Impatient(inf)
    core = make_core(policy, replace(SPEC, preemptible=False))
    asked = len(policy.asked_s)
    core.step([CancelRequested(ONE, "ann")], 20.0)
    assert policy.asked_s[asked:] == [20.0]


def test_a_policy_that_wants_to_be_asked_again_is_asked_until_it_changes_nothing() -> None:
    policy = Impatient(inf)
    core = make_core(policy)
    asked = len(policy.asked_s)
    core.step([], 40.0)
    assert policy.asked_s[asked:] == [40.0, 40.0], "it stopped job 1, then none"
