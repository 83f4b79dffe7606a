"""Colane's own trace: a CSV file with a header, every unit in a column's name."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
from io import TextIOWrapper
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TextIO, cast

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import TraceJob, Workload, parse_conditions, problem
from colane.model.field_values import (
    Amount,
    Flag,
    Number,
    OneOf,
    Values,
    Whole,
    bounds,
    describe_sizes,
    groups_problem,
    parse_sizes,
    within,
)
from colane.model.job import JobId, JobSpec
from colane.model.job_fields import BY_NAME, JOB_FIELDS, NAME_OR_NONE, senseless
from colane.model.nearest import did_you_mean
from colane.settings.input_file import InputFileError

NAME = "colane"
LABEL_PREFIX = "label:"
DEFAULT_MODEL = "unknown"


class Column(NamedTuple):
    """A column: its name, unit (empty where the name says it), meaning, default, and how it is read and written."""

    name: str
    unit: str
    meaning: str
    default: Any
    parse: Callable[[str], Any]
    value: Callable[[TraceJob], Any]


def _parser(takes: Values) -> Callable[[str], Any]:
    """What reads a cell that is not empty."""
    match takes:
        case Whole():
            least = {0: cells.count, 1: cells.at_least_one}
            return _bounded(takes, least.get(-1 if takes.least is None else takes.least, cells.integer))
        case Number():
            return _bounded(takes, cells.number)
        case Amount(unit):
            return cells.count if unit.is_whole else cells.seconds
        case OneOf(of):
            return lambda text: _one(of, text)
        case _:
            return cells.flag if isinstance(takes, Flag) else str if takes == NAME_OR_NONE else cells.word


def _bounded(takes: Whole | Number, parse: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = parse(text)
        if not within(takes, value):
            raise ValueError(f"must be {bounds(takes)}, got {text!r}")
        return value

    return read


def _one(of: type[StrEnum], text: str) -> StrEnum:
    word = text.strip().lower()
    if word not in list(of):
        raise ValueError(f"must be one of {', '.join(of)}, got {text!r}")
    return of(word)


def _conditions(text: str) -> str:
    parse_conditions(text)
    return text


def _several_s(text: str) -> tuple[float, ...]:
    return tuple(cells.seconds(part) for part in text.split(","))


OF_JOBS: Final = tuple(field for field in JOB_FIELDS if field.column)
"""Fields of a job that a trace carries besides its size and its family."""

OF_TRACES: Final = (
    Column("id", "text", "unique name; empty takes the line number", "", str, lambda job: job.spec.name),
    Column("submit_s", "seconds", "when it is submitted, from any moment; required", None, cells.number,
           lambda job: job.submit_s),
    Column("duration_s", "seconds", "run time alone on what it asks for; empty is unknown", None, cells.seconds,
           lambda job: job.duration_s),
    Column("gpus", "GPUs", "GPUs, 0 for a CPU-only job; on one node unless `multi_node`", 1, cells.count,
           lambda job: job.spec.gpus),
    Column("sizes", "GPUs", "sizes it can run on, as 1..4 or 1,2,4, with `gpus` among them; empty is one", (),
           parse_sizes, lambda job: describe_sizes(job.spec.sizes)),
    Column("gpu_ratio", "0..1", "part of each GPU it asks for", 1.0, cells.ratio, lambda job: job.gpu_ratio),
    Column("persistent_bytes", "bytes", "what of `gpu_memory_bytes` it holds between steps; empty is unknown, and then "
           "all of it", None, cells.count, lambda job: job.persistent_bytes),
    Column("model", "text", "what it trains: jobs of one model behave alike", DEFAULT_MODEL, cells.word,
           lambda job: job.spec.family),
    Column("held_s", "seconds", "how long after its submission it may not start, held by its owner", 0.0,
           cells.seconds, lambda job: job.held_s),
    Column("cancelled_s", "seconds", "how long after its submission it is cancelled, if it has not started by then; "
           "empty is never", None, cells.seconds, lambda job: job.cancelled_s),
    Column("after", "text", "what others must have done before it starts: `ok:ID`, `any:ID`, `fail:ID` or `start:ID`, "
           "several with commas", "", _conditions, lambda job: job.after),
    Column("changed_limit_s", "seconds", "time limit that it was given after its submission, in place of "
           "`time_limit_s`; `inf` is none, empty is that it was not changed", None,
           lambda text: inf if text.strip() == "inf" else cells.seconds(text),
           lambda job: job.changed_limit_s),
    Column("failed_s", "seconds", "how long each attempt ran that failed before the one of `duration_s`, with commas; "
           "it needs `retries` to go on from each", (), _several_s, lambda job: ",".join(map(repr, job.failed_s))),
    Column("outcome", "text", "how it ended where it was recorded", "", str, lambda job: job.outcome),
)  # fmt: skip
"""Columns that say what no job request does, or say it otherwise."""

COLUMNS: Final = OF_TRACES + tuple(
    [
        Column(field.column, "", field.meaning, field.default, _parser(field.takes), attrgetter(f"spec.{field.name}"))
        for field in OF_JOBS
    ]
)
"""Every column. Only `submit_s` is required; further columns `label:NAME` become labels."""

COLUMN_NAMES = tuple(column.name for column in COLUMNS)
REQUIRED = "submit_s"
LAYOUTS = (
    Header(
        read=(REQUIRED,),
        optional=tuple(name for name in COLUMN_NAMES if name != REQUIRED),
        prefix=LABEL_PREFIX,
        mark=REQUIRED,
    ),
)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read Colane's CSV.

    Raises InputFileError: an unknown or missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    _refuse_unknown(sheet)
    sheet.need("submit_s")
    table = {column.name: _values(sheet, column) for column in COLUMNS}
    given = table["id"]
    names = [name or f"line-{line}" for name, line in zip(given, sheet.lines, strict=True)]
    sheet.unique(names, "id")
    labels = _labels(sheet)
    ruled = {name: table[field.column] for name, field in BY_NAME.items() if field.column in sheet.names}
    for row in sheet.good():
        if table["sizes"][row] and table["gpus"][row] not in table["sizes"][row]:
            sheet.fail(row, f"gpus {table['gpus'][row]} is not among them", "sizes")
        held = table["persistent_bytes"][row]
        if held is not None and held > (table["gpu_memory_bytes"][row] or 0):
            sheet.fail(row, "is more than gpu_memory_bytes, the peak that it is part of", "persistent_bytes")
        values = {name: column[row] for name, column in ruled.items()}
        for field, message in senseless(values, has_gpus=table["gpus"][row] > 0):
            sheet.fail(row, message, field.column)
        uneven = groups_problem(table["sizes"][row] or (table["gpus"][row],), table["gpus_per_node"][row])
        if uneven is not None:
            sheet.fail(row, uneven, "gpus_per_node")

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        values = {name: column[row] for name, column in table.items()}
        return _job(id_, names[row], submit_s, values, labels[row], sheet.lines[row])

    keep = options._replace(keep_cpu_only=True)  # a 0 there asks for such a job
    from_first = any(table["submit_s"][row] < 0 for row in sheet.good())  # a run begins at 0
    columns = Columns(names, table["submit_s"], table["gpus"])
    return _ordered(assemble(sheet, NAME, columns, make, keep, dated=from_first), options)


def _ordered(workload: Workload, options: Options) -> Workload:
    """Judge what jobs wait for; where bad rows may be skipped, a job does not wait for what is none.

    Raises InputFileError: there is no such job, or it is not submitted before.
    """
    if not any(job.after for job in workload.jobs):
        return workload
    ids, jobs, bad = {job.spec.name: job.id for job in workload.jobs}, list(workload.jobs), list(workload.bad_rows)
    for position, job in enumerate(jobs):
        message = problem(job, ids)
        if message is None:
            continue
        error = InputFileError(workload.source, message, line=job.line, column="after")
        if not options.skip_bad_rows:
            raise error
        jobs[position] = replace(job, after="")
        bad.append(str(error))
    return replace(workload, jobs=tuple(jobs), bad_rows=tuple(bad))


def write(workload: Workload, path: Path) -> None:
    """Write a workload as Colane's CSV, packed where the name ends in `.gz`; reading it again gives the same jobs.

    Raises OSError: the file cannot be written.
    """
    labels = sorted({name for job in workload.jobs for name in job.spec.labels})
    with _opened(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMN_NAMES, *(LABEL_PREFIX + name for name in labels)))
        for job in workload.jobs:
            own = [_text(column.value(job)) for column in COLUMNS]
            writer.writerow(own + [job.spec.labels.get(name, "") for name in labels])


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with path.open("wb") as raw:
        # Without name and time in it, equal jobs make equal files.
        packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else nullcontext(raw)
        with packed as file, TextIOWrapper(cast("BinaryIO", file), encoding="utf-8", newline="") as text:
            yield text


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _values(sheet: Sheet, column: Column) -> list[Any]:
    if column.name == "submit_s":
        return sheet.column(column.name, column.parse)
    return sheet.column_or(column.name, cells.otherwise(column.default, column.parse), column.default)


def _refuse_unknown(sheet: Sheet) -> None:
    for name in sheet.names:
        if name not in COLUMN_NAMES and not name.startswith(LABEL_PREFIX):
            hint = did_you_mean(name, COLUMN_NAMES) or f" (labels are columns named {LABEL_PREFIX}NAME)"
            raise InputFileError(sheet.path, f"has unknown column {name!r}{hint}", line=1)


def _labels(sheet: Sheet) -> list[dict[str, str]]:
    names = [name for name in sheet.names if name.startswith(LABEL_PREFIX)]
    columns = {name.removeprefix(LABEL_PREFIX): sheet.column(name, str) for name in names}
    return [{name: column[row] for name, column in columns.items() if column[row]} for row in range(len(sheet))]


def _job(id_: JobId, name: str, submit_s: float, values: dict[str, Any], labels: dict[str, str], line: int) -> TraceJob:
    needs = {field.name: values[field.column] for field in OF_JOBS} | {key: values[key] for key in ("gpus", "sizes")}
    spec = JobSpec(name=name, family=values["model"], labels=labels, **needs)
    return TraceJob(id=id_, submit_s=submit_s, spec=spec, line=line, **{key: values[key] for key in OF_TRACE_JOB})


OF_TRACE_JOB: Final = (
    "duration_s", "gpu_ratio", "outcome", "held_s", "cancelled_s", "after", "changed_limit_s", "persistent_bytes",
    "failed_s",
)  # fmt: skip
"""Columns that are fields of a trace's job by the same name."""
