"""Logs of Lucid's simulator (Hu et al., ASPLOS 2023): `cluster_log.csv` and `cluster_full_log.csv`.

Of github.com/S-Lab-System-Group/Lucid, made from Helios' and Philly's logs: every job has a name, and in the full log
what it is taken to train, with profiles of that. Moments are local times without a zone, durations are seconds. Virtual
clusters become pools. The columns are those its simulator reads; those of Helios' log may be there as well.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.readers.recorded import NOT_ENDED
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "lucid"
FAMILY = "lucid"
"""Of jobs of which the log does not say what they train."""

READ = ("job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration")
OF_HELIOS = ("node_num", "start_time", "end_time", "queue")
LAYOUTS = (
    Header(read=READ, unread=("jobname",), besides=OF_HELIOS),
    Header(
        read=(*READ, "model", "batchsize"),
        unread=("jobname", "dataset", "amp", "speed", "gpu_util", "gmem_util", "gmem"),
        besides=OF_HELIOS,
    ),
)


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a log: the duration is as recorded; jobs that had not ended when the log was taken are left out and counted.

    Raises:
        InputFileError: A missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    users, pools = sheet.column("user", cells.word), sheet.column("vc", cells.word)
    gpus, cores = sheet.column("gpu_num", cells.count), sheet.column("cpu_num", cells.count)
    states, models = sheet.column("state", cells.word), _models(sheet)
    submit_s, duration_s = sheet.column("submit_time", cells.stamp), sheet.column("duration", cells.seconds)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        model, batch = models[row]
        spec = JobSpec(
            name=names[row], family=model, batch_size=batch, user=users[row], pool=pools[row], gpus=gpus[row],
            cores=cores[row],
        )  # fmt: skip
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], outcome=states[row], line=sheet.lines[row]
        )

    good = list(sheet.good())
    ended = [row for row in good if states[row].upper() not in NOT_ENDED]
    workload = assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options, dated=True, rows=ended)
    note = Note(len(good) - len(ended), "job", "not ended when the log was taken, left out")
    return replace(workload, notes=(*workload.notes, note)) if note.many else workload


def _models(sheet: Sheet) -> list[tuple[str, int | None]]:
    """Model and batch of each job; CPU jobs have none."""
    models = sheet.column_or("model", cells.otherwise(FAMILY, cells.word), FAMILY)
    batches = sheet.column_or("batchsize", cells.optional(cells.at_least_one), None)
    return list(zip(models, batches, strict=True))
