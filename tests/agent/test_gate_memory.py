"""Who waits at its boundary while a lane mate runs without turns: by memory, the youngest first, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.agent.gate.memory import Tenant, kept_back
from colane.agent.gate.rules import GateState
from colane.agent.gate.values import GateJob, GateTimeouts, Lane
from colane.model.placement import Turns
from colane.model.profile import Memory
from colane.model.resources import is_safe, needed_bytes
from tests.examples import examples

LANE, OTHER, ELSEWHERE = (0, 0), (0, 1), (1, 0)


def tenant(
    job: int, persistent: int, ephemeral: int, lane: Lane = LANE, *, is_ungated: bool = False, is_still: bool = False
) -> Tenant:
    return Tenant(job, job, (lane,), Memory(persistent, ephemeral), is_ungated, is_still)


def test_a_job_that_runs_without_turns_counts_as_a_lane_of_its_own() -> None:
    three = [tenant(1, 10, 30, is_ungated=True), tenant(2, 10, 20), tenant(3, 10, 30)]
    assert kept_back(three, {0: 90}) == {}, "30 between steps, 30 for job 1, 30 for the others' turns"
    assert kept_back(three, {0: 89}) == {3: (1,)}, "the steps of job 2 fit beside it"
    assert kept_back(three, {0: 79}) == {2: (1,), 3: (1,)}
    assert kept_back(three, {}) == {}, "nothing is known of the device"


def test_no_job_waits_while_all_take_turns_or_where_memory_is_not_known() -> None:
    assert kept_back([tenant(1, 10, 30), tenant(2, 10, 30)], {0: 1}) == {}
    unknown = Tenant(2, 2, (LANE,), None, is_ungated=False, is_still=False)
    assert kept_back([tenant(1, 10, 30, is_ungated=True), unknown], {0: 1}) == {}


def test_lane_mates_wait_before_jobs_of_other_lanes_and_jobs_of_other_devices_never() -> None:
    jobs = [tenant(1, 0, 40, is_ungated=True), tenant(2, 0, 40), tenant(3, 0, 40, OTHER), tenant(4, 0, 99, ELSEWHERE)]
    assert kept_back(jobs, {0: 80, 1: 99}) == {2: (1,)}
    two = [jobs[0], tenant(2, 0, 40, is_ungated=True), jobs[2]]
    assert kept_back(two, {0: 80}) == {3: (1, 2)}, "two without turns take what the other lane had"


def test_one_that_is_paused_at_its_boundary_uses_nothing_more() -> None:
    jobs = [tenant(1, 0, 40, is_ungated=True), tenant(2, 0, 40, is_still=True), tenant(3, 0, 10)]
    assert kept_back(jobs, {0: 50}) == {}


tenants = st.lists(
    st.builds(
        tenant, st.integers(), st.integers(0, 9), st.integers(0, 9), st.sampled_from([LANE, OTHER]),
        is_ungated=st.booleans(), is_still=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda one: one.job,
)  # fmt: skip


@examples(200)
@given(tenants, st.integers(0, 60))
def test_what_goes_on_fits_as_well_as_turns_did(jobs: list[Tenant], capacity: int) -> None:
    kept = kept_back(jobs, {0: capacity})
    sizes = {one.job: one.memory for one in jobs if one.memory is not None}
    all_in_turns = needed_bytes((one.lanes[0][1], sizes[one.job]) for one in jobs)
    held = [
        Memory(sizes[one.job].persistent_bytes, 0) if one.job in kept or one.is_still else sizes[one.job]
        for one in jobs
        if not one.is_ungated
    ]
    lanes = [one.lanes[0][1] for one in jobs if not one.is_ungated]
    free = [(-1 - place, sizes[one.job]) for place, one in enumerate(jobs) if one.is_ungated]
    together = [*zip(lanes, held, strict=True), *free]
    able = [one for one in jobs if not one.is_ungated and not one.is_still]
    if free and len(kept) < len(able):
        assert is_safe(together, max(capacity, all_in_turns))
    assert not any(one.job in kept for one in jobs if one.is_ungated or one.is_still)
    assert free or not kept


def floor_of(capacity: int) -> GateState:
    """Jobs 1 to 3 of one lane, which take 10 between steps and 30, 20 and 30 within; job 1 has the lane."""
    floor = GateState(bounds=GateTimeouts(5.0, 60.0))
    sizes = {1: Memory(10, 30), 2: Memory(10, 20), 3: Memory(10, 30)}
    gate_jobs = [GateJob(job=job, lanes=(LANE,), memory=size) for job, size in sizes.items()]
    floor.follow(gate_jobs, Turns(), 0.0, {0: capacity})
    for job in sizes:
        floor.parked(job, 1, 0.0)
    assert floor.settle(0.0).go == [1]
    floor.settle(6.0)
    return floor


def test_lane_mates_without_room_wait_until_the_other_is_back() -> None:
    floor = floor_of(89)
    assert {job: seen.state for job, seen in floor.seen(6.0).items()} == {1: "ungated", 2: "running", 3: "kept"}
    note = floor.seen(6.0)[3].note
    assert note == "waits at its step boundary: beside job 1, which runs without turns, its memory does not fit"
    floor.parked(2, 9, 7.0)
    assert floor.settle(7.0).go == [2], "no other can have the turn"
    assert f"job 3 {note}" in floor.messages()
    floor.parked(1, 2, 8.0)
    floor.parked(2, 10, 8.1)
    floor.settle(8.1)
    assert {job: seen.state for job, seen in floor.seen(8.1).items()} == {1: "waiting", 2: "waiting", 3: "running"}
    assert floor.messages() == []


def test_one_that_runs_is_asked_for_its_boundary_when_another_leaves_the_turns() -> None:
    floor = GateState(bounds=GateTimeouts(5.0, 60.0))
    gate_jobs = [
        GateJob(job=1, lanes=(LANE,), memory=Memory(0, 40)),
        GateJob(job=2, lanes=(LANE,), memory=Memory(0, 40)),
    ]
    floor.follow(gate_jobs, Turns(), 0.0, {0: 79})
    floor.stepping(2, 5, 0.0)
    floor.settle(60.0)  # job 1 has shown no boundary at all
    assert floor.seen(60.0)[1].state == "ungated"
    assert floor.settle(60.0).flags[2]
    floor.parked(2, 6, 60.1)
    assert floor.settle(60.1).go == []
    assert (floor.seen(60.1)[2].state, floor.seen(60.1)[2].is_parked) == ("kept", False)
    floor.away(1, 61.0)
    assert floor.settle(61.0).go == [2]


def test_a_job_that_is_kept_goes_on_when_the_other_has_ended_or_there_is_more_room() -> None:
    floor = floor_of(60)
    assert [floor.seen(6.0)[job].state for job in (2, 3)] == ["kept", "kept"]
    sizes = {1: Memory(10, 30), 2: Memory(10, 20), 3: Memory(10, 30)}
    floor.follow([GateJob(job=job, lanes=(LANE,), memory=size) for job, size in sizes.items()], Turns(), 7.0, {0: 90})
    assert floor.settle(7.0).go == [2]
    floor = floor_of(60)
    floor.follow([GateJob(job=job, lanes=(LANE,), memory=sizes[job]) for job in (2, 3)], Turns(), 7.0, {0: 60})
    assert floor.settle(7.0).go == [2]
