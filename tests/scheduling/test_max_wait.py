"""How long a job waits at most: as published in a simulation, a day on a running cluster."""

from __future__ import annotations

from random import Random

import pytest

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered, Submitted, Tick
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.model.job import JobId, JobSpec
from colane.perf.beliefs import Beliefs
from colane.policyfiles.guard import guarded
from colane.scheduling import registry
from colane.scheduling.admissions.ageing import DAY_S, HOUR_S, WEEK_S, Ageing
from colane.scheduling.engine.loop import Composed
from tests.core.worlds import make_node
from tests.simulate.scenes import cluster, job, workload

LARGE = 40


def bound_of(policy: object) -> float | None:
    assert isinstance(policy, Composed)
    return next((part.max_wait_s for part in policy.admits if isinstance(part, Ageing)), None)


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_running_scheduler_lets_no_job_wait_longer_than_is_said(name: str) -> None:
    published = bound_of(registry.create(name)) or WEEK_S
    assert bound_of(guarded(name, max_wait_s=DAY_S)) == min(published, DAY_S)
    assert bound_of(guarded(name, max_wait_s=60.0)) == 60.0
    assert guarded(name) == registry.create(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max-min:quantum_s=3", "max-min: quantum_s must be at least 10 s .*, got 3; 360 is usual"),
        ("max-min-packed:quantum_s=0", "max-min-packed: quantum_s must be at least 10 s .*, got 0; 360 is usual"),
        ("finish-time-fair:lease_s=9.5", "lease_s must be at least 10 s .*, got 9.5; 1200 is usual"),
    ],
)
def test_rounds_shorter_than_a_change_of_places_are_for_simulations_alone(name: str, said: str) -> None:
    for max_wait_s in (None, DAY_S):
        with pytest.raises(registry.UnknownPolicyError, match=said):
            guarded(name, max_wait_s=max_wait_s)
    assert registry.create(name).name == name


@pytest.mark.parametrize(("said", "bound"), [("7200", 7200.0), (f"{3 * DAY_S:.0f}", 3 * DAY_S), ("none", None)])
def test_what_is_named_with_the_policy_stands(said: str, bound: float | None) -> None:
    assert bound_of(guarded(f"colane:max_wait_s={said}", max_wait_s=DAY_S)) == bound


@pytest.mark.parametrize("policy", registry.NAMES)
@pytest.mark.parametrize("gpus", [1, 2])
def test_no_job_is_said_to_wait_behind_itself(policy: str, gpus: int) -> None:
    """Also where it is the one for which GPUs are kept, and some of these are free already."""
    core = Core(guarded(policy, max_wait_s=60.0), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n", 4))], 0.0)
    for first, (count, limit_s) in enumerate(((1, 9000.0), (1, 9000.0), (1, 100.0), (4, 500.0), (gpus, 300.0)), 1):
        spec = JobSpec(name="j", family="f", gpus=count, time_limit_s=limit_s, share=False)
        core.step([Submitted(JobId(first), spec)], float(first))
    for now_s in (5.0, 30.0, 80.0):
        core.step([Tick()], now_s)
        waiting = [one.id for one in core.state.jobs.values() if one.is_waiting]
        assert waiting
        for number in waiting:
            assert number not in core.why(number, now_s).jobs


@pytest.mark.parametrize("name", ["colane", "srtf", "sjf", "las", "max-min", "easy-backfill"])
def test_a_large_job_starts_within_the_bound_under_an_endless_stream_of_small_ones(name: str) -> None:
    """Within it and one job's length: GPUs are kept for it from then on, as they come free."""
    random, at_s, jobs = Random(1), 0.0, []
    for number in range(1, 500):
        if number == LARGE:
            jobs.append(job(number, at_s, 5 * HOUR_S, gpus=4, steps=1000, share=False))
            continue
        jobs.append(job(number, at_s, random.uniform(0.5, 2.0) * HOUR_S, steps=1000, share=False, preemptible=False))
        at_s += random.expovariate(4 / (1.25 * HOUR_S))
    policy = registry.bounded(name, 6 * HOUR_S)
    given = Inputs(cluster=cluster(4), workload=workload(*jobs), world=NeutralWorld(), policy=policy)
    rows = simulate(given).ledger.rows
    waited_s = dict(zip(rows.id, rows.first_start_s, strict=True))[LARGE] - jobs[LARGE - 1].submit_s
    assert waited_s <= 6 * HOUR_S + 2 * HOUR_S
