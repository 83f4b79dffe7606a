"""Gavel's traces (Narayanan et al., OSDI 2020) and Shockwave's (Zheng et al., NSDI 2023), without a header.

Columns are separated by tabs; times are seconds. Gavel's files (github.com/stanford-futuredata/gavel) have ten columns,
seven (its samples of Philly's jobs) or six (the oldest). A job says what it trains and how many steps; how long that
takes depends on the GPU it gets, so it has no duration. Shockwave's (github.com/uw-mad-dash/shockwave) have twelve:
`mode` says how a job changes its batch as it runs, `duration` how long it runs alone on what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import HEAD_CHARS, Bare, first_row
from colane.lab.traces.readers.assemble import Columns, Options, assemble, of_any
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.settings.input_file import InputFileError

NAME = "gavel"
SHOCKWAVE_NAME = "shockwave"
STATIC = "static"  # the mode of a job that keeps its batch


def _steps_option(text: str) -> str:
    """The option that tells a script its steps, as `--num_steps`."""
    if not text.startswith("-"):
        raise ValueError(f"expected an option like --num_steps, got {text!r}")
    return text


_SHAPES: Mapping[str, Callable[[str], object]] = {
    "job_type": cells.name, "num_steps_arg": _steps_option, "needs_data_dir": cells.flag, "total_steps": cells.count,
    "scale_factor": cells.at_least_one, "priority_weight": cells.number, "slo": cells.number,
    "arrival_time": cells.seconds, "duration": cells.seconds, "mode": cells.name,
}  # fmt: skip
_READ = frozenset(_SHAPES) - {"num_steps_arg", "needs_data_dir"}


def _layout(*columns: str) -> Bare:
    shapes = {name: _SHAPES.get(name, str) for name in columns}
    return Bare(shapes=shapes, read=_READ.intersection(columns), delimiter="\t")


TEN = _layout(
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir",
    "total_steps", "scale_factor", "priority_weight", "slo", "arrival_time",
)  # fmt: skip
SEVEN = _layout("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
SIX = _layout("job_type", "command", "num_steps_arg", "total_steps", "arrival_time", "scale_factor")
TWELVE = _layout(
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps",
    "scale_factor", "mode", "priority_weight", "slo", "duration", "arrival_time",
)  # fmt: skip
LAYOUTS = (TEN, SEVEN, SIX)
SHOCKWAVE_LAYOUTS = (TWELVE,)
JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<batch>\d+)\))?$")


def split_job_type(job_type: str) -> tuple[str, int | None]:
    """Return model and batch size: `ResNet-18 (batch size 64)` -> (`ResNet-18`, 64), `A3C` -> (`A3C`, None)."""
    match = JOB_TYPE.fullmatch(job_type)
    if match is None:
        raise ValueError(f"expected a job type like 'ResNet-18 (batch size 64)', got {job_type!r}")
    return match["model"], None if match["batch"] is None else int(match["batch"])


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a trace. Jobs are named by their place in the file, from 0 as Gavel numbers them.

    A priority weight other than 1 becomes the label `weight`. A service-level objective becomes the label `slo_ratio`:
    Gavel gives a job its time alone times this number (1.2, 2 or 10) from submission to end. Jobs of no step, which the
    oldest files have, are left out and counted. Raises InputFileError: a bad row (unless rows may be skipped) or no
    jobs.
    """
    width = len(first_row(text[:HEAD_CHARS], "\t"))
    layout = next((each for each in LAYOUTS if len(each.columns) == width), TEN)
    return _read(path, text, layout, NAME, options)


def read_shockwave(path: Path, text: str, options: Options) -> Workload:
    """Read Shockwave's trace as Gavel's: the duration is the job's; its mode becomes the label `mode`.

    A job of a mode other than `static` changes its batch as it runs, which is not played: such jobs are counted. Raises
    InputFileError: a bad row (unless rows may be skipped) or no jobs.
    """
    workload = _read(path, text, TWELVE, SHOCKWAVE_NAME, options)
    dynamic = sum("mode" in job.spec.labels for job in workload.jobs)
    note = Note(dynamic, "job", "of a mode that changes the batch as it runs, which is not played (label mode)")
    return replace(workload, notes=workload.notes + of_any(note))


def _read(path: Path, text: str, layout: Bare, name: str, options: Options) -> Workload:
    sheet = read_sheet(path, text, names=layout.columns, delimiter="\t", skip_bad_rows=options.skip_bad_rows)
    names = [str(row) for row in range(len(sheet))]
    for column in ("num_steps_arg", "needs_data_dir"):
        sheet.column_or(column, _SHAPES[column], None)
    kinds = sheet.column("job_type", split_job_type)
    steps, gpus = sheet.column("total_steps", cells.count), sheet.column("scale_factor", cells.at_least_one)
    submit_s, labels = sheet.column("arrival_time", cells.seconds), _labels(sheet)
    duration_s = sheet.column_or("duration", cells.seconds, None)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        model, batch = kinds[row]
        spec = JobSpec(
            name=names[row], family=model, batch_size=batch, gpus=gpus[row], steps_total=steps[row], labels=labels[row]
        )
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    good = list(sheet.good())
    if good and max(steps[row] for row in good) <= 1:
        raise InputFileError(path, "is 0 or 1 for every job: is a column missing?", line=1, column="total_steps")
    some = [row for row in good if steps[row]]
    workload = assemble(sheet, name, Columns(names, submit_s, gpus), make, options, rows=some)
    return replace(workload, notes=workload.notes + of_any(Note(len(good) - len(some), "job", "of no step left out")))


def _labels(sheet: Sheet) -> list[dict[str, str]]:
    weights, slos = sheet.column_or("priority_weight", cells.number, 1.0), sheet.column_or("slo", cells.number, -1.0)
    told = zip(weights, slos, sheet.column_or("mode", cells.name, STATIC), strict=True)
    return [
        ({} if weight == 1 else {"weight": str(weight)})
        | ({"slo_ratio": str(slo)} if slo >= 0 else {})
        | ({} if mode == STATIC else {"mode": mode})
        for weight, slo, mode in told
    ]
