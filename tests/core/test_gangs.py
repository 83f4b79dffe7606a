"""Jobs over several nodes: placed together, ended as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Ended, Launched, NodeLost, NodeRegistered, Submitted
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .audit import audit
from .worlds import make_node

ONE = JobId(1)
SPAN = JobSpec(name="ddp", family="gpt", gpus=3, multi_node=True, cores=3, host_memory_bytes=9)


def core_with(spec: JobSpec, *sizes: int) -> Core:
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node(f"n{i}", gpus)) for i, gpus in enumerate(sizes)], 0.0)
    core.step([Submitted(ONE, spec)], 1.0)
    return core


def ends(node: str, code: int = 0, outcome: str = "exited") -> Ended:
    return Ended(ONE, 1, outcome, Exit(code, None), 1.0, 5.0, None, node)


def test_it_takes_few_nodes_and_books_each_by_its_ranks() -> None:
    core = core_with(SPAN, 1, 2, 1)
    job = core.state.jobs[ONE]
    assert job.placement is not None
    assert [str(gpu) for gpu in job.placement.gpus] == ["n1/0", "n1/1", "n0/0"]
    assert [len(job.placement.cores_on(node)) for node in ("n1", "n0")] == [2, 1]
    assert [core.state.nodes[node].host_memory_booked_bytes for node in ("n1", "n0", "n2")] == [6, 3, 0]
    assert job.placement.port == core.config.gang_ports[0]
    audit(core.state)


def test_one_node_is_preferred() -> None:
    placement = core_with(SPAN, 2, 4).state.jobs[ONE].placement
    assert placement is not None
    assert placement.nodes == ("n1",)
    assert placement.port == 0


def test_ranks_that_must_not_meet_get_a_node_each() -> None:
    core = core_with(replace(SPAN, anti_collocation=True), 4, 4, 1)
    placement = core.state.jobs[ONE].placement
    assert placement is not None
    assert len(placement.nodes) == 3


@pytest.mark.parametrize(("each", "gpus", "sizes", "expected"), [
    (2, 4, (4, 4, 1), {"n0": 2, "n1": 2}),
    (2, 4, (3, 1, 2), {"n0": 2, "n2": 2}),
    (2, 2, (1, 2), {"n1": 2}),
    (1, 3, (4, 4, 1), {"n0": 1, "n1": 1, "n2": 1}),
    (2, 4, (4, 1, 1), None),
])  # fmt: skip
def test_it_has_a_whole_group_of_gpus_on_each_node(
    each: int, gpus: int, sizes: tuple[int, ...], expected: dict[str, int] | None
) -> None:
    core = core_with(JobSpec(name="ddp", family="gpt", gpus=gpus, gpus_per_node=each), *sizes)
    placement = core.state.jobs[ONE].placement
    assert (placement and Counter(gpu.node for gpu in placement.gpus)) == expected
    if expected is None:
        assert sentence_of(core.why(ONE, 2.0)) == (
            "Resources: needs 4 GPUs, 2 on each node, over any nodes, 2 free; GPUs are held by no other job"
        )


def test_without_leave_to_span_it_waits() -> None:
    core = core_with(replace(SPAN, multi_node=False), 2, 2)
    assert core.state.jobs[ONE].state is JobState.QUEUED
    assert core.why(ONE, 2.0).why is Why.NO_FREE_GPU


def started(*sizes: int, spec: JobSpec = SPAN) -> Core:
    core = core_with(spec, *sizes)
    core.step([Launched(ONE, 1, 7, 1.5, "n1"), Launched(ONE, 1, 8, 1.6, "n0")], 2.0)
    return core


def last(core: Core, *events: Ended | NodeLost) -> Job:
    job = core.step(list(events), 9.0).jobs[-1]
    audit(core.state)
    return job


def test_it_ends_with_its_last_node() -> None:
    core = started(1, 2)
    job = last(core, ends("n1"))
    assert job.state is JobState.LAUNCHING
    assert core.state.nodes["n1"].free["V100"] == 0b11
    assert core.step([ends("n1")], 9.0).jobs == ()
    assert last(core, ends("n0")).state is JobState.SUCCEEDED


def test_one_rank_that_fails_stops_the_others() -> None:
    core = started(1, 2)
    stopping = last(core, ends("n0", 3))
    assert stopping.state is JobState.STOPPING
    failed = last(core, Ended(ONE, 1, "signalled", Exit(None, 15), 1.0, 6.0, None, "n1"))
    assert failed.state is JobState.FAILED
    assert failed.run.exit == Exit(3, None)
    assert failed.reason is not None
    assert failed.reason.why is Why.EXIT_CODE


@pytest.mark.parametrize(("outcome", "end"), [("exited", JobState.QUEUED), ("out-of-memory", JobState.OUT_OF_MEMORY)])
def test_a_gang_is_retried_as_one(outcome: str, end: JobState) -> None:
    core = started(1, 2, spec=replace(SPAN, retries=1, share=False))
    last(core, ends("n0", 1, outcome))
    job = core.step([ends("n1", 1)], 9.0).jobs[-1]
    assert [line.state for line in job.story if line.state is end]
    audit(core.state)


def test_a_lost_node_takes_the_gang_with_it() -> None:
    core = started(1, 2)
    stopping = last(core, NodeLost("n0"))
    assert stopping.state is JobState.STOPPING
    core.step([NodeRegistered(make_node("n0", 1))], 9.5)
    audit(core.state)
    again = last(core, Ended(ONE, 1, "signalled", Exit(None, 15), 1.0, 6.0, None, "n1"))
    assert again.state is JobState.ASSIGNED
    assert again.attempt == 2
    assert again.run.ended_on == ()


def test_state_is_rebuilt_without_what_has_ended() -> None:
    core = started(1, 2)
    last(core, ends("n1"))
    known = [(node.node, node.generation) for node in core.state.nodes.values()]
    audit(ClusterState.restore(known, core.state.jobs.values(), Beliefs()))
