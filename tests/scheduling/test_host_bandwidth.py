"""Bandwidth to host memory is a resource of a node (paper C, section 4.2), under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, Submitted
from colane.model.hardware import GpuId
from colane.model.job import Exit, JobId, JobSpec
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, Start
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node

GB = 10**9
NEEDS_60 = JobSpec(name="j", family="f", host_bandwidth_bytes_per_s=60 * GB, share=False)
POLICIES = ("fifo", "fifo-skip", "best-fit", "fcfs", "colocate", "easy-backfill", "srtf", "las", "drf", "topo-aware")


def start(policy: str, *bandwidths: int) -> Core:
    """Nodes of four GPUs and so much bandwidth, 0 unknown."""
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    nodes = [replace(make_node(f"n{i}", 4), host_bandwidth_bytes_per_s=has) for i, has in enumerate(bandwidths)]
    core.step([NodeRegistered(node) for node in nodes], 0.0)
    return core


def submit(core: Core, number: int, spec: JobSpec) -> str:
    outcome = core.step([Submitted(JobId(number), spec)], float(number))
    assert outcome.rejected is None
    placement = core.state.jobs[JobId(number)].placement
    return " ".join(map(str, placement.gpus)) if placement else ""


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_waits_for_bandwidth_although_gpus_are_free(policy: str) -> None:
    core = start(policy, 100 * GB)
    assert submit(core, 1, NEEDS_60).startswith("n0/")
    assert not submit(core, 2, NEEDS_60)
    reason = core.why(JobId(2), 2.0)
    assert reason.why in {Why.NO_HOST_BANDWIDTH, Why.RESERVED}
    if reason.why is Why.NO_HOST_BANDWIDTH:
        expected = "Resources: needs 60 GB/s of host memory bandwidth, at most 40 GB/s free"
        assert sentence_of(reason) == expected
    core.step([Launched(JobId(1), 1, 1, 3.0)], 3.0)
    core.step([Ended(JobId(1), 1, "exited", Exit(0, None), 3.0, 9.0)], 9.0)
    assert core.state.jobs[JobId(2)].placement is not None
    assert core.state.nodes["n0"].host_bandwidth_free == 40 * GB


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_that_does_not_say_its_bandwidth_bounds_no_job(policy: str) -> None:
    core = start(policy, 50 * GB, 0)
    assert all(submit(core, number, NEEDS_60).startswith("n1/") for number in (1, 2, 3))


@pytest.mark.parametrize("policy", ["fifo", "topo-aware"])
def test_a_job_over_several_nodes_books_a_part_of_each(policy: str) -> None:
    core = start(policy, 100 * GB, 100 * GB)
    wide = replace(NEEDS_60, gpus=8, multi_node=True, host_bandwidth_bytes_per_s=160 * GB)
    assert len(submit(core, 1, wide).split()) == 8
    assert [node.host_bandwidth_free for node in core.state.nodes.values()] == [20 * GB, 20 * GB]


def test_a_plan_that_books_too_much_is_refused() -> None:
    core = start("fifo", 100 * GB)
    core.step([Submitted(JobId(9), replace(NEEDS_60, gpus=5))], 0.0)  # it blocks those behind it
    for number in (10, 11):
        submit(core, number, NEEDS_60)
    reason = Reason(Why.FREE_GPU, {"gpu": "n0/0"})
    places = [Placement((Slot(GpuId("n0", gpu), 0),), ()) for gpu in range(2)]
    starts = [Start(JobId(10 + gpu), place, reason) for gpu, place in enumerate(places)]
    assert not check(core.state, Plan(core.state.version, (starts[0],)))
    flaws = check(core.state, Plan(core.state.version, tuple(starts)))
    assert [(flaw.code, flaw.jobs) for flaw in flaws] == [("host-bandwidth-overbooked", (11,))]
