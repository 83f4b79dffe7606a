"""Parking in virtual time: it costs what moving memory costs, nothing done is lost, and every law of a run holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.core.events import Outcome
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld, World
from colane.lab.traces.clusters import Cluster
from colane.model.hardware import CPU_DEVICE_TYPE
from colane.model.job import Job, JobState
from colane.model.placement import Turns
from colane.model.plan import Park, Plan, Stop
from colane.model.reason import Reason, Why
from colane.scheduling import registry
from colane.scheduling.mechanisms.topology.free import first_fit
from tests.examples import examples

from .scenes import GIB, Parkings, cluster, job, node, random_cluster, random_jobs, run, workload

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
COSTS = st.sampled_from(
    [
        DriverConfig(to_host_bytes_per_s=1e9),
        DriverConfig(launch_s=3, restart_s=2, stop_s=1),
        DriverConfig(park_s=0.5, stop_s=4, to_host_bytes_per_s=1e8),
    ]
)
WORLDS = st.sampled_from([NeutralWorld(), FactorsWorld(), FactorsWorld(0.9)])


@dataclass(frozen=True)
class Parker:
    """Starts what fits and brings back what may come home; where a job finds no place, parks or stops another."""

    name: str = "parker"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = 0.0
    changes_max: int = 7

    def plan(self, view: ClusterView) -> Plan:
        draft, unplaced = Draft(view), False
        for pool in view.pools:
            for waiting in map(view.job, list(view.queue(pool))):
                gpus = first_fit(draft, waiting.spec) if not waiting.home else _home(draft, waiting)
                if gpus:
                    draft.start(waiting, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
                else:
                    unplaced = True
        return self._with_room(draft) if unplaced else draft.plan()

    def _with_room(self, draft: Draft) -> Plan:
        view = draft.view
        able = [j for j in view.jobs.values() if j.state is JobState.RUNNING and j.changes < 4 + self.changes_max]
        plan = draft.plan()
        if not able:
            return plan
        victim = able[view.version % len(able)]
        if view.version % 4 and view.parking_refusal(victim) is None:
            return replace(
                plan, actions=(*plan.actions, Park(victim.id, Reason(Why.PARKED, {"because": "a test"}, ())))
            )
        stop = Stop(victim.id, Reason(Why.PREEMPTED, {"because": "a test"}, ()))
        return replace(plan, actions=(*plan.actions, stop))


def _home(draft: Draft, waiting: Job) -> tuple[GpuLoad, ...] | None:
    return tuple([load for load in draft.homes(waiting) if load.is_free][:1]) or None


@examples(60)
@given(seed=SEEDS, world=WORLDS, costs=COSTS)
def test_gpu_time_is_conserved_and_every_job_ends_once(seed: int, world: World, costs: DriverConfig) -> None:
    jobs = random_jobs(seed, with_steps=world.counts_steps)
    parkings = Parkings()
    done = run(jobs, random_cluster(seed), Parker(), world, costs, parkings)
    assert done.ledger.flaws == []
    assert sorted(done.ledger.rows.id) == [one.id for one in jobs]
    assert {STATES[code] for code in done.ledger.rows.state} <= {JobState.SUCCEEDED}
    curve = done.ledger.curve
    delivered_gpu_s = float(np.dot(np.diff(np.asarray(curve.at_s)), np.asarray(curve.active_gpus)[:-1]))
    assert math.isclose(delivered_gpu_s, sum(done.ledger.rows.gpu_s), rel_tol=1e-9, abs_tol=1e-6)
    assert curve.active_gpus[-1] == curve.waiting[-1] == curve.running[-1] == 0
    attempts = dict(zip(done.ledger.rows.id, done.ledger.rows.attempts, strict=True))
    for one in jobs:
        own = [stay for stay in done.ledger.stays if stay.job == one.id]
        assert all(before.end_s <= after.start_s for before, after in pairwise(own))
        assert [attempt for attempt, _ in groupby(stay.attempt for stay in own)] == list(range(1, attempts[one.id] + 1))
        assert len(own) - attempts[one.id] <= parkings.of_job[one.id]


@dataclass(frozen=True)
class ParkForPriority:
    """The first in line has the first running job of a lower priority parked, where nothing is free."""

    name: str = "park-for-priority"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = 0.0

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        for pool in view.pools:
            for waiting in map(view.job, list(view.queue(pool))):
                gpus = first_fit(draft, waiting.spec) if not waiting.home else _home(draft, waiting)
                if gpus:
                    draft.start(waiting, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
                else:
                    self._park(draft, waiting)
        return draft.plan()

    @staticmethod
    def _park(draft: Draft, waiting: Job) -> None:
        below = [other for other in draft.view.jobs.values() if other.spec.priority < waiting.spec.priority]
        victim = next((one for one in below if draft.view.parking_refusal(one) is None), None)
        if victim is not None and not any(one.preempted_for == waiting.id for one in below):
            draft.park(victim, Reason(Why.PARKED, {"because": "it goes first"}, (waiting.id,)), waiting.id)


def two_jobs(machines: Cluster, *, gpu_memory_bytes: int | None, **costs: float) -> Run:
    low = job(1, 0.0, 100.0, preemptible=False, gpu_memory_bytes=gpu_memory_bytes)
    high = job(2, 10.0, 50.0, priority=1, gpu_memory_bytes=gpu_memory_bytes)
    return run([low, high], machines, ParkForPriority(), NeutralWorld(), DriverConfig(**costs))  # type: ignore[arg-type]


@pytest.mark.parametrize("size_bytes", [2 * GIB, None])
def test_parking_costs_moving_the_memory_out_and_in_and_nothing_else(size_bytes: int | None) -> None:
    """Where nothing is known of its memory, all of its GPU's is taken to be moved."""
    done = two_jobs(cluster(1), gpu_memory_bytes=size_bytes, to_host_bytes_per_s=float(GIB), launch_s=5.0)
    move_s = 2.0 if size_bytes else 16.0
    ends = dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))
    assert ends == pytest.approx({2: 10 + move_s + 5 + 50, 1: 105 + 2 * move_s + 5 + 50})
    assert list(done.ledger.rows.attempts) == [1, 1]
    assert [(stay.job, stay.attempt) for stay in done.ledger.stays] == [(1, 1), (2, 1), (1, 1)]


