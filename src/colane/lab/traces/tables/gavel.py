"""Gavel's throughputs (Narayanan et al., OSDI 2020; MIT): alone by GPU type and count, and for pairs on one GPU.

Any of its files: the published `*_throughputs.json` with pairs or without, of any GPU type, and the flattened form
`gavel_isolated.csv`. Older ones name a job by its type alone, `ResNet-18 (batch size 16)`: those are of one GPU. Pair
values are clipped at the speed alone; those of several GPUs are partly extrapolated by their authors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.generate import JobModel
from colane.lab.traces.readers.assemble import load_json
from colane.lab.traces.readers.gavel import split_job_type
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text

UNCONSOLIDATED = "_unconsolidated"
ALONE = "null"
HEAD_CHARS = 4096


class GavelJob(NamedTuple):
    """What decides a job's speed on one GPU type."""

    model: str
    batch_size: int | None
    gpus: int


class Spot(NamedTuple):
    """Where it runs: GPU type as Gavel writes it (`v100`, `p100`, `k80`), and all its workers on one server or not."""

    gpu_type: str
    consolidated: bool


@dataclass(frozen=True, slots=True)
class GavelTable:
    """Steps per second."""

    alone_steps_per_s: Mapping[tuple[Spot, GavelJob], float]  # of the whole job; 0 is measured as not fitting
    # of the first job and of the second when they share their GPUs; (0, 0) does not fit
    pair_steps_per_s: Mapping[tuple[Spot, GavelJob, GavelJob], tuple[float, float]] = field(default_factory=dict)

    def alone(self, gpu_type: str, job: GavelJob, *, consolidated: bool = True) -> float | None:
        """Steps per second alone; None where it was not measured, 0 where it does not fit."""
        return self.alone_steps_per_s.get((Spot(gpu_type, consolidated), job))

    def together(
        self, gpu_type: str, job: GavelJob, other: GavelJob, *, consolidated: bool = True
    ) -> tuple[float, float] | None:
        """Steps per second of both when they share; None where it was not measured or they do not fit together."""
        spot = Spot(gpu_type, consolidated)
        pair = self.pair_steps_per_s.get((spot, job, other))
        if pair is None:
            turned = self.pair_steps_per_s.get((spot, other, job))
            pair = None if turned is None else (turned[1], turned[0])
        return None if pair == (0.0, 0.0) else pair

    def delta(self, gpu_type: str, job: GavelJob, other: GavelJob) -> float | None:
        """Speed-up of sharing one GPU, paper A eq. 4.1: sum of step times alone / longest step time together."""
        alone = self.alone(gpu_type, job), self.alone(gpu_type, other)
        together = self.together(gpu_type, job, other)
        if together is None or not alone[0] or not alone[1] or not all(together):
            return None
        return (1 / alone[0] + 1 / alone[1]) * min(together)

    def jobs(self, gpus: int = 1) -> tuple[GavelJob, ...]:
        """The jobs measured with so many GPUs, sorted."""
        found = {job for _, job in self.alone_steps_per_s if job.gpus == gpus}
        return tuple(sorted(found, key=lambda job: (job.model, job.batch_size or 0)))

    def models(self, gpu_type: str, gpus: int = 1) -> tuple[JobModel, ...]:
        """What a generator may draw from: every job that fits, with its speed alone on this GPU type."""
        speeds = ((job, self.alone(gpu_type, job)) for job in self.jobs(gpus))
        return tuple(
            JobModel(family=job.model, batch_size=job.batch_size, gpus=gpus, steps_per_s=speed)
            for job, speed in speeds
            if speed
        )


def is_throughputs(path: Path) -> bool:
    """Whether a file looks like one of Gavel's, by its beginning."""
    try:
        head = read_text(path)[:HEAD_CHARS]
    except InputFileError:
        return False
    if _is_csv(path):
        return head.startswith("gpu_type,consolidated,model,batch_size,scale_factor,steps_per_s")
    return head.lstrip().startswith("{") and f'"{ALONE}":' in head


