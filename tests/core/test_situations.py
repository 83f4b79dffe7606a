"""Situations read off the cluster: of newcomers, of those they join, of jobs as they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.load import book
from colane.core.cluster.situations import (
    distance_of,
    near_of,
    rate_of,
    situation_alone,
    situation_beside,
    situation_in,
    situations_joined,
    situations_of,
    speed_lost,
)
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import Attempt, Exit, Job, JobId, JobSpec, JobState
from colane.model.placement import Placement, Slot, TurnRule
from colane.model.profile import ProfileKey
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import Beside, NeighbourBeliefs
from colane.perf.rate import LaneMate, Situation
from colane.perf.topology import ACROSS_MACHINES, ACROSS_SOCKETS, IN_SOCKET
from colane.scheduling.registry import preset

from .worlds import GIB, make_profile

KINDS = {name: ProfileKey(name, 64, 1, "V100") for name in "abcd"}


def node(name: str = "n0") -> Node:
    """Four GPUs on two sockets."""
    gpus = tuple(
        Gpu(index=i, uuid=f"{name}-{i}", type="V100", memory_bytes=16 * GIB, socket=i // 2, sharing="mps")
        for i in range(4)
    )
    return Node(name=name, gpus=gpus, cores=tuple(range(8)), host_bandwidth_bytes_per_s=10)


def running(number: int, family: str, slots: tuple[Slot, ...], **asked: object) -> Job:
    spec = JobSpec(name=family, family=family, batch_size=64, gpus=len(slots), **asked)  # type: ignore[arg-type]
    cores = tuple(range(spec.cores))
    return Job(JobId(number), spec, 0.0, JobState.RUNNING, placement=Placement(slots, cores), attempt=1)


def slot(number: int, lane: int = 0, name: str = "n0") -> Slot:
    return Slot(GpuId(name, number), lane)


def cluster(*jobs: Job, beliefs: Beliefs | None = None) -> ClusterState:
    profiles = [make_profile(name, "V100", occupancy * 1e6, GIB) for occupancy, name in enumerate("abcd", 1)]
    return ClusterState.restore([(node(), 1), (node("n1"), 1)], jobs, beliefs or Beliefs(profiles=profiles))


def test_a_newcomer_meets_the_busiest_of_every_other_lane_and_all_of_its_own() -> None:
    state = cluster(
        running(1, "a", (slot(0, 0),), weight=2.0), running(2, "b", (slot(0, 0),)), running(3, "c", (slot(0, 1),))
    )
    load = state.gpus[GpuId("n0", 0)]
    own_lane = situation_beside(load, load.next_lane, state.jobs)
    assert own_lane == Situation("V100", 1, None, "mps", beside=(KINDS["b"], KINDS["c"]))
    takes_turns = situation_beside(load, 0, state.jobs, TurnRule.RR)
    assert takes_turns.beside == (KINDS["c"],)
    assert takes_turns.lane_mates == (LaneMate(KINDS["a"], 2.0), LaneMate(KINDS["b"], 1.0))
    assert takes_turns.rule is TurnRule.RR


def test_those_there_are_told_of_the_newcomer() -> None:
    state = cluster(running(1, "a", (slot(0, 0),)), running(2, "b", (slot(0, 1),)))
    load, newcomer = state.gpus[GpuId("n0", 0)], running(3, "d", (slot(0, 1),), weight=4.0)
    jobs = {**state.jobs, newcomer.id: newcomer}
    joined = dict(situations_joined(load, book(newcomer, 1, state.beliefs.terms(newcomer.spec, "V100")), jobs))
    assert joined[JobId(1)].beside == (KINDS["d"],)
    assert (joined[JobId(2)].beside, joined[JobId(2)].lane_mates) == ((KINDS["a"],), (LaneMate(KINDS["d"], 4.0),))
    assert situation_in(load, JobId(1), jobs).beside == (KINDS["b"],)


def test_near_are_jobs_on_other_gpus_of_the_same_sockets() -> None:
    state = cluster(
        running(1, "a", (slot(0),)),
        running(2, "b", (slot(1),)),
        running(3, "c", (slot(1, 1),)),
        running(4, "d", (slot(2),)),
    )
    n0 = state.nodes["n0"]
    assert near_of(n0, [GpuId("n0", 0)], state.gpus.__getitem__) == (KINDS["b"], KINDS["c"])
    assert near_of(n0, [GpuId("n0", 0)], state.gpus.__getitem__, lambda job: job != 3) == (KINDS["b"],)
    assert near_of(n0, [GpuId("n0", 3)], state.gpus.__getitem__) == (KINDS["d"],)
    assert near_of(n0, [GpuId("n0", 1), GpuId("n0", 0)], state.gpus.__getitem__) == ()


def test_distances_add_up_inside_and_between_nodes() -> None:
    nodes = cluster().nodes
    assert distance_of(nodes, [GpuId("n0", 0)]) == 0
    assert distance_of(nodes, [GpuId("n0", 1), GpuId("n0", 0)]) == IN_SOCKET
    three = [GpuId("n0", 0), GpuId("n0", 1), GpuId("n0", 2)]
    assert distance_of(nodes, three) == IN_SOCKET + 2 * ACROSS_SOCKETS
    assert distance_of(nodes, [*three, GpuId("n1", 0)]) == IN_SOCKET + 2 * ACROSS_SOCKETS + 3 * ACROSS_MACHINES


def test_a_job_alone_with_free_gpus() -> None:
    loads = [cluster().gpus[GpuId("n0", number)] for number in (0, 2)]
    assert situation_alone(loads, distance=20.0, cores=3) == Situation("V100", 2, 20.0, "mps", cores=3)


def test_a_running_job_is_as_fast_as_its_slowest_rank() -> None:
    gang = running(1, "a", (slot(0), slot(1), slot(2)), cores=2, host_bandwidth_bytes_per_s=20)
    state = cluster(gang, running(2, "b", (slot(1, 1),)), running(3, "c", (slot(3),)))
    found = situations_of(state, gang)
    assert len(found) == 2, "two ranks are in the same situation"
    assert {situation.beside for situation in found} == {(), (KINDS["b"],)}
    assert {(s.distance, s.cores, s.bandwidth_pressure, s.near) for s in found} == {
        (IN_SOCKET + 2 * ACROSS_SOCKETS, 2, 2.0, (KINDS["c"],))
    }
    rate = rate_of(state, gang)
    assert rate is not None
    assert rate.slowdown == max(state.beliefs.rate(gang.spec, situation).slowdown for situation in found)


def test_a_job_that_was_given_fewer_gpus_is_booked_and_judged_with_so_many() -> None:
    two = running(1, "a", (slot(0), slot(1)))
    shrunk = replace(two, spec=replace(two.spec, gpus=4))
    state = cluster(shrunk)
    assert {booking.key.gpus for gpu in shrunk.gpus_held for booking in state.gpus[gpu].bookings} == {2}
    (situation,) = situations_of(state, shrunk)
    assert situation.gpus == 2
    known = make_profile("a", "V100", 1e6, GIB)
    state.knowledge.learn_profile(replace(known, key=known.key._replace(gpus=2)))
    state.refresh_bookings(known.key._replace(gpus=2))
    memory = state.beliefs.terms(shrunk.spec, "V100", 2).memory
    assert memory is not None
    assert {state.gpus[gpu].needed_bytes for gpu in shrunk.gpus_held} == {sum(memory)}


def test_a_job_with_another_number_of_gpus_is_booked_anew_when_the_point_it_rests_on_changes() -> None:
    job = running(1, "a", (slot(0), slot(1)))
    job = replace(job, spec=replace(job.spec, gpus=4))
    state = cluster(job)
    for gib in (2, 3):
        learnt = make_profile("a", "V100", 1e6, gib * GIB)
        state.refresh_bookings(state.knowledge.learn_profile(replace(learnt, key=learnt.key._replace(gpus=4))).key)
        memory = state.beliefs.terms(job.spec, "V100", 2).memory
        assert memory is not None
        assert sum(memory) > gib * GIB
        assert {state.gpus[gpu].needed_bytes for gpu in job.gpus_held} == {sum(memory)}


def test_a_node_that_a_gang_is_gone_from_counts_no_more_even_when_it_has_lost_gpus() -> None:
    gang = replace(
        running(1, "a", (slot(0), slot(1), slot(3, 0, "n1")), multi_node=True), run=Attempt(ended_on=("n1",))
    )
    state = cluster(gang, running(2, "b", (slot(2, 0, "n1"),)))
    state.remove_node("n1")
    assert {(s.distance, s.near) for s in situations_of(state, gang)} == {(IN_SOCKET, ())}
    state.put_node(replace(node("n1"), gpus=node("n1").gpus[:2]))
    assert {(s.distance, s.near) for s in situations_of(state, gang)} == {(IN_SOCKET, ())}


@pytest.mark.parametrize("resting", [JobState.PAUSED, JobState.STOPPING])
def test_jobs_that_rest_disturb_no_other(resting: JobState) -> None:
    one, two, three = running(1, "a", (slot(0),)), running(2, "b", (slot(0, 1),)), running(3, "c", (slot(1),))
    together = situations_of(cluster(one, two, three), one)
    assert [(s.beside, s.near) for s in together] == [((KINDS["b"],), (KINDS["c"],))]
    state = cluster(one, replace(two, state=resting), replace(three, state=resting))
    assert [(s.beside, s.near) for s in situations_of(state, one)] == [((), ())]


def test_what_others_lose_by_a_newcomer_can_be_summed() -> None:
    slowed = NeighbourBeliefs({Beside(KINDS["c"], KINDS["d"]): 1.25})
    profiles = [make_profile(name, "V100", 1.5e7, GIB) for name in "abcd"]
    state = cluster(running(1, "a", (slot(0),)), beliefs=Beliefs(profiles=profiles, neighbours=slowed))
    load, newcomer = state.gpus[GpuId("n0", 0)], running(2, "d", (slot(0, 1),))
    one, rate = state.jobs[JobId(1)], state.beliefs.rate
    joined = dict(situations_joined(load, book(newcomer, 1, state.beliefs.terms(newcomer.spec, "V100")), state.jobs))
    lost = rate(one.spec, situation_in(load, one.id, state.jobs)).ratio - rate(one.spec, joined[one.id]).ratio
    assert lost == pytest.approx(1 - 1 / 1.5)
    terms = state.beliefs.terms(newcomer.spec, "V100")
    assert speed_lost(state.beliefs, load, book(newcomer, 1, terms), state.jobs) == lost
    assert speed_lost(state.beliefs, load, book(newcomer, 0, terms), {**state.jobs, newcomer.id: newcomer}) == 0.5
    assert speed_lost(state.beliefs, load.without(one.id), book(newcomer, 1, terms), state.jobs) == 0


def test_a_job_without_gpus_is_slowed_by_cores_and_bandwidth_alone() -> None:
    spec = JobSpec(name="prepare", family="prepare", gpus=0, cores=4, host_bandwidth_bytes_per_s=20)
    job = Job(JobId(1), spec, 0.0, JobState.RUNNING, placement=Placement((), (0, 1), node="n0"), attempt=1)
    rate = rate_of(cluster(job, running(2, "a", (slot(0),))), job)
    assert rate is not None
    assert (rate.ratio, rate.factors.bus.slowdown, rate.factors.cores.slowdown) == (0.25, 2.0, 2.0)


def test_waiting_jobs_have_no_situation_and_a_gang_that_ends_keeps_those_of_the_rest() -> None:
    core = Core(preset("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(node()), NodeRegistered(node("n1"))], 0.0)
    core.step([ProfileDeclared(make_profile("a", "V100", 1e6, GIB))], 0.0)
    spec = JobSpec(name="a", family="a", batch_size=64, gpus=6, multi_node=True)
    core.step([Submitted(JobId(1), spec), Submitted(JobId(2), spec)], 1.0)
    jobs = core.state.jobs
    assert situations_of(core.state, jobs[JobId(2)]) == ()
    assert rate_of(core.state, jobs[JobId(2)]) is None
    core.step([Launched(JobId(1), 1, 7, 2.0)], 2.0)
    core.step([Ended(JobId(1), 1, "exited", Exit(1, None), 2.0, 3.0, node="n1")], 3.0)
    assert all(s.gpu_type == "V100" and not s.near for s in situations_of(core.state, jobs[JobId(1)]))
