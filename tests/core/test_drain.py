"""Nodes that are drained: who leaves, who stays, until when; by hand and on random worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import (
    Ended,
    Event,
    Launched,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    Outcome,
    Progressed,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.policy import Policy
from colane.model.hardware import Drain
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.job_spec import SAVED, CheckpointContract
from colane.model.phases import HoldKind
from colane.model.plan import Move, Resize, Start
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import POLICIES, create
from tests.examples import examples

from .audit import audit
from .worlds import World, make_node

ONE, TWO = JobId(1), JobId(2)
CONTRACT = CheckpointContract("SIGUSR1", 30.0)
PLAIN = JobSpec(name="net", family="net", gpus=1)
SAVES = replace(PLAIN, preemptible=True, checkpoint=CONTRACT)
DRAIN = Drain("ann", "a new fan", 100.0)


class Scene:
    """Job 1 runs on n0, the first of two nodes, since 10, and is protected until 13."""

    def __init__(self, spec: JobSpec = SAVES, policy: str = "fifo") -> None:
        self.policy: Policy = create(policy)
        self.core = Core(self.policy, ClusterState(Beliefs()))
        self.now_s = 0.0
        self.at(0.0, NodeRegistered(make_node("n0", 2)), NodeRegistered(make_node("n1", 2)), Submitted(ONE, spec))
        self.at(9.0, Launched(ONE, 1, 7, 9.0, "n0"))
        self.now_s = 10.0
        self.at(10.0, self.stepped(ONE, 1))

    def at(self, now_s: float, *events: Event) -> Outcome:
        self.now_s = now_s
        outcome = self.core.step(events, now_s)
        assert outcome.rejected is None
        audit(self.core.state)
        return outcome

    def stepped(self, job: JobId, steps: int, **said: object) -> Progressed:
        sample = Progress(at_s=self.now_s, steps=steps, first_step_s=self.now_s, last_step_s=self.now_s)
        return Progressed(job, self.core.state.jobs[job].attempt, replace(sample, **said))  # type: ignore[arg-type]

    def ends(self, job: JobId, code: int) -> Ended:
        running = self.core.state.jobs[job]
        assert running.placement is not None
        return Ended(job, running.attempt, "exited", Exit(code, None), None, self.now_s, None, running.placement.node)

    def drain(self, at_s: float = 100.0, deadline_s: float | None = None) -> Job:
        self.at(at_s, NodeDrained("n0", DRAIN._replace(deadline_s=deadline_s)))
        return self.job

    def is_in(self, state: JobState) -> bool:
        return self.job.state is state

    @property
    def job(self) -> Job:
        return self.core.state.jobs[ONE]

    def restart(self) -> None:
        """The scheduler is started anew from its records."""
        state = self.core.state
        nodes = [(node.node, node.generation) for node in state.nodes.values()]
        self.core = Core(self.policy, ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version))


def why(job: Job) -> Why | None:
    return job.reason.why if job.reason is not None else None


def node_of(job: Job) -> str:
    return job.placement.node if job.placement is not None else ""


def test_a_job_that_saves_goes_on_at_another_node() -> None:
    scene = Scene()
    asked = scene.drain()
    assert (asked.state, why(asked)) == (JobState.CHECKPOINTING, Why.DRAINED)
    assert asked.reason is not None
    assert sentence_of(asked.reason) == "leaves n0, which is drained by ann (a new fan)"
    scene.at(104.0, scene.ends(ONE, SAVED))
    assert (scene.job.state, node_of(scene.job), scene.job.attempt) == (JobState.ASSIGNED, "n1", 2)
    assert not scene.core.state.nodes["n0"].jobs


def test_a_server_that_no_plan_stops_goes_on_at_another_node_all_the_same() -> None:
    scene = Scene(replace(SAVES, kind=JobKind.INFERENCE))
    assert not scene.job.effective.preemptible
    scene.drain()
    assert scene.is_in(JobState.CHECKPOINTING)
    scene.at(101.0, scene.ends(ONE, SAVED))
    assert scene.job.placement is not None
    assert scene.job.placement.node == "n1"


def test_a_server_that_may_not_be_stopped_stays_on_a_drained_node() -> None:
    scene = Scene(replace(PLAIN, kind=JobKind.INFERENCE))
    scene.drain()
    assert scene.is_in(JobState.RUNNING)


def test_an_elastic_job_goes_on_at_the_size_that_is_left_elsewhere() -> None:
    scene = Scene(replace(SAVES, gpus=2, sizes=(1, 2)), policy="f-sched")
    scene.at(50.0, Submitted(TWO, PLAIN))
    assert node_of(scene.core.state.jobs[TWO]) == "n1"
    assert scene.job.gpu_count == 2
    scene.drain()
    scene.at(104.0, scene.ends(ONE, SAVED))
    assert (scene.job.gpu_count, node_of(scene.job)) == (1, "n1")


def test_one_that_would_lose_its_work_finishes_and_no_job_starts_beside_it() -> None:
    scene = Scene(PLAIN)
    scene.at(50.0, *(Submitted(JobId(job), PLAIN) for job in (2, 3)))
    assert scene.drain().state is JobState.RUNNING
    scene.at(110.0, *(Submitted(JobId(job), PLAIN) for job in (4, 5)))
    waiting = scene.core.state.jobs[JobId(5)]
    assert waiting.state is JobState.QUEUED
    scene.at(200.0, scene.ends(ONE, 0))
    assert not scene.core.state.jobs[JobId(5)].placement
    scene.at(210.0, NodeDrained("n0", None))
    assert node_of(scene.core.state.jobs[JobId(5)]) == "n0", "it is taken back"


def test_at_the_deadline_any_job_there_is_stopped_and_queued_again() -> None:
    scene = Scene(PLAIN)
    assert scene.drain(deadline_s=160.0).state is JobState.RUNNING
    assert scene.at(159.9).wake_s == 160.0
    scene.at(160.0)
    assert (scene.job.state, why(scene.job), scene.job.ending) == (JobState.STOPPING, Why.DRAIN_OVER, JobState.QUEUED)
    scene.at(162.0, scene.ends(ONE, 143))
    assert (node_of(scene.job), scene.job.totals.failures, scene.job.totals.losses) == ("n1", 0, 0)


def test_a_job_that_is_still_saving_at_the_deadline_is_stopped() -> None:
    scene = Scene()
    scene.drain(deadline_s=110.0)
    scene.at(110.0)
    assert (scene.job.state, why(scene.job)) == (JobState.STOPPING, Why.DRAIN_OVER)


@pytest.mark.parametrize("deadline_s", [None, 30.0])
def test_protection_after_a_launch_is_waited_for_where_there_is_time(deadline_s: float | None) -> None:
    scene = Scene()
    protected = scene.drain(11.0, deadline_s)
    assert protected.state is (JobState.RUNNING_PROTECTED if deadline_s is None else JobState.CHECKPOINTING)
    scene.at(40.0)
    assert scene.job.state in {JobState.CHECKPOINTING, JobState.STOPPING}


def test_a_job_that_is_coming_up_and_may_be_stopped_has_nothing_to_lose() -> None:
    scene = Scene()
    scene.at(50.0, *(Submitted(JobId(job), SAVES) for job in (2, 3)))
    coming = [job for job in scene.core.state.jobs.values() if job.state is JobState.ASSIGNED]
    assert [node_of(job) for job in coming] == ["n0", "n1"]
    scene.drain()
    assert [scene.core.state.jobs[job.id].state for job in coming] == [JobState.STOPPING, JobState.ASSIGNED]


def test_one_that_cannot_save_is_left_alone_for_a_while_and_after_three_times_finishes() -> None:
    scene = Scene()
    scene.drain()
    for time in (1, 2, 3):
        assert scene.is_in(JobState.CHECKPOINTING)
        scene.at(scene.now_s + 5.0, scene.stepped(ONE, 9, save_problem="No space left on device", saves_asked=time))
        assert scene.is_in(JobState.RUNNING_PROTECTED)
        scene.at(scene.now_s + 91.0)
    assert scene.is_in(JobState.RUNNING)
    assert not scene.job.effective.preemptible


def test_a_suspended_job_leaves_and_stays_suspended() -> None:
    scene = Scene()
    scene.at(50.0, SuspendRequested(ONE, "ann"))
    assert scene.drain().state is JobState.CHECKPOINTING
    scene.at(104.0, scene.ends(ONE, SAVED))
    assert (scene.job.state, scene.job.is_held(HoldKind.USER)) == (JobState.QUEUED, True)


def test_a_scheduler_that_is_started_again_goes_on_with_it() -> None:
    scene = Scene(PLAIN)
    scene.drain(deadline_s=160.0)
    scene.restart()
    scene.at(120.0, Submitted(TWO, replace(PLAIN, gpus=2)), Submitted(JobId(3), PLAIN))
    assert {node_of(scene.core.state.jobs[job]) for job in (TWO, JobId(3))} == {"n1", ""}
    scene.at(160.0)
    assert scene.job.state is JobState.STOPPING


def test_an_operators_word_outlives_the_agents_registration_and_notice_of_its_own() -> None:
    scene = Scene(PLAIN)
    scene.drain()
    scene.at(110.0, NodeRegistered(make_node("n0", 2)))
    assert scene.core.state.nodes["n0"].node.drain == DRAIN
    notice = Drain("node n0", "spot", 110.0, 115.0)
    scene.at(111.0, NodeDrained("n0", notice, by_agent=True))
    scene.at(112.0, NodeDrained("n0", None, by_agent=True))
    assert scene.core.state.nodes["n0"].node.drains == (DRAIN,)
    scene.at(120.0)
    assert scene.job.state is JobState.RUNNING, "the notice was taken back before its time"


def test_draining_twice_changes_nothing_and_a_lost_node_is_no_business_of_the_core() -> None:
    scene = Scene(PLAIN)
    scene.drain()
    assert scene.at(101.0, NodeDrained("n0", DRAIN)).nodes == ()
    scene.at(102.0, NodeLost("n1"))
    assert scene.at(103.0, NodeDrained("n1", DRAIN)).stale
    assert scene.core.state.draining == {"n0": False}


def test_why_names_the_nodes_where_all_that_could_run_it_are_drained() -> None:
    scene = Scene(PLAIN)
    scene.at(50.0, *(NodeDrained(name, DRAIN) for name in ("n0", "n1")))
    no_gpu = JobSpec(name="cpu", family="cpu", gpus=0)
    scene.at(60.0, Submitted(TWO, PLAIN), Submitted(JobId(3), no_gpu))
    for job in (TWO, JobId(3)):
        assert sentence_of(scene.core.why(job, 61.0)).startswith("ReqNodeNotAvail")
        assert "n0, n1" in sentence_of(scene.core.why(job, 61.0))


@pytest.mark.parametrize("name", sorted(POLICIES))
@examples(8)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1), sized=st.booleans())
def test_no_job_starts_on_a_drained_node_and_after_the_deadline_it_is_empty(
    name: str, seed: int, *, sized: bool
) -> None:
    world = World(create(name), seed, sized=sized, cpu_only=True, drains=True)
    for _ in range(50):
        drained = set(world.core.state.draining)
        outcome = world.step(world.random_event())
        assert outcome.rejected is None
        audit(world.core.state)
        assert not _came(outcome, drained & world.core.state.draining.keys())
        assert world.policy.plan(ClusterView(world.core.state, world.now_s)).actions == ()
    end = Drain("ann", "", world.now_s, world.now_s + 10.0)
    world.step(*(NodeDrained(name, end) for name in world.core.state.nodes))
    world.now_s += 20.0
    for _ in range(3):
        world.step(Tick(), *_all_gone(world))
    assert not any(node.jobs for node in world.core.state.nodes.values())


def _came(outcome: Outcome, drained: set[str]) -> list[str]:
    """Who was newly brought to a drained node; a parked job may go on where it lives."""
    places = [
        (decision.action.placement, decision.action)
        for decision in outcome.decisions
        if isinstance(decision.action, Start | Resize)
    ]
    assert all(not isinstance(action, Move) for _, action in places)
    return [name for place, _ in places for name in place.nodes if name in drained]


def _all_gone(world: World) -> list[Event]:
    """Every process that is to stop has ended."""
    return [
        Ended(job.id, job.attempt, "signalled", Exit(None, 15), None, world.now_s, None, node)
        for job in world.running()
        for node in (job.placement.nodes if job.placement is not None else ())
        if node not in job.run.ended_on
    ]
