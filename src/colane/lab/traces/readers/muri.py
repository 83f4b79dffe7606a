"""Muri's job lists (Zhao et al., SIGCOMM 2022), `trace*.csv` and `job_type_*.csv` of github.com/Rivendile/Muri.

Times of submission, durations and intervals are milliseconds, and so are the times of an iteration and of its parts
on storage, CPU, GPU and network; `num_gpu` are GPUs, on several machines where one has fewer. `priority` serves one
of the compared policies alone.
"""

from __future__ import annotations

from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "muri"
LAYOUTS = (
    Header(
        read=(
            "job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "iteration_time",
        ),
        unread=("interval", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
    ),
)  # fmt: skip
OTHER_UNIT_MIN = 20
"""A duration so many times the iterations, or less than one part in so many, is in another unit: of the published
lists, all are within 0.18 and 2 times."""


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a job list: the duration is as the list has it, the iterations are the steps.

    Raises:
        InputFileError: A missing column, a bad or duplicate row, a duration that its iterations cannot take (unless
            rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    models, batches = sheet.column("model_name", cells.word), sheet.column("batch_size", cells.at_least_one)
    steps, gpus = sheet.column("iterations", cells.at_least_one), sheet.column("num_gpu", cells.count)
    submit_s = sheet.column("submit_time", cells.milliseconds)
    duration_s = sheet.column("duration", cells.milliseconds)
    _judge_units(sheet, steps, duration_s)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(
            name=names[row], family=models[row], batch_size=batches[row], gpus=gpus[row], steps_total=steps[row]
        )
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)


def _judge_units(sheet: Sheet, steps: list[int], duration_s: list[float]) -> None:
    step_s = sheet.column("iteration_time", cells.milliseconds)
    for row in list(sheet.good()):
        made_s = steps[row] * step_s[row]
        if made_s * OTHER_UNIT_MIN < duration_s[row] or duration_s[row] * OTHER_UNIT_MIN < made_s:
            message = f"{duration_s[row]:g} s for iterations of {made_s:g} s in all: is one not in milliseconds?"
            sheet.fail(row, message, "duration")
