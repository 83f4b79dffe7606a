"""Laws of elastic jobs on random worlds: sizes they can run on, no step lost or made twice, nothing idle to be used."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies

from colane.core import Core
from colane.core.events import Outcome
from colane.core.policy import Policy
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import ScalingSpeeds, Sources
from colane.lab.simulate.world import Running
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.tables.scaling import ScalingTable
from colane.lab.traces.workload import TraceJob
from colane.model.job import Job, JobState
from colane.perf.rate import Situation
from colane.scheduling.registry import preset

from .scenes import job, node, workload

KINDS = ("a", "b", "c")
SIZES: tuple[tuple[int, ...], ...] = ((), (1, 2, 3, 4), (1, 2, 4), (2, 4), (1, 2), (3, 4))
SEEDS = strategies.integers(min_value=0, max_value=2**32 - 1)

EAGER = preset("f-sched", name="eager", rise_ratio_min=0.0, pays_back=False)
"""Resizes for any gain, so that nothing which could be used stays idle."""


def table(rng: random.Random) -> ScalingTable:
    """Speeds by number of GPUs that mostly rise, now and then fall."""
    curves = {}
    for kind in KINDS:
        first, power = rng.uniform(0.5, 4.0), rng.uniform(0.2, 1.0)
        curves[kind] = (0.0, *[first * n**power * rng.choice([1.0, 1.0, 0.8]) for n in range(1, 5)])
    return ScalingTable(curves, rng.choice([0.0, 5.0, 24.0]), rng.choice([0.0, 10.0]), "drawn")


def elastic_jobs(rng: random.Random) -> tuple[TraceJob, ...]:
    at_s, jobs = 0.0, []
    for number in range(1, rng.randint(3, 10)):
        at_s += rng.choice([0.0, 10.0, 60.0, 300.0])
        sizes = rng.choice(SIZES)
        needs = {"family": rng.choice(KINDS), "sizes": sizes, "preemptible": rng.random() < 0.8}
        gpus, steps = sizes[-1] if sizes else rng.randint(1, 4), rng.randint(1, 2000)
        jobs.append(job(number, at_s, None, gpus=gpus, steps=steps, **needs))
    return tuple(jobs)


class Onlooker:
    """Looks at what could be used when the core has decided.

    Attributes:
        idle: Where a job stood still in size, though free GPUs of its node would have made it faster and no job waited.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.idle: list[str] = []

    def outcome(self, _outcome: Outcome, now_s: float) -> None:
        state = self._core.state
        if any(one.is_waiting for one in state.jobs.values()):
            return  # GPUs may be kept for it
        for one in state.jobs.values():
            if one.state is JobState.RUNNING and one.spec.sizes and one.spec.preemptible and one.placement is not None:
                home = state.nodes[one.placement.node]
                free = home.free["titan"].bit_count()
                self.idle += self._faster(one, free, now_s)

    def _faster(self, one: Job, free: int, now_s: float) -> list[str]:
        now = self._speed(one, one.gpu_count)
        larger = [n for n in one.spec.sizes if one.gpu_count < n <= one.gpu_count + free]
        return [f"{now_s:g} s: job {one.id} at {one.gpu_count}" for n in larger if self._speed(one, n) > now * 1.0001]

    def _speed(self, one: Job, gpus: int) -> float:
        return self._core.state.beliefs.rate(one.spec, Situation("titan", gpus)).steps_per_s or 0.0

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Nothing to see."""


def run(seed: int, policy: Policy) -> tuple[Run, tuple[TraceJob, ...], Onlooker]:
    rng = random.Random(seed)
    speeds, jobs = table(rng), elastic_jobs(rng)
    cluster = Cluster("test", tuple(node(f"n{n}", 4, gpu_type="titan") for n in range(rng.randint(1, 3))))
    world = TableWorld(Sources((ScalingSpeeds(speeds),), None), jobs)
    known = make_beliefs(Belief.PROFILED, world, jobs, cluster, noise=0.0, seed=0)
    costs = DriverConfig(launch_s=speeds.launch_s, stop_s=speeds.checkpoint_and_stop_s)
    seen: list[Onlooker] = []

    def watch(core: Core) -> list[Onlooker]:
        seen.append(Onlooker(core))
        return seen

    inputs = Inputs(cluster=cluster, workload=workload(*jobs), world=world, policy=policy, beliefs=known, driver=costs)
    return simulate(inputs, watchers=watch), jobs, seen[0]


@pytest.mark.parametrize(
    "policy", [preset("f-sched"), EAGER, preset("colane"), preset("fifo")], ids=lambda policy: policy.name
)
@given(seed=SEEDS)
def test_elastic_jobs_end_once_and_within_their_sizes(policy: Policy, seed: int) -> None:
    done, jobs, _ = run(seed, policy)
    assert not done.ledger.flaws
    lives = zip(done.ledger.rows.id, done.ledger.rows.submit_s, done.ledger.rows.end_s, strict=True)
    assert all(sum(done.ledger.time_spent[id_]) == pytest.approx(end - begin) for id_, begin, end in lives)
    assert not done.stuck
    assert sorted(done.ledger.rows.id) == [one.id for one in jobs]
    by_id = {int(one.id): one for one in jobs}
    for span in done.ledger.stays:
        assert by_id[span.job].spec.can_run_on(len(span.gpus))


@given(seed=SEEDS)
def test_no_gpu_is_idle_that_an_unprotected_elastic_job_could_use(seed: int) -> None:
    assert not run(seed, EAGER)[2].idle


@given(seed=SEEDS)
def test_rigid_jobs_are_never_resized(seed: int) -> None:
    done, jobs, _ = run(seed, EAGER)
    fixed = {one.id for one in jobs if not (one.spec.sizes and one.spec.preemptible)}
    sizes = {(span.job, len(span.gpus)) for span in done.ledger.stays if span.job in fixed}
    assert len(sizes) == len({id_ for id_, _ in sizes})