def read_any(path: Path) -> GavelTable:
    """Read one of Gavel's files, flattened or not. Raises InputFileError: it is of neither form."""
    return read_isolated(path) if _is_csv(path) else read_json(path)


def _is_csv(path: Path) -> bool:
    return ".csv" in path.suffixes


def read_isolated(path: Path) -> GavelTable:
    """Read `gavel_isolated.csv`. Raises InputFileError: a missing column, a bad cell, or a job measured twice."""
    sheet = read_sheet(path, read_text(path))
    types, alone = sheet.column("gpu_type", cells.word), sheet.column("consolidated", cells.flag)
    models = sheet.column("model", cells.word)
    batches = sheet.column("batch_size", cells.optional(cells.at_least_one))
    gpus, speeds = sheet.column("scale_factor", cells.at_least_one), sheet.column("steps_per_s", cells.seconds)
    spots = [Spot(*spot) for spot in zip(types, alone, strict=True)]
    jobs = [GavelJob(*job) for job in zip(models, batches, gpus, strict=True)]
    return GavelTable(_unique(sheet, zip(spots, jobs, strict=True), speeds))


def read_json(path: Path) -> GavelTable:
    """Read `simulation_throughputs.json`: GPU type -> job -> `null` or other job -> steps per second.

    Raises InputFileError: it is not of that form.
    """
    document = load_json(path, read_text(path))
    alone: dict[tuple[Spot, GavelJob], float] = {}
    pairs: dict[tuple[Spot, GavelJob, GavelJob], tuple[float, float]] = {}
    try:
        for spot, job, other, value in _entries(document):
            if other is None:
                alone[spot, job] = _speed(spot, job, value)
            else:
                mine, others = value
                pairs[spot, job, other] = _speed(spot, job, mine), _speed(spot, other, others)
    except (AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise InputFileError(path, f"is not a table of throughputs: {error}") from error
    if not alone:
        raise InputFileError(path, f"is not a table of throughputs: no job has one alone ({ALONE!r})")
    return GavelTable(alone, pairs)


def _speed(spot: Spot, job: GavelJob, value: object) -> float:
    """Steps per second; 0 is Gavel's word for what does not run there."""
    try:
        speed = cells.json_number(value)
    except ValueError as error:
        raise ValueError(f"{spot.gpu_type}, {job.model} on {count(job.gpus, 'GPU')}: {error}") from error
    if speed < 0:
        raise ValueError(
            f"{spot.gpu_type}, {job.model} on {count(job.gpus, 'GPU')}: must not be negative, got {value!r}"
        )
    return speed


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[Spot, GavelJob, GavelJob | None, Any]]:
    """Every value with its place, its job and the co-runner; None is alone."""
    for gpu_type, jobs in document.items():
        spot = Spot(gpu_type.removesuffix(UNCONSOLIDATED).lower(), not gpu_type.endswith(UNCONSOLIDATED))
        for key, speeds in jobs.items():
            job = _job(key)
            for other, value in speeds.items():
                yield spot, job, None if other == ALONE else _job(other), value


@cache
def _job(key: str) -> GavelJob:
    """`('ResNet-18 (batch size 16)', 1)` as the JSON writes it, or the job type alone."""
    job_type, gpus = ast.literal_eval(key) if key.startswith("(") else (key, 1)
    return GavelJob(*split_job_type(job_type), int(gpus))


def _unique(
    sheet: Sheet, keys: Iterable[tuple[Spot, GavelJob]], speeds: Iterable[float]
) -> dict[tuple[Spot, GavelJob], float]:
    table: dict[tuple[Spot, GavelJob], float] = {}
    for row, (key, speed) in enumerate(zip(keys, speeds, strict=True)):
        if key in table:
            sheet.fail(row, f"{key[1].model} stands in the table twice")
        table[key] = speed
    return table