def test_parking_costs_what_the_node_takes_for_it_both_ways() -> None:
    done = two_jobs(cluster(1), gpu_memory_bytes=2 * GIB, to_host_bytes_per_s=float(GIB), park_s=3.0)
    ends = dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))
    assert ends == pytest.approx({2: 10 + 5 + 50, 1: 100 + 2 * 5 + 50})


def test_on_cpu_devices_parking_is_free() -> None:
    devices = Cluster("test", (node("n0", 1, gpu_type=CPU_DEVICE_TYPE),))
    done = two_jobs(devices, gpu_memory_bytes=2 * GIB, to_host_bytes_per_s=1.0)
    assert dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True)) == pytest.approx({2: 60.0, 1: 150.0})


def test_a_job_parked_while_it_launches_launches_again_when_it_comes_back() -> None:
    done = two_jobs(cluster(1), gpu_memory_bytes=GIB, to_host_bytes_per_s=float(GIB), launch_s=30.0)
    ends = dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))
    assert ends == pytest.approx({2: 10 + 1 + 30 + 50, 1: 91 + 1 + 30 + 100})


class Parks(Parkings):
    """Looks at what is left of the host's memory as well."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.least_free_bytes = 0
        self._nodes = core.state.nodes

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        super().outcome(outcome, now_s)
        free = [node.host_memory_free_bytes for node in self._nodes.values()]
        self.least_free_bytes = min([self.least_free_bytes, *free])


@pytest.mark.parametrize("cores", [6, 24])
@pytest.mark.parametrize("host_memory_gb", [0, 34, 512])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_job_is_parked_over_and_over_for_others_that_cannot_start(
    cores: int, host_memory_gb: int, seed: int
) -> None:
    """Cores and host memory are short, most jobs can be parked alone, and how much memory they have is not known."""
    random = Random(seed)
    jobs = [
        job(
            number, 0.001 * number, took_s := 60.0 * 100 ** random.random(), steps=round(took_s), cores=3,
            family=f"f{number % 5}", preemptible=random.random() < 0.4,
        )
        for number in range(1, 41)
    ]  # fmt: skip
    machine = replace(node("n0", 8), cores=tuple(range(cores)), host_memory_bytes=host_memory_gb * 10**9)
    seen: list[Parks] = []

    def watch(core: Core) -> list[Parks]:
        seen.append(Parks(core))
        return seen

    given = Inputs(
        cluster=Cluster("test", (machine,)), workload=workload(*jobs), world=FactorsWorld(),
        policy=registry.create("colane"),
    )  # fmt: skip
    run = simulate(given, watchers=watch)
    assert len(run.ledger.rows.id) == len(jobs)
    assert max(seen[0].of_job.values(), default=0) <= 6
    assert seen[0].least_free_bytes >= 0 or not host_memory_gb  # a node that does not say what it has
