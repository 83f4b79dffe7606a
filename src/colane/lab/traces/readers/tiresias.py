"""Job lists of Tiresias' simulator (Gu et al., NSDI 2019), `*_job.csv` of github.com/SymbioticLab/Tiresias.

Times are seconds; `interval` is that to the next submission. `num_gpu` are GPUs, on several machines where one has
fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "tiresias"
LAYOUTS = (
    Header(read=("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"), optional=("interval",)),
)
ROUNDING_S = 1.0
"""By so much may a submission and the interval to it differ."""


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a job list: the iterations are the steps. By the intervals the unit of submissions is judged.

    Raises:
        InputFileError: A missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    models, steps = sheet.column("model_name", cells.word), sheet.column("iterations", cells.at_least_one)
    gpus = sheet.column("num_gpu", cells.count)
    submit_s, duration_s = sheet.column("submit_time", cells.seconds), sheet.column("duration", cells.seconds)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=models[row], gpus=gpus[row], steps_total=steps[row])
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    workload = assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)
    return replace(workload, doubts=tuple(_doubts(sheet, submit_s)))


def _doubts(sheet: Sheet, submit_s: Sequence[float]) -> Iterator[str]:
    """Say so where most submissions do not follow the one before by its interval; lists cut or sorted have some."""
    interval_s = sheet.column_or("interval", cells.optional(cells.number), None)
    gaps = [
        (after - submit, interval)
        for submit, after, interval in zip(submit_s, submit_s[1:], interval_s, strict=False)
        if interval is not None and submit is not None and after is not None
    ]
    other = sum(abs(gap_s - interval) > ROUNDING_S for gap_s, interval in gaps)
    if 2 * other > len(gaps):
        yield f"{other:,} of {len(gaps):,} intervals are not those to the next submit_time: one may be in another unit"
