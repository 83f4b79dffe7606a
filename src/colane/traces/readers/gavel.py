"""Gavel's traces (Narayanan et al., OSDI 2020): ten columns separated by tabs, no header.

A job says what it trains and how many steps; how long that takes depends on the GPU it gets, so it has no duration.
"""

from __future__ import annotations

import re
from pathlib import Path

from colane.model.job import JobId, JobSpec
from colane.traces import cells
from colane.traces.layout import Bare
from colane.traces.readers.assemble import Columns, Options, assemble
from colane.traces.sheet import Sheet, read_sheet
from colane.traces.workload import TraceJob, Workload

NAME = "gavel"
COLUMNS = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir",
    "total_steps", "scale_factor", "priority_weight", "slo", "arrival_time",
)  # fmt: skip
LAYOUTS = (
    Bare(
        shapes={
            "job_type": cells.word, "command": str, "working_directory": str, "num_steps_arg": str,
            "needs_data_dir": cells.flag, "total_steps": cells.count, "scale_factor": cells.at_least_one,
            "priority_weight": cells.number, "slo": cells.number, "arrival_time": cells.seconds,
        },
        read=frozenset({"job_type", "total_steps", "scale_factor", "priority_weight", "slo", "arrival_time"}),
        delimiter="\t",
    ),
)  # fmt: skip
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
    Gavel gives a job its time alone times this number (1.2, 2 or 10) from submission to end.

    Raises:
        TraceError: A bad row (unless rows may be skipped) or no jobs.
    """
    sheet = read_sheet(path, text, names=COLUMNS, delimiter="\t", skip_bad_rows=options.skip_bad_rows)
    names = [str(row) for row in range(len(sheet))]
    kinds = sheet.column("job_type", split_job_type)
    steps, gpus = sheet.column("total_steps", cells.at_least_one), sheet.column("scale_factor", cells.at_least_one)
    submit_s, labels = sheet.column("arrival_time", cells.seconds), _labels(sheet)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        model, batch = kinds[row]
        spec = JobSpec(
            name=names[row], family=model, batch_size=batch, gpus=gpus[row], steps_total=steps[row], labels=labels[row]
        )
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)


def _labels(sheet: Sheet) -> list[dict[str, str]]:
    weights, slos = sheet.column("priority_weight", cells.number), sheet.column("slo", cells.number)
    return [_label(weight, slo) for weight, slo in zip(weights, slos, strict=True)]


def _label(weight: float, slo: float) -> dict[str, str]:
    labels = {} if weight == 1 else {"weight": str(weight)}
    return labels | ({"slo_ratio": str(slo)} if slo >= 0 else {})
