"""Generators hit their targets and depend on nothing but parameters and seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colane.lab.traces.coda import DAY_S, Coda, coda
from colane.lab.traces.generate import (
    GavelDurations,
    JobModel,
    LogNormal,
    heavy_load,
    heavy_tailed,
    poisson,
    sweep,
    topology,
)
from colane.lab.traces.tables.gavel import read_isolated
from colane.lab.traces.workload import Workload

MODELS = (JobModel(family="a", weight=3, steps_per_s=2.0), JobModel(family="b", gpus=2, weight=1))

GENERATORS: dict[str, Callable[[int], Workload]] = {
    "poisson": lambda seed: poisson(MODELS, jobs=50, mean_gap_s=10, seed=seed),
    "topology": lambda seed: topology(jobs=50, seed=seed),
    "heavy-tailed": lambda seed: heavy_tailed(MODELS, jobs=50, seed=seed),
    "sweep": lambda seed: sweep(MODELS[0], jobs=50, seed=seed, duration_s=60, spread_ratio=0.1),
    "heavy-load": lambda seed: heavy_load(jobs=50, gpus=8, seed=seed),
    "coda": lambda seed: coda(Coda(jobs=50), seed=seed),
}


def near(measured: float, target: float, jobs: int) -> bool:
    """Whether a ratio of so many draws is within five standard errors of its target."""
    return abs(measured - target) < 5 * math.sqrt(target * (1 - target) / jobs)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_a_seed_decides_everything(name: str) -> None:
    make = GENERATORS[name]
    assert make(3) == make(3)
    assert make(3).jobs != make(4).jobs
    assert [job.id for job in make(3).jobs] == list(range(1, 51))
    submits = [job.submit_s for job in make(3).jobs]
    assert submits == sorted(submits)
    assert submits[0] >= 0


def test_poisson_arrivals_models_and_steps() -> None:
    workload = poisson(MODELS, jobs=20_000, mean_gap_s=10, seed=1, durations=LogNormal(100, 0.5))
    assert workload.jobs[0].submit_s == 0
    gaps = np.diff([job.submit_s for job in workload.jobs])
    assert gaps.mean() == pytest.approx(10, rel=0.05)
    assert gaps.std() == pytest.approx(10, rel=0.05)
    kinds = Counter(job.model for job in workload.jobs)
    assert near(kinds["a"] / 20_000, 0.75, 20_000)
    job = next(job for job in workload.jobs if job.model == "a")
    assert job.duration_s is not None
    assert job.steps == round(job.duration_s * 2)
    assert next(job for job in workload.jobs if job.model == "b").steps is None


def test_gavel_durations_are_the_stated_mixture() -> None:
    drawn = GavelDurations().draw(np.random.default_rng(0), 50_000) / 60
    assert drawn.min() >= 10**1.5
    assert drawn.max() <= 10**4
    assert near(float((drawn < 1000).mean()), 0.8, 50_000)


def test_poisson_over_the_26_single_gpu_models(data: Path) -> None:
    models = read_isolated(data / "A" / "gavel_isolated.csv").models("v100")
    workload = poisson(models, jobs=2000, mean_gap_s=100, seed=0)
    assert len(models) == 26
    assert {(job.model, job.batch_size) for job in workload.jobs} == {(m.family, m.batch_size) for m in models}
    assert all(job.steps for job in workload.jobs)


def test_topology_generator_has_the_distributions_of_the_reference(data: Path) -> None:
    from colane.lab.traces.read import read  # noqa: PLC0415 - only here

    made = topology(jobs=10_000, seed=2)
    reference = read(data / "C" / "workloads-10000.json")
    for key in ("gpus", "batch_size", "family"):
        ours = Counter(getattr(job.spec, key) for job in made.jobs)
        theirs = Counter(getattr(job.spec, key) for job in reference.jobs)
        assert set(ours) == set(theirs)
        for value, jobs in theirs.items():
            # Two samples of 10,000: five standard errors of a difference.
            assert abs(ours[value] - jobs) < 5 * math.sqrt(2 * jobs), (key, value)
    assert made.jobs[-1].submit_s == pytest.approx(reference.jobs[-1].submit_s, rel=0.02)
    utilities = [float(job.spec.labels["minimal_utility"]) for job in made.jobs]
    assert min(utilities) >= 0.30
    assert max(utilities) <= 0.52
    assert all(job.steps == 4000 and job.duration_s is None for job in made.jobs)


def test_heavy_tail() -> None:
    workload = heavy_tailed(MODELS, jobs=50_000, seed=5)
    lengths = np.log([job.duration_s for job in workload.jobs if job.duration_s])
    assert lengths.std() == pytest.approx(1.47, rel=0.02)
    assert np.exp(lengths).mean() == pytest.approx(180, rel=0.1)
    assert workload.span_s == pytest.approx(2220, rel=0.01)


def test_log_normal_through_two_points() -> None:
    curve = LogNormal.from_tail((3600, 0.685), (7200, 0.396))
    drawn = curve.draw(np.random.default_rng(0), 100_000)
    assert near(float((drawn > 3600).mean()), 0.685, 100_000)
    assert near(float((drawn > 7200).mean()), 0.396, 100_000)
    assert LogNormal.from_mean(180, 1.47).mean_s == pytest.approx(180)


def test_sweep_is_300_alike_jobs_at_once() -> None:
    workload = sweep(MODELS[0], seed=0, duration_s=60)
    assert len(workload.jobs) == 300
    assert {(job.submit_s, job.duration_s, job.steps) for job in workload.jobs} == {(0, 60, 120)}


def test_heavy_load_offers_what_it_says() -> None:
    workload = heavy_load(jobs=40_000, gpus=400, seed=9, load=1.5)
    asked = sum(job.spec.gpus * (job.duration_s or 0) for job in workload.jobs)
    assert asked / (400 * workload.span_s) == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coda_hits_the_papers_targets(seed: int) -> None:
    workload = coda(Coda(jobs=40_000), seed=seed)
    cpu = [job for job in workload.jobs if job.is_cpu_only]
    gpu = [job for job in workload.jobs if not job.is_cpu_only]
    assert (len(cpu), len(gpu)) == (30_000, 10_000)
    assert near(sum(job.spec.cores <= 2 for job in gpu) / 10_000, 0.761, 10_000)
    assert near(sum(job.spec.cores > 10 for job in gpu) / 10_000, 0.153, 10_000)
    assert near(sum((job.duration_s or 0) > 3600 for job in gpu) / 10_000, 0.685, 10_000)
    assert near(sum((job.duration_s or 0) > 7200 for job in gpu) / 10_000, 0.396, 10_000)
    heavy = sum(job.spec.labels.get("memory_bandwidth") == "heavy" for job in cpu)
    assert near(heavy / 30_000, 0.005, 30_000)
    assert all(1 <= job.spec.cores <= 28 for job in workload.jobs)


def test_coda_cpu_arrivals_have_a_daily_wave_and_gpu_arrivals_none() -> None:
    workload = coda(Coda(jobs=40_000), seed=0)
    by_hour = {True: np.zeros(24), False: np.zeros(24)}
    for job in workload.jobs:
        by_hour[job.is_cpu_only][int(job.submit_s % DAY_S // 3600)] += 1
    cpu, gpu = by_hour[True] / 30_000 * 24, by_hour[False] / 10_000 * 24
    assert cpu.argmin() in {2, 3}
    assert cpu.argmax() in {14, 15}
    assert cpu.max() == pytest.approx(1.8, abs=0.15)
    assert cpu.min() == pytest.approx(0.2, abs=0.1)
    assert abs(gpu - 1).max() < 5 * math.sqrt(24 / 10_000)


def test_coda_users_15_to_20_submit_cpu_jobs_only() -> None:
    workload = coda(Coda(jobs=5000), seed=0)
    users = {job.spec.user for job in workload.jobs}
    gpu_users = {job.spec.user for job in workload.jobs if job.spec.gpus}
    assert users - gpu_users == {f"user-{number}" for number in range(15, 21)}
    assert len({job.spec.labels["tenant"] for job in workload.jobs}) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: poisson(MODELS, jobs=0, mean_gap_s=1, seed=0), "jobs must be at least 1"),
        (lambda: poisson([], jobs=1, mean_gap_s=1, seed=0), "models must not be empty"),
        (lambda: poisson(MODELS, jobs=1, mean_gap_s=-1, seed=0), "mean gap must not be negative"),
        (lambda: topology(jobs=1, seed=0, mean_gap_s=-1), "mean gap must not be negative"),
        (lambda: sweep(MODELS[0], jobs=1, seed=0, duration_s=1, spread_ratio=1), "spread must be"),
        (lambda: heavy_load(jobs=1, gpus=0, seed=0), "GPUs and load must be above 0"),
        (lambda: coda(Coda(cpu_ratio=1), seed=0), "both CPU and GPU jobs are needed"),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], Workload], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
