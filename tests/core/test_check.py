"""A good plan, broken in each way: the judge names each flaw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.events import Launched, NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import GpuId
from colane.model.job import JobId, JobSpec
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, Start, Stop
from colane.model.reason import Reason, Why
from colane.policies.registry import create

from .worlds import GIB, make_node, make_profile

REASON = Reason(Why.FREE_GPU, {"gpu": "n0/0"})
PLAIN = JobSpec(name="a", family="vgg11", batch_size=64)


@pytest.fixture
def state() -> ClusterState:
    """Two nodes; job 1 runs on n0/0, job 2 is protected on n0/1, the rest cannot start (needs 9 GPUs)."""
    core = Core(create("fifo"), ClusterState())
    core.step([NodeRegistered(make_node("n0", 4)), NodeRegistered(make_node("n1", 2, pool="other"))], 0.0)
    core.step([ProfileDeclared(make_profile("vgg11", "V100", 1e6, 6 * GIB))], 0.0)
    core.step(
        [Submitted(JobId(1), replace(PLAIN, preemptible=True)), Submitted(JobId(2), replace(PLAIN, share=False))], 1.0
    )
    core.step([Launched(JobId(1), 1, 7, 1.0)], 2.0)
    core.step([], 100.0)
    waiting = replace(PLAIN, pool="nowhere")
    core.step([Submitted(JobId(3), waiting), Submitted(JobId(4), waiting)], 101.0)
    for job in (JobId(3), JobId(4)):
        core.state.put_job(replace(core.state.jobs[job], spec=PLAIN))
    return core.state


def start(job: int, *gpus: tuple[str, int], lane: int = 0, cores: tuple[int, ...] = ()) -> Start:
    return Start(JobId(job), Placement(tuple(Slot(GpuId(*gpu), lane) for gpu in gpus), cores), REASON)


def flaws(state: ClusterState, *actions: Start | Stop) -> list[str]:
    return [flaw.code for flaw in check(state, Plan(state.version, actions))]


def respec(state: ClusterState, job: int, **changes: object) -> None:
    old = state.jobs[JobId(job)]
    state._leave(old)
    fresh = replace(old, spec=replace(old.spec, **changes))  # type: ignore[arg-type]
    del state.jobs[old.id]
    state.put_job(fresh)


def test_a_good_plan_has_no_flaw(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2)), start(4, ("n0", 2), lane=1), Stop(JobId(1), REASON)) == []


def test_two_actions_for_one_job(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2)), start(3, ("n0", 3))) == ["decided-twice"]


def test_a_job_nobody_knows(state: ClusterState) -> None:
    assert flaws(state, start(99, ("n0", 2))) == ["unknown-job"]


def test_a_job_that_runs_already(state: ClusterState) -> None:
    assert flaws(state, start(1, ("n0", 2))) == ["not-waiting"]


def test_a_gpu_nobody_has(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 9))) == ["no-such-gpu"]


def test_a_gang_that_is_not_whole(state: ClusterState) -> None:
    respec(state, 3, gpus=2)
    assert flaws(state, start(3, ("n0", 2))) == ["gang-not-whole"]
    assert flaws(state, start(3, ("n0", 2), ("n0", 2))) == ["gpu-twice-in-gang"]


def test_a_gang_over_two_nodes_and_pools(state: ClusterState) -> None:
    respec(state, 3, gpus=2)
    assert flaws(state, start(3, ("n0", 2), ("n1", 0))) == ["gang-on-many-nodes", "wrong-pool"]


def test_the_wrong_gpu_type(state: ClusterState) -> None:
    respec(state, 3, gpu_type="A100")
    assert flaws(state, start(3, ("n0", 2))) == ["wrong-gpu-type"]


def test_cores_that_were_not_asked_for_or_are_taken(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2), cores=(0,))) == ["wrong-cores"]
    respec(state, 3, cores=1)
    respec(state, 4, cores=1)
    both = start(3, ("n0", 2), cores=(5,)), start(4, ("n0", 3), cores=(5,))
    assert flaws(state, *both) == ["core-booked-twice"]


def test_more_host_memory_than_the_node_has(state: ClusterState) -> None:
    respec(state, 3, host_memory_bytes=40 * GIB)
    respec(state, 4, host_memory_bytes=40 * GIB)
    assert flaws(state, start(3, ("n0", 2)), start(4, ("n0", 3))) == ["host-memory-overbooked"]


def test_more_gpu_memory_than_the_gpu_has(state: ClusterState) -> None:
    respec(state, 3, gpu_memory_bytes=12 * GIB)
    both = start(3, ("n0", 2)), start(4, ("n0", 2), lane=1)
    assert flaws(state, *both) == ["unsafe-memory"]


def test_company_for_a_job_that_wants_none(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 1), lane=1)) == ["may-not-share"]


def test_company_for_a_job_of_unknown_memory(state: ClusterState) -> None:
    respec(state, 3, family="unheard-of")
    assert flaws(state, start(3, ("n0", 0), lane=1)) == ["may-not-share"]


def test_stopping_a_job_that_is_protected(state: ClusterState) -> None:
    assert flaws(state, Stop(JobId(2), REASON)) == ["protected"]


def test_stopping_a_job_that_cannot_save_its_state(state: ClusterState) -> None:
    respec(state, 1, preemptible=False)
    assert flaws(state, Stop(JobId(1), REASON)) == ["not-preemptible"]


def test_a_stopped_job_holds_its_gpus_until_its_process_is_gone(state: ClusterState) -> None:
    respec(state, 3, share=False)
    assert flaws(state, Stop(JobId(1), REASON), start(3, ("n0", 0), lane=1)) == ["may-not-share"]
