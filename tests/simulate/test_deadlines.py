"""Deadlines that are taken in are met, and taking one in breaks none that was taken in before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import NodeRegistered, ProfileDeclared, Submitted
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId
from colane.model.job import JobId, JobSpec, JobState
from colane.model.job_spec import PromisedGpus
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.deadlines.seats import Allowed, NoPromise, promise
from colane.scheduling.registry import create
from tests.examples import examples

from .scenes import cluster, job, random_cluster, random_jobs, workload


def simulated(jobs: Sequence[TraceJob], machines: Cluster, name: str, costs: DriverConfig, *, knows: bool) -> Run:
    """What comes of jobs whose lengths are known by their time limits alone, or truly."""
    world = NeutralWorld()
    belief = Belief.ORACLE if knows else Belief.NONE
    beliefs = make_beliefs(belief, world, jobs, machines, noise=0.0, seed=0)
    given = Inputs(
        cluster=machines, workload=workload(*jobs), world=world, policy=create(name), beliefs=beliefs, driver=costs
    )
    return simulate(given)


SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
COSTS = st.sampled_from([DriverConfig(), DriverConfig(launch_s=3, restart_s=2, stop_s=1), DriverConfig(stop_s=4)])


def with_deadlines(jobs: Sequence[TraceJob], seed: int) -> list[TraceJob]:
    """Every third job or so is to have ended within one to six times its length."""
    draws = np.random.default_rng(seed)
    found = []
    for one in jobs:
        slack = draws.uniform(1.2, 6.0)
        is_due = one.spec.gpus > 0 and not one.spec.multi_node and draws.random() < 0.4
        deadline_s = float(ceil(slack * (one.duration_s or 0.0) + 5.0)) if is_due else None
        limit_s = float(ceil(one.duration_s or 0.0)) + 20.0 if draws.random() < 0.5 else None
        spec = replace(one.spec, deadline_s=deadline_s, preemptible=draws.random() < 0.6, time_limit_s=limit_s)
        found.append(replace(one, spec=spec))
    return found


def ends(done: Run) -> dict[int, tuple[JobState, float]]:
    rows = done.ledger.rows
    return {one: (STATES[code], end_s) for one, code, end_s in zip(rows.id, rows.state, rows.end_s, strict=True)}


@pytest.mark.parametrize("name", ["colane", "srtf", "fifo", "f-sched"])
@examples(25)
@given(seed=SEEDS, costs=COSTS, knows=st.booleans())
def test_a_deadline_that_is_taken_in_is_met(name: str, seed: int, costs: DriverConfig, knows: bool) -> None:
    jobs = with_deadlines(random_jobs(seed), seed)
    done = simulated(jobs, random_cluster(seed), name, costs, knows=knows)
    assert done.ledger.flaws == []
    found = ends(done)
    for one in jobs:
        state, end_s = found[one.id]
        if one.spec.deadline_s is None:
            assert state is JobState.SUCCEEDED
        elif state is not JobState.CANCELLED:
            assert state is JobState.SUCCEEDED
            assert end_s <= one.submit_s + one.spec.deadline_s


@pytest.mark.parametrize(("deadline_s", "gpus"), [(800.0, 1), (799.0, 2), (499.0, 4), (299.0, None)])
def test_it_has_the_fewest_gpus_with_which_it_ends_in_time(deadline_s: float, gpus: int | None) -> None:
    core = Core(create("colane"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(each) for each in cluster(4).nodes], 0.0)
    for count, step_s in ((1, 4.0), (2, 2.5), (4, 1.5)):
        known = Value(step_s, ValueSource.MEASURED, 10)
        core.step([ProfileDeclared(Profile(key=ProfileKey("f", None, count, "v100"), step_s=known))], 0.0)
    spec = JobSpec(name="a", family="f", gpus=4, sizes=(1, 2, 4), steps_total=200, deadline_s=deadline_s)
    found = promise(ClusterView(core.state, 0.0), spec, Allowed(margin_ratio=1.0))
    assert (len(found.gpus) if isinstance(found, PromisedGpus) else None) == gpus
    if isinstance(found, PromisedGpus):
        core.step([Submitted(JobId(1), spec, promised=found)], 0.0)
        assert core.state.jobs[JobId(1)].gpus_held == found.gpus


@examples(60)
@given(seed=SEEDS)
@example(seed=636)
def test_the_earliest_deadline_that_a_refusal_names_is_taken(seed: int) -> None:
    draws = np.random.default_rng(seed)
    core = Core(create("colane"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(each) for each in random_cluster(seed).nodes], 0.0)
    now_s, allowed, refusals = 0.0, Allowed(stop_s=5.0, launch_s=10.0), 0
    for number in range(1, 16):
        now_s += float(draws.integers(0, 30))
        limit_s = float(draws.integers(10, 200))
        deadline_s = float(ceil(limit_s * draws.uniform(1.0, 4.0))) + 15.0 if draws.random() < 0.7 else None
        spec = JobSpec(
            name=f"j{number}", family="f", gpus=int(draws.integers(1, 3)), time_limit_s=limit_s, deadline_s=deadline_s,
            preemptible=bool(draws.random() < 0.5),
        )  # fmt: skip
        found = None if deadline_s is None else promise(ClusterView(core.state, now_s), spec, allowed)
        if isinstance(found, NoPromise):
            assert found.earliest_s is not None
            assert found.earliest_s > (deadline_s or 0.0)
            spec = replace(spec, deadline_s=found.earliest_s + 1e-6)
            found = promise(ClusterView(core.state, now_s), spec, allowed)
            refusals += 1
            assert isinstance(found, PromisedGpus), "the earliest it named"
        promised = found if isinstance(found, PromisedGpus) else None
        core.step([Submitted(JobId(number), spec, promised=promised)], now_s)


def test_one_that_would_be_late_behind_others_is_promised_to_end_before_them() -> None:
    """By its deadline it would come behind job 2, and keep job 3 from ending in time; before both it does not."""
    core = Core(create("colane"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(each) for each in cluster(2).nodes], 0.0)

    def submitted(number: int, limit_s: float, deadline_s: float | None, gpus: int = 1) -> PromisedGpus | None:
        spec = JobSpec(
            name="a", family="f", gpus=gpus, time_limit_s=limit_s, deadline_s=deadline_s, preemptible=False, share=False
        )
        found = None if deadline_s is None else promise(ClusterView(core.state, 0.0), spec, Allowed())
        assert not isinstance(found, NoPromise), found
        core.step([Submitted(JobId(number), spec, promised=found)], 0.0)
        return found

    submitted(1, 100.0, None, gpus=2)
    assert submitted(2, 100.0, 340.0) == PromisedGpus((GpuId("n0", 0),), 240.0, 0.0)
    assert submitted(3, 120.0, 400.0) == PromisedGpus((GpuId("n0", 1),), 280.0, 0.0)
    both = (GpuId("n0", 0), GpuId("n0", 1))
    assert submitted(4, 90.0, 350.0, gpus=2) == PromisedGpus(both, 220.0, 0.0, due_s=310.0)
    assert [core.state.jobs[JobId(one)].due_s for one in (2, 3, 4)] == [340.0, 400.0, 310.0]
    assert submitted(5, 10.0, 305.0) == PromisedGpus((GpuId("n0", 0),), 295.0, 0.0), "before job 4"


def test_why_says_how_much_time_is_left() -> None:
    core = Core(create("colane"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(each) for each in cluster(1).nodes], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="a", family="f", time_limit_s=100.0))], 0.0)
    spec = JobSpec(name="b", family="f", time_limit_s=50.0, deadline_s=180.0)
    found = promise(ClusterView(core.state, 10.0), spec, Allowed())
    assert isinstance(found, PromisedGpus)
    core.step([Submitted(JobId(2), spec, promised=found)], 10.0)
    assert sentence_of(core.why(JobId(2), 40.0)) == (
        "Resources: n0/0 kept for it, to be left by job 1; it is to end within 150 s, and may start as late as in 100 s"
    )


def test_whoever_saves_its_state_leaves_for_it_whatever_its_priority_and_it_for_none() -> None:
    owned = job(1, 0.0, 500.0, priority=9)
    due = job(2, 100.0, 100.0, deadline_s=115.0)
    urgent = job(3, 110.0, 10.0, priority=99)
    done = simulated([owned, due, urgent], cluster(1), "srtf", DriverConfig(), knows=True)
    assert [stay.job for stay in done.ledger.stays] == [1, 2, 3, 1]
    assert ends(done)[2] == (JobState.SUCCEEDED, 205.0)  # a tenth more than it takes is kept for it


@pytest.mark.parametrize(("deadline_s", "ends_s"), [(400.0, (300.0, 400.0)), (205.0, (400.0, 295.0))])
def test_others_leave_for_it_as_late_as_it_may_start(deadline_s: float, ends_s: tuple[float, float]) -> None:
    other, due = job(1, 0.0, 300.0), job(2, 100.0, 100.0, deadline_s=deadline_s)
    found = ends(simulated([other, due], cluster(1), "colane", DriverConfig(), knows=True))
    assert (found[1][1], found[2][1]) == ends_s


@pytest.mark.parametrize("name", ["colane", "srtf", "fifo"])
@pytest.mark.parametrize(
    ("leaves", "lends"), [(True, True), (False, False)], ids=["one-that-leaves", "one-that-cannot-be-stopped"]
)
def test_its_gpus_are_lent_to_those_that_leave_them_in_time(name: str, leaves: bool, lends: bool) -> None:
    """Job 1 ends at 100 s; job 2 needs its GPU from 1,890 s on at the latest, and job 3 none before."""
    due = job(2, 10.0, 100.0, deadline_s=2_000.0)
    other = job(3, 20.0, 300.0, preemptible=leaves, priority=1)
    costs = DriverConfig(launch_s=3.0, stop_s=1.0)
    done = simulated(
        [job(1, 0.0, 97.0, preemptible=False, time_limit_s=97.0), due, other], cluster(1), name, costs, knows=True
    )
    assert [stay.job for stay in done.ledger.stays] == ([1, 3, 2] if lends else [1, 2, 3])
    assert ends(done)[2][1] <= 2_010.0


@pytest.mark.parametrize(("other_s", "order"), [(10_000.0, [1, 3, 2, 3]), (1_500.0, [1, 3, 2])])
def test_who_is_lent_gpus_leaves_them_for_it(other_s: float, order: list[int]) -> None:
    due, other = job(2, 10.0, 100.0, deadline_s=2_000.0), job(3, 20.0, other_s, priority=1)
    costs = DriverConfig(launch_s=3.0, stop_s=1.0)
    done = simulated(
        [job(1, 0.0, 97.0, preemptible=False, time_limit_s=97.0), due, other], cluster(1), "colane", costs, knows=True
    )
    by_start = sorted(done.ledger.stays, key=lambda stay: stay.start_s)
    assert [stay.job for stay in by_start] == order
    assert ends(done)[2][1] <= 2_010.0


def test_one_that_lends_its_gpus_starts_on_others_that_are_free() -> None:
    """Job 3 takes the GPU of job 2, which goes on job 4's as soon as that is free."""
    first = [
        job(1, 0.0, 97.0, preemptible=False, time_limit_s=120.0),
        job(4, 0.0, 197.0, preemptible=False, time_limit_s=220.0),
    ]
    due, other = job(2, 10.0, 100.0, deadline_s=2_000.0), job(3, 20.0, 1_000.0, priority=1)
    done = simulated([*first, due, other], cluster(2), "colane", DriverConfig(launch_s=3.0), knows=True)
    begins = {stay.job: (stay.gpus[0].number, stay.start_s) for stay in done.ledger.stays}
    assert begins == {1: (0, 0.0), 4: (1, 0.0), 3: (0, 100.0), 2: (1, 200.0)}


def test_it_starts_soon_enough_for_one_that_is_behind_it() -> None:
    due = [job(2, 100.0, 100.0, deadline_s=400.0), job(3, 100.0, 200.0, deadline_s=410.0)]
    costs = DriverConfig(launch_s=3.0, stop_s=1.0)  # job 1 would not be gone again before job 3 is to start
    done = simulated([job(1, 0.0, 900.0), *due], cluster(1), "colane", costs, knows=True)
    assert [stay.job for stay in done.ledger.stays] == [1, 2, 3, 1]
    assert ends(done)[2][1] <= 500.0
    assert ends(done)[3][1] <= 510.0
