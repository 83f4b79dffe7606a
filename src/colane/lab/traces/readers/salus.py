"""Job lists of Salus's driver (Yu and Chowdhury, MLSys 2020): `job_id,model_name,iterations,submit_time,duration`.

Of github.com/SymbioticLab/Salus. Times are seconds.
"""

from __future__ import annotations

from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "salus"
LAYOUTS = (Header(read=("job_id", "model_name", "iterations", "submit_time", "duration")),)


def split_workload(name: str) -> tuple[str, int | None]:
    """Return model and batch size: `vgg11_25` -> (`vgg11`, 25); `seq2seq_small` has no number and stays whole."""
    model, _, batch = name.rpartition("_")
    return (model, int(batch)) if model and batch.isdecimal() else (name, None)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a job list; every job runs on one GPU.

    Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    models, steps = sheet.column("model_name", cells.word), sheet.column("iterations", cells.at_least_one)
    submit_s, duration_s = sheet.column("submit_time", cells.seconds), sheet.column("duration", cells.seconds)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        model, batch = split_workload(models[row])
        spec = JobSpec(name=names[row], family=model, batch_size=batch, steps_total=steps[row])
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, [1] * len(sheet)), make, options)
