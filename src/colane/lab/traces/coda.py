"""A month like CODA's (Zhao et al., paper D): CPU and DNN jobs of a shared cluster, made to the paper's own numbers.

Stated by the paper: 75,000 CPU and 25,000 DNN jobs in a month; 76.1 % of DNN jobs ask for 1 or 2 cores, 15.3 % for
more than 10; 68.5 % run longer than an hour, 39.6 % longer than two; 0.5 % of CPU jobs are heavy on memory bandwidth;
CPU use has a daily wave that reaches every core at its peak and GPU use has none; five tenants work on speech, language
and vision; of more than 20 users, 15 to 20 submit CPU jobs only. Not stated, so chosen here: how many GPUs jobs ask
for, how long CPU jobs run and how many cores they ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from colane.lab.traces.generate import Floats, LogNormal
from colane.lab.traces.workload import TraceJob, Workload, collector_held
from colane.model.job import JobId, JobSpec
from colane.model.words import count

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
CATEGORIES = ("CV", "NLP", "SPEECH")
MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CV": ("alexnet", "vgg16", "inception3", "resnet50"),
        "NLP": ("bi-att-flow", "transformer"),
        "SPEECH": ("wavenet", "deepspeech"),
    }
)
"""The paper's benchmark models (Table I) by category."""


CPU_RUN = LogNormal(median_s=HOUR_S, sigma=1.2)
TENANTS = 5


