"""What all readers share: leaving out, ordering, numbering and the notes of what was done."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from colane.lab.traces.sheet import Sheet
from colane.lab.traces.workload import Note, TraceJob, Workload, order
from colane.model.job import JobId
from colane.model.words import count
from colane.settings.input_file import InputFileError

GIB = 1 << 30
MIB = 1 << 20


class Options(NamedTuple):
    """How strict a reader is, and what it keeps."""

    skip_bad_rows: bool = False
    keep_cpu_only: bool = False


class Columns(NamedTuple):
    """What every job of a sheet needs, by row."""

    names: Sequence[str] | Mapping[int, str]  # ids as the file gives them
    submit_s: Sequence[float] | Mapping[int, float]  # seconds since any one moment
    gpus: Sequence[int] | Mapping[int, int]  # GPUs asked for, 0 for a CPU-only job


Make = Callable[[JobId, int, float], TraceJob]  # makes the job of an id, a row and a submission time


def assemble(
    sheet: Sheet,
    format_name: str,
    columns: Columns,
    make: Make,
    options: Options,
    *,
    dated: bool = False,
    rows: Iterable[int] | None = None,
) -> Workload:
    """Order and number the good rows and make jobs of them.

    Rows that are bad are left out and counted; jobs are the rows named, else every good one. Dated times are counted
    from the first submission, which becomes the origin. Raises InputFileError: no job is left.
    """
    good = list(sheet.good() if rows is None else rows)
    kept = good if options.keep_cpu_only else [row for row in good if columns.gpus[row] > 0]
    ordered = order(columns.submit_s, columns.names, kept)
    if not ordered:
        raise InputFileError(sheet.path, _why_empty(sheet, len(good)))
    origin_s = columns.submit_s[ordered[0]] if dated else 0.0
    jobs = tuple(make(JobId(id_), row, columns.submit_s[row] - origin_s) for id_, row in enumerate(ordered, 1))
    return Workload(
        name=sheet.path.name,
        jobs=jobs,
        source=str(sheet.path),
        format=format_name,
        origin_s=origin_s,
        notes=of_any(
            Note(len(good) - len(kept), "CPU-only job", "left out (--cpu-jobs keeps them)"),
            Note(len(sheet.bad), "bad row", "skipped"),
        ),
        bad_rows=tuple(str(sheet.bad[row]) for row in sorted(sheet.bad)),
    )


def span(sheet: Sheet, row: int, start_s: float, end_s: float, column: str) -> float:
    """Seconds from start to end; a row that ends before it starts is taken as bad."""
    if end_s < start_s:
        sheet.fail(row, f"ends {start_s - end_s:g} s before it starts", column)
        return 0.0
    return end_s - start_s


def gpus_of_share(gpus: float) -> tuple[int, float]:
    """Return whole GPUs and the part of each that is asked for: 0.5 is half of one, 2.5 are three of 0.83."""
    whole = math.ceil(gpus)
    return whole, gpus / whole if whole else 1.0


def load_json(path: Path, text: str) -> Any:  # noqa: ANN401 - JSON is what its file says
    """Parse JSON.

    Raises InputFileError: it is not JSON, or has a key twice in one object, of which one value would be lost.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except _TwiceError as twice:  # mypyc gives a name one type: not the one of the next
        raise InputFileError(path, f"has key {twice.key!r} twice in one object", column=twice.key) from twice
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise InputFileError(path, f"is not JSON ({getattr(error, 'msg', error)})", line=line) from error


class _TwiceError(Exception):
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for at, key in enumerate(keys) if key in keys[:at]))
    return found


def entry_lines(text: str, key: str, entries: int) -> list[int]:
    """Lines on which a key stands, one for each entry of a JSON list; all 0 where the counts disagree."""
    lines, line, position = [], 1, 0
    for match in re.finditer(rf'"{re.escape(key)}"\s*:', text):
        line += text.count("\n", position, match.start())
        position = match.start()
        lines.append(line)
    return lines if len(lines) == entries else [0] * entries


def cell(value: object) -> str:
    """A JSON value as the text of a cell; null is empty."""
    return "" if value is None else str(value)


def of_any(*notes: Note) -> tuple[Note, ...]:
    """Those that are of any."""
    return tuple(note for note in notes if note.many)


def _why_empty(sheet: Sheet, good: int) -> str:
    if not len(sheet):
        return "holds no jobs"
    if not good and not sheet.bad:
        return f"holds no jobs that ran to an end, but {count(len(sheet), 'other')}"
    if not good:
        return f"holds no jobs, but {count(len(sheet.bad), 'bad row')}, first {sheet.bad[min(sheet.bad)]}"
    return f"holds no GPU jobs, but {count(good, 'CPU-only job')} (--cpu-jobs keeps them)"
