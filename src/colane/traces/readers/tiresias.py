"""Job lists of Tiresias' simulator (Gu et al., NSDI 2019), `*_job.csv` of github.com/SymbioticLab/Tiresias.

Times are seconds; `interval` is that to the next submission. `num_gpu` are GPUs, on several machines where one has
fewer.
"""

from __future__ import annotations

from pathlib import Path

from colane.model.job import JobId, JobSpec
from colane.traces import cells
from colane.traces.layout import Header
from colane.traces.readers.assemble import Columns, Options, assemble
from colane.traces.sheet import read_sheet
from colane.traces.workload import TraceJob, Workload

NAME = "tiresias"
LAYOUTS = (
    Header(read=("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"), unread=("interval",)),
)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a job list: the iterations are the steps.

    Raises:
        TraceError: A missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    models, steps = sheet.column("model_name", cells.word), sheet.column("iterations", cells.at_least_one)
    gpus = sheet.column("num_gpu", cells.count)
    submit_s, duration_s = sheet.column("submit_time", cells.seconds), sheet.column("duration", cells.seconds)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=models[row], gpus=gpus[row], steps_total=steps[row])
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)
