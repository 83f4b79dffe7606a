"""Pools of whole GPUs and MIG instances: CUDA shows a process one instance, and no other GPU beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.events import Ended, Launched, NodeRegistered, Progressed, Submitted, Tick
from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, Start
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import NAMES, preset
from tests.core.audit import audit
from tests.core.worlds import GIB

WHOLE, PART = "NVIDIA H100", "NVIDIA H100 MIG 3g.40gb"
ONE, TWO = JobId(1), JobId(2)


def node(name: str, whole: int, parts: int) -> Node:
    kinds = [WHOLE] * whole + [PART] * parts
    gpus = tuple(
        Gpu(index=i, uuid=f"{'MIG' if kind == PART else 'GPU'}-{name}{i}", type=kind, memory_bytes=40 * GIB, cores=(i,))
        for i, kind in enumerate(kinds)
    )
    return Node(name=name, gpus=gpus, cores=tuple(range(16)), host_memory_bytes=64 * GIB)


def job(gpus: int, **more: object) -> JobSpec:
    return JobSpec(name="j", family=f"of-{gpus}", gpus=gpus, **more)  # type: ignore[arg-type]


class World:
    """Nodes, and jobs that run once they are started."""

    def __init__(self, policy: str, *nodes: Node) -> None:
        self.core = Core(preset(policy), ClusterState(Beliefs()))
        self.at(0.0, *map(NodeRegistered, nodes))

    def at(self, now_s: float, *events: object) -> None:
        outcome = self.core.step(events, now_s)  # type: ignore[arg-type]
        assert outcome.rejected is None
        audit(self.core.state)
        for one in outcome.jobs:
            if one.placement is not None:
                self.sees_no_other_device(one)

    def sees_no_other_device(self, job: Job) -> None:
        """What CUDA would show each of its processes is what it was given."""
        assert job.placement is not None
        on = Counter(gpu.node for gpu in job.placement.gpus)
        parts = {gpu.node for gpu in job.placement.gpus if self.core.state.gpus[gpu].gpu.is_mig_instance}
        assert all(on[name] == 1 for name in parts), job.placement

    def goes_on(self, now_s: float) -> None:
        """Jobs that were given GPUs run; two rounds pass."""
        for one in list(self.core.state.jobs.values()):
            if one.state is JobState.ASSIGNED and one.placement is not None:
                launched = [Launched(one.id, one.attempt, 7, now_s, name) for name in one.placement.nodes]
                self.at(now_s, *launched)
                self.at(now_s, Progressed(one.id, one.attempt, Progress(at_s=now_s, steps=9, first_step_s=now_s)))
        for later in (1.0, 90.0, 400.0):
            self.at(now_s + later, Tick())

    def job(self, job: JobId) -> Job:
        return self.core.state.jobs[job]

    def whole(self, job: JobId) -> list[bool]:
        held = self.job(job).placement
        return [] if held is None else [not self.core.state.gpus[gpu].gpu.is_mig_instance for gpu in held.gpus]


@pytest.mark.parametrize("policy", sorted(NAMES))
def test_whatever_the_policy_a_job_of_several_gpus_is_given_whole_ones(policy: str) -> None:
    """Jobs of one size and of several, on one node and over nodes, with whole GPUs free and without."""
    specs: list[JobSpec] = [
        job(1),
        job(2),
        job(2, gpu_type=None, multi_node=True),
        job(1, sizes=(1, 2, 4), preemptible=True),
        job(2, multi_node=True, anti_collocation=True),
        job(1, gpu_type=PART),
        job(2, priority=5),
    ]
    world = World(policy, node("a", 2, 4), node("b", 1, 2), node("c", 0, 2))
    now_s = 1.0
    for number, spec in enumerate(specs, start=1):
        world.at(now_s, Submitted(JobId(number), spec))
        world.goes_on(now_s + 1.0)
        now_s += 1000.0
    for number in list(world.core.state.jobs):
        one = world.core.state.jobs.get(number)
        if one is not None and one.placement is not None and one.state is JobState.RUNNING:
            ends = [
                Ended(number, one.attempt, "exited", Exit(0, None), 0.0, now_s, node=n) for n in one.placement.nodes
            ]
            world.at(now_s, *ends)
            world.goes_on(now_s + 1.0)
            now_s += 1000.0


def test_it_waits_for_whole_ones_and_says_that_instances_are_not_for_it() -> None:
    world = World("fifo", node("a", 2, 2))
    world.at(1.0, Submitted(ONE, job(1, gpu_type=WHOLE)), Submitted(TWO, job(2)))
    assert world.job(TWO).state is JobState.QUEUED
    reason = world.core.why(TWO, 2.0)
    assert reason.why is Why.NO_FREE_WHOLE_GPU
    assert sentence_of(reason) == (
        "Resources: needs 2 GPUs on one node, at most 1 free, and CUDA shows a process one MIG instance only, so these "
        "are not given to it; GPUs are held by job 1"
    )
    world.at(3.0, Ended(ONE, 1, "exited", Exit(0, None), 1.0, 3.0, node="a"))
    assert world.whole(TWO) == [True, True]


def test_with_a_node_for_each_rank_instances_will_do() -> None:
    world = World("fifo", node("a", 0, 2), node("b", 0, 2))
    world.at(1.0, Submitted(ONE, job(2, multi_node=True, anti_collocation=True)), Submitted(TWO, job(2)))
    assert world.whole(ONE) == [False, False]
    assert world.core.why(TWO, 2.0).why in {Why.NO_FREE_WHOLE_GPU, Why.BEHIND}
    assert world.job(TWO).state is JobState.QUEUED


@pytest.mark.parametrize(
    ("devices", "is_flawed"),
    [((0, 1), False), ((1, 2), True), ((2, 3), True), ((2,), False)],
    ids=["whole", "a whole one and an instance", "two instances", "one instance"],
)
def test_no_plan_gives_a_job_an_instance_and_more(devices: Sequence[int], is_flawed: bool) -> None:
    world = World("fifo", node("a", 2, 2))
    world.at(1.0, Submitted(ONE, job(len(devices), gpu_type="another")))
    placement = Placement(tuple(Slot(GpuId("a", index), 0) for index in devices))
    state = world.core.state
    plan = Plan(state.version, (Start(ONE, placement, Reason(Why.FREE_GPU, {"gpu": "a/0"})),))
    assert ("several-instances" in {flaw.code for flaw in check(state, plan)}) is is_flawed
