"""Synergy's speeds by CPU cores and host memory (Mohan et al., OSDI 2022; MIT), relative to a fair share.

1.0 is the speed at 3 cores and 62.5 GB for each GPU (a server of 8 V100, 24 cores, 500 GB), in
`tput_matrix.csv`: one matrix for each model and number of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.sheet import numbered_rows
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text

CORES_PER_GPU = (1, 2, 3, 4, 5, 6, 9, 12, 24)  # cores for each GPU, by row of a matrix (Synergy's `job.py`)
MEMORY_BYTES_PER_GPU = tuple(round(size_gb * 1e9) for size_gb in (20.83, 62.5, 125.0, 187.5, 250.0))
"""Host memory for each GPU, by column of a matrix (ibid.)."""

MEMORY_STEPS_MAX = len(MEMORY_BYTES_PER_GPU)
FIXED_COLUMNS = ("model", "gpus", "cpu_row_index")
HEADER_TAIL = ("best_cpus_per_gpu", "mem_gb", "batch", "speedup_at_best", "iter_time_s", "placement_penalty")


class SynergyJob(NamedTuple):
    """What decides a job's speed: model and GPUs."""

    model: str
    gpus: int


@dataclass(frozen=True, slots=True)
class SynergyMatrix:
    """Relative speed by cores and memory."""

    rows: tuple[tuple[float, ...], ...]  # by `CORES_PER_GPU`, then by memory step, least memory first
    step_s: float  # step time at the fair share
    batch_size: int  # per GPU

    def relative_speed(self, cores_per_gpu: float, memory_step: int = -1) -> float | None:
        """Speed against the fair share, linear between measured rows; None above and below them.

        Cores may be broken; memory step -1 is ample memory.
        """
        measured = [
            (cores, row[memory_step])
            for cores, row in zip(CORES_PER_GPU, self.rows, strict=True)
            if row[memory_step] > 0
        ]
        return _between(measured, cores_per_gpu)

    @property
    def most_cores_per_gpu(self) -> int:
        """Most cores that were measured, with ample memory."""
        return max([cores for cores, row in zip(CORES_PER_GPU, self.rows, strict=True) if row[-1] > 0])

    def memory_step(self, bytes_per_gpu: float) -> int:
        """Column of the most memory that is not above what it has, the first at least."""
        steps = MEMORY_BYTES_PER_GPU[: len(self.rows[0])]
        return max(0, sum([size <= bytes_per_gpu for size in steps]) - 1)

    @property
    def best_cores_per_gpu(self) -> int:
        """Fewest measured cores that reach the highest speed, with ample memory."""
        speeds = [row[-1] for row in self.rows]
        return CORES_PER_GPU[speeds.index(max(speeds))]


@dataclass(frozen=True, slots=True)
class SynergyTable:
    """Matrices by job."""

    matrices: Mapping[SynergyJob, SynergyMatrix]

    def relative_speed(self, model: str, gpus: int, cores: float, memory_step: int = -1) -> float | None:
        """Speed of a job with so many cores in all against its fair share; None where it was not measured."""
        matrix = self.matrices.get(SynergyJob(model, gpus))
        return None if matrix is None else matrix.relative_speed(cores / gpus, memory_step)


def read_matrix(path: Path) -> SynergyTable:
    """Read `tput_matrix.csv`.

    Rows of jobs that were measured at four memory steps (all of several GPUs) have one cell less than the header has
    columns: they are read as four steps. A speed of 0 was not measured. Raises InputFileError: the header or a row is
    not of that form.
    """
    rows = numbered_rows(path, read_text(path))
    if not rows or tuple(rows[0][1][:3]) != FIXED_COLUMNS or tuple(rows[0][1][-6:]) != HEADER_TAIL:
        raise InputFileError(path, f"expected a header from {FIXED_COLUMNS[0]!r} to {HEADER_TAIL[-1]!r}", line=1)
    found: dict[SynergyJob, list[tuple[tuple[float, ...], float, int]]] = {}
    for line, row in rows[1:]:
        try:
            job, matrix_row = _matrix_row(row, {job: len(seen) for job, seen in found.items()})
        except ValueError as error:
            raise InputFileError(path, str(error), line=line) from error
        found.setdefault(job, []).append(matrix_row)
    for job, seen in found.items():
        if len(seen) != len(CORES_PER_GPU):
            has = f"has {count(len(seen), 'row')} of {job.model} on {count(job.gpus, 'GPU')}"
            raise InputFileError(path, f"{has}, expected {len(CORES_PER_GPU)}")
    return SynergyTable({
        job: SynergyMatrix(tuple(speeds for speeds, _, _ in seen), *seen[0][1:]) for job, seen in found.items()
    })  # fmt: skip


def _matrix_row(
    row: Sequence[str], seen: Mapping[SynergyJob, int]
) -> tuple[SynergyJob, tuple[tuple[float, ...], float, int]]:
    steps = len(row) - len(FIXED_COLUMNS) - len(HEADER_TAIL)
    if steps not in {MEMORY_STEPS_MAX - 1, MEMORY_STEPS_MAX}:
        raise ValueError(f"has {len(row)} cells, expected 13 (four memory steps) or 14 (five)")
    job = SynergyJob(cells.word(row[0]), cells.at_least_one(row[1]))
    if cells.count(row[2]) != seen.get(job, 0):
        raise ValueError(f"expected row {seen.get(job, 0)} of {job.model} on {count(job.gpus, 'GPU')}, got {row[2]}")
    speeds = tuple(cells.seconds(text) for text in row[3 : 3 + steps])
    return job, (speeds, cells.seconds(row[-2]), cells.at_least_one(row[-4]))


def _between(measured: Sequence[tuple[float, float]], cores: float) -> float | None:
    """Linear between points in ascending order; None outside them."""
    for (low, speed_low), (high, speed_high) in pairwise(measured):
        if low <= cores <= high:
            return speed_low + (speed_high - speed_low) * (cores - low) / (high - low)
    only = [speed for at, speed in measured if math.isclose(at, cores)]
    return only[0] if only else None
