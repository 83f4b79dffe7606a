"""Workloads of Pollux's simulator (Qiao et al., OSDI 2021): `name,time,application,num_replicas,batch_size`.

Of github.com/petuum/adaptdl (branch osdi21-artifact); Sia's (Jayaram Subramanya et al., SOSP 2023), of
github.com/siasosp23/artifacts, have the same form. `time` is in seconds, the batch size is that of the whole job. Its
length follows from the application's validation curves, which are not in this file (`traces.tables.pollux` reads them),
so jobs have neither duration nor steps unless columns of these names declare them.
"""

from __future__ import annotations

from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.sheet import read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "pollux"
BATCH_TOTAL = "batch_size_total"  # label of the batch of the whole job
LAYOUTS = (Header(read=("name", "time", "application", "num_replicas", "batch_size"), optional=("steps", "duration")),)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a workload; the total batch size becomes the label `batch_size_total`, each GPU's share the batch size.

    Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names, models = sheet.column("name", cells.word), sheet.column("application", cells.word)
    sheet.unique(names, "name")
    submit_s, gpus = sheet.column("time", cells.seconds), sheet.column("num_replicas", cells.at_least_one)
    batches = sheet.column("batch_size", cells.at_least_one)
    steps = sheet.column_or("steps", cells.optional(cells.at_least_one), None)
    duration_s = sheet.column_or("duration", cells.optional(cells.seconds), None)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(
            name=names[row], family=models[row], gpus=gpus[row], batch_size=max(1, batches[row] // gpus[row]),
            labels={BATCH_TOTAL: str(batches[row])}, steps_total=steps[row],
        )  # fmt: skip
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], line=sheet.lines[row])

    return assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)
