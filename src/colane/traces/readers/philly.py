"""Microsoft's Philly trace (Jeon et al., ATC 2019), CC-BY-4.0.

Of github.com/msr-fiddle/philly-traces. Two forms: the filtered CSV that AdaptDL and Sia use
(`timestamp,duration,num_gpus,gpu_time,cluster`), and the original `cluster_job_log`, a JSON list of jobs with their
scheduling attempts. Virtual clusters become pools. Stamps are local times without a zone: the hour repeated when summer
time ended is read as it stands. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from colane.model.job import JobId, JobSpec
from colane.traces import cells
from colane.traces.errors import TraceError
from colane.traces.layout import LIST, Document, Header
from colane.traces.readers.assemble import Columns, Options, assemble, cell, entry_lines, load_json
from colane.traces.sheet import Sheet, read_sheet
from colane.traces.workload import Note, TraceJob, Workload

CSV_NAME = "philly-csv"
JSON_NAME = "philly-json"
ROUNDING_RATIO = 0.01
"""By so much may GPU time differ from GPUs x duration."""

FAMILY = "philly"
"""The trace does not say what a job trains."""

CSV_LAYOUTS = (Header(read=("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),)
JSON_LAYOUTS = (
    Document(
        opens=LIST,
        read=("jobid", "submitted_time", "vc", "user", "status", "attempts"),
        inside=("start_time", "end_time", "detail", "ip", "gpus"),
    ),
)
JSON_COLUMNS = ("jobid", "submitted_time", "vc", "user", "status", "gpus", "duration")


def read_csv(path: Path, text: str, options: Options) -> Workload:
    """Read the filtered form. Its jobs have no names: `row-N` is the N-th below the header.

    `gpu_time` is that of all GPUs, by which the units are judged.

    Raises:
        TraceError: A bad row, also one whose GPU time is not GPUs x duration (unless rows may be skipped), or no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    submit_s = sheet.column("timestamp", cells.stamp)
    duration_s = sheet.column("duration", cells.seconds)
    gpus = sheet.column("num_gpus", cells.count)
    pools = sheet.column("cluster", cells.word)
    _judge_gpu_time(sheet, gpus, duration_s)
    names = [f"row-{line - 1}" for line in sheet.lines]

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=FAMILY, pool=pools[row], gpus=gpus[row])
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    return assemble(sheet, CSV_NAME, Columns(names, submit_s, gpus), make, options, dated=True)


def _judge_gpu_time(sheet: Sheet, gpus: Sequence[int], duration_s: Sequence[float]) -> None:
    """Take rows as bad of which a column is in another unit, or another column."""
    for row, gpu_s in enumerate(sheet.column("gpu_time", cells.seconds)):
        if row not in sheet.bad and abs(gpu_s - gpus[row] * duration_s[row]) > max(1.0, gpu_s * ROUNDING_RATIO):
            made = f"{gpus[row]} x {duration_s[row]:g}"
            sheet.fail(row, f"{gpu_s:g} is not num_gpus x duration, {made}: is one in another unit?", "gpu_time")


def read_json(path: Path, text: str, options: Options) -> Workload:
    """Read `cluster_job_log`: GPUs of the first attempt that lists any, run time over attempts with both times.

    Jobs without such an attempt, or still running when the trace was taken, have no run time: left out and counted.

    Raises:
        TraceError: Not a list of such jobs, a bad job (unless they may be skipped), no jobs.
    """
    sheet, unfinished = _sheet(path, text, options)
    names = sheet.column("jobid", cells.word)
    sheet.unique(names, "jobid")
    submit_s = sheet.column("submitted_time", cells.stamp)
    gpus = sheet.column("gpus", cells.count)
    duration_s = sheet.column("duration", cells.seconds)
    pools, users, status = (sheet.column(name, cells.word) for name in ("vc", "user", "status"))

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=FAMILY, user=users[row], pool=pools[row], gpus=gpus[row])
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], outcome=status[row], line=sheet.lines[row]
        )

    workload = assemble(sheet, JSON_NAME, Columns(names, submit_s, gpus), make, options, dated=True)
    note = Note(unfinished, "job", "without a finished attempt left out")
    return replace(workload, notes=(*workload.notes, note)) if unfinished else workload


def _sheet(path: Path, text: str, options: Options) -> tuple[Sheet, int]:
    entries = load_json(path, text)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TraceError(path, "expected a JSON list of jobs")
    lines = entry_lines(text, "jobid", len(entries))
    rows = [(line, _cells(path, line, entry)) for line, entry in zip(lines, entries, strict=True)]
    done = [(line, row) for line, row in rows if row is not None]
    return Sheet(path, JSON_COLUMNS, done, skip_bad_rows=options.skip_bad_rows), len(rows) - len(done)


def _cells(path: Path, line: int, entry: Mapping[str, Any]) -> list[str] | None:
    """Cells of one job, None when it never finished an attempt."""
    missing = [key for key in ("jobid", "submitted_time", "vc", "user", "status", "attempts") if key not in entry]
    if missing:
        raise TraceError(path, f"a job has no {missing[0]!r}", line=line)
    try:
        ran = _run_time(entry["attempts"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TraceError(path, f"job {entry['jobid']} has a bad attempt ({error})", line=line) from error
    if ran is None:
        return None
    return [cell(entry[key]) for key in JSON_COLUMNS[:5]] + [str(ran[0]), str(ran[1])]


def _run_time(attempts: list[dict[str, Any]]) -> tuple[int, float] | None:
    """GPUs of the first attempt that lists any, and seconds over all whole attempts; None when the last has no end.

    An attempt may list no servers though it ran, so that one without them says nothing of what the job asks for.
    """
    whole = [a for a in attempts if _has(a, "start_time") and _has(a, "end_time")]
    if not whole or not _has(attempts[-1], "end_time"):
        return None
    asked = (sum(len(server["gpus"]) for server in attempt["detail"]) for attempt in attempts)
    return next(filter(None, asked), 0), sum(cells.stamp(a["end_time"]) - cells.stamp(a["start_time"]) for a in whole)


def _has(attempt: Mapping[str, Any], key: str) -> bool:
    return attempt[key] not in {None, "None", ""}
