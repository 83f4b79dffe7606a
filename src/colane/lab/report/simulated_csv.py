"""A simulation's jobs as CSV, for other programs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from colane.lab.report.simulated import Floats, SimulatedRun
from colane.lab.traces.workload import TraceJob

CSV_COLUMNS = (
    "id", "name", "model", "batch_size", "user", "pool", "gpus_asked", "state", "submit_s", "first_start_s", "start_s",
    "end_s", "queue_s", "run_span_s", "jct_s", "alone_s", "gpu_s", "attempts", "gpus",
)  # fmt: skip


def write_jobs(run: SimulatedRun, jobs: Mapping[int, TraceJob], path: Path) -> Path:
    """Write one row a job, in order of id; `pause_s` only where a job waited for turns.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        if run.pause_s:
            rows.writerow((*CSV_COLUMNS, "pause_s"))
            rows.writerows((*row, run.pause_s.get(row[0], 0.0)) for row in _job_rows(run, jobs))
        else:
            rows.writerow(CSV_COLUMNS)
            rows.writerows(_job_rows(run, jobs))
    return path


def _job_rows(run: SimulatedRun, jobs: Mapping[int, TraceJob]) -> Iterator[tuple[Any, ...]]:
    columns = run.columns
    times = (columns.submit_s, columns.first_start_s, columns.start_s, columns.end_s)
    spans = (
        columns.first_start_s - columns.submit_s,
        columns.end_s - columns.first_start_s,
        columns.end_s - columns.submit_s,
        columns.alone_s,
        columns.gpu_s,
    )
    places = columns.id.argsort(kind="stable")
    numbers = zip(*[_cells(column[places]) for column in (*times, *spans)], strict=True)
    ids, attempts = columns.id[places].tolist(), columns.attempts[places].tolist()
    states, gpus = columns.state, columns.gpus
    for place, job_id, cells, tries in zip(places.tolist(), ids, numbers, attempts, strict=True):
        spec = jobs[job_id].spec
        yield (
            job_id, spec.name, spec.family, spec.batch_size, spec.user, spec.pool, spec.gpus, str(states[place]),
            *cells, tries, gpus[place],
        )  # fmt: skip


def _cells(column: Floats) -> list[float] | list[float | str]:
    """A column's cells; what is not finite is empty."""
    values: list[float] = column.tolist()
    return values if isfinite(sum(values)) else [value if isfinite(value) else "" for value in values]


def write_refused(runs: Iterable[SimulatedRun], path: Path) -> None:
    """Write the jobs that were refused, or remove the file where there are none.

    Raises:
        OSError: The file cannot be written.
    """
    lines = dict.fromkeys(chain.from_iterable(run.refused for run in runs))
    if lines:
        text = "job\n" + "".join(f'"{line.replace(chr(34), chr(34) * 2)}"\n' for line in lines)
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
