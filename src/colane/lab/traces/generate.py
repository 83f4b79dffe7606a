"""Made-up workloads: pure functions of their parameters and a seed.

Every draw comes from one `numpy.random.Generator`: the same call gives the same jobs, given the same numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from colane.lab.traces.readers.topo import STEPS as TOPOLOGY_STEPS
from colane.lab.traces.workload import TraceJob, Workload, collector_held
from colane.model.job import JobId, JobSpec
from colane.model.words import count

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A kind of job a generator draws from."""

    family: str  # what it trains
    batch_size: int | None = None  # per GPU
    gpus: int = 1  # GPUs it asks for
    weight: float = 1.0  # drawn in proportion to it
    # its speed alone on the GPU durations are meant for; with it a job's steps follow from its duration
    steps_per_s: float | None = None
    gpu_memory_bytes: int | None = None  # peak memory on each GPU
    cores: int = 0  # cores it books
    labels: Mapping[str, str] = field(default_factory=dict)  # given to each of its jobs
    utility_min: float = 0.0  # least utility each of its jobs asks for


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Durations whose logarithm is normal."""

    median_s: float  # half are longer
    sigma: float  # standard deviation of the natural logarithm

    @classmethod
    def from_tail(cls, first: tuple[float, float], second: tuple[float, float]) -> LogNormal:
        """The distribution of which a ratio exceeds a time, given two such (time in s, ratio)."""
        (time_a_s, over_a), (time_b_s, over_b) = first, second
        quantile_a, quantile_b = (NormalDist().inv_cdf(1 - over) for over in (over_a, over_b))
        sigma = math.log(time_b_s / time_a_s) / (quantile_b - quantile_a)
        return cls(time_a_s * math.exp(-sigma * quantile_a), sigma)

    @classmethod
    def from_mean(cls, mean_s: float, sigma: float) -> LogNormal:
        """The distribution of a mean and a sigma."""
        return cls(mean_s * math.exp(-sigma * sigma / 2), sigma)

    @property
    def mean_s(self) -> float:
        """Mean duration."""
        return self.median_s * math.exp(self.sigma * self.sigma / 2)

    def draw(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Draw durations in seconds."""
        return rng.lognormal(math.log(self.median_s), self.sigma, jobs)


@dataclass(frozen=True, slots=True)
class GavelDurations:
    """Gavel's mixture (OSDI 2020, section 7.1): 10^x minutes, x uniform in 1.5..3 for 80 %, in 3..4 for the rest."""

    def draw(self, rng: np.random.Generator, jobs: int) -> Floats:
        """Draw durations in seconds."""
        is_short = rng.random(jobs) < 0.8
        exponent = np.where(is_short, rng.uniform(1.5, 3, jobs), rng.uniform(3, 4, jobs))
        return 60.0 * 10.0**exponent


Durations = LogNormal | GavelDurations


def poisson(
    models: Sequence[JobModel], *, jobs: int, mean_gap_s: float, seed: int, durations: Durations | None = None,
    name: str = "poisson",
) -> Workload:  # fmt: skip
    """Poisson arrivals of jobs drawn from a list of models.

    The first submission is at 0. Run times alone are Gavel's mixture where nothing else is said. Raises ValueError: no
    models, no jobs, or a gap below 0.
    """
    rng = _rng(jobs, seed, models)
    submit_s = _poisson_times(rng, jobs, mean_gap_s)
    chosen = _choose(rng, models, jobs)
    duration_s = (durations or GavelDurations()).draw(rng, jobs)
    return _workload(name, seed, submit_s, [models[i] for i in chosen], duration_s)


def topology(*, jobs: int, seed: int, mean_gap_s: float = 10.0) -> Workload:
    """Workload of the topology-aware scheduler's own generator (Amaral et al., SC 2017; `work_gen.py` of its code).

    Gaps are Poisson counts of whole seconds; batch class Binomial(3, 0.1) of 1, 4, 128, 64 (the code swaps the last
    two); GPUs Binomial(2, 0.39) + 1; model Binomial(1, 0.2): AlexNet or GoogLeNet; minimal utility uniform in
    0.30..0.52. Jobs run the 4000 iterations of the published profile; how long that takes follows from where they run.
    Raises ValueError: no jobs, or a gap below 0.
    """
    rng = _rng(jobs, seed)
    if mean_gap_s < 0:
        raise ValueError(f"mean gap must not be negative, got {mean_gap_s}")
    submit_s = np.cumsum(rng.poisson(mean_gap_s, jobs)).astype(np.float64)
    batch_class, gpus = rng.binomial(3, 0.1, jobs), rng.binomial(2, 0.39, jobs) + 1
    kind, utility = rng.binomial(1, 0.2, jobs), rng.uniform(0.30, 0.52, jobs)
    batches, memory_classes = (1, 4, 128, 64), ("1", "2", "12", "8")
    made = [
        JobModel(
            family=("bvlc_alexnet", "bvlc_googlenet")[kind[i]],
            batch_size=batches[batch_class[i]],
            gpus=int(gpus[i]),
            cores=1,
            labels={"minimal_utility": str(float(utility[i])), "memory_class": memory_classes[batch_class[i]]},
            utility_min=float(utility[i]),
        )
        for i in range(jobs)
    ]
    return _workload("topology", seed, submit_s, made, None, steps=TOPOLOGY_STEPS)


