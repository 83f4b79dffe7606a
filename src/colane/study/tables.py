"""A study's results as tidy CSV files: one observation a row, policy, load and seed first, units last in each name."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

from colane.report.windowed import Value, finish_time_rho
from colane.study.cells import CURVES, CellResult, whole
from colane.study.file import CellKey

KEY: Final = ("policy", "load", "seed")

JOB_COLUMNS: Final = (
    "job", "place", "name", "gpus", "state", "submit_s", "first_start_s", "start_s", "end_s", "queue_s", "run_span_s",
    "jct_s", "alone_s", "gpu_s", "attempts", "rho_ratio",
)  # fmt: skip
STAY_COLUMNS: Final = ("job", "gpus", "start_s", "end_s")


def write_cells(path: Path, cells: Mapping[CellKey, Mapping[str, Value]]) -> Path:
    """Write one row for each simulation.

    Raises:
        OSError: The file cannot be written.
    """
    names = list(next(iter(cells.values()), {}))
    return _write(path, (*KEY, *names), ((*key, *found.values()) for key, found in cells.items()))


def write_comparisons(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write one row for each metric of each policy against the baseline.

    Raises:
        OSError: The file cannot be written.
    """
    return _write(path, tuple(rows[0]) if rows else (), (tuple(row.values()) for row in rows))


def write_jobs(path: Path, results: Iterable[CellResult]) -> Path:
    """Write one row for each job of each simulation.

    Raises:
        OSError: The file cannot be written.
    """
    return _write(path, (*KEY, *JOB_COLUMNS), ((*found.key, *row) for found in results for row in _jobs(found)))


def _jobs(found: CellResult) -> Iterator[tuple[Any, ...]]:
    m = found.measured
    rho = finish_time_rho(m)
    yield from zip(
        found.ids.tolist(), m.place.tolist(), found.names, m.gpus.tolist(), map(str, found.states),
        *(column.tolist() for column in (
            m.submit_s, m.first_start_s, found.start_s, m.end_s, m.first_start_s - m.submit_s,
            m.end_s - m.first_start_s, m.end_s - m.submit_s, m.alone_s, m.gpu_s, m.attempts, rho,
        )), strict=True,
    )  # fmt: skip


def write_stays(path: Path, results: Iterable[CellResult]) -> Path:
    """Write one row for each time a job was on GPUs, of the simulations that kept them.

    Raises:
        OSError: The file cannot be written.
    """
    rows = ((*found.key, *stay) for found in results for stay in found.stays or ())
    return _write(path, (*KEY, *STAY_COLUMNS), rows)


def write_timeline(path: Path, results: Iterable[CellResult]) -> Path:
    """Write what holds of the cluster from each moment on: GPUs with a job, their use, jobs waiting and running.

    Raises:
        OSError: The file cannot be written.
    """

    def rows() -> Iterator[tuple[Any, ...]]:
        for found in results:
            curves = found.measured.curves
            columns = [getattr(curves, name).tolist() for name in CURVES]
            yield from ((*found.key, *row) for row in zip(*columns, strict=True))

    return _write(path, (*KEY, *CURVES), rows())


def _write(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([_cell(value) for value in row] for row in rows)
    return path


def _cell(value: object) -> object:
    """What is not known is empty; a float is written so that it is read back as the same."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else value
