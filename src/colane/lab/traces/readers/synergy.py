"""Synergy's deploy traces (Mohan et al., OSDI 2022), `test_trace` and `deploy_trace/` of github.com/msr-fiddle/synergy.

Five columns with commas, no header: id, model, seconds of arrival, iterations, GPUs. How long an iteration takes
depends on the GPUs, cores and memory a job gets, so it has no duration.
"""

from __future__ import annotations

from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Bare
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "synergy"
COLUMNS = {
    "job_id": cells.count,
    "model_name": cells.name,
    "arrival_time": cells.seconds,
    "iterations": cells.at_least_one,
    "gpus": cells.at_least_one,
}
LAYOUTS = (Bare(shapes=COLUMNS, read=frozenset(COLUMNS)),)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a trace: the iterations are the steps.

    Raises:
        InputFileError: A bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, names=tuple(COLUMNS), skip_bad_rows=options.skip_bad_rows)
    names = [str(id_) for id_ in sheet.column("job_id", cells.count)]
    sheet.unique(names, "job_id")
    models, submit_s = sheet.column("model_name", cells.name), sheet.column("arrival_time", cells.seconds)
    steps, gpus = sheet.column("iterations", cells.at_least_one), sheet.column("gpus", cells.at_least_one)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(name=names[row], family=models[row], gpus=gpus[row], steps_total=steps[row])
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)
