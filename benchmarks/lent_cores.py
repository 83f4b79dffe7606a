"""Arrays under `colane`: what they bring jobs with GPUs, and cost jobs without, where both want cores.

    python benchmarks/lent_cores.py --data DIR [--policies colane,colane:arrays=yes] [--worlds NAME,...] [--seeds 3]

Four nodes with eight GPUs and 48 cores each. Jobs with GPUs are of the models whose speed by cores Synergy measured;
jobs without take 1 to 8 cores for minutes to hours, and together want so much of all cores (`wanted`). Each line says
mean completion times of both, in hours, over the same seeds; of policies after the first as a ratio to it.
"""

from __future__ import annotations

import argparse
import sys
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.cores_offered import ALL, HOUR_S, Setting, long, ran, short, training  # noqa: E402

from colane.lab.traces.workload import TraceJob, Workload  # noqa: E402
from colane.model.job import JobId, JobSpec, JobState  # noqa: E402


class Mixture(NamedTuple):
    """One world.

    Attributes:
        training: Its jobs with GPUs.
        wanted: Cores that jobs without GPUs would use together while others come, as a part of all.
        abortable_ratio: Part of them that may begin anew.
    """

    training: Setting
    wanted: float
    abortable_ratio: float = 0.5


ARRIVING: Final = Setting(48, 80, long, 0.14 * HOUR_S, ALL)
WORLDS: Final = {
    "some": Mixture(ARRIVING, 0.5),
    "many": Mixture(ARRIVING, 1.5),
    "all-begin-anew": Mixture(ARRIVING, 1.5, 1.0),
    "none-begins-anew": Mixture(ARRIVING, 1.5, 0.0),
    "short": Mixture(Setting(48, 120, short, 20.0, ALL), 1.5),
    "gangs": Mixture(Setting(48, 60, long, 0.3 * HOUR_S, ALL, (1, 1, 2, 4, 8)), 1.5),
    "unasked": Mixture(Setting(48, 80, long, 0.14 * HOUR_S, ALL, asked_per_gpu=0), 1.5),
}


def drawn(mixture: Mixture, seed: int) -> Workload:
    """Its jobs, the same ones for a seed."""
    random, at_s, found = Random(seed), 0.0, list[tuple[float, JobSpec, float]]()  # noqa: S311 - a sample, no secret
    setting = mixture.training
    for number in range(setting.jobs):
        at_s += random.expovariate(1 / setting.gap_s)
        family, gpus, took_s = random.choice(setting.families), random.choice(setting.gpus), setting.draw(random)
        spec = training(f"training-{number}", family, gpus, setting.asked_per_gpu * gpus, round(took_s / 0.5))
        found.append((at_s, spec, took_s))
    until_s, at_s, all_cores = at_s, 0.0, 4 * setting.cores
    while at_s < until_s:
        cores, took_s = random.randint(1, 8), exp(random.uniform(log(120.0), log(2 * HOUR_S)))
        may = random.random() < mixture.abortable_ratio
        spec = JobSpec(name="cpu", family="cpu", gpus=0, cores=cores, abortable=may)
        found.append((at_s, spec, took_s))
        at_s += random.expovariate(1 / (cores * took_s / (mixture.wanted * all_cores)))
    found.sort(key=lambda one: one[0])
    jobs = [
        TraceJob(id=JobId(n), submit_s=at_s, spec=spec, duration_s=took_s)
        for n, (at_s, spec, took_s) in enumerate(found, 1)
    ]
    return Workload(name="lent", jobs=tuple(jobs))


class Took(NamedTuple):
    """What a run took: means over jobs with GPUs and without, in hours, and how it went for those without."""

    training_h: float
    others_h: float
    began_anew: float
    failed: float


def took(mixture: Mixture, seed: int, policy: str, data: Path) -> Took:
    """Run a world once."""
    jobs = drawn(mixture, seed)
    rows = ran(mixture.training, jobs, policy, data, tunes=True).rows
    ends = dict(zip(rows.id, rows.end_s, strict=True))
    attempts = dict(zip(rows.id, rows.attempts, strict=True))
    with_gpus = [ends[job.id] - job.submit_s for job in jobs.jobs if job.spec.gpus]
    others = [ends[job.id] - job.submit_s for job in jobs.jobs if not job.spec.gpus]
    anew = fmean([attempts[job.id] - 1 for job in jobs.jobs if not job.spec.gpus])
    return Took(fmean(with_gpus) / HOUR_S, fmean(others) / HOUR_S, anew, rows.count(JobState.FAILED))


def main() -> None:
    """Print a line as each policy has run in a world."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--policies", default="colane,colane:arrays=yes")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    print("| world | policy | with GPUs | without | begun anew, times a job | failed |\n|---|---|---|---|---|---|")
    for world in asked.worlds.split(","):
        first: Took | None = None
        for policy in asked.policies.split(","):
            runs = [took(WORLDS[world], seed, policy, asked.data) for seed in range(asked.seeds)]
            mean = Took(*[fmean(each) for each in zip(*runs, strict=True)])
            by = (1.0, 1.0) if first is None else (first.training_h, first.others_h)
            first = first or mean
            ratios = f"{mean.training_h / by[0]:.3f} | {mean.others_h / by[1]:.3f}"
            told = f"{ratios} | {mean.began_anew:.2f} | {mean.failed:.1f}"
            print(f"| {world} | {policy} | {told} |", flush=True)


if __name__ == "__main__":
    main()
