"""A law of arrays in any composition: borrowers of cores delay no training job by more than it takes to stop them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from colane.core.config import CoreConfig
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.run import Run
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.choices import FIRST
from colane.scheduling.engine.contracts import Admission, Choice, Order, Source
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.cpu.arrays import ReclaimCores
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.fairness.service import LeastAttained, SmallestPart, WorstFinish
from colane.scheduling.mechanisms.price.gangs import ByExchange
from colane.scheduling.mechanisms.topology.free import Free, NodesBy
from colane.scheduling.orders.arrival import Arrival, LightestFirst
from colane.scheduling.orders.length import LeastRemaining, Shortest
from colane.scheduling.orders.price import ByShadowPrice
from colane.scheduling.registry import preset
from tests.examples import examples
from tests.scheduling.test_arrays import cpu_job, first_starts, machines, training
from tests.scheduling.test_compositions import AGEING, ALONE, BESIDE, LINES, ROOM, SEEDS, TURNS
from tests.simulate.scenes import GIB, run

GPUS = (4, 4, 2)
CORES = 16
COSTS = DriverConfig(launch_s=3.0, restart_s=2.0, stop_s=5.0)
FREED_S = COSTS.stop_s + COSTS.launch_max_s + CoreConfig().opaque_after_s
"""A borrower that has just begun is stopped once it is taken to run."""

LASTING: tuple[Order, ...] = (
    Arrival(),
    LightestFirst(),
    Shortest(),
    LeastRemaining(quantum_s=60.0),
    LeastAttained(queues_gpu_s=(300.0,)),
    SmallestPart(quantum_s=60.0),
    WorstFinish(lease_s=60.0),
    LeastShare(),
    ByShadowPrice(),
)
"""A turn must outlast what a move takes: under one that does not, jobs move and hardly run."""
CHOICES: tuple[Choice, ...] = (FIRST, ByExchange())


NEVER = st.just(Ageing(None))
"""A job without GPUs that has waited too long goes before training, which is what it is for."""


@st.composite
def in_arrays(draw: st.DrawFn, ageing: st.SearchStrategy[Ageing] = NEVER) -> Composed:
    """Any order, admissions, choice and turns, with arrays among any sources."""
    others: list[Source] = draw(st.lists(st.one_of(ALONE, BESIDE), max_size=2))
    sources = (*draw(st.permutations([Free(NodesBy.ARRAYS), *others])), ReclaimCores())
    admits: list[Admission] = [draw(ageing)]
    admits += draw(st.lists(st.sampled_from(LINES), max_size=1))
    return Composed(
        "any", draw(st.sampled_from(LASTING)), (*sources, draw(ROOM)) if draw(st.booleans()) else sources,
        tuple(admits), choose=draw(st.sampled_from(CHOICES)), turns=draw(TURNS), cpu_jobs=CpuArray(),
    )  # fmt: skip


def borrowers(random: Random, cores_max: int = CORES, **needs: Any) -> list[TraceJob]:
    """Jobs without GPUs, more than there are cores for."""
    jobs = []
    for _ in range(40):
        submit_s, duration_s = float(random.randint(0, 600)), float(random.choice((20, 300, 2000)))
        jobs.append(cpu_job(0, submit_s, duration_s, random.randint(1, cores_max), **needs))
    return jobs


SHAPES: tuple[dict[str, Any], ...] = (
    {"gpus": 1},
    {"gpus": 4},
    {"gpus": 6, "multi_node": True},
    {"gpus": 3, "multi_node": True, "anti_collocation": True},
    {"gpus": 4, "gpus_per_node": 2},
)


def sparse_training(random: Random, **needs: Any) -> list[TraceJob]:
    """Training for which there are always GPUs: of one shape, one after the other; as many cores for each GPU."""
    shape, per_gpu, jobs = random.choice(SHAPES), random.randint(1, CORES // max(GPUS)), []
    for number in range(6):
        duration_s = random.choice((20.0, 80.0))
        jobs.append(training(0, 100.0 + 120.0 * number, duration_s, cores=shape["gpus"] * per_gpu, **shape, **needs))
    return jobs


def together(*jobs: TraceJob) -> list[TraceJob]:
    """By submission, numbered."""
    by_time = sorted(jobs, key=lambda one: one.submit_s)
    return [replace(one, id=JobId(number)) for number, one in enumerate(by_time, 1)]


def delays(found: Run, jobs: list[TraceJob]) -> list[float]:
    """How long each job with GPUs waited."""
    starts = first_starts(found)
    return [starts[one.id] - one.submit_s for one in jobs if one.spec.gpus]


@examples(60)
@given(policy=in_arrays(), seed=SEEDS)
def test_borrowers_of_cores_delay_training_by_no_more_than_it_takes_to_stop_them(policy: Composed, seed: int) -> None:
    random = Random(seed)
    jobs = together(*borrowers(random), *sparse_training(random))
    found = run(jobs, machines(*GPUS, cores=CORES), policy, NeutralWorld(), COSTS)
    assert max(delays(found, jobs)) <= FREED_S


@examples(30)
@given(policy=in_arrays(), seed=SEEDS)
def test_nor_do_they_by_the_host_memory_they_hold(policy: Composed, seed: int) -> None:
    random = Random(seed)
    cpu = borrowers(random, cores_max=2, host_memory_bytes=random.choice((8, 20, 30)) * GIB)
    jobs = together(*cpu, *sparse_training(random, host_memory_bytes=12 * GIB))
    found = run(jobs, machines(*GPUS, cores=CORES), policy, NeutralWorld(), COSTS)
    assert max(delays(found, jobs)) <= FREED_S


@examples(30)
@given(policy=in_arrays(AGEING), seed=SEEDS)
def test_every_job_ends_also_an_overdue_one(policy: Composed, seed: int) -> None:
    random = Random(seed)
    jobs = together(*borrowers(random, abortable=random.random() < 0.5), *sparse_training(random))
    assert run(jobs, machines(*GPUS, cores=CORES), policy, NeutralWorld(), COSTS).stuck == ""


def test_nor_one_that_needs_more_cores_than_are_kept_while_others_keep_coming() -> None:
    """Most training asks for a core a GPU; one job needs all cores of a node."""
    random = Random(1)
    cpu = [cpu_job(0, 20.0 * number, 600.0, random.randint(2, 6)) for number in range(200)]
    small = [training(0, 50.0 * number, 400.0, cores=1) for number in range(60)]
    large = training(0, 1000.0, 100.0, gpus=4, cores=CORES)
    jobs = together(*cpu, *small, large)
    found = run(jobs, machines(4, 4, 4, 4, cores=CORES), preset("coda"), NeutralWorld(), COSTS)
    (number,) = [one.id for one in jobs if one.spec.gpus == large.spec.gpus]
    assert first_starts(found)[number] - large.submit_s <= FREED_S
