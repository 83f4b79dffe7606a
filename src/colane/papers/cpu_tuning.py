"""Both tuners of cores on every curve that Synergy measured (paper D, claim D-g; its own curves are figures only).

A curve is the speed of one model on one number of GPUs by cores for each GPU, linear between measured numbers. Each
tuner begins at 1 to 12 cores and may use as many as were measured. Under noise each of the nine samples of a step
(90 s, one every 10 s) is off by a normal error of 5 or 10 %, and the tuner sees their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from colane.cpu.tuner import EPSILON_RATIO, STEPS_MAX, TUNERS, CoreTry, TunerName, found
from colane.papers.claims import Claim
from colane.traces.tables.synergy import SynergyJob, SynergyMatrix, SynergyTable

STARTS = range(1, 13)
SAMPLES = 9
NOISES = (0.0, 0.05, 0.10)
REPEATS = 20
"""Runs from each start under noise."""


class TuningRun(NamedTuple):
    """One search.

    Attributes:
        model: What was trained.
        gpus: GPUs it had.
        tuner: The tuner used.
        noise_ratio: Error of one sample.
        start: Cores for each GPU it began with.
        steps: Tries after that.
        cores: What it settled on.
        fewest: Fewest cores within epsilon of the best.
        off_ratio: By how much the speed there is below the best.
    """

    model: str
    gpus: int
    tuner: TunerName
    noise_ratio: float
    start: int
    steps: int
    cores: int
    fewest: int
    off_ratio: float


def tuning_runs(table: SynergyTable, noises: Sequence[float] = NOISES, seed: int = 0) -> list[TuningRun]:
    """Every tuner on every curve from every start.

    Args:
        table: Measured speeds.
        noises: Errors of one sample; without one a search runs once, else `REPEATS` times.
        seed: Of the errors.
    """
    rng, runs = np.random.default_rng(seed), []
    for noise in noises:
        for tuner in TUNERS:
            for job, matrix in table.matrices.items():
                top = matrix.most_cores_per_gpu
                for start in STARTS[:top]:
                    runs += [_run(job, matrix, tuner, noise, start, rng) for _ in range(REPEATS if noise else 1)]
    return runs


def _run(
    job: SynergyJob, matrix: SynergyMatrix, tuner: TunerName, noise: float, start: int, rng: np.random.Generator
) -> TuningRun:
    top = matrix.most_cores_per_gpu
    speeds = [matrix.relative_speed(cores) or 0.0 for cores in range(1, top + 1)]
    best = max(speeds)
    tried: list[CoreTry] = []
    cores: int | None = start
    while cores is not None:
        error = rng.normal(0.0, noise, SAMPLES).mean() if noise else 0.0
        tried.append(CoreTry(cores, speeds[cores - 1] * (1 + error)))
        cores = TUNERS[tuner](tried, top)
    right = found(tried).cores
    fewest = next(n for n, speed in enumerate(speeds, 1) if speed >= best * (1 - EPSILON_RATIO))
    off = 1 - speeds[right - 1] / best
    return TuningRun(job.model, job.gpus, tuner, noise, start, len(tried) - 1, right, fewest, off)


def tuning_claims(runs: Sequence[TuningRun]) -> Iterator[Claim]:
    """A row for each curve without noise, then one for each tuner and noise over all curves."""
    exact = [run for run in runs if not run.noise_ratio]
    for model, gpus in sorted({(run.model, run.gpus) for run in exact}):
        here = [run for run in exact if (run.model, run.gpus) == (model, gpus)]
        yield _curve_claim(f"D-g-{model}-{gpus}", f"{model} on {gpus} GPU{'s' * (gpus > 1)}", here)
    for noise in sorted({run.noise_ratio for run in runs}):
        for tuner in TUNERS:
            yield _noise_claim(tuner, noise, [r for r in runs if (r.tuner, r.noise_ratio) == (tuner, noise)])


def _curve_claim(id_: str, name: str, runs: Sequence[TuningRun]) -> Claim:
    starts = [run.start for run in runs]
    claim = f"{name}: right at {runs[0].fewest} cores a GPU; from {min(starts)} to {max(starts)}"
    said, holds = [], True
    for tuner in TUNERS:
        mine = [run for run in runs if run.tuner is tuner]
        steps, off = [run.steps for run in mine], max([run.off_ratio for run in mine])
        holds &= tuner is not TunerName.LINEAR or (max(steps) <= STEPS_MAX and off <= EPSILON_RATIO)
        said.append(f"{tuner} {min(steps)} to {max(steps)} steps, at most {off:.1%} off")
    verdict = "linear: within 4 steps and 2 %" if holds else "linear misses 4 steps or 2 %"
    return Claim(id_, claim, "at most 4 steps from 3 to 5 cores", "; ".join(said), verdict)


def _noise_claim(tuner: TunerName, noise: float, runs: Sequence[TuningRun]) -> Claim:
    steps, off = np.array([run.steps for run in runs]), np.array([run.off_ratio for run in runs])
    over = np.mean([run.cores - run.fewest for run in runs])
    within = np.mean(off <= EPSILON_RATIO)
    ours = (
        f"{steps.mean():.1f} steps, most {steps.max()}; {within:.1%} of searches within 2 % of the best, "
        f"mean {off.mean():.2%} off, worst {off.max():.1%}; {over:+.1f} cores of what is needed"
    )
    noise_said = f"samples off by {noise:.0%}" if noise else "no noise"
    what = f"{tuner}, {noise_said}: all curves, starts 1 to 12"
    holds = steps.max() <= STEPS_MAX
    verdict = "at most 4 steps" if holds else "more than 4 steps from poor starts"
    verdict += "; all within 2 %" if within == 1 else f"; {1 - within:.1%} of searches miss 2 %"
    return Claim(f"D-g-{tuner}-{noise:.0%}".removesuffix("%"), what, "at most 4 steps, published cases", ours, verdict)
