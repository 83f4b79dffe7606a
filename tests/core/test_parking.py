"""Parked jobs: they give their devices up, wait at home, and come back; with all that may happen to them meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    GpusObserved,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.planners.means import SplitReasons, may_split_off, split_off
from colane.model.hardware import CPU_DEVICE_TYPE, Gpu, GpuId
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, SuspendVia
from colane.model.phases import STEPPING
from colane.model.placement import Turns
from colane.model.plan import Move, Park, Plan
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs

from .audit import audit
from .worlds import GIB, make_node, make_profile

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)
SPEC = JobSpec(name="train", family="vgg11", batch_size=64)
URGENT = replace(SPEC, priority=9)
BECAUSE = {"because": "it goes first"}


class ParkForUrgent:
    """The first in line gets a free GPU; a job of a higher priority has one parked for it."""

    name = "park-for-urgent"
    turns = Turns()
    min_runtime_before_preemption_s = 0.0

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        for pool in view.pools:
            for job in map(view.job, view.queue(pool)):
                load = next((load for load in _places(draft, job) if load.is_free), None)
                has_room = draft.has_room_at_home(job) if job.home else True
                if load is not None and has_room:
                    draft.start(job, [load], Reason(Why.FREE_GPU, {"gpu": str(load.id)}))
                else:
                    _preempt(draft, job)
        return draft.plan()


def _places(draft: Draft, job: Job) -> Iterable[Any]:
    if job.home:
        return draft.homes(job)
    return [load for gpu in sorted(_gpus(draft)) if (load := draft.load(gpu)) and gpu not in draft.held]


def _gpus(draft: Draft) -> list[GpuId]:
    return [gpu for node in draft.view.nodes.values() for gpu in node.ids.values()]


def _preempt(draft: Draft, job: Job) -> None:
    jobs = draft.view.jobs.values()
    if not any(other.preempted_for == job.id for other in jobs):
        victims = [other for other in jobs if other.spec.priority < job.spec.priority]
        victim = next((other for other in victims if draft.view.parking_refusal(other) is None), None)
        if victim is not None:
            draft.park(victim, Reason(Why.PARKED, BECAUSE, (job.id,)), job.id)
            draft.hold(job, [draft.load(gpu) for gpu in victim.gpus_held])


class Site:
    """A core with one node, whose agent does as a test says."""

    def __init__(self, gpus: int = 1, gpu_type: str = "V100", protection_factor: float = 0.0) -> None:
        config = CoreConfig(protection_factor=protection_factor)
        self.core = Core(ParkForUrgent(), ClusterState(Beliefs()), config)
        self.now_s = 0.0
        self.node = make_node("n0", gpus, gpu_type)
        self.do(NodeRegistered(self.node), ProfileDeclared(make_profile("vgg11", gpu_type, 1e6, 4 * GIB)))

    def do(self, *events: Event, after_s: float = 1.0) -> Outcome:
        self.now_s += after_s
        outcome = self.core.step(events, self.now_s)
        assert outcome.rejected is None
        audit(self.core.state)
        return outcome

    def run(self, job: JobId, spec: JobSpec = SPEC) -> None:
        self.do(Submitted(job, spec))
        self.do(Launched(job, 1, 100 + job, self.now_s))
        self.sample(job, steps=5)
        self.do()

    def sample(self, job: JobId = ONE, steps: int = 9, **changes: Any) -> Outcome:
        sample = Progress(at_s=self.now_s, steps=steps, first_step_s=self.now_s, persistent_bytes=2 * GIB)
        return self.do(Progressed(job, self.job(job).attempt, replace(sample, **changes)))

    def park(self, size_bytes: int = 2 * GIB) -> None:
        """Job 1 runs, job 2 has it parked, and has its GPU when this returns."""
        self.run(ONE)
        self.do(Submitted(TWO, URGENT))
        self.sample(ONE, on_host_bytes=size_bytes)

    def end(self, job: JobId) -> Outcome:
        done = Exit(0, None)
        return self.do(Ended(job, self.job(job).attempt, "exited", done, self.now_s, self.now_s))

    def job(self, job: JobId = ONE) -> Job:
        return self.core.state.jobs[job]

    def why(self, job: JobId = ONE) -> Reason:
        return self.core.why(job, self.now_s)


def test_a_parked_job_gives_way_waits_at_home_and_comes_back_to_where_it_stopped() -> None:
    site = Site()
    site.run(ONE)
    outcome = site.do(Submitted(TWO, URGENT))
    assert [type(decision.action) for decision in outcome.decisions] == [Park]
    assert outcome.nodes == ("n0",)
    parked = site.job()
    assert (parked.state, parked.parked, parked.preempted_for) == (JobState.PAUSED, True, TWO)
    assert site.job(TWO).state is JobState.QUEUED
    assert sentence_of(site.why()).startswith("parked at a step boundary for job 2: it goes first")
    site.sample(ONE, on_host_bytes=2 * GIB)
    away = site.job()
    assert (away.home, away.preempted_for, away.attempt, away.is_waiting) == ("n0/0", None, 1, True)
    assert site.job(TWO).state is JobState.ASSIGNED
    assert site.core.state.nodes["n0"].host_memory_booked_bytes == 2 * GIB
    assert sentence_of(site.why()).startswith("its GPU memory, 2.15 GB, is on the host, and n0/0 is free for others")
    outcome = site.end(TWO)
    assert [type(decision.action) for decision in outcome.decisions] == [Move]
    back = site.job()
    assert (back.state, back.parked, back.home, back.on_host_bytes, back.attempt) == (
        JobState.RUNNING, False, "", None, 1,
    )  # fmt: skip
    assert site.core.state.nodes["n0"].host_memory_booked_bytes == 0


def test_on_cpu_devices_it_comes_back_to_any_device_of_its_node() -> None:
    site = Site(gpus=2, gpu_type=CPU_DEVICE_TYPE)
    site.run(ONE)
    site.run(THREE)
    site.do(Submitted(TWO, URGENT))
    assert site.job(ONE).parked
    site.sample(ONE, on_host_bytes=0)
    assert (site.job().home, site.job(TWO).placement) != ("", None)
    assert site.job().home == "n0"
    site.end(THREE)
    back = site.job()
    assert back.placement is not None
    assert (back.state, back.placement.gpus, back.attempt) == (JobState.RUNNING, (GpuId("n0", 1),), 1)


def test_on_cpu_devices_it_says_that_it_waits_parked_and_whose_wish_it_is() -> None:
    site = Site(gpu_type=CPU_DEVICE_TYPE)
    site.park(size_bytes=0)
    assert sentence_of(site.why()) == (
        "waits parked for job 2: it goes first; n0/0 is free for others, and it goes on when its node has a GPU for it"
    )
    site.do(SuspendRequested(ONE, "ann"))
    assert sentence_of(site.why()) == "suspended by ann; it waits at a step boundary, and n0/0 is free for others"


def test_it_gives_its_cores_up_and_comes_back_with_cores_that_are_free() -> None:
    site = Site(gpus=2, gpu_type=CPU_DEVICE_TYPE)
    site.run(ONE, replace(SPEC, cores=10, priority=-1))
    site.run(THREE, replace(SPEC, cores=6))
    site.do(Submitted(TWO, replace(URGENT, cores=8)))
    assert site.job(ONE).parked
    site.sample(ONE, on_host_bytes=0)
    site.do(Launched(TWO, 1, 7, site.now_s))
    site.end(THREE)
    assert site.job(ONE).is_waiting
    site.end(TWO)
    assert site.job(ONE).state is JobState.RUNNING


def test_a_job_that_comes_back_is_protected_as_after_a_launch() -> None:
    site = Site(protection_factor=3.0)
    site.do(Submitted(ONE, SPEC))
    site.do(Launched(ONE, 1, 7, site.now_s))
    site.do(after_s=4.0)
    site.sample(ONE, steps=3)
    site.do(after_s=99.0)
    assert site.job().state is JobState.RUNNING
    site.do(Submitted(TWO, URGENT))
    site.sample(ONE, on_host_bytes=GIB)
    site.end(TWO)
    assert site.job().state is JobState.RUNNING_PROTECTED
    outcome = site.do(Submitted(THREE, URGENT))
    assert outcome.decisions == ()
    outcome = site.do(after_s=20.0)
    assert site.job().state is JobState.RUNNING
    site.do(Tick())
    assert site.job().parked


def test_a_refusal_lets_it_go_on_at_once_and_it_is_not_asked_again() -> None:
    site = Site()
    site.run(ONE)
    site.do(Submitted(TWO, URGENT))
    site.sample(ONE, host_refusal="it has two processes on the GPU")
    site.do(Tick())
    job = site.job()
    assert (job.state, job.parked, job.preempted_for) == (JobState.RUNNING, False, None)
    assert site.why().why is Why.NOT_PARKED
    assert site.job(TWO).state is JobState.QUEUED
    assert ClusterView(site.core.state, site.now_s).parking_refusal(job) is not None


@pytest.mark.parametrize("on_host", [False, True])
def test_its_owner_may_suspend_a_parked_job_and_let_it_wait_again(on_host: bool) -> None:
    site = Site()
    site.run(ONE)
    site.do(Submitted(TWO, URGENT))
    if on_host:
        site.sample(ONE, on_host_bytes=GIB)
    site.do(SuspendRequested(ONE, "ann", SuspendVia.LANE))
    if not on_host:
        site.sample(ONE, on_host_bytes=GIB)
    assert (site.job().suspended, site.job().parked, site.job().is_waiting) == (True, True, False)
    site.end(TWO)
    assert site.job().state is JobState.PAUSED
    site.do(ResumeRequested(ONE, "ann"))
    assert (site.job().state, site.job().suspended) == (JobState.RUNNING, False)


def test_a_refusal_leaves_a_job_that_was_suspended_meanwhile_suspended() -> None:
    site = Site()
    site.run(ONE)
    site.do(Submitted(TWO, URGENT))
    site.do(SuspendRequested(ONE, "ann", SuspendVia.LANE))
    site.sample(ONE, host_refusal="no room")
    assert (site.job().state, site.job().suspended, site.job().parked) == (JobState.PAUSED, True, False)
    site.do(ResumeRequested(ONE, "ann"))
    assert site.job().state is JobState.RUNNING


def test_a_parked_job_can_be_cancelled() -> None:
    site = Site()
    site.park()
    site.do(CancelRequested(ONE, "ann"))
    assert (site.job().state, site.job().is_waiting) == (JobState.STOPPING, False)
    site.end(TWO)
    outcome = site.end(ONE)
    assert [(job.id, job.state) for job in outcome.jobs] == [(ONE, JobState.CANCELLED)]
    assert site.core.state.nodes["n0"].host_memory_booked_bytes == 0


def test_the_loss_of_its_node_queues_it_anew() -> None:
    site = Site()
    site.park()
    site.do(NodeLost("n0"))
    job = site.job()
    assert (job.state, job.parked, job.home, job.placement, job.totals.losses) == (JobState.QUEUED, False, "", None, 1)
    site.do(NodeRegistered(site.node))
    assert site.job(TWO).state is JobState.ASSIGNED


def ill(gpu: Gpu, number: int) -> Gpu:
    return replace(gpu, healthy=gpu.index != number)


def test_an_ill_gpu_ends_the_wait_of_a_job_that_can_come_back_to_no_other() -> None:
    site = Site()
    site.park()
    site.do(GpusObserved("n0", tuple(ill(gpu, 0) for gpu in site.node.gpus)))
    assert (site.job().state, site.job().ending) == (JobState.STOPPING, JobState.QUEUED)


def test_an_ill_device_is_nothing_to_a_job_that_may_come_back_to_another() -> None:
    site = Site(gpus=2, gpu_type=CPU_DEVICE_TYPE)
    site.run(ONE)
    site.run(THREE)
    site.do(Submitted(TWO, URGENT))
    site.sample(ONE, on_host_bytes=0)
    site.do(GpusObserved("n0", tuple(ill(gpu, 0) for gpu in site.node.gpus)))
    assert site.job().is_waiting
    site.end(THREE)
    assert site.job().state is JobState.RUNNING


def test_time_parked_does_not_count_towards_its_time_limit() -> None:
    site = Site()
    site.run(ONE, replace(SPEC, time_limit_s=50.0))
    site.do(Submitted(TWO, URGENT))
    site.sample(ONE, on_host_bytes=GIB)
    site.do(after_s=500.0)
    assert site.job().is_waiting
    site.end(TWO)
    assert site.job().state in STEPPING
    site.do(after_s=30.0)
    assert site.job().state is JobState.RUNNING
    site.do(after_s=30.0)
    assert site.job().ending is JobState.TIMED_OUT


def test_an_end_while_it_is_parked_is_an_end() -> None:
    site = Site()
    site.run(ONE)
    site.do(Submitted(TWO, URGENT))
    outcome = site.end(ONE)
    assert (ONE, JobState.SUCCEEDED) in [(job.id, job.state) for job in outcome.jobs]
    assert site.job(TWO).state is JobState.ASSIGNED


def test_a_job_that_shows_no_steps_or_has_no_way_to_the_host_is_not_parked() -> None:
    site = Site(gpus=3)
    site.do(Submitted(ONE, SPEC), Submitted(TWO, replace(SPEC, gpus=1)))
    site.do(Launched(ONE, 1, 7, site.now_s), Launched(TWO, 1, 8, site.now_s))
    site.do(after_s=60.0)
    assert site.job(ONE).state is JobState.RUNNING
    view = ClusterView(site.core.state, site.now_s)
    assert "reports no steps" in (view.parking_refusal(site.job(ONE)) or "")
    site.sample(TWO, steps=4)
    assert view.parking_refusal(site.job(TWO)) is None
    site.do(NodeRegistered(replace(site.node, host_refusal="the driver is too old")))
    assert "too old" in (view.parking_refusal(site.job(TWO)) or "")
    site.do(NodeRegistered(replace(site.node, host_memory_bytes=GIB)))
    assert "host memory" in (view.parking_refusal(site.job(TWO)) or "")


def test_the_wait_of_a_parked_job_survives_a_restart() -> None:
    site = Site()
    site.park()
    state = site.core.state
    nodes = [(node.node, node.generation) for node in state.nodes.values()]
    site.core = Core(ParkForUrgent(), ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version))
    assert site.job().is_waiting
    site.end(TWO)
    assert site.job().state in STEPPING


def test_of_those_that_leave_in_one_plan_no_more_are_parked_than_the_host_has_memory_for() -> None:
    site = Site(gpus=2)
    site.run(ONE)
    site.run(TWO)
    site.do(NodeRegistered(replace(site.node, host_memory_bytes=3 * GIB)))
    draft = Draft(ClusterView(site.core.state, site.now_s))
    for job in (site.job(ONE), site.job(TWO)):
        if may_split_off(draft, job):
            split_off(
                draft, draft.load(job.gpus_held[0]), job, {"gpu": "g"}, SplitReasons(Why.SPLIT, Why.SPLIT_BY_STOPPING)
            )
    plan = draft.plan()
    assert [(type(action), action.job) for action in plan.actions] == [(Park, ONE)]
    assert check(site.core.state, plan) == ()
