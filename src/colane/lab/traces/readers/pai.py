"""Alibaba's PAI trace of 2020 (Weng et al., NSDI 2022): `pai_task_table.csv` with `pai_job_table.csv` beside it.

Of github.com/alibaba/clusterdata, `cluster-trace-gpu-v2020`; times are seconds. The published files have no header
(theirs lie in `.header` files); one with a header is read as well. A job is the sum of its tasks: instances x what one
instance asks for. The two tables are joined by job name; without the job table, submission is taken as the start of the
job's first task and the owner is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.layout import Bare, FileLayout, Header
from colane.lab.traces.readers.assemble import GIB, Columns, Options, assemble, gpus_of_share, of_any, span
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text

NAME = "alibaba-2020"
FAMILY = "pai"
TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
STATUSES = frozenset({"Running", "Terminated", "Failed", "Waiting", "Interrupted"})
PERCENT = 100
MACHINE_MAX = {
    "plan_gpu": (8, PERCENT, "GPUs"),
    "plan_cpu": (96, PERCENT, "cores"),
    "plan_mem": (512, 1, "GiB of memory"),
}
"""What the largest machine of the published cluster has: how many, how many of the column's units are one, of what."""

SPARE_MAX = 2  # an instance that asks for more times as much is in another unit
CPU_PERCENT_MIN, TASKS_MIN = 20, 10
"""So are tasks, so many or more, of which half ask for fewer percent of a core; published are 600 for half of them."""


def _status(text: str) -> str:
    if text not in STATUSES:
        raise ValueError(f"must be one of {', '.join(sorted(STATUSES))}, got {text!r}")
    return text


TASKS_STEM, JOBS_STEM = "pai_task_table", "pai_job_table"
TASK_UNREAD = (f"task_name of {TASKS_STEM}",)
JOB_UNREAD = tuple(f"{name} of {JOBS_STEM}" for name in ("inst_id", "status", "end_time"))
"""Columns not read of the table beside the one that was named."""

TASKS_READ = tuple(name for name in TASK_COLUMNS if name != "task_name")
JOBS_READ = ("job_name", "user", "start_time")
_SHAPES = {
    "job_name": cells.word, "status": _status, "inst_num": cells.optional(cells.seconds),
    "start_time": cells.optional(cells.seconds), "end_time": cells.optional(cells.seconds),
    "plan_cpu": cells.optional(cells.seconds), "plan_mem": cells.optional(cells.seconds),
    "plan_gpu": cells.optional(cells.seconds),
}  # fmt: skip
LAYOUTS: tuple[FileLayout, ...] = (
    Header(read=TASKS_READ, unread=("task_name",)),
    Header(read=JOBS_READ, unread=("inst_id", "status", "end_time")),
    Bare(shapes={name: _SHAPES.get(name, str) for name in TASK_COLUMNS}, read=frozenset(TASKS_READ)),
    Bare(shapes={name: _SHAPES.get(name, str) for name in JOB_COLUMNS}, read=frozenset(JOBS_READ)),
)


class Task(NamedTuple):
    """One task of a job, all its instances together; times are None where it did not start or end."""

    row: int
    start_s: float | None
    end_s: float | None
    gpus: int
    gpu_share: float
    cores: float
    memory_gib: float
    gpu_type: str
    status: str


class Launch(NamedTuple):
    """When a job was submitted, and its owner."""

    submit_s: float
    user: str


def read(path: Path, text: str, options: Options) -> Workload:
    """Read the task table, given it or the job table beside it.

    Jobs without a start or an end (never started, or running when the trace was taken) are left out and counted. Raises
    InputFileError: the task table is missing, a bad row (unless rows may be skipped), no jobs.
    """
    other = JOB_UNREAD
    if len(text.partition("\n")[0].split(",")) == len(JOB_COLUMNS):
        path, text = _beside(path, TASKS_STEM)
        other = TASK_UNREAD
    sheet = _sheet(path, text, TASK_COLUMNS, options)
    tasks = _tasks(sheet)
    whole = {name: mine for name, mine in tasks.items() if all(None not in {task.start_s, task.end_s} for task in mine)}
    launches, notes = _launches(path, options, whole)
    jobs = {mine[0].row: _job(name, mine, launches.get(name)) for name, mine in whole.items()}

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        return replace(jobs[row], id=id_, submit_s=submit_s, line=sheet.lines[row])

    columns = Columns(
        {row: job.spec.name for row, job in jobs.items()},
        {row: job.submit_s for row, job in jobs.items()},
        {row: job.spec.gpus for row, job in jobs.items()},
    )
    workload = assemble(sheet, NAME, columns, make, options, rows=jobs)
    unfinished = Note(len(tasks) - len(whole), "job", "without a start or an end left out")
    late = sum(job.submit_s > min(_starts(whole[job.spec.name])) for job in jobs.values())
    early = Note(late, "job", "of which a task started before it was submitted, taken as submitted")
    told = of_any(*workload.notes, unfinished, early, *notes)
    return replace(workload, notes=told, unused=other if launches else (), doubts=tuple(_doubts(sheet)))


