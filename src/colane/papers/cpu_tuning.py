"""Both tuners of cores on every curve that Synergy measured (paper D, claim D-g; its own curves are figures only).

A curve is the speed of one model on one number of GPUs by cores for each GPU, linear between measured numbers. Each
tuner begins at 1 to 12 cores and may use as many as were measured. Under noise each of the nine samples of a step
(90 s, one every 10 s) is off by a normal error of 5 or 10 %, and the tuner sees their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from colane.cpu.tuner import EPSILON_RATIO, STEPS_MAX, TUNERS, CoreTry, TunerName, found
from colane.papers.claims import Claim, Figure, Origin, Sense, Stated, ours
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


PUBLISHED_STEPS: Mapping[str, int] = {
    "alexnet": 4, "vgg16": 4, "inception3": 3, "resnet50": 3,
    "bi-att-flow": 4, "transformer": 3, "wavenet": 3, "deepspeech": 3,
}  # fmt: skip
"""Profiling steps until the best number of cores is found, by model (table II)."""

TABLE_NAMES: Mapping[str, str] = {
    "alexnet": "Alexnet [19]", "vgg16": "VGG16 [21]", "inception3": "InceptionV3 [22]", "resnet50": "Resnet-50 [23]",
    "bi-att-flow": "Bi-att-Flow [24]", "transformer": "Transformer [26]", "wavenet": "Wavenet [28]",
    "deepspeech": "DeepSpeech [30]",
}  # fmt: skip
"""As that table writes them."""

PAPER_STARTS: Mapping[str, tuple[str, int]] = {
    "alexnet": ("alexnet", 3), "resnet50": ("res50", 3), "transformer": ("transformer", 5),
    "deepspeech": ("deepspeech", 5),
}  # fmt: skip
"""Models of table II that Synergy measured: its name of them, and the paper's first number of cores by category."""

WORLD = "Synergy's measured speeds by cores, one model on one number of GPUs a curve; the paper's are figures"


def tuning_claims(runs: Sequence[TuningRun]) -> Iterator[Claim]:
    """The paper's tuner by model; each curve without noise; then each tuner and noise over all curves."""
    exact = [run for run in runs if not run.noise_ratio]
    yield _steps_claim(exact)
    for model, gpus in sorted({(run.model, run.gpus) for run in exact}):
        here = [run for run in exact if (run.model, run.gpus) == (model, gpus)]
        yield _curve_claim(f"D-g-{model}-{gpus}", f"{model} on {gpus} GPU{'s' * (gpus > 1)}", here)
    for noise in sorted({run.noise_ratio for run in runs}):
        for tuner in TUNERS:
            yield _noise_claim(tuner, noise, [r for r in runs if (r.tuner, r.noise_ratio) == (tuner, noise)])


def _steps_claim(exact: Sequence[TuningRun]) -> Claim:
    """The paper's own tuner from its own start, one GPU, against table II."""
    steps = {
        (run.model, run.start): run.steps for run in exact if run.tuner is TunerName.STEP and run.gpus == 1
    }  # fmt: skip
    found = {name: steps.get(start) for name, start in PAPER_STARTS.items()}
    stated = [
        Figure(
            name, published, found.get(name), "steps", "table II", printed=f"{TABLE_NAMES[name]} {published}",
            bound=Sense.AT_MOST, unjudged="" if found.get(name) is not None else "Synergy did not measure it", digits=0,
        )
        for name, published in PUBLISHED_STEPS.items()
    ]  # fmt: skip
    worst = max(value for value in found.values() if value is not None)
    stated.append(
        Figure(
            "all models",
            STEPS_MAX,
            worst,
            "steps",
            "section VI-F",
            printed="4 profiling steps",
            bound=Sense.AT_MOST,
            digits=0,
        )
    )
    note = (
        "A tuner that goes one core at a time from 3 is at most 4 steps away from a best number between 1 and 6. On "
        "Synergy's server AlexNet is best at 12, so that more steps are needed than the paper's machine did; `linear` "
        "goes there in 4 (D-g-linear-0)."
    )
    return Claim("D-g", "steps of the paper's tuner until it has found the cores", tuple(stated), WORLD, note)


def _curve_claim(id_: str, name: str, runs: Sequence[TuningRun]) -> Claim:
    starts = [run.start for run in runs]
    claim = f"{name}: right at {runs[0].fewest} cores a GPU; from {min(starts)} to {max(starts)}"
    stated: list[Stated] = []
    for tuner in TUNERS:
        mine = [run for run in runs if run.tuner is tuner]
        steps, off = [run.steps for run in mine], max([run.off_ratio for run in mine])
        stated.append(ours(str(tuner), f"{min(steps)} to {max(steps)} steps, at most {off:.1%} off"))
        if tuner is TunerName.LINEAR:
            stated += [
                _at_most("linear, steps", STEPS_MAX, max(steps)), _at_most("linear, part off", EPSILON_RATIO, off, 3)
            ]  # fmt: skip
    return Claim(id_, claim, tuple(stated), WORLD)


def _at_most(what: str, most: float, found: float, digits: int = 0) -> Figure:
    return Figure(what, most, found, source=Origin.OURS, bound=Sense.AT_MOST, digits=digits)


def _noise_claim(tuner: TunerName, noise: float, runs: Sequence[TuningRun]) -> Claim:
    steps, off = np.array([run.steps for run in runs]), np.array([run.off_ratio for run in runs])
    over = np.mean([run.cores - run.fewest for run in runs])
    within = np.mean(off <= EPSILON_RATIO)
    told = (
        f"{steps.mean():.1f} steps, most {steps.max()}; {within:.1%} of searches within 2 % of the best, "
        f"mean {off.mean():.2%} off, worst {off.max():.1%}; {over:+.1f} cores of what is needed"
    )
    noise_said = f"samples off by {noise:.0%}" if noise else "no noise"
    claim = f"{tuner}, {noise_said}: all curves, starts 1 to 12"
    return Claim(f"D-g-{tuner}-{noise:.0%}".removesuffix("%"), claim, (ours("", told),), WORLD)
