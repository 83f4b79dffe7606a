"""Jobs without GPUs: where they run, what they book, what they must leave to others."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.config import CoreConfig
from colane.core.events import CancelRequested, Ended, Launched, NodeLost, NodeRegistered, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.placement import Placement
from colane.model.plan import Plan, Start
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling import registry
from colane.server.store.documents import PLACEMENT
from tests.examples import examples

from .audit import audit

GB = 10**9


def node(name: str = "a", gpus: int = 2, cores: int = 8, kind: str = "V100", **fields: Any) -> Node:
    """The first core is near the first GPU, and so on."""
    devices = tuple(Gpu(index=i, uuid=f"{name}-{i}", type=kind, memory_bytes=16 * GB, cores=(i,)) for i in range(gpus))
    return Node(name=name, gpus=devices, cores=tuple(range(cores)), host_memory_bytes=64 * GB, **fields)


def spec(gpus: int = 0, **fields: Any) -> JobSpec:
    return JobSpec(name="j", family="f", gpus=gpus, **fields)


def make(*nodes: Node, policy: str = "fifo") -> Core:
    core = Core(registry.create(policy), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step(list(map(NodeRegistered, nodes)), 0.0)
    return core


def submit(core: Core, *specs: JobSpec, at_s: float = 1.0) -> None:
    first = max(core.state.jobs, default=0) + 1
    core.step([Submitted(JobId(first + i), one) for i, one in enumerate(specs)], at_s, whole=True)


def end(core: Core, job: int, at_s: float) -> None:
    core.step([Ended(JobId(job), core.state.jobs[JobId(job)].attempt, "exited", Exit(0, None), None, at_s)], at_s)


def placements(core: Core) -> list[tuple[str, tuple[int, ...]] | None]:
    jobs = [core.state.jobs[job] for job in sorted(core.state.jobs)]
    return [None if job.placement is None else (job.placement.node, job.placement.cores) for job in jobs]


def test_it_books_cores_near_no_gpu_and_host_memory_and_gives_them_back() -> None:
    core = make(node())
    submit(core, spec(cores=3, host_memory_bytes=9 * GB))
    assert placements(core) == [("a", (2, 3, 4))]
    assert core.state.nodes["a"].cores_free == 5
    assert core.state.nodes["a"].host_memory_free_bytes == 55 * GB
    end(core, 1, 2.0)
    assert core.state.nodes["a"].cores_free == 8
    assert core.state.nodes["a"].host_memory_free_bytes == 64 * GB


def test_it_goes_to_the_first_node_that_has_room_and_waits_where_none_has() -> None:
    core = make(node("a", cores=4), node("b", cores=6), node("c", pool="other", cores=64))
    submit(core, spec(cores=4), spec(cores=6), spec(cores=1))
    assert placements(core) == [("a", (0, 1, 2, 3)), ("b", (0, 1, 2, 3, 4, 5)), None]
    reason = core.why(JobId(3), 2.0)
    assert reason == Reason(Why.NO_ROOM_ON_HOST, {"need": 1, "need_bytes": 0, "have": 0, "have_bytes": 64 * GB}, (1, 2))
    assert "needs 1 core " in sentence_of(reason)
    end(core, 2, 3.0)
    assert placements(core)[-1] == ("b", (2,))


def test_higher_priority_goes_first_then_arrival() -> None:
    core = make(node(cores=2))
    submit(core, spec(cores=2))
    submit(core, spec(cores=2), spec(cores=2, priority=1), at_s=2.0)
    end(core, 1, 3.0)
    assert core.state.jobs[JobId(3)].state is JobState.RUNNING
    assert core.state.jobs[JobId(2)].state is JobState.QUEUED


def test_cores_of_cpu_devices_are_not_booked_but_shared() -> None:
    core = make(node(kind="cpu", gpus=2, cores=3))
    submit(core, spec(cores=2), spec(cores=2), spec())
    assert placements(core) == [("a", ()), None, ("a", ())]


def test_the_judge_finds_wrong_nodes_and_cores() -> None:
    core = make(node(kind="cpu", gpus=2, cores=3), node("b", pool="other"))
    submit(core, spec(cores=4))

    def flaws(placement: Placement) -> list[str]:
        plan = Plan(core.state.version, (Start(JobId(1), placement, Reason(Why.FREE_CORES)),))
        return [flaw.code for flaw in check(core.state, plan)]

    assert flaws(Placement((), (0, 2), node="a")) == ["wrong-cores"]
    assert flaws(Placement((), (2,), node="a")) == ["wrong-cores"]
    assert flaws(Placement((), (), node="a")) == ["no-core-free"]
    assert flaws(Placement((), (0, 1), node="b")) == ["wrong-pool"]
    assert flaws(Placement((), (0, 1), node="nowhere")) == ["no-such-node"]


def test_its_node_may_come_back_but_not_be_lost() -> None:
    core = make(node())
    submit(core, spec(cores=2))
    core.step([NodeRegistered(node())], 2.0)
    assert core.state.jobs[JobId(1)].state is JobState.RUNNING
    core.step([NodeLost("a")], 3.0)
    assert core.state.jobs[JobId(1)].state is JobState.QUEUED
    core.step([NodeRegistered(node())], 4.0)
    assert core.state.jobs[JobId(1)].attempt == 2
    core.step([NodeRegistered(node(cores=3))], 5.0)
    job = core.state.jobs[JobId(1)]
    assert (job.attempt, job.totals.losses) == (2, 1), "it goes on with cores that are left"
    assert job.placement is not None
    assert set(job.placement.cores) <= {0, 1, 2}
    assert job.placement.cores


def test_it_runs_live_states_and_can_be_cancelled() -> None:
    core = Core(registry.create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(node()), Submitted(JobId(1), spec(cores=1))], 0.0)
    core.step([Launched(JobId(1), 1, 77, 1.0)], 1.0)
    assert core.state.jobs[JobId(1)].state is JobState.LAUNCHING
    core.step([CancelRequested(JobId(1), "me")], 2.0)
    core.step([Ended(JobId(1), 1, "signalled", Exit(None, 15), 1.0, 3.0)], 3.0)
    assert not core.state.jobs


def test_a_stream_of_them_does_not_keep_a_job_with_gpus_waiting_for_ever() -> None:
    """All cores are always asked for; still the job with a GPU finds eight some time after its hour."""
    core, random, started_s = make(node(cores=8)), Random(0), None
    running: dict[int, float] = {}
    submit(core, spec(1, cores=8), *[spec(cores=2)] * 4, at_s=0.0)
    end(core, 1, 1.0)
    submit(core, spec(1, cores=8), at_s=1.0)
    wanted = max(core.state.jobs)
    for now_s in range(10, 40_000, 100):
        submit(core, *[spec(cores=random.randint(1, 3))] * 3, at_s=float(now_s))
        for job in list(core.state.jobs.values()):
            if job.placement is not None:
                running.setdefault(job.id, now_s + random.choice((150, 400, 900)))
        for job_id in [one for one, end_s in running.items() if end_s <= now_s and one != wanted]:
            del running[job_id]
            end(core, job_id, float(now_s))
        if core.state.jobs[wanted].placement is not None:
            started_s = now_s
            break
    assert started_s is not None
    assert started_s < 3600 + 2 * 900 + 300


@pytest.mark.parametrize("policy", ["fifo", "coda"])
@pytest.mark.parametrize("passes_s", [600.0, 7200.0])
def test_whoever_places_them_leaves_the_overdue_job_what_it_books(policy: str, passes_s: float) -> None:
    """Two cores fall free while the job with a GPU, which books all eight, waits for those that run on the others."""
    core = Core(
        registry.create(policy), ClusterState(Beliefs()), CoreConfig(runs_at_once=True, cpu_only_passes_s=passes_s)
    )
    core.step([NodeRegistered(node(cores=8))], 0.0)
    submit(core, spec(cores=2, abortable=True), spec(1, cores=6), at_s=0.0)
    submit(core, spec(1, cores=8), at_s=1.0)
    end(core, 1, 2.0)
    submit(core, spec(cores=1, abortable=True), at_s=passes_s - 1)
    submit(core, spec(cores=1, abortable=True), at_s=passes_s + 2)
    assert [core.state.jobs[JobId(job)].state for job in (4, 5)] == [JobState.RUNNING, JobState.QUEUED]


@pytest.mark.parametrize("policy", ["fifo-skip:max_wait_s=3600", "colocate", "srtf:max_wait_s=3600", "topo-aware"])
def test_a_stream_of_jobs_with_gpus_does_not_keep_one_of_many_cores_waiting_for_ever(policy: str) -> None:
    """Four jobs of two cores each are always there to take what comes free; still six cores are found after an hour."""
    core, ends, started_s = make(node(gpus=4), policy=policy), dict[int, float](), None
    submit(core, *[spec(1, cores=2, share=False)] * 4, at_s=0.0)
    submit(core, spec(cores=6), at_s=1.0)
    wanted = max(core.state.jobs)
    for now_s in range(10, 20_000, 100):
        submit(core, *[spec(1, cores=2, share=False)] * 2, at_s=float(now_s))
        for job in list(core.state.jobs.values()):
            if job.placement is not None:
                ends.setdefault(job.id, now_s + 150.0 * (1 + job.id % 3))
        for job_id in [one for one, end_s in ends.items() if end_s <= now_s and one != wanted]:
            del ends[job_id]
            end(core, job_id, float(now_s))
        if core.state.jobs[wanted].placement is not None:
            started_s = now_s
            break
    assert started_s is not None
    assert 3600 <= started_s < 3600 + 600 + 200


@pytest.mark.parametrize("kind", ["V100", "cpu"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("asks", [{"cores": 2}, {"whole_node": True}])
def test_a_stream_of_small_ones_does_not_keep_one_that_needs_more_waiting_for_ever(
    asks: dict[str, Any], nodes: int, kind: str
) -> None:
    """Ones of a core each are always there; after an hour one node is left to it, and the others go on elsewhere."""
    core, ends, started_s = make(*[node(f"n{i}", cores=2, kind=kind) for i in range(nodes)]), dict[int, float](), None
    small = spec(cores=1)
    submit(core, *[small] * 4, at_s=0.0)
    submit(core, spec(**asks), at_s=1.0)
    wanted = max(core.state.jobs)
    for now_s in range(10, 20_000, 100):
        submit(core, *[small] * 2, at_s=float(now_s))
        running = [job.id for job in core.state.jobs.values() if job.placement is not None and job.id != wanted]
        assert nodes == 1 or len(running) >= 2, "the other node goes on"
        for job_id in running:
            if ends.setdefault(job_id, now_s + 150.0 * (1 + job_id % 3)) <= now_s:
                end(core, job_id, float(now_s))
        if core.state.jobs[wanted].placement is not None:
            started_s = now_s
            break
    assert started_s is not None
    assert 3600 <= started_s < 3600 + 600 + 200


def test_the_record_of_a_placement_without_slots_is_whole() -> None:
    placement = Placement((), (3, 4), node="a")
    assert PLACEMENT.read(PLACEMENT.write(placement)) == placement
    assert placement.nodes == ("a",)
    assert placement.gpus == ()
    assert placement != Placement((), (3, 4), node="b")
    assert replace(placement, port=3).node == "a"


@pytest.mark.parametrize("policy", sorted(registry.POLICIES))
@examples(20)
@given(seed=st.integers(0, 10_000))
def test_under_every_policy_nothing_is_booked_twice_and_all_is_as_made_anew(policy: str, seed: int) -> None:
    random, now_s = Random(seed), 0.0
    core = make(node("a", 2, 8), node("b", 1, 4), node("c", 0, 6), policy=policy)
    for _ in range(12):
        now_s += random.choice((0.0, 5.0, 4000.0))
        gpus, cores = random.choice((0, 0, 1, 2)), random.choice((0, 1, 3))
        submit(
            core, spec(gpus, cores=cores, host_memory_bytes=random.choice((0, 30 * GB)), preemptible=True), at_s=now_s
        )
        running = [job.id for job in core.state.jobs.values() if job.placement is not None]
        if running and random.random() < 0.5:
            end(core, random.choice(running), now_s)
        fresh = ClusterState.restore(
            [(one.node, one.generation) for one in core.state.nodes.values()], core.state.jobs.values(), Beliefs()
        )
        for name, one in core.state.nodes.items():
            booked = [core for job in one.jobs for core in (fresh.jobs[job].placement or Placement(())).cores_on(name)]
            assert len(booked) == len(set(booked))
            assert one.cores_booked == fresh.nodes[name].cores_booked
            assert one.host_memory_free_bytes == fresh.nodes[name].host_memory_free_bytes >= 0
        for job in core.state.jobs.values():
            if not job.spec.gpus and job.placement is None:
                again = Core(registry.create(policy), fresh, CoreConfig(runs_at_once=True))
                assert not again.step([], now_s).decisions
                assert sentence_of(core.why(job.id, now_s))


SHARED: dict[str, tuple[int, int, str]] = {
    "a node with GPUs": (8, 2, "V100"),
    "a node of cpu devices, which are its cores": (4, 4, "cpu"),
    "a node without GPUs": (2, 0, "V100"),
}


@pytest.mark.parametrize("policy", ["colane", "fifo", "coda", "colane:arrays=yes"])
@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("where", SHARED)
def test_jobs_without_gpus_use_at_most_the_cores_there_are(where: str, asked: int, policy: str) -> None:
    cores, gpus, kind = SHARED[where]
    core = make(node(cores=cores, gpus=gpus, kind=kind), policy=policy)
    submit(core, *[spec(cores=asked)] * 200)
    lent = cores - gpus if asked and policy.endswith("arrays=yes") and kind != "cpu" else cores
    run_at_once = lent // max(1, asked)
    assert len(_running(core)) == run_at_once
    audit(core.state)
    if lent == cores:
        said = sentence_of(core.why(JobId(200), 2.0))
        assert said.startswith(f"Resources: needs {max(1, asked)} core"), said
    for number in range(1, 4):
        end(core, number, 2.0 + number)
        assert len(_running(core)) == run_at_once
        audit(core.state)


@pytest.mark.parametrize("asked", [0, 2])
def test_jobs_that_ask_for_no_cores_and_those_that_do_count_together(asked: int) -> None:
    core = make(node(cores=4, gpus=0))
    submit(core, spec(cores=3), *[spec(cores=asked)] * 5)
    assert len(_running(core)) == 1 + (1 if not asked else 0)


def _running(core: Core) -> list[Job]:
    return [job for job in core.state.jobs.values() if job.state is JobState.RUNNING]