def _frozen(values: Mapping[int, float]) -> Mapping[int, float]:
    return MappingProxyType(dict(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coda:
    """Parameters of the month."""

    jobs: int = 100_000  # all jobs
    cpu_ratio: float = 0.75  # part of them that uses no GPU
    days: float = 30.0  # length of the trace
    few_cores_ratio: float = 0.761  # DNN jobs that ask for 1 or 2 cores
    many_cores_ratio: float = 0.153  # DNN jobs that ask for more than 10
    over_1h_ratio: float = 0.685  # DNN jobs that run longer than an hour
    over_2h_ratio: float = 0.396  # DNN jobs that run longer than two
    heavy_ratio: float = 0.005  # CPU jobs heavy on memory bandwidth (label `memory_bandwidth=heavy`)
    wave_ratio: float = 0.8  # height of the daily wave of CPU arrivals over its mean; chosen
    # GPUs a DNN job asks for, with weights; chosen: it offers 400 GPUs a load of 0.74, and servers of 8 GPUs one they
    # can bear (83.5 % of GPUs active, as reported under FIFO, would be 4.0 GPUs a job)
    gpu_mix: Mapping[int, float] = field(default_factory=lambda: _frozen({1: 0.25, 2: 0.15, 4: 0.45, 8: 0.15}))
    # run times of CPU jobs; chosen with `cpu_cores` so that 80 servers of 28 cores are full at peaks
    cpu_run: LogNormal = CPU_RUN
    # cores CPU jobs ask for, with weights; chosen
    cpu_cores: Mapping[int, float] = field(default_factory=lambda: _frozen({1: 0.2, 2: 0.2, 4: 0.3, 8: 0.2, 16: 0.1}))
    users: int = 21  # owners; numbers from `first_cpu_user` on submit CPU jobs only
    first_cpu_user: int = 15  # see above
    # how unlike the numbers of jobs of users are: the N-th submits 1 / N ** skew; 0 is alike, chosen
    user_skew: float = 0.0
    cores_max: int = 28  # cores of the smallest node: no job asks for more

    @property
    def gpu_run(self) -> LogNormal:
        """The log-normal run time of DNN jobs through the two stated points."""
        return LogNormal.from_tail((HOUR_S, self.over_1h_ratio), (2 * HOUR_S, self.over_2h_ratio))


def coda(params: Coda | None = None, *, seed: int) -> Workload:
    """Make the month. CPU-only jobs are in it: their `gpus` is 0.

    Raises ValueError: fewer than two jobs, or ratios that leave no job of a kind.
    """
    params = params or Coda()
    cpu_jobs = round(params.jobs * params.cpu_ratio)
    if not 0 < cpu_jobs < params.jobs:
        raise ValueError(f"both CPU and GPU jobs are needed, got {cpu_jobs} CPU jobs of {params.jobs}")
    with collector_held():
        jobs = _jobs(np.random.default_rng(seed), params, cpu_jobs)
    return Workload(name=f"coda-{seed}", jobs=jobs, source=f"coda, {count(len(jobs), 'job')}, seed {seed}")


def _jobs(rng: np.random.Generator, params: Coda, cpu_jobs: int) -> tuple[TraceJob, ...]:
    rows = _cpu_rows(rng, params, cpu_jobs) + _gpu_rows(rng, params, params.jobs - cpu_jobs)
    rows.sort(key=lambda row: row[0])
    return tuple(
        TraceJob(id=JobId(number), submit_s=submit_s, spec=_spec(number, needs), duration_s=duration_s)
        for number, (submit_s, duration_s, needs) in enumerate(rows, 1)
    )


@dataclass(frozen=True, slots=True)
class _Needs:
    family: str
    gpus: int
    cores: int
    user: int
    labels: Mapping[str, str]


_Row = tuple[float, float, _Needs]


def _cpu_rows(rng: np.random.Generator, params: Coda, jobs: int) -> list[_Row]:
    submit_s = wave_times(rng, jobs, params.days * DAY_S, params.wave_ratio)
    cores = _drawn(rng, params.cpu_cores, jobs).tolist()
    users = _owners(rng, params, params.users, jobs)
    heavy = (rng.random(jobs) < params.heavy_ratio).tolist()
    duration_s = params.cpu_run.draw(rng, jobs)
    needs = [
        _Needs("cpu-job", 0, cores[i], users[i], {"memory_bandwidth": "heavy"} if heavy[i] else {}) for i in range(jobs)
    ]
    return list(zip(submit_s.tolist(), duration_s.tolist(), needs, strict=True))


def _gpu_rows(rng: np.random.Generator, params: Coda, jobs: int) -> list[_Row]:
    submit_s = rng.uniform(0, params.days * DAY_S, jobs)
    gpus, cores = _drawn(rng, params.gpu_mix, jobs).tolist(), _gpu_job_cores(rng, params, jobs).tolist()
    users = _owners(rng, params, params.first_cpu_user, jobs)
    categories, models = rng.integers(0, len(CATEGORIES), jobs).tolist(), rng.random(jobs).tolist()
    duration_s = params.gpu_run.draw(rng, jobs)
    needs = []
    for i in range(jobs):
        category = CATEGORIES[categories[i]]
        family = MODELS[category][int(models[i] * len(MODELS[category]))]
        needs.append(_Needs(family, gpus[i], cores[i], users[i], {"category": category}))
    return list(zip(submit_s.tolist(), duration_s.tolist(), needs, strict=True))


def _owners(rng: np.random.Generator, params: Coda, users: int, jobs: int) -> list[int]:
    if not params.user_skew:
        return list(map(int, rng.integers(0, users, jobs)))
    weights = {user: (user + 1.0) ** -params.user_skew for user in range(users)}
    return list(map(int, _drawn(rng, weights, jobs)))


def wave_times(rng: np.random.Generator, jobs: int, span_s: float, wave_ratio: float) -> Floats:
    """Times whose rate is 1 + wave_ratio x sin over each day, lowest at 03:00, by inverting the cumulated rate."""
    grid_s = np.linspace(0.0, span_s, 1 + max(1, round(span_s / 60)))
    turn = 2 * np.pi / DAY_S
    shift_s = 9 * HOUR_S
    cumulated = grid_s - wave_ratio / turn * (np.cos(turn * (grid_s - shift_s)) - np.cos(turn * shift_s))
    drawn = rng.uniform(0, cumulated[-1], jobs)
    return np.interp(drawn, cumulated, grid_s)


def _gpu_job_cores(rng: np.random.Generator, params: Coda, jobs: int) -> NDArray[np.int64]:
    few, many = params.few_cores_ratio, params.many_cores_ratio
    kind = rng.choice(3, size=jobs, p=[few, 1 - few - many, many])
    low, high = np.array([1, 3, 11])[kind], np.array([2, 10, params.cores_max])[kind]
    return rng.integers(low, high, endpoint=True)


def _drawn(rng: np.random.Generator, mix: Mapping[int, float], jobs: int) -> NDArray[np.int64]:
    values: Sequence[int] = list(mix)
    weights = np.array(list(mix.values()))
    return rng.choice(np.array(values), size=jobs, p=weights / weights.sum())


def _spec(number: int, needs: _Needs) -> JobSpec:
    return JobSpec(
        name=f"job-{number}", family=needs.family, user=f"user-{needs.user:02}", gpus=needs.gpus, cores=needs.cores,
        labels={"tenant": f"tenant-{needs.user % TENANTS}", **needs.labels},
    )  # fmt: skip
