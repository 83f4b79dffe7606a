"""Laws every simulated run keeps, whatever the policy, the world and the costs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.core.policy import Policy
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.ledger import STATES, AttemptSpan
from colane.lab.simulate.run import Run
from colane.lab.simulate.world import NeutralWorld, World
from colane.model.job import JobState
from colane.scheduling.registry import POLICIES, create
from tests.examples import examples

from .scenes import Doubled, Parkings, Restless, cluster, job, random_cluster, random_jobs, run

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
COSTS = st.sampled_from(
    [DriverConfig(), DriverConfig(launch_s=3, restart_s=2, stop_s=1), DriverConfig(park_s=1, stop_s=4)]
)
WORLDS = st.sampled_from([NeutralWorld(), FactorsWorld(), FactorsWorld(0.9)])
NAMES = [*sorted(POLICIES), "restless"]


def policy(name: str) -> Policy:
    return Restless() if name == "restless" else create(name)


def state_of(done: Run) -> dict[int, JobState]:
    return {id_: STATES[code] for id_, code in zip(done.ledger.rows.id, done.ledger.rows.state, strict=True)}


def delivered_gpu_s(done: Run) -> float:
    curve = done.ledger.curve
    return float(np.dot(np.diff(np.asarray(curve.at_s)), np.asarray(curve.active_gpus)[:-1]))


@pytest.mark.parametrize("name", NAMES)
@examples(25)
@given(seed=SEEDS, world=WORLDS, costs=COSTS)
def test_gpu_time_is_conserved_and_every_job_ends_once(name: str, seed: int, world: World, costs: DriverConfig) -> None:
    jobs = random_jobs(seed, with_steps=world.counts_steps)
    done = run(jobs, random_cluster(seed), policy(name), world, costs)
    assert done.ledger.flaws == []
    assert sorted(done.ledger.rows.id) == [one.id for one in jobs]
    assert set(state_of(done).values()) <= {JobState.SUCCEEDED}
    assert math.isclose(delivered_gpu_s(done), sum(done.ledger.rows.gpu_s), rel_tol=1e-9, abs_tol=1e-6)
    assert done.ledger.curve.active_gpus[-1] == done.ledger.curve.waiting[-1] == done.ledger.curve.running[-1] == 0
    assert abs(done.ledger.curve.utilized_gpus[-1]) < 1e-9


@pytest.mark.parametrize("name", NAMES)
@example(seed=125_000_000, world=FactorsWorld(), costs=DriverConfig(launch_s=3, restart_s=2, stop_s=1))  # srtf parks
@examples(25)
@given(seed=SEEDS, world=WORLDS, costs=COSTS)
def test_no_job_runs_before_its_submission_or_after_its_end(
    name: str, seed: int, world: World, costs: DriverConfig
) -> None:
    jobs = random_jobs(seed, with_steps=world.counts_steps)
    parkings = Parkings()
    done = run(jobs, random_cluster(seed), policy(name), world, costs, parkings)
    rows, stays = done.ledger.rows, done.ledger.stays
    times = zip(rows.id, rows.submit_s, rows.first_start_s, rows.start_s, rows.end_s, rows.attempts, strict=True)
    spans = {id_: found for id_, *found in times}
    for one in jobs:
        submit_s, first_start_s, start_s, end_s, attempts = spans[one.id]
        assert one.submit_s == submit_s <= first_start_s <= start_s <= end_s
        own = [stay for stay in stays if stay.job == one.id]
        assert own[0].start_s == first_start_s
        assert own[-1].end_s == end_s
        assert all(before.end_s <= after.start_s for before, after in pairwise(own))
        assert [attempt for attempt, _ in groupby(stay.attempt for stay in own)] == list(range(1, attempts + 1))
        assert len(own) - attempts <= parkings.of_job[one.id]  # a parked job comes back, unless it is to stop


@examples(60)
@given(seed=SEEDS, costs=COSTS)
def test_fifo_never_reorders_and_never_shares(seed: int, costs: DriverConfig) -> None:
    done = run(random_jobs(seed), random_cluster(seed), create("fifo"), NeutralWorld(), costs)
    starts = sorted(zip(done.ledger.rows.id, done.ledger.rows.first_start_s, strict=True))
    assert all(first <= second for (_, first), (_, second) in pairwise(starts))
    for first, second in _meetings(done.ledger.stays):
        assert first.end_s <= second.start_s


def _meetings(stays: list[AttemptSpan]) -> list[tuple[AttemptSpan, AttemptSpan]]:
    ordered = sorted(stays, key=lambda stay: (stay.start_s, stay.end_s))
    return [(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :] if set(a.gpus) & set(b.gpus)]


@examples(40)
@given(seed=SEEDS, world=WORLDS)
def test_doubling_every_speed_and_the_arrivals_halves_every_run_span(seed: int, world: World) -> None:
    jobs = random_jobs(seed, with_steps=world.counts_steps)
    faster = [replace(one, submit_s=one.submit_s / 2) for one in jobs]
    slow = run(jobs, random_cluster(seed), create("fifo"), world)
    fast = run(faster, random_cluster(seed), create("fifo"), Doubled(world))
    spans = [
        dict(zip(r.id, np.asarray(r.end_s) - np.asarray(r.first_start_s), strict=True))
        for r in (slow.ledger.rows, fast.ledger.rows)
    ]
    assert spans[0].keys() == spans[1].keys()
    for id_, span_s in spans[0].items():
        assert math.isclose(span_s, 2 * spans[1][id_], rel_tol=1e-9, abs_tol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@examples(15)
@given(seed=SEEDS, world=WORLDS)
def test_equal_inputs_give_equal_runs(name: str, seed: int, world: World) -> None:
    jobs = random_jobs(seed, with_steps=world.counts_steps)
    first, second = (run(jobs, random_cluster(seed), policy(name), world) for _ in range(2))
    assert first.ledger.rows == second.ledger.rows
    assert first.ledger.curve == second.ledger.curve
    assert first.ledger.stays == second.ledger.stays
    assert (first.errors, first.profiles, first.measurements) == (second.errors, second.profiles, second.measurements)


def test_one_gpu_in_order_of_arrival_queues_as_the_m_g_1_formula_says() -> None:
    """Pollaczek and Khinchine: W = lambda E[S^2] / (2 (1 - rho)), within the 99 % interval of batch means.

    And for these very draws, Lindley's recursion gives every single wait.
    """
    rng = np.random.default_rng(7)
    jobs_many, load, mean_s = 10_500, 0.7, 10.0
    submit_s = np.cumsum(rng.exponential(mean_s / load, jobs_many))
    service_s = rng.gamma(2.0, mean_s / 2, jobs_many)
    jobs = [job(i, float(s), float(d)) for i, (s, d) in enumerate(zip(submit_s, service_s, strict=True), 1)]
    done = run(jobs, cluster(1), create("fifo"), NeutralWorld())
    rows = done.ledger.rows
    queue_s = (np.asarray(rows.first_start_s) - np.asarray(rows.submit_s))[np.argsort(rows.id)]
    waited_s, wait_s = [], 0.0
    for gap_s, work_s in zip(np.diff(submit_s, append=np.inf), service_s, strict=True):
        waited_s.append(wait_s)
        wait_s = max(0.0, wait_s + work_s - gap_s)
    assert np.allclose(queue_s, waited_s, atol=1e-6)
    second_moment = mean_s**2 * (1 + 1 / 2)
    expected_s = (load / mean_s) * second_moment / (2 * (1 - load))
    batches = queue_s[1000:].reshape(19, -1).mean(axis=1)
    half_width_s = 2.878 * batches.std(ddof=1) / math.sqrt(len(batches))
    assert half_width_s < 0.2 * expected_s
    assert abs(batches.mean() - expected_s) <= half_width_s


@examples(40)
@given(seed=SEEDS)
def test_kept_steps_are_not_made_twice(seed: int) -> None:
    """Without costs and sharing, the stays of a job that saves its state add up to its work."""
    jobs = random_jobs(seed)
    done = run(jobs, random_cluster(seed), Restless(), NeutralWorld())
    stayed: dict[int, float] = {}
    for stay in done.ledger.stays:
        stayed[stay.job] = stayed.get(stay.job, 0.0) + stay.end_s - stay.start_s
    assert stayed == pytest.approx({one.id: one.duration_s for one in jobs}, abs=1e-6)
    assert done.ledger.redone_s == 0
