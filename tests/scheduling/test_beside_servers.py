"""Where servers hold every GPU, a job of unknown kind takes turns with them: it would wait for ever to run alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.core.planners.answers import Held, blamed, delay_s2
from colane.model.job import Exit, JobId, JobKind, JobSpec, JobState
from colane.model.phases import STEPPING
from colane.model.profile import Value, ValueSource
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import GIB, make_node, make_profile
from tests.examples import examples

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
def test_one_that_says_nothing_of_its_memory_comes_where_a_part_of_the_gpu_is_left(policy: str) -> None:
    core = held(policy, 1)
    assert came(core, replace(NEW, gpu_memory_bytes=None)) is JobState.ASSIGNED
    assert came(core, replace(NEW, family="other"), 10) is JobState.QUEUED
    full = held(policy, 1, gpu_memory_bytes=15 * GIB)
    assert came(full, replace(NEW, gpu_memory_bytes=None)) is JobState.QUEUED
    assert "submit it with --gpu-memory" in sentence_of(full.why(JobId(9), 600.0))


@keeping_objectives
def test_one_that_takes_more_than_servers_leave_goes_though_it_has_made_no_step(policy: str) -> None:
    core = held(policy, 1)
    came(core, replace(NEW, gpu_memory_bytes=None))
    core.step([Launched(JobId(9), 1, 9, 510.0, "n0")], 510.0)
    core.step([Progressed(JobId(9), 1, Progress(at_s=511.0, persistent_bytes=15 * GIB, peak_bytes=15 * GIB))], 511.0)
    audit(core.state)
    assert core.state.jobs[JobId(9)].state is JobState.STOPPING
    assert core.state.jobs[JobId(1)].state is not JobState.STOPPING


@keeping_objectives
def test_one_newcomer_comes_at_a_time(policy: str) -> None:
    core = held(policy, 1)
    came(core, NEW)
    assert came(core, replace(NEW, family="other"), 10) is JobState.QUEUED


@keeping_objectives
def test_a_newcomer_that_declares_more_than_is_left_waits(policy: str) -> None:
    core = held(policy, 1)
    assert came(core, replace(NEW, gpu_memory_bytes=15 * GIB)) is JobState.QUEUED


def answers(core: Core, p99_s: float, at_s: float, job: int = 1) -> None:
    sample = Progress(at_s=at_s, steps=21, first_step_s=1.0, last_step_s=at_s, answers=21, latency_p99_s=p99_s)
    outcome = core.step([Progressed(JobId(job), 1, sample)], at_s)
    assert outcome.rejected is None


def on_trial(policy: str, **needs: object) -> Core:
    """A server with an objective that it has kept, and a newcomer beside it that steps."""
    core = held(policy, 1, latency_s=1.0)
    answers(core, 0.2, 400.0)
    came(core, replace(NEW, **needs))  # type: ignore[arg-type]
    core.step([Launched(JobId(9), 1, 9, 510.0, "n0")], 510.0)
    sample = Progress(at_s=512.0, steps=3, first_step_s=511.0, last_step_s=512.0)
    core.step([Progressed(JobId(9), 1, sample)], 512.0)
    return core


@keeping_objectives
def test_it_stays_beside_a_server_that_keeps_its_objective(policy: str) -> None:
    core = on_trial(policy)
    answers(core, 0.9, 513.0)
    assert core.state.jobs[JobId(9)].state is JobState.RUNNING_PROTECTED


@keeping_objectives
@pytest.mark.parametrize("preemptible", [False, True])
def test_it_leaves_once_a_server_misses_its_objective_and_comes_to_none_again(policy: str, preemptible: bool) -> None:
    core = on_trial(policy, preemptible=preemptible)
    answers(core, 1.5, 513.0)
    new = core.state.jobs[JobId(9)]
    assert (new.state, new.reason and new.reason.why) == (JobState.STOPPING, Why.LATE_ANSWERS)
    core.step([Ended(JobId(9), 1, "signalled", Exit(None, 15, ""), 510.0, 515.0)], 515.0)
    answers(core, 0.9, 600.0)
    assert core.state.jobs[JobId(9)].state is JobState.QUEUED
    assert "GPU to itself" in sentence_of(core.why(JobId(9), 601.0))


def with_turns(core: Core, job: int, at_s: float, held_s: float, step_s: float) -> None:
    steps = {"steps": 21, "first_step_s": 1.0, "last_step_s": at_s, "step_mean_s": step_s}
    sample = Progress(at_s=at_s, turn="running", turn_service_s=held_s, turn_wait_s=1.0, **steps)  # type: ignore[arg-type]
    assert core.step([Progressed(JobId(job), 1, sample)], at_s).rejected is None


@pytest.mark.parametrize("to_blame", [2, 9])
def test_who_held_the_lane_while_answers_waited_is_to_blame_whoever_came_last(to_blame: int) -> None:
    """A server with an objective, one that keeps its turns for long, and a newcomer to their lane."""
    core = held("fair", 2, latency_s=1.0)
    answers(core, 0.2, 400.0)
    came(core, NEW)
    core.step([Launched(JobId(9), 1, 9, 510.0, "n0")], 510.0)
    lanes = {core.state.jobs[JobId(job)].placement.slots[0].lane for job in (1, 2, 9)}  # type: ignore[union-attr]
    assert len(lanes) == 1
    for job in (2, 9):
        with_turns(core, job, 511.0, 100.0, 0.01)  # before it was late
    answers(core, 0.2, 512.0)
    for job in (2, 9):
        with_turns(core, job, 513.0, 110.0, 2.0 if job == to_blame else 0.01)
    answers(core, 1.5, 514.0)
    assert core.state.jobs[JobId(1)].state in STEPPING
    assert core.state.jobs[JobId(2)].state in STEPPING, "a server never leaves"
    assert (core.state.jobs[JobId(9)].state in STEPPING) is (to_blame == 2)


@examples(100)
@given(st.lists(st.tuples(st.floats(0, 1e4), st.none() | st.floats(1e-4, 1e3)), max_size=6), st.randoms())
def test_blame_follows_who_held_the_lane_and_how_long_for_a_step(
    times: list[tuple[float, float | None]], order: Random
) -> None:
    holders = [Held(JobId(number), *one) for number, one in enumerate(times, start=1)]
    job = blamed(holders)
    order.shuffle(holders)
    assert blamed(holders) == job, "whoever came last"
    if job is None:
        assert not any(delay_s2(one) for one in holders)
        return
    (found,) = [one for one in holders if one.job == job]
    assert found.held_s > 0
    longer = [one for one in holders if one.held_s > found.held_s and (one.step_s or 0) > (found.step_s or 1e9)]
    assert longer == []
    more = [one._replace(held_s=2 * one.held_s) if one.job == job else one for one in holders]
    assert blamed(more) == job, "who holds it the longer is the more to blame"


@keeping_objectives
def test_one_that_came_before_is_not_blamed_for_what_was_late_already(policy: str) -> None:
    core = on_trial(policy)
    core.step([Ended(JobId(9), 1, "exited", Exit(0, None, ""), 510.0, 513.0)], 513.0)
    answers(core, 1.5, 514.0)
    assert came(core, replace(NEW, family="other"), 20) is JobState.QUEUED
    assert "--latency" in sentence_of(core.why(JobId(20), 600.0))
    core.step([], 700.0)
    answers(core, 0.9, 701.0)
    core.step([], 800.0)
    assert core.state.jobs[JobId(20)].state is JobState.ASSIGNED


SHARING = ["colane", "colocate", "pack", "fair", "salus-srtf", "salus-code", "max-min-packed"]
SHARING += ["topo-aware-share"]


@pytest.mark.parametrize("policy", SHARING)
@pytest.mark.parametrize("memory", [None, 4 * GIB])
@pytest.mark.parametrize("latency_s", [None, 0.1])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("declares", [False, True])
def test_a_newcomer_of_unknown_kind_starts_beside_servers_whatever_is_known_of_them(
    policy: str, memory: int | None, latency_s: float | None, asked: bool, declares: bool
) -> None:
    """Within two minutes: servers that have answered or not, declare their memory or not, have an objective or not."""
    core = Core(create(policy), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    server = replace(SERVER, latency_s=latency_s, gpu_memory_bytes=3 * GIB if declares else None)
    core.step([Submitted(JobId(1), server)], 1.0)
    core.step([Launched(JobId(1), 1, 1, 1.0, "n0")], 1.1)
    assert core.step([Submitted(JobId(9), replace(NEW, gpu_memory_bytes=memory))], 2.0).rejected is None
    steps = {"steps": 1, "first_step_s": 2.0, "last_step_s": 2.0, "answers": 1, "latency_p99_s": 0.05} if asked else {}
    for second in range(3, 130):
        sample = Progress(at_s=float(second), persistent_bytes=3 * GIB, peak_bytes=3 * GIB, **steps)  # type: ignore[arg-type]
        assert core.step([Progressed(JobId(1), 1, sample)], float(second)).rejected is None
        audit(core.state)
    assert core.state.jobs[JobId(9)].state is JobState.ASSIGNED
    assert core.state.jobs[JobId(1)].state in STEPPING


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


def known(persistent: float, ephemeral: float) -> Core:
    """A GPU of 16 GiB and a kind of server that was measured: GiB between and within its steps, 2 ms each."""
    small = make_profile("net", "V100", 1e4, GIB, 0.002)
    held_bytes, more_bytes = (Value(size * GIB, ValueSource.MEASURED) for size in (persistent, ephemeral))
    core = Core(create("colane"), ClusterState(Beliefs()))
    profile = replace(small, persistent_bytes=held_bytes, ephemeral_bytes=more_bytes)
    core.step([NodeRegistered(make_node("n0", 1)), ProfileDeclared(profile)], 0.0)
    return core


def serve(core: Core, count: int, **of_them: object) -> list[int]:
    """Submit so many, of which each that starts steps once and then has nothing to answer; lanes of those that run."""
    for number in range(1, count + 1):
        core.step([Submitted(JobId(number), replace(SERVER, **of_them))], float(number))  # type: ignore[arg-type]
        if core.state.jobs[JobId(number)].state is JobState.ASSIGNED:
            core.step([Launched(JobId(number), 1, number, float(number), "n0")], number + 0.1)
            sample = Progress(at_s=number + 0.2, steps=20, first_step_s=float(number), last_step_s=float(number))
            core.step([Progressed(JobId(number), 1, sample)], number + 0.2)
        audit(core.state)
    return [job.placement.slots[0].lane for job in core.state.jobs.values() if job.placement is not None]


@pytest.mark.parametrize("latency_s", [None, 0.1])
def test_idle_servers_of_a_known_kind_join_as_those_of_an_unknown_one(latency_s: float | None) -> None:
    """What two do to each other is never seen while they are idle: a third would wait for that for ever."""
    assert serve(known(0.1, 0.1), 24, latency_s=latency_s) == list(range(24))


def test_where_lanes_of_their_own_do_not_fit_servers_take_turns() -> None:
    """Each holds 0.3 GiB and needs 1 GiB more within a step: in lanes of their own 12 fit (paper B, section 3.3)."""
    lanes = serve(known(0.3, 1.0), 24)
    assert len(lanes) == 24
    assert 1 < len(set(lanes)) < 8


def test_a_known_server_does_not_wait_for_a_gpu_that_training_will_leave() -> None:
    core = known(0.1, 0.1)
    core.step([NodeRegistered(make_node("n1", 1))], 0.5)
    core.step([Submitted(JobId(50), JobSpec(name="long", family="long", share=False))], 0.6)
    assert core.state.jobs[JobId(50)].state is JobState.ASSIGNED
    assert len(serve(core, 5)) == 6
