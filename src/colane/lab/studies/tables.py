"""A study's results as tidy tables: one observation a row, policy, load and seed first, units last in each name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.lab.report.windowed import Value, finish_time_rho
from colane.lab.studies.cells import CURVES, CellResult, whole
from colane.lab.studies.file import CellKey, Extra

KEY: Final = ("policy", "load", "seed")

JOB_COLUMNS: Final = (
    "job", "place", "name", "gpus", "state", "submit_s", "first_start_s", "start_s", "end_s", "queue_s", "run_span_s",
    "jct_s", "alone_s", "gpu_s", "attempts", "rho_ratio",
)  # fmt: skip
STAY_COLUMNS: Final = ("job", "gpus", "start_s", "end_s")


class TidyTable(NamedTuple):
    """Names of columns, and rows, which are made as they are asked for; what is not known is None or NaN."""

    columns: tuple[str, ...]
    rows: Iterable[Sequence[Any]]


def cells_table(cells: Mapping[CellKey, Mapping[str, Value]]) -> TidyTable:
    """One row for each simulation."""
    names = tuple(next(iter(cells.values()), {}))
    return TidyTable((*KEY, *names), ((*key, *found.values()) for key, found in cells.items()))


def comparisons_table(rows: Sequence[Mapping[str, Any]]) -> TidyTable:
    """One row for each metric of each policy against the baseline."""
    return TidyTable(tuple(rows[0]) if rows else (), (tuple(row.values()) for row in rows))


def extra_table(extra: Extra, results: Iterable[CellResult]) -> TidyTable:
    """One row for each job, for each time a job was on GPUs, or for each moment from which on something else holds.

    Raises:
        KeyError: It is no table.
    """
    columns, rows_of = TABLES[extra]
    return TidyTable((*KEY, *columns), ((*found.key, *row) for found in results for row in rows_of(found)))


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


def _stays(found: CellResult) -> Iterator[tuple[Any, ...]]:
    yield from found.stays


def _timeline(found: CellResult) -> Iterator[tuple[Any, ...]]:
    columns = [getattr(found.measured.curves, name).tolist() for name in CURVES]
    yield from zip(*columns, strict=True)


TABLES: Final[Mapping[Extra, tuple[tuple[str, ...], Callable[[CellResult], Iterator[tuple[Any, ...]]]]]] = {
    Extra.JOBS: (JOB_COLUMNS, _jobs),
    Extra.STAYS: (STAY_COLUMNS, _stays),
    Extra.TIMELINE: (CURVES, _timeline),
}
"""Tables that a study may ask for: columns besides the key, and the rows of a simulation."""


def write_table(path: Path, table: TidyTable) -> Path:
    """Write a table as CSV.

    Raises:
        OSError: The file cannot be written.
    """
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows([_cell(value) for value in row] for row in table.rows)
    return path


def _cell(value: object) -> object:
    """What is not known is empty; a float is written so that it is read back as the same."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else value
