"""Where servers hold every GPU, a job of unknown kind takes turns with them: it would wait for ever to run alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.model.job import JobId, JobKind, JobSpec, JobState
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import GIB, make_node, make_profile

SERVER = JobSpec(name="s", family="net", batch_size=64, kind=JobKind.INFERENCE)
NEW = JobSpec(name="new", family="new", gpu_memory_bytes=4 * GIB)

keeping_objectives = pytest.mark.parametrize("policy", ["colane", "colocate"])


def held(policy: str, servers: int, **of_them: object) -> Core:
    """One GPU of 16 GiB, held by servers of 3 GiB each that have answered, and idle since."""
    core = Core(create(policy), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1)), ProfileDeclared(make_profile("net", "V100", 1e5, 3 * GIB))], 0.0)
    for number in range(1, servers + 1):
        core.step([Submitted(JobId(number), replace(SERVER, **of_them))], float(number))  # type: ignore[arg-type]
        core.step([Launched(JobId(number), 1, number, float(number), "n0")], number + 0.1)
        sample = Progress(at_s=number + 0.2, steps=20, first_step_s=float(number), last_step_s=float(number))
        core.step([Progressed(JobId(number), 1, sample)], number + 0.2)
    return core


def came(core: Core, spec: JobSpec, job: int = 9) -> JobState:
    outcome = core.step([Submitted(JobId(job), spec)], 500.0 + job)
    assert outcome.rejected is None
    audit(core.state)
    return core.state.jobs[JobId(job)].state


@pytest.mark.parametrize("policy", ["colane", "colocate", "pack"])
@pytest.mark.parametrize("servers", [1, 3])
def test_a_newcomer_of_unknown_kind_starts_beside_servers_that_never_end(policy: str, servers: int) -> None:
    core = held(policy, servers)
    assert came(core, NEW) is JobState.ASSIGNED
    server, new = core.state.jobs[JobId(1)], core.state.jobs[JobId(9)]
    assert server.placement is not None
    assert new.placement is not None
    assert new.placement.gpus == server.placement.gpus
    assert server.state is not JobState.STOPPING


def test_it_takes_turns_with_them_under_colane() -> None:
    core = held("colane", 1)
    came(core, NEW)
    server, new = core.state.jobs[JobId(1)], core.state.jobs[JobId(9)]
    assert (server.placement, new.placement) != (None, None)
    assert new.placement == replace(server.placement, cores=new.placement.cores)  # type: ignore[type-var,union-attr]
    assert new.reason is not None
    assert new.reason.why is Why.TRIES_SHARING


@keeping_objectives
def test_one_that_says_nothing_of_its_memory_could_take_that_of_a_server(policy: str) -> None:
    core = held(policy, 1)
    assert came(core, replace(NEW, gpu_memory_bytes=None)) is JobState.QUEUED
    assert "declare" in core.why(JobId(9), 600.0).sentence()


@keeping_objectives
def test_one_newcomer_comes_at_a_time(policy: str) -> None:
    core = held(policy, 1)
    came(core, NEW)
    assert came(core, replace(NEW, family="other"), 10) is JobState.QUEUED


@keeping_objectives
def test_a_newcomer_that_declares_more_than_is_left_waits(policy: str) -> None:
    core = held(policy, 1)
    assert came(core, replace(NEW, gpu_memory_bytes=15 * GIB)) is JobState.QUEUED


@keeping_objectives
def test_none_comes_beside_a_server_with_an_objective(policy: str) -> None:
    """How long its first step is, for which an answer would wait, is not known."""
    core = held(policy, 1, latency_s=10.0)
    assert came(core, NEW) is JobState.QUEUED
    assert core.why(JobId(9), 600.0).why is Why.UNKNOWN_ALONE_FIRST


@keeping_objectives
def test_a_free_gpu_goes_before(policy: str) -> None:
    core = held(policy, 1)
    core.step([NodeRegistered(make_node("n1", 1))], 400.0)
    came(core, NEW)
    new = core.state.jobs[JobId(9)]
    assert new.placement is not None
    assert new.placement.node == "n1"


def test_a_device_holds_as_many_servers_as_its_memory_does_in_lanes() -> None:
    """Paper B puts 42 models on one GPU."""
    core = Core(create("pack"), ClusterState(Beliefs()))
    small = make_profile("net", "V100", 1e4, GIB // 4, 0.002)
    core.step([NodeRegistered(make_node("n0", 1)), ProfileDeclared(small)], 0.0)
    for number in range(1, 43):
        core.step([Submitted(JobId(number), replace(SERVER, latency_s=0.1))], float(number))
    assert [len(load.jobs) for load in core.state.gpus.values()] == [42]
