"""SenseTime's Helios trace, `cluster_log.csv` of each of its four clusters (Hu et al., SC 2021), CC-BY-4.0.

Published at github.com/S-Lab-System-Group/HeliosData. Moments are local times without a zone, durations are seconds.
Virtual clusters become pools.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble
from colane.lab.traces.readers.recorded import moments, run_times
from colane.lab.traces.sheet import read_sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

NAME = "helios"
FAMILY = "helios"
"""The trace does not say what a job trains."""

LAYOUTS = (
    Header(
        read=(
            "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time",
            "duration",
        ),
        unread=("queue",),
    ),
)  # fmt: skip


def read(path: Path, text: str, options: Options) -> Workload:
    """Read `cluster_log.csv`: duration is end - start; jobs of several nodes carry the label `nodes`.

    Jobs that were running or suspended when the log was taken, and those that never started, are left out and counted.

    Raises:
        InputFileError: A missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    users, pools = sheet.column("user", cells.word), sheet.column("vc", cells.word)
    gpus, cores = sheet.column("gpu_num", cells.count), sheet.column("cpu_num", cells.count)
    nodes, log = sheet.column("node_num", cells.count), moments(sheet, cells.stamp)
    duration_s, notes = run_times(sheet, log)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(
            name=names[row], family=FAMILY, user=users[row], pool=pools[row], gpus=gpus[row], cores=cores[row],
            labels={"nodes": str(nodes[row])} if nodes[row] > 1 else {},
        )  # fmt: skip
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], outcome=log.states[row],
            line=sheet.lines[row],
        )  # fmt: skip

    columns = Columns(names, log.submit_s, gpus)
    workload = assemble(sheet, NAME, columns, make, options, dated=True, rows=duration_s)
    return replace(workload, notes=workload.notes + notes)
