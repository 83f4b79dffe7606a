"""Sizes: how they are written, and what a job of several has is what its placement says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import NodeRegistered, Submitted
from colane.model.field_values import GPUS_MAX, check_sizes, describe_sizes, parse_sizes
from colane.model.inventory import Inventory
from colane.model.job import JobId, JobSpec, JobState
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.model.resources import host_needs
from colane.perf.beliefs import Beliefs

from .audit import audit
from .worlds import make_node

ONE = JobId(1)
SIZED = JobSpec(name="elastic", family="f", gpus=4, sizes=(1, 2, 4), cores=4, host_memory_bytes=8)


@dataclass(frozen=True)
class OfSize:
    """Starts every job on so many GPUs of the first node."""

    gpus: int
    name: str = "of-size"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = 0.0

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        node = view.nodes["n"]
        for pool in view.pools:
            for job in map(view.job, view.queue(pool)):
                loads = [view.gpu(gpu) for gpu in list(node.ids.values())[: self.gpus]]
                draft.start(job, loads, Reason(Why.FREE_GPU, {"gpu": "n/0"}))
        return draft.plan()


@pytest.mark.parametrize(("gpus", "cores", "host_bytes"), [(1, 1, 2), (2, 2, 4), (4, 4, 8)])
def test_it_books_by_what_it_has(gpus: int, cores: int, host_bytes: int) -> None:
    core = Core(OfSize(gpus), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n", 4)), Submitted(ONE, SIZED)], 0.0)
    job = core.state.jobs[ONE]
    assert job.gpu_count == gpus
    assert {booking.key.gpus for load in core.state.gpus.values() for booking in load.bookings} == {gpus}
    assert len(core.state.nodes["n"].cores_booked) == cores
    assert core.state.nodes["n"].host_memory_booked_bytes == host_bytes
    audit(core.state)


def test_a_size_it_cannot_run_on_is_a_flaw() -> None:
    core = Core(OfSize(3), ClusterState(Beliefs()))
    outcome = core.step([NodeRegistered(make_node("n", 4)), Submitted(ONE, SIZED)], 0.0)
    assert outcome.rejected is not None
    (flaw,) = outcome.rejected.flaws
    assert (flaw.code, flaw.detail) == ("gang-not-whole", "job 1 asks for 1,2,4 GPUs, gets 3")
    assert core.state.jobs[ONE].state is JobState.QUEUED


def test_jobs_of_other_sizes_are_of_another_class() -> None:
    rigid = JobSpec(name="rigid", family="f", gpus=4, cores=4, host_memory_bytes=8)
    assert SIZED.need != rigid.need
    assert (SIZED.gpus_min, SIZED.gpus_max, rigid.gpus_min, rigid.gpus_max) == (1, 4, 4, 4)
    assert [size for size in range(6) if SIZED.can_run_on(size)] == [1, 2, 4]
    assert [size for size in range(6) if rigid.can_run_on(size)] == [4]


def test_the_largest_that_some_node_could_hold() -> None:
    assert Inventory([make_node("n", 3)]).sized(SIZED).gpus == 2
    assert Inventory([make_node("n", 9)]).sized(SIZED).gpus == 4
    assert Inventory([make_node("n", 0)]).sized(SIZED).gpus == 1  # which is what it is refused for


@given(sizes=st.sets(st.integers(1, 12), min_size=1), gpus=st.integers(0, 12), cores=st.integers(0, 40))
def test_no_larger_size_could_be_held(sizes: set[int], gpus: int, cores: int) -> None:
    found = check_sizes(sorted(sizes))
    spec = JobSpec(name="j", family="f", gpus=found[-1], sizes=found, cores=cores)
    inventory = Inventory([make_node("n", gpus)])
    held = [size for size in found if inventory.shortfall(replace(spec, gpus=size)) is None]
    assert inventory.sized(spec).gpus == max(held, default=found[0])


def test_what_is_booked_is_for_the_largest_size_whatever_it_would_like_best() -> None:
    spec = replace(SIZED, gpus=2)
    assert [host_needs(spec, ranks).cores for ranks in (1, 2, 4)] == [1, 2, 4]


@given(st.sets(st.integers(1, GPUS_MAX), min_size=1, max_size=20))
def test_what_is_described_is_read_back(sizes: set[int]) -> None:
    found = check_sizes(sorted(sizes))
    assert parse_sizes(describe_sizes(found)) == found


@given(st.integers(1, 60), st.integers(0, 60))
def test_ranges_are_written_as_ranges(low: int, more: int) -> None:
    sizes = tuple(range(low, low + more + 1))
    assert parse_sizes(f"{low}..{low + more}") == sizes
    assert (".." in describe_sizes(sizes)) == (more > 1)


@pytest.mark.parametrize("text", ["", "x", "1..", "..4", "1,,2", "1.5", "-1", "1..2..3", "٣..x", "9" * 50, "1..9999"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number of GPUs"):
        parse_sizes(text)
