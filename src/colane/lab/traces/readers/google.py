"""Google's trace of 2019 (Tirmazi et al., EuroSys 2020), CC-BY-4.0: `instance_events` of a cell, of May 2019.

As published, a JSON object a line (`instance_events-*.json.gz`), or as a table, `resource_request.cpus` a column. Times
are microseconds from ten minutes before the trace began. Cores are told as parts of the largest machine's.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from colane.lab.traces import cells
from colane.lab.traces.layout import OBJECT, Document, Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble, cell, of_any
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.settings.input_file import InputFileError

NAME: Final = "google-2019"
TYPES: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING",
    "UPDATE_RUNNING",
)  # fmt: skip
ENDS: Final = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})
CORES: Final = 64  # taken for those of the largest machine, which are not told: parts of it become cores
READ: Final = ("time", "type", "collection_id", "instance_index", "resource_request.cpus")
REST: Final = (
    "scheduling_class", "missing_type", "collection_type", "priority", "alloc_collection_id", "machine_id",
    "alloc_instance_index", "resource_request.memory", "constraint",
)  # fmt: skip
LAYOUTS: Final = (
    Header(read=READ, optional=("collection_type",), besides=REST),
    Document(
        opens=OBJECT, read=READ[:-1], unread=REST, inside=("cpus", "memory", "name", "value", "relation"), is_lines=True
    ),
)


def _type(text: str) -> str:
    word = TYPES[int(text)] if text.isdecimal() and int(text) < len(TYPES) else text
    if word not in TYPES:
        raise ValueError(f"must be one of {', '.join(TYPES)} or its number, got {text!r}")
    return word


@dataclass(slots=True)
class _Instance:
    """What is known of an instance so far; its runs begin where it is scheduled and end where it leaves."""

    row: int
    submit_s: float
    start_s: float | None = None
    run_s: float | None = None
    outcome: str = ""
    runs: int = 0


def read(path: Path, text: str, options: Options) -> Workload:
    """Read instance events: an instance is a job without GPUs that runs as long as its last run did.

    Raises InputFileError: a missing column, a bad row (unless rows may be skipped), no jobs.
    """
    sheet = _sheet(path, text, options)
    times, types = sheet.column("time", cells.seconds), sheet.column("type", _type)
    collections, indexes = sheet.column("collection_id", cells.word), sheet.column("instance_index", cells.count)
    cores = sheet.column("resource_request.cpus", cells.otherwise(0.0, cells.seconds))
    sets = sheet.column_or("collection_type", str, "")
    events: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for row in sheet.good():
        if sets[row] not in {"1", "ALLOC_SET"}:
            events[f"{collections[row]}-{indexes[row]}"].append((times[row] / 1e6, row))
    found = {name: _instance(sorted(told), types) for name, told in events.items()}
    ran = {one.row: (name, one) for name, one in found.items() if one.run_s is not None}

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        name, one = ran[row]
        spec = JobSpec(name=name, family=NAME, gpus=0, cores=math.ceil(cores[row] * CORES), user="")
        return TraceJob(
            id=id_, submit_s=submit_s, spec=spec, duration_s=one.run_s, outcome=one.outcome, line=sheet.lines[row]
        )

    columns = Columns(
        {row: name for row, (name, _) in ran.items()},
        {row: one.submit_s for row, (_, one) in ran.items()},
        dict.fromkeys(ran, 0),
    )
    keep = options._replace(keep_cpu_only=True)  # none of it has GPUs
    workload = assemble(sheet, NAME, columns, make, keep, dated=True, rows=ran)
    again = Counter(one.runs > 1 for _, one in ran.values())[True]
    notes = of_any(
        Note(len(found) - len(ran), "instance", "that did not run to an end, left out"),
        Note(again, "instance", "that ran more than once, of which the last run counts"),
        Note(len(ran), "job", f"whose parts of the largest machine's cores are taken of {CORES}"),
    )
    return replace(workload, notes=workload.notes + notes)


def _instance(told: list[tuple[float, int]], types: list[str]) -> _Instance:
    one = _Instance(told[0][1], told[0][0])
    for at_s, row in told:
        if types[row] == "SCHEDULE":
            one.start_s = at_s
        elif types[row] in ENDS and one.start_s is not None:
            one.run_s, one.outcome, one.start_s, one.runs = at_s - one.start_s, types[row], None, one.runs + 1
    return one


def _sheet(path: Path, text: str, options: Options) -> Sheet:
    if not text.lstrip().startswith(OBJECT):
        return read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = (*READ, "collection_type")
    rows = []
    for line, words in enumerate(text.splitlines(), 1):
        if words.strip():
            try:
                told: dict[str, Any] = json.loads(words)
                told["resource_request.cpus"] = (told.get("resource_request") or {}).get("cpus")
            except (ValueError, TypeError, AttributeError) as error:
                raise InputFileError(path, f"is not a JSON object ({error})", line=line) from error
            rows.append((line, [cell(told.get(name)) for name in names]))
    return Sheet(path, names, rows, skip_bad_rows=options.skip_bad_rows)
