"""Jobs whose GPU memory is moved to the host while they are suspended: their GPU is free, and they come back to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.cluster.draft import Draft
from colane.core.cluster.to_host import parking_refusal
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
)
from colane.core.reducers.suspension import refusal
from colane.model.hardware import CPU_DEVICE_TYPE, GpuId
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, SuspendVia
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, Start
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .audit import audit
from .worlds import GIB, World, make_node, make_profile

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)
GPU = GpuId("n0", 0)
SPEC = JobSpec(name="train", family="vgg11", batch_size=64)


class Node:
    """A core with one GPU, whose jobs do as a test says."""

    def __init__(self, policy: str = "fifo") -> None:
        self.core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(protection_factor=0.0))
        self.now_s = 0.0
        self.do(NodeRegistered(make_node("n0", 1)), ProfileDeclared(make_profile("vgg11", "V100", 1e6, 4 * GIB)))

    def do(self, *events: Event) -> Outcome:
        self.now_s += 1.0
        outcome = self.core.step(events, self.now_s)
        assert outcome.rejected is None
        audit(self.core.state)
        return outcome

    def run(self, job: JobId, spec: JobSpec = SPEC) -> None:
        self.do(Submitted(job, spec))
        self.step(job)

    def step(self, job: JobId) -> None:
        self.do(Launched(job, 1, 100 + job, self.now_s))
        self.sample(job, steps=5)
        self.do()

    def sample(self, job: JobId, steps: int = 9, **changes: Any) -> Outcome:
        sample = Progress(at_s=self.now_s, steps=steps, first_step_s=self.now_s, persistent_bytes=2 * GIB)
        return self.do(Progressed(job, 1, replace(sample, **changes)))

    def move(self, job: JobId = ONE, size_bytes: int = 3 * GIB) -> Outcome:
        self.do(to_host(job))
        return self.sample(job, on_host_bytes=size_bytes)

    def end(self, job: JobId) -> None:
        self.do(Ended(job, 1, "exited", Exit(0, None), self.now_s, self.now_s))

    def job(self, job: JobId = ONE) -> Job:
        return self.core.state.jobs[job]

    @property
    def host_bytes(self) -> int:
        return self.core.state.nodes["n0"].host_memory_booked_bytes

    def why(self, job: JobId = ONE) -> Reason:
        return self.core.why(job, self.now_s)


def to_host(job: JobId = ONE) -> SuspendRequested:
    return SuspendRequested(job, "ann", SuspendVia.HOST)


def resume(job: JobId = ONE) -> ResumeRequested:
    return ResumeRequested(job, "bob")


def test_its_gpu_is_booked_until_its_memory_is_on_the_host_and_free_from_then_on() -> None:
    node = Node()
    node.run(ONE)
    node.do(to_host(), Submitted(TWO, SPEC))
    assert (node.job().state, node.job().suspended_via) == (JobState.PAUSED, SuspendVia.HOST)
    assert sentence_of(node.why()).startswith("suspended by ann; it waits at a step boundary, its GPU memory is moved")
    assert node.job(TWO).state is JobState.QUEUED
    outcome = node.sample(ONE, on_host_bytes=3 * GIB)
    assert node.job(TWO).state is JobState.ASSIGNED
    assert "n0" in outcome.nodes
    assert node.host_bytes == 3 * GIB
    assert (
        sentence_of(node.why())
        == "its GPU memory, 3.22 GB, is on the host, and n0/0 is free for others; suspended by ann"
    )
    assert node.sample(ONE, on_host_bytes=3 * GIB).jobs == ()


def test_it_comes_back_at_once_to_a_free_gpu() -> None:
    node = Node()
    node.run(ONE)
    node.move()
    node.do(resume())
    assert (node.job().state, node.job().on_host_bytes, node.host_bytes) == (JobState.RUNNING, None, 0)
    assert sentence_of(node.why()) == "resumed by bob; its GPU memory, 3.22 GB, comes back from the host to n0/0"
    assert node.core.state.gpus[GPU].jobs == (ONE,)


def test_while_others_are_on_its_gpu_it_waits_and_no_other_starts_there() -> None:
    node = Node()
    node.run(ONE)
    node.move()
    node.run(TWO)
    node.do(resume())
    assert (node.job().state, node.job().suspended) == (JobState.PAUSED, False)
    assert "when n0/0, held by job 2, has room" in sentence_of(node.why())
    node.do(Submitted(THREE, SPEC))
    node.end(TWO)
    assert node.job().state is JobState.RUNNING
    assert node.job(THREE).state is JobState.QUEUED
    node.end(ONE)
    assert node.job(THREE).state is JobState.ASSIGNED


def test_a_sharing_policy_lets_no_job_join_the_gpu_that_is_awaited() -> None:
    node = Node("pack")
    node.run(ONE)
    node.move()
    node.run(TWO)
    node.do(resume())
    node.do(Submitted(THREE, SPEC))
    assert node.job(THREE).state is JobState.QUEUED
    node.end(TWO)
    assert {node.job().state, node.job(THREE).state} == {JobState.RUNNING, JobState.ASSIGNED}


def test_it_comes_back_to_those_it_left_there_but_not_to_strangers() -> None:
    node = Node("pack")
    node.run(ONE)
    node.run(TWO)
    assert node.core.state.gpus[GPU].jobs == (ONE, TWO)
    node.move()
    node.do(resume())
    assert node.job().state is JobState.RUNNING
    node.move()
    node.run(THREE)
    node.do(resume())
    assert node.job().state is JobState.PAUSED
    node.end(THREE)
    assert node.job().state is JobState.RUNNING
    assert set(node.core.state.gpus[GPU].jobs) == {ONE, TWO}


def test_those_it_left_there_may_have_grown_too_large_for_it() -> None:
    node = Node("pack")
    node.run(ONE)
    node.run(TWO)
    node.move()
    node.do(ProfileDeclared(make_profile("vgg11", "V100", 1e6, 12 * GIB)))
    node.do(resume())
    assert node.job().state is JobState.PAUSED
    node.end(TWO)
    assert node.job().state is JobState.RUNNING


def test_one_of_those_it_left_there_may_have_been_given_its_gpu_alone_since() -> None:
    node = Node("pack")
    node.run(ONE)
    node.run(TWO)
    node.move()
    node.run(THREE)
    node.do(Ended(TWO, 1, "out-of-memory", Exit(1, None), node.now_s, node.now_s))
    node.end(THREE)
    assert node.core.state.gpus[GPU].jobs == (TWO,)
    assert not node.job(TWO).effective.share
    node.do(resume())
    assert node.job().state is JobState.PAUSED
    node.do(Ended(TWO, 2, "exited", Exit(0, None), node.now_s, node.now_s))
    assert node.job().state is JobState.RUNNING


def test_memory_that_others_took_meanwhile_is_waited_for() -> None:
    node = Node()
    node.run(ONE)
    node.move()
    (gpu,) = make_node("n0", 1).gpus
    node.do(GpusObserved("n0", (replace(gpu, foreign_bytes=14 * GIB),)), resume())
    assert node.job().state is JobState.PAUSED
    node.do(GpusObserved("n0", (gpu,)))
    assert node.job().state is JobState.RUNNING


def test_what_cannot_be_moved_stays_suspended_in_its_lane_with_the_reason() -> None:
    node = Node()
    node.run(ONE)
    node.do(to_host(), Submitted(TWO, SPEC))
    node.sample(ONE, host_refusal="2 processes of it use the GPU")
    assert (node.job().state, node.job().suspended_via) == (JobState.PAUSED, SuspendVia.LANE)
    text = "its GPU memory stays on the GPU: 2 processes of it use the GPU; suspended by ann"
    assert sentence_of(node.why()) == text
    assert node.job(TWO).state is JobState.QUEUED
    node.do(to_host())
    assert node.job().suspended_via is SuspendVia.HOST
    node.do(resume())
    assert node.job().state is JobState.RUNNING


def test_one_resumed_before_its_memory_had_left_never_lost_its_gpu() -> None:
    node = Node()
    node.run(ONE)
    node.do(to_host(), Submitted(TWO, SPEC))
    node.do(resume())
    node.sample(ONE, on_host_bytes=3 * GIB)
    assert (node.job().state, node.job().is_on_host) == (JobState.RUNNING, False)
    assert node.job(TWO).state is JobState.QUEUED


def test_one_suspended_in_its_lane_can_be_moved_later_and_one_that_returns_stays_on_the_host_when_stopped_again() -> (
    None
):
    node = Node()
    node.run(ONE)
    node.do(SuspendRequested(ONE, "ann"))
    node.move()
    assert node.job().is_on_host
    node.run(TWO)
    node.do(resume())
    node.do(SuspendRequested(ONE, "ann"))
    assert (node.job().suspended, node.job().suspended_via) == (True, SuspendVia.HOST)
    node.do(Submitted(THREE, SPEC))
    node.end(TWO)
    assert node.job(THREE).state is JobState.ASSIGNED


def test_it_ends_is_cancelled_or_lost_like_any_other() -> None:
    node = Node()
    for job, event in ((ONE, CancelRequested(ONE, "ann")), (TWO, None), (THREE, NodeLost("n0"))):
        node.run(job)
        node.move(job)
        if event is not None:
            node.do(event)
        if job is not THREE:
            node.do(Ended(job, 1, "signalled", Exit(None, 15), node.now_s, node.now_s))
            assert node.host_bytes == 0
    assert (node.job(THREE).state, node.job(THREE).is_on_host) == (JobState.QUEUED, False)


def test_a_returning_job_that_is_cancelled_keeps_no_other_away() -> None:
    node = Node()
    node.run(ONE)
    node.move()
    node.run(TWO)
    node.do(resume(), Submitted(THREE, SPEC))
    node.do(CancelRequested(ONE, "ann"))
    node.end(TWO)
    assert node.job(THREE).state is JobState.ASSIGNED


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_restart_of_the_scheduler_changes_nothing(is_resumed: bool) -> None:
    node = Node()
    node.run(ONE)
    node.move()
    node.run(TWO)
    node.do(*[resume()] * is_resumed)
    state = node.core.state
    nodes = [(one.node, one.generation) for one in state.nodes.values()]
    again = ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version)
    audit(again)
    assert again.gpus == state.gpus
    node.core = Core(create("fifo"), again)
    node.do(Submitted(THREE, SPEC))
    node.end(TWO)
    assert (node.job().state is JobState.RUNNING) == is_resumed
    assert (node.job(THREE).state is JobState.ASSIGNED) == (not is_resumed)


def test_a_plan_may_not_start_a_job_on_a_gpu_that_is_awaited() -> None:
    node = Node()
    node.run(ONE)
    node.move()
    node.run(TWO)
    node.do(resume(), Submitted(THREE, SPEC))
    state = node.core.state
    start = Start(THREE, Placement((Slot(GPU, 1),)), Reason(Why.FREE_GPU, {"gpu": "n0/0"}))
    codes = {flaw.code for flaw in check(state, Plan(state.version, (start,)))}
    assert "kept-for-return" in codes
    assert list(Draft(ClusterView(state, node.now_s)).free_gpus(state.nodes["n0"], "V100")) == []


def test_what_is_known_to_be_impossible_is_refused_at_once() -> None:
    node = Node()
    node.run(ONE)
    progress, place = node.core.state.progress[ONE], node.core.state.nodes["n0"]

    def says(job: Job | None = None) -> str:
        return str(refusal(node.core.state, job or node.job(), progress, SuspendVia.HOST))

    assert refusal(node.core.state, node.job(), progress, SuspendVia.HOST) is None
    assert "runs on 2 GPUs; the driver moves only a single process" in says(
        replace(node.job(), placement=Placement((Slot(GPU, 0), Slot(GpuId("n0", 1), 0))))
    )
    place.node = replace(place.node, host_memory_bytes=GIB)
    assert "needs 2.15 GB of host memory for what it has on its GPU, 1.07 GB are free on n0" in says()
    place.node = replace(place.node, host_refusal="the driver is too old")
    assert "cannot be moved to the host: the driver is too old; suspend it without --to-host" in says()
    place.node = replace(place.node, gpus=tuple(replace(gpu, type=CPU_DEVICE_TYPE) for gpu in place.node.gpus))
    assert "a cpu device, whose memory is the host's" in says()
    assert node.do(to_host()).stale[0][1] == says()
    assert node.job().state is JobState.RUNNING


def test_memory_that_is_believed_counts_for_suspending_as_for_parking() -> None:
    """The job has told nothing of its memory as yet; its kind is known to hold 2 GiB between steps."""
    node = Node()
    node.run(ONE)
    state, job = node.core.state, node.job()
    progress = state.progress[ONE] = replace(state.progress[ONE], persistent_bytes=None)
    place = state.nodes["n0"]
    place.node = replace(place.node, host_memory_bytes=GIB)
    assert "of host memory" in str(parking_refusal(state, job))
    assert f"{parking_refusal(state, job)}; suspend it without --to-host" == refusal(
        state, job, progress, SuspendVia.HOST
    )


def test_random_worlds_reach_jobs_on_the_host_that_come_back() -> None:
    seen = set()
    for seed in range(30):
        world = World(create("pack"), seed)
        for _ in range(80):
            on_host = [job.id for job in world.core.state.jobs.values() if job.is_on_host and job.suspended]
            outcome = world.step(world.random_event(), *(ResumeRequested(job, "ann") for job in on_host))
            audit(world.core.state)
            seen |= {move.reason.why for job in outcome.jobs for move in job.story}
    assert {Why.MOVED_TO_HOST, Why.NOT_MOVED, Why.RETURNED} <= seen
