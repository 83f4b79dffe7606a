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
from typing import Any, NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.layout import LIST, Document, Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble, cell, entry_lines, load_json, of_any
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.settings.input_file import InputFileError

CSV_NAME = "philly-csv"
JSON_NAME = "philly-json"
ROUNDING_RATIO = 0.01  # by so much may GPU time differ from GPUs x duration
FAMILY = "philly"  # the trace does not say what a job trains
CSV_LAYOUTS = (Header(read=("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),)
JSON_LAYOUTS = (
    Document(
        opens=LIST,
        read=("jobid", "submitted_time", "vc", "user", "status", "attempts"),
        inside=("start_time", "end_time", "detail", "ip", "gpus"),
    ),
)
JSON_COLUMNS = ("jobid", "submitted_time", "vc", "user", "status")


def read_csv(path: Path, text: str, options: Options) -> Workload:
    """Read the filtered form. Its jobs have no names: `row-N` is the N-th below the header.

    `gpu_time` is that of all GPUs, by which the units are judged. Raises InputFileError: a bad row, also one whose GPU
    time is not GPUs x duration (unless rows may be skipped), or no jobs.
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
    Told are jobs whose attempts list no servers, which are taken as CPU-only, and jobs whose attempts differ in GPUs.
    Raises InputFileError: not a list of such jobs, a bad job (unless they may be skipped), no jobs.
    """
    sheet, ran = _sheet(path, text, options)
    names = sheet.unique_names("jobid")
    submit_s = sheet.column("submitted_time", cells.stamp)
    pools, users, status = (sheet.column(name, cells.word) for name in ("vc", "user", "status"))
    good = list(sheet.good())
    rows = [row for row in good if row in ran]
    gpus = {row: ran[row].gpus for row in rows}

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=FAMILY, user=users[row], pool=pools[row], gpus=gpus[row])
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=ran[row].run_s, outcome=status[row], line=sheet.lines[row]
        )

    workload = assemble(sheet, JSON_NAME, Columns(names, submit_s, gpus), make, options, dated=True, rows=rows)
    notes = of_any(
        Note(len(good) - len(rows), "job", "without a finished attempt left out"),
        Note(sum(not ran[row].is_placed for row in rows), "job", "whose attempts list no servers, taken as CPU-only"),
        Note(sum(ran[row].differs for row in rows), "job", "whose attempts differ in GPUs, of which the first count"),
    )
    return replace(workload, notes=workload.notes + notes)


class Ran(NamedTuple):
    """What the attempts of a job say together."""

    gpus: int  # of the first attempt that lists any
    run_s: float  # seconds over all attempts with a start and an end
    is_placed: bool  # whether any attempt lists a server
    differs: bool  # whether attempts list different numbers of GPUs


def _sheet(path: Path, text: str, options: Options) -> tuple[Sheet, dict[int, Ran]]:
    """The jobs, and what the attempts of those say that finished one, by row."""
    entries = load_json(path, text)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputFileError(path, "expected a JSON list of jobs")
    lines = entry_lines(text, "jobid", len(entries))
    rows = [(line, [cell(entry.get(key)) for key in JSON_COLUMNS]) for line, entry in zip(lines, entries, strict=True)]
    sheet = Sheet(path, JSON_COLUMNS, rows, skip_bad_rows=options.skip_bad_rows)
    ran: dict[int, Ran] = {}
    for row, entry in enumerate(entries):
        missing = [key for key in (*JSON_COLUMNS, "attempts") if key not in entry]
        if missing:
            sheet.fail(row, f"a job has no {missing[0]!r}")
            continue
        try:
            found = _ran(entry["attempts"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            sheet.fail(row, f"job {entry['jobid']} has a bad attempt ({error})")
            continue
        if found is not None:
            ran[row] = found
    return sheet, ran


def _ran(attempts: list[dict[str, Any]]) -> Ran | None:
    """What the attempts say; None when the last has no end, or none has both times.

    An attempt may list no servers though it ran, so that one without them says nothing of what the job asks for.
    """
    whole = [a for a in attempts if _has(a, "start_time") and _has(a, "end_time")]
    if not whole or not _has(attempts[-1], "end_time"):
        return None
    asked = [sum(len(server["gpus"]) for server in attempt["detail"]) for attempt in attempts]
    some = [gpus for gpus in asked if gpus]
    is_placed = any(attempt["detail"] for attempt in attempts)
    return Ran(some[0] if some else 0, sum(map(_run_s, whole)), is_placed, len(set(some)) > 1)


def _run_s(attempt: Mapping[str, Any]) -> float:
    run_s = cells.stamp(attempt["end_time"]) - cells.stamp(attempt["start_time"])
    if run_s < 0:
        raise ValueError(f"it ends {-run_s:g} s before it starts")
    return run_s


def _has(attempt: Mapping[str, Any], key: str) -> bool:
    return attempt[key] not in {None, "None", ""}