def _doubts(sheet: Sheet) -> Iterator[str]:
    """Columns that ask more of one machine than there is, or hardly anything."""
    for name, (most, unit, what) in MACHINE_MAX.items():
        asked = [value for value in sheet.column(name, cells.otherwise(0.0, cells.seconds)) if value]
        over = [value for value in asked if value > SPARE_MAX * most * unit]
        if over:
            tasks = f"{count(f'{len(over):,}', 'task')} of {len(asked):,}"
            each = f"{max(over) / unit:,.6g} {what} for one instance, where the largest machine has {most}"
            yield f"{tasks} ask for up to {each}: {name} may be in a smaller unit than it is read in"
        elif name == "plan_cpu" and len(asked) >= TASKS_MIN and median(asked) < CPU_PERCENT_MIN:
            half = f"half of the tasks ask for {median(asked) / unit:.2g} of a core or less"
            yield f"{half}: plan_cpu may be in a larger unit than hundredths"


def _beside(path: Path, stem: str) -> tuple[Path, str]:
    for name in (f"{stem}.csv", f"{stem}.csv.gz"):
        other = path.with_name(name)
        if other.is_file():
            return other, read_text(other)
    raise InputFileError(path, f"holds jobs without what they ask for: put {stem}.csv beside it")


def _sheet(path: Path, text: str, names: Sequence[str], options: Options) -> Sheet:
    has_header = text.startswith("job_name,")
    return read_sheet(path, text, names=None if has_header else names, skip_bad_rows=options.skip_bad_rows)


def _tasks(sheet: Sheet) -> dict[str, list[Task]]:
    """Tasks by job. One bad row makes its whole job bad: a job that lacks a task would ask for too little."""
    names = sheet.column("job_name", cells.word)
    columns = [sheet.column(name, parse) for name, parse in _OF_TASK.items()]
    tasks: dict[str, list[Task]] = {}
    for row in sheet.good():
        task = _task(row, *(column[row] for column in columns))
        if task.start_s is not None and task.end_s is not None:
            span(sheet, row, task.start_s, task.end_s, "end_time")
        tasks.setdefault(names[row], []).append(task)
    bad = {names[row] for row in sheet.bad}
    return {name: mine for name, mine in tasks.items() if name not in bad}


_AMOUNT, _TIME = cells.otherwise(0.0, cells.seconds), cells.optional(cells.seconds)
_OF_TASK: Mapping[str, Callable[[str], Any]] = {
    "start_time": _TIME, "end_time": _TIME, "inst_num": cells.otherwise(1, cells.count), "plan_cpu": _AMOUNT,
    "plan_mem": _AMOUNT, "plan_gpu": _AMOUNT, "gpu_type": str, "status": str,
}  # fmt: skip
"""What is read of a task, in the order of `_task`."""


def _task(  # noqa: PLR0913, PLR0917 - one argument for each column
    row: int, start_s: float | None, end_s: float | None, instances: int,
    cpu_percent: float, memory_gib: float, gpu_percent: float, gpu_type: str, status: str,
) -> Task:  # fmt: skip
    gpus, part = gpus_of_share(gpu_percent / PERCENT)
    return Task(
        row, start_s, end_s, instances * gpus, instances * gpus * part, instances * cpu_percent / PERCENT,
        instances * memory_gib, gpu_type, status,
    )  # fmt: skip


def _launches(path: Path, options: Options, jobs: Collection[str]) -> tuple[Mapping[str, Launch], tuple[Note, ...]]:
    """Submission and owner of jobs by name, and what is to be told of the table."""
    try:
        job_path, text = _beside(path, JOBS_STEM)
    except InputFileError:
        return {}, (
            Note(1, "table", "missing: without pai_job_table.csv, submission is the start of a job's first task"),
        )
    sheet = _sheet(job_path, text, JOB_COLUMNS, options)
    names, users = sheet.column("job_name", cells.word), sheet.column("user", str)
    submit_s = sheet.column("start_time", cells.optional(cells.seconds))
    launches: dict[str, Launch] = {}
    again = 0
    for row in sheet.good():
        submit = submit_s[row]
        if submit is not None:
            launch = Launch(submit, users[row])
            again += launches.setdefault(names[row], launch) is not launch
    lacking = sum(name not in launches for name in jobs) if launches else 0
    is_cut = not text.endswith(("\n", "\r"))
    return launches, (
        Note(len(sheet.bad), "bad row", f"of {job_path.name} skipped"),
        Note(again, "row", f"of {job_path.name} with the job of an earlier row, which counts"),
        Note(lacking, "job", f"not in {job_path.name}: submitted when the first task started"),
        Note(int(is_cut), "last line", f"of {job_path.name} has no line end: the file may be cut short"),
    )


def _starts(tasks: Iterable[Task]) -> Iterator[float]:
    return (task.start_s for task in tasks if task.start_s is not None)


def _job(name: str, tasks: Sequence[Task], launch: Launch | None) -> TraceJob:
    """A job as the sum of its tasks; id and line are given later."""
    start_s = min(_starts(tasks))
    end_s = max(task.end_s for task in tasks if task.end_s is not None)
    gpus, (submit_s, user) = sum(task.gpus for task in tasks), launch or (start_s, "")
    types = sorted({task.gpu_type for task in tasks if task.gpus and task.gpu_type})
    spec = JobSpec(
        name=name, family=FAMILY, user=user, gpus=gpus, cores=math.ceil(sum(task.cores for task in tasks)),
        host_memory_bytes=round(sum(task.memory_gib for task in tasks) * GIB),
        labels={"gpu_types": "|".join(types)} if types else {},  # the type a job was given, not one it asked for
    )  # fmt: skip
    return TraceJob(
        id=JobId(0), submit_s=submit_s, spec=spec, duration_s=end_s - start_s, outcome=tasks[-1].status,
        gpu_ratio=sum(task.gpu_share for task in tasks) / gpus if gpus else 1.0,
    )  # fmt: skip
