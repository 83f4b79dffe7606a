"""Shanghai AI Laboratory's Acme trace (Hu et al., NSDI 2024), CC-BY-4.0: `trace_seren.csv` and `trace_kalos.csv`.

Published at github.com/InternLM/AcmeTrace. Moments have their offset from UTC, durations are seconds. There are no
virtual clusters. Of what a job trains the log says only its `type`, such as Pretrain or Evaluation.
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

NAME = "acme"
FAMILY = "acme"
READ = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time",
    "duration",
)  # fmt: skip
LAYOUTS = (
    Header(read=READ, unread=("queue", "gpu_time")),
    Header(
        read=READ,
        unread=("mem_per_pod_GB", "shared_mem_per_pod", "fail_time", "stop_time", "queue", "gpu_time"),
    ),
)
"""Of Seren and of Kalos."""


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a log: duration is end - start; the type and, of jobs of several nodes, `nodes` become labels.

    In Kalos' log `duration` counts from the submission, so that it differs from what is taken by the time in queue.
    Jobs that had not ended when the log was taken, and those that never started, are left out and counted.

    Raises:
        InputFileError: A missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("job_id")
    users, types = sheet.column("user", cells.word), sheet.column("type", str)
    gpus, cores = sheet.column("gpu_num", cells.count), sheet.column("cpu_num", cells.count)
    nodes, log = sheet.column("node_num", cells.count), moments(sheet, cells.zoned_stamp)
    duration_s, notes = run_times(sheet, log)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        labels = {"type": types[row]} | ({"nodes": str(nodes[row])} if nodes[row] > 1 else {})
        spec = JobSpec(name=names[row], family=FAMILY, user=users[row], gpus=gpus[row], cores=cores[row], labels=labels)
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=duration_s[row], outcome=log.states[row],
            line=sheet.lines[row],
        )  # fmt: skip

    columns = Columns(names, log.submit_s, gpus)
    workload = assemble(sheet, NAME, columns, make, options, dated=True, rows=duration_s)
    return replace(workload, notes=workload.notes + notes)
