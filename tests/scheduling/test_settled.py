"""Where a plan says that its starts leave nothing to decide, asking once more decides nothing either."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from benchmarks.decide import GUARANTEED, Size, cluster, submissions, untold_gang
from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, Submitted
from colane.core.policy import Planner
from colane.model.job import Exit, JobId
from colane.model.limits import Quotas
from colane.model.plan import Plan, Replan
from colane.scheduling.registry import create
from tests.core.worlds import World
from tests.examples import examples

KINDS = ["gang", "wide", "elastic", "guaranteed", "untold-wide"]
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
POLICY = "colane:look_s_per_gpu=300"
"""In a pool of any size no more is looked at than what has changed."""


class Asks:
    """Asks for plans, and counts those that settle something; told so or not."""

    def __init__(self, *, again: bool) -> None:
        self.again = again
        self.settled = 0

    def __call__(self, planner: Planner, view: ClusterView) -> Plan:
        plan = planner.plan(view)
        self.settled += any(replan.settled for replan in plan.replan.values())
        if not self.again or not plan.replan:
            return plan
        replan: dict[str, Replan] = {pool: one._replace(settled=False) for pool, one in plan.replan.items()}
        return Plan(
            plan.based_on, plan.actions, plan.waits, plan.class_waits, plan.rest, replan, plan.holds,
            serves_cpu_only=plan.serves_cpu_only,
        )  # fmt: skip


def of_random_world(seed: int, *, again: bool) -> tuple[list[object], int]:
    """Its decisions, and how many plans settled something."""
    world, asks = World(create(POLICY), seed), Asks(again=again)
    world.core.ask = asks
    for _ in range(60):
        world.step(world.random_event())
    return [decision for outcome in world.outcomes for decision in outcome.decisions], asks.settled


def of_queue(seed: int, *, again: bool, kind: str = "unknown") -> tuple[list[object], int]:
    """The same of jobs of known families that come and end, most of them in a queue."""
    random, asks = Random(seed), Asks(again=again)
    config = CoreConfig(protection_factor=0.0, limits=GUARANTEED if kind == "guaranteed" else Quotas())
    core = cluster(POLICY, Size(nodes=2, gpus=4, queued=0, families=8), config)
    core.ask = asks
    found: list[object] = []
    coming = submissions(0, 120 if kind == "unknown" else 40, 8, kind)
    now_s = 1.0
    while coming or any(job.placement is not None for job in core.state.jobs.values()):
        now_s += random.expovariate(0.1)
        running = [job for job in core.state.jobs.values() if job.placement is not None]
        if coming and random.random() < 0.6:
            outcome = core.step([coming.pop(0)], now_s)
        elif running:
            job = random.choice(running)
            outcome = core.step([Ended(job.id, job.attempt, "exited", Exit(0, None), now_s - 1.0, now_s)], now_s)
        else:
            continue
        found += outcome.decisions
        started = [job for job in outcome.jobs if job.placement is not None and job.start_s is None]
        for job in started:
            nodes = job.placement.nodes if job.placement is not None else ()
            found += core.step([Launched(job.id, job.attempt, 1, now_s, node) for node in nodes], now_s).decisions
    return found, asks.settled


@examples(20)
@given(seed=SEEDS)
def test_asking_once_more_decides_nothing_in_random_worlds(seed: int) -> None:
    assert of_random_world(seed, again=False)[0] == of_random_world(seed, again=True)[0]


@examples(10)
@given(seed=SEEDS)
def test_asking_once_more_decides_nothing_in_a_queue(seed: int) -> None:
    assert of_queue(seed, again=False)[0] == of_queue(seed, again=True)[0]


@pytest.mark.parametrize("kind", KINDS)
@examples(2)
@given(seed=SEEDS)
def test_asking_once_more_decides_nothing_among_jobs_of_any_kind(kind: str, seed: int) -> None:
    assert of_queue(seed, again=False, kind=kind)[0] == of_queue(seed, again=True, kind=kind)[0]


def test_what_starts_is_asked_about_once_it_may_be_stopped_though_its_start_settled_all() -> None:
    asks = Asks(again=False)
    config = CoreConfig(protection_factor=0.0, runs_at_once=True)
    core = cluster(POLICY, Size(nodes=2, gpus=4, queued=0, families=8), config)
    core.ask = asks
    spec = replace(untold_gang(0, 8), gpus=4, preemptible=True)
    core.step([Submitted(JobId(number), spec) for number in range(3)], 1.0)
    asks.settled = 0
    outcome = core.step([Ended(JobId(0), 1, "exited", Exit(0, None), 1.0, 100.0)], 100.0)
    assert core.state.jobs[JobId(2)].placement is not None
    assert asks.settled == 1
    assert outcome.wake_s == 160.0


def test_an_elastic_job_that_starts_where_none_waits_of_one_gpu_leaves_nothing_to_decide() -> None:
    asks, plans = Asks(again=False), list[Plan]()
    core = cluster(POLICY, Size(nodes=2, gpus=4, queued=0, families=8), CoreConfig(protection_factor=0.0))
    core.step(submissions(0, 20, 8, "elastic"), 1.0)
    running = [job for job in core.state.jobs.values() if len(job.gpus_held) == 1]

    def ask(planner: Planner, view: ClusterView) -> Plan:
        plans.append(asks(planner, view))
        return plans[-1]

    core.ask = ask
    core.step([Ended(running[0].id, running[0].attempt, "exited", Exit(0, None), 1.0, 100.0)], 100.0)
    assert [len(plan.actions) for plan in plans] == [1]
    assert asks.settled == 1


@pytest.mark.parametrize("decide", [of_random_world, *[partial(of_queue, kind=kind) for kind in ("unknown", *KINDS)]])
def test_these_worlds_reach_plans_that_settle_something(decide: object) -> None:
    assert callable(decide)
    assert sum(decide(seed, again=False)[1] for seed in range(6)) > 0