def heavy_tailed(
    models: Sequence[JobModel], *, jobs: int = 100, seed: int, mean_s: float = 180.0, sigma: float = 1.47,
    span_s: float = 2220.0,
) -> Workload:  # fmt: skip
    """Log-normal run times and uniform arrivals, like the 100-job trace of Salus (MLSys 2020, Table 2).

    Three minutes of mean run time follow from its Table 2 (170.6 - 167.6 min); sigma and the 37 minutes of arrivals
    were found by search so that a simulation gives that table, not measured. Raises ValueError: no models or no jobs.
    """
    rng = _rng(jobs, seed, models)
    submit_s = np.sort(rng.uniform(0, span_s, jobs))
    duration_s = LogNormal.from_mean(mean_s, sigma).draw(rng, jobs)
    chosen = _choose(rng, models, jobs)
    return _workload("heavy-tailed", seed, submit_s, [models[i] for i in chosen], duration_s)


def sweep(model: JobModel, *, jobs: int = 300, seed: int, duration_s: float, spread_ratio: float = 0.0) -> Workload:
    """A hyper-parameter search: alike jobs, all submitted at once (Salus, MLSys 2020, section 5.2: 300 of them).

    Run times alone are uniform within `spread_ratio` of `duration_s` on either side. Raises ValueError: no jobs, or a
    spread outside 0..1.
    """
    rng = _rng(jobs, seed)
    if not 0 <= spread_ratio < 1:
        raise ValueError(f"spread must be at least 0 and below 1, got {spread_ratio}")
    drawn = duration_s * rng.uniform(1 - spread_ratio, 1 + spread_ratio, jobs)
    return _workload("sweep", seed, np.zeros(jobs), [model] * jobs, drawn)


GPU_MIX: Mapping[int, float] = {1: 0.70, 2: 0.12, 4: 0.12, 8: 0.06}
"""GPUs a job of `heavy_load` asks for, with weights: mostly one, as in the published traces."""


def heavy_load(
    *, jobs: int, gpus: int, seed: int, load: float = 1.2, mean_s: float = 3600.0,
    gpu_mix: Mapping[int, float] = GPU_MIX,
) -> Workload:  # fmt: skip
    """Poisson arrivals that ask for `load` times what a cluster has, for benchmarks: above 1 the queue grows.

    Run times alone are log-normal with sigma 1; GPUs asked for are drawn by weight. Raises ValueError: no jobs, no
    GPUs, or a load not above 0.
    """
    if not (gpus > 0 and load > 0):
        raise ValueError(f"GPUs and load must be above 0, got {gpus} and {load}")
    models = [JobModel(family=f"synthetic-{n}", gpus=n, weight=weight) for n, weight in gpu_mix.items()]
    total = sum(gpu_mix.values())
    mean_gpus = sum(n * weight for n, weight in gpu_mix.items()) / total
    gap_s = mean_gpus * mean_s / (load * gpus)
    durations = LogNormal.from_mean(mean_s, 1.0)
    return poisson(models, jobs=jobs, mean_gap_s=gap_s, seed=seed, durations=durations, name="heavy-load")


def _rng(jobs: int, seed: int, models: Sequence[JobModel] | None = None) -> np.random.Generator:
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    if models is not None and not models:
        raise ValueError("models must not be empty")
    return np.random.default_rng(seed)


def _poisson_times(rng: np.random.Generator, jobs: int, mean_gap_s: float) -> Floats:
    if mean_gap_s < 0:
        raise ValueError(f"mean gap must not be negative, got {mean_gap_s}")
    gaps_s = rng.exponential(mean_gap_s, jobs)
    gaps_s[0] = 0.0
    return np.cumsum(gaps_s)


def _choose(rng: np.random.Generator, models: Sequence[JobModel], jobs: int) -> NDArray[np.int64]:
    weights = np.array([model.weight for model in models])
    return rng.choice(len(models), size=jobs, p=weights / weights.sum())


def _workload(
    name: str, seed: int, submit_s: Floats, models: Sequence[JobModel], duration_s: Floats | None,
    steps: int | None = None,
) -> Workload:  # fmt: skip
    lengths: list[float] | list[None] = [None] * len(models) if duration_s is None else duration_s.tolist()
    rows = zip(submit_s.tolist(), models, lengths, strict=True)
    with collector_held():
        jobs = tuple(_job(number, *row, steps) for number, row in enumerate(rows, 1))
    return Workload(name=f"{name}-{seed}", jobs=jobs, source=f"{name}, {count(len(jobs), 'job')}, seed {seed}")


def _job(number: int, submit_s: float, model: JobModel, duration_s: float | None, steps: int | None) -> TraceJob:
    if steps is None and duration_s is not None and model.steps_per_s is not None:
        steps = max(1, round(duration_s * model.steps_per_s))
    spec = JobSpec(
        name=f"job-{number}", family=model.family, batch_size=model.batch_size, gpus=model.gpus, steps_total=steps,
        gpu_memory_bytes=model.gpu_memory_bytes, cores=model.cores, labels=model.labels, utility_min=model.utility_min,
    )  # fmt: skip
    return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=duration_s)
