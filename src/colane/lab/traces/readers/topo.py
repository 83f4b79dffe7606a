"""Job lists of the topology-aware scheduler (Amaral et al., SC 2017): `workloads-*.json`, an object of jobs by id.

Of its authors' simulator. `arrival` is in seconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.layout import OBJECT, Document
from colane.lab.traces.readers.assemble import Columns, Options, assemble, cell, entry_lines, load_json
from colane.lab.traces.sheet import Sheet
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.model.words import count
from colane.settings.input_file import InputFileError

NAME = "topology"
KEYS = ("id", "arrival", "type", "size", "gpus", "minimal_utility", "tasks", "mem")
LAYOUTS = (Document(opens=OBJECT, read=KEYS, unread=("time", "color")),)
STEPS = 4000  # iterations every job runs: those the published profile was measured over


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a job list.

    `type` is the model, `size` the batch per GPU, `tasks` the CPU cores; `minimal_utility` is the least utility asked
    for and, with `mem` (the generator's classes 1, 2, 8, 12, whose unit is stated nowhere), a label. `time` and `color`
    are results and drawing. Raises InputFileError: not such an object, a bad or duplicate job (unless they may be
    skipped), no jobs.
    """
    sheet = _sheet(path, text, options)
    names = sheet.unique_names("id")
    submit_s, gpus = sheet.column("arrival", cells.seconds), sheet.column("gpus", cells.count)
    models, batches = sheet.column("type", cells.word), sheet.column("size", cells.at_least_one)
    cores, labels = sheet.column("tasks", cells.count), _labels(sheet)
    utilities = sheet.column("minimal_utility", cells.seconds)

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        spec = JobSpec(
            name=names[row], family=models[row], batch_size=batches[row], gpus=gpus[row], cores=cores[row],
            steps_total=STEPS, labels=labels[row], utility_min=min(1.0, utilities[row]),
        )  # fmt: skip
        return TraceJob(id=id_, submit_s=submit_s, spec=spec, line=sheet.lines[row])

    workload = assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options)
    over = sum(utilities[row] > 1 for row in sheet.good())
    doubt = f"{count(f'{over:,}', 'job')} of a minimal_utility above 1, taken as 1: it may be in another unit"
    return replace(workload, doubts=(doubt,) if over else ())


def _sheet(path: Path, text: str, options: Options) -> Sheet:
    jobs = load_json(path, text)
    if not isinstance(jobs, dict) or not all(isinstance(job, dict) for job in jobs.values()):
        raise InputFileError(path, "expected a JSON object of jobs by id")
    lines = entry_lines(text, "arrival", len(jobs))
    rows = [(line, [cell(job.get(key)) for key in KEYS]) for line, job in zip(lines, jobs.values(), strict=True)]
    return Sheet(path, KEYS, rows, skip_bad_rows=options.skip_bad_rows)


def _labels(sheet: Sheet) -> list[dict[str, str]]:
    sheet.column("minimal_utility", cells.seconds)
    utilities, classes = sheet.column("minimal_utility", str), sheet.column("mem", str)
    return [{"minimal_utility": u, "memory_class": m} for u, m in zip(utilities, classes, strict=True)]
