"""Jobs of several sizes get the largest for which there is an offer now, where the composition says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Submitted, Tick
from colane.lab.simulate.world import NeutralWorld
from colane.model.job import Exit, JobId, JobSpec
from colane.model.plan import Start
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.choices import LARGEST
from colane.scheduling.engine.loop import Composed
from colane.scheduling.registry import UnknownPolicyError, create
from tests.core.audit import audit, audit_decisions
from tests.core.brute import any_free_place
from tests.core.worlds import World, make_node, make_profile
from tests.scheduling.test_compositions import SEEDS, compositions, laws, lived, passes_no_job, plan
from tests.simulate.scenes import cluster, job, run

WIDE = JobSpec(name="wide", family="f", gpus=4, sizes=(1, 2, 4), cores=4, batch_size=64)


def counts(core: Core) -> dict[int, int]:
    """GPUs of each job that has some."""
    return {job.id: job.gpu_count for job in core.state.jobs.values() if job.placement is not None}


def started(policy: str, *specs: JobSpec, gpus: int = 4) -> Core:
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    core.step([NodeRegistered(make_node("n", gpus)), ProfileDeclared(make_profile("f", "V100", 1e6, 2**30))], 0.0)
    core.step([Submitted(JobId(n), spec) for n, spec in enumerate(specs, 1)], 0.0)
    audit(core.state)
    return core


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "easy-backfill", "srtf", "max-min", "drf", "topo-aware"])
def test_it_starts_at_the_largest_size_that_is_free_now(policy: str) -> None:
    one = JobSpec(name="one", family="f", batch_size=64)
    assert counts(started(policy, one, WIDE)) == {1: 1}
    assert counts(started(f"{policy}:size=largest", WIDE)) == {1: 4}
    core = started(f"{policy}:size=largest", one, WIDE, WIDE)
    assert counts(core) == {1: 1, 2: 2, 3: 1}
    assert len(core.state.nodes["n"].cores_booked) == 3


def test_where_nothing_is_free_it_waits_and_says_what_the_smallest_size_lacks() -> None:
    core = started("fifo-skip:size=largest", WIDE, replace(WIDE, sizes=(2, 4)))
    assert core.why(JobId(2), 0.0).facts["need"] == 2


def test_room_is_made_for_the_smallest_size_alone() -> None:
    low = replace(WIDE, gpus=1, sizes=(), cores=0, preemptible=True, priority=0)
    core = started("colocate:size=largest", *[replace(low, share=False)] * 4)
    core.step([Launched(JobId(n), 1, n, 1.0, "n") for n in range(1, 5)], 1.0)
    core.step([Tick()], 1000.0)
    core.step([Submitted(JobId(5), replace(WIDE, priority=1, share=False))], 1001.0)
    assert sum(job.preempted_for == 5 for job in core.state.jobs.values()) == 1


def test_what_it_had_counts_at_the_size_it_had() -> None:
    core = started("las:size=largest", JobSpec(name="one", family="f"), replace(WIDE, preemptible=True, retries=1))
    core.step([Launched(JobId(n), 1, n, 0.0, "n") for n in (1, 2)], 0.0)
    failed = Ended(JobId(2), 1, "exited", Exit(1, None), 100.0, 100.0, None, "n")
    over = Ended(JobId(1), 1, "exited", Exit(0, None), 100.0, 100.0, None, "n")
    core.step([failed, over], 100.0)
    again = core.state.jobs[JobId(2)]
    assert [(one.gpu_type, one.run_s, one.gpus) for one in again.totals.served] == [("V100", 100.0, 2)]
    assert again.gpu_count == 4


def test_an_unknown_size_is_refused_by_name() -> None:
    with pytest.raises(UnknownPolicyError, match="fifo: size must be one of asked, largest, got 'most'"):
        create("fifo:size=most")


def test_simulated_it_runs_at_the_size_it_got() -> None:
    wide = job(2, 0.0, 100.0, gpus=4, sizes=(1, 2, 4))
    done = run([job(1, 0.0, 50.0), wide], cluster(4), create("fifo:size=largest"), NeutralWorld())
    rows = done.ledger.rows
    assert list(rows.first_start_s) == [0.0, 0.0]
    assert list(rows.end_s) == [50.0, 200.0], "half of the GPUs it asks for, so twice as long"


@laws
@given(policy=compositions(), seed=SEEDS)
def test_every_plan_is_legal_at_any_size_and_planning_again_changes_nothing(policy: Composed, seed: int) -> None:
    for world in lived(World(replace(policy, sizes=LARGEST), seed, sized=True)):
        assert world.outcomes[-1].rejected is None
        audit(world.core.state)
        audit_decisions(world.core.state, world.outcomes[-1])
        assert plan(world).actions == ()


@laws
@given(policy=compositions().filter(lambda policy: not passes_no_job(policy)), seed=SEEDS)
def test_no_job_waits_while_there_is_room_for_one_of_its_sizes(policy: Composed, seed: int) -> None:
    for world in lived(World(replace(policy, sizes=LARGEST), seed, sized=True)):
        state = world.core.state
        if plan(world).holds:
            continue
        for waiting in state.jobs.values():
            if waiting.is_waiting and not waiting.home and waiting.effective.gpus_min == 1:
                assert not any_free_place(state, waiting.effective.at(1))


@laws
@given(policy=compositions(), seed=SEEDS)
def test_a_job_that_starts_gets_one_of_its_sizes(policy: Composed, seed: int) -> None:
    for world in lived(World(replace(policy, sizes=LARGEST), seed, sized=True)):
        for decision in world.outcomes[-1].decisions:
            if isinstance(decision.action, Start):
                spec = world.core.state.jobs[decision.action.job].effective
                assert spec.can_run_on(len(decision.action.placement.slots))


@pytest.mark.parametrize("known", [1, 2, 4])
def test_a_job_of_which_one_size_is_known_grows_and_shrinks_as_one_of_which_none_is(known: int) -> None:
    profile = make_profile("f", "V100", 1e6, 2**30, step_s=0.04)
    core = Core(
        create("f-sched:rise_ratio_min=0,pays_back=no"), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0)
    )
    declared = ProfileDeclared(replace(profile, key=profile.key._replace(gpus=known)))
    core.step([NodeRegistered(make_node("n", 4)), declared], 0.0)
    spec = replace(WIDE, cores=0, preemptible=True)
    core.step([Submitted(JobId(1), spec), Submitted(JobId(2), spec)], 0.0)
    assert counts(core) == {1: 2, 2: 2}
    core.step([Launched(JobId(n), 1, n, 1.0, "n") for n in (1, 2)], 1.0)
    core.step([Tick()], 700.0)  # none of them shows steps, by now for so long that the first is waited for no more
    core.step([Ended(JobId(2), 1, "exited", Exit(0, None), 1.0, 703.0, None, "n")], 703.0)
    resized = core.state.jobs[JobId(1)].resizes_to
    assert resized is not None
    assert len(resized.slots) == 4
