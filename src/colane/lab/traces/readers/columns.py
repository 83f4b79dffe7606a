"""Tables of jobs of which rows say what each column is: which field of a job, and how its cells are read.

So are read what `sacct -p` prints, the Standard Workload Format of the Parallel Workloads Archive, logs that were
published (`PUBLISHED`, a row each), and any table whose columns its user names
(`--columns submit=Submit,duration=Elapsed,gpus=AllocGPUS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.layout import HEAD_CHARS, Bare, Header, Misfit, first_row, is_header
from colane.lab.traces.readers.assemble import Columns, Options, assemble, gpus_of_share, span
from colane.lab.traces.readers.lists import NOT_ENDED, NOTHING
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.hardware import DEFAULT_POOL
from colane.model.job import JobId, JobSpec
from colane.model.nearest import did_you_mean

NAMED: Final = "columns"
SACCT: Final = "sacct"
SWF: Final = "swf"
PREFIX: Final = f"{NAMED}:"  # before what `--columns` says, as the name of a format
UNKNOWN: Final = NOTHING | {"Unknown", "N/A", "NaN", "-1"}  # cells that say nothing
_ELAPSED: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_NUMBER: Final = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_GPUS: Final = re.compile(r"gpu(?::([\w.-]*[A-Za-z_.-][\w.-]*))?[=:](\d+)")
_GPU_TRES: Final = re.compile(r"(?:^|,)100\d=(\d+)")
"""How Slurm's database has it, by numbers: 1 to 5 are cores, memory, energy, nodes and billing, GPUs begin at 1001."""


def moment(text: str) -> float:
    """A date and time, with or without its zone, or seconds since any one moment."""
    for parse in (cells.number, cells.stamp, cells.zoned_stamp):
        try:
            return parse(text)
        except (ValueError, TypeError):
            continue
    raise ValueError(f"expected a date and time like 2017-10-09T07:01:55, or seconds, got {text!r}")


def elapsed(text: str) -> float:
    """Seconds, or days, hours, minutes and seconds as Slurm writes them: `1-02:03:04`, `03:04`."""
    if found := _ELAPSED.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    try:
        return cells.seconds(text)
    except ValueError as error:
        raise ValueError(f"expected seconds or [days-]hours:minutes:seconds, got {text!r}") from error


def gpu_count(text: str) -> float:
    """A number of GPUs, or Slurm's list of what was allocated, `cpu=8,gres/gpu=2`, `gpu:a100:4` or `1=8,1002=2`.

    It may have none, and a number may have a part of one.
    """
    found = _GPUS.findall(text)
    if found:
        untyped = [int(many) for kind, many in found if not kind]
        return untyped[0] if untyped else sum(int(many) for _, many in found)
    if "=" in text or text in UNKNOWN:
        return max(map(int, _GPU_TRES.findall(text)), default=0)
    return cells.number(text) if re.fullmatch(r"\d*\.\d*[1-9]\d*", text) else cells.count(text)


class TraceField(NamedTuple):
    """A field of a job: how its cells are read, what it is without a column, and the columns that usually hold it."""

    parse: Callable[[str], Any]
    without: Any
    usual: tuple[str, ...]


FIELDS: Final[Mapping[str, TraceField]] = {
    "submit": TraceField(moment, None, ("Submit", "submit_time", "submitted", "arrival", "created", "time")),
    "duration": TraceField(elapsed, None, ("Elapsed", "duration", "run_time", "runtime", "ElapsedRaw")),
    "gpus": TraceField(
        gpu_count, 0, ("AllocGPUS", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "gpus", "num_gpus", "gpu")
    ),
    "start": TraceField(moment, None, ("Start", "start_time", "started")),
    "end": TraceField(moment, None, ("End", "end_time", "finished")),
    "id": TraceField(str, "", ("JobID", "JobIDRaw", "job_id", "id")),
    "name": TraceField(str, "", ("JobName", "job_name", "name")),
    "user": TraceField(str, "", ("User", "user", "owner")),
    "pool": TraceField(str, "", ("Partition", "partition", "vc", "queue")),
    "model": TraceField(str, "", ("model", "application")),
    "cores": TraceField(cells.count, 0, ("AllocCPUS", "NCPUS", "ReqCPUS", "cpus", "cores")),
    "nodes": TraceField(cells.count, 1, ("NNodes", "AllocNodes", "nodes")),
    "state": TraceField(str, "", ("State", "state", "status")),
    "gpu_type": TraceField(str, "", ("gpu_type", "gpu_model")),
    "workers": TraceField(cells.count, 1, ()),
}
"""What columns can be, as `--columns` names it."""

Told = Mapping[str, str]  # the column of each field that is told


def parse_columns(text: str) -> dict[str, str]:
    """Read `submit=Submit,duration=Elapsed,gpus=AllocGPUS`.

    Raises ValueError: it is not so written, names no such field, or leaves one out that is needed.
    """
    told: dict[str, str] = {}
    for word in text.split(","):
        field, is_told, column = (part.strip() for part in word.partition("="))
        if not (field and is_told and column):
            raise ValueError(f"expected FIELD=COLUMN, got {word!r}")
        if field not in FIELDS:
            raise ValueError(f"{field!r} is no field{did_you_mean(field, FIELDS)}; known: {', '.join(FIELDS)}")
        if field in told:
            raise ValueError(f"{field} is given twice")
        told[field] = column
    if lacks := _lacks(told):
        raise ValueError(f"needs {lacks}")
    return told


def _lacks(told: Iterable[str]) -> str:
    there = set(told)
    lacks = [field for field in ("submit", "gpus") if field not in there]
    if "duration" not in there and not {"start", "end"} <= there:
        lacks.append("duration, or start and end")
    return " and ".join(lacks)


def offered(head: str) -> str:
    """How `--columns` may be given for a table that begins so; empty where it has no header."""
    names = first_row(head, delimiter_of(head))
    if len(names) < 2 or names[0].lstrip().startswith(("[", "{")):
        return ""
    if not is_header(names):
        return "; say by number which columns are what, as in --columns submit=1,duration=2,gpus=3"
    there = {_plain(name): name for name in names if name}
    usual = {
        field: next((there[_plain(name)] for name in FIELDS[field].usual if _plain(name) in there), "COLUMN")
        for field in ("submit", "duration", "gpus")
    }
    example = quote(",".join(f"{field}={column}" for field, column in usual.items()))
    return f"; say which columns are what: --columns {example} (it has {', '.join(name for name in names if name)})"


def _plain(name: str) -> str:
    """A name as it is compared: without its unit, `Run Time (s)` or `run_s`, and whatever is no letter."""
    return re.sub(r"\(.*?\)|\[.*?\]|_s$|[^a-z0-9]", "", name.lower())


def delimiter_of(head: str) -> str:
    """What stands between the names of a table's columns."""
    line = next((line for line in head.splitlines() if line.strip()), "")
    return max(",|;\t", key=line.count)


@dataclass(frozen=True, slots=True)
class TableByColumns:
    """The layout of a table with a header of which it is known, or guessed from usual names, what each column is."""

    told: Told | None = None  # columns by field; None guesses
    delimiter: str = ""  # between cells; empty is told from the header
    marks: tuple[str, ...] = ()  # columns one of which must be there for a file to be claimed

    def of(self, head: str) -> Told:
        """Columns by field."""
        if self.told is not None:
            return self.told
        names = self._names(head)
        found = {field: next((name for name in one.usual if name in names), "") for field, one in FIELDS.items()}
        return {field: name for field, name in found.items() if name}

    def fits(self, head: str) -> bool:
        """Whether it has a mark, whatever a job needs, and each column that is told."""
        names = self._names(head)
        told = self.of(head)
        return any(mark in names for mark in self.marks) and not _lacks(told) and set(told.values()) <= set(names)

    def misfit(self, head: str) -> Misfit | None:
        """What is missing of a file that has the mark."""
        is_by_width = self.told is None and first_row(head, " ")[:1] in [[mark] for mark in self.marks]
        if not (is_by_width or any(mark in self._names(head) for mark in self.marks)) or self.fits(head):
            return None
        if self.told is not None:
            missing = next(name for name in self.told.values() if name not in self._names(head))
            return Misfit(0.95, missing, "is missing")
        lacks = _lacks(self.of(head))
        asked = (
            "sacct -p -a -X -o JobID,JobName,User,Partition,State,Submit,Start,End,Elapsed,AllocTRES,AllocCPUS,NNodes"
        )
        return Misfit(0.95, lacks.partition(" ")[0].rstrip(","), f"no column says {lacks}: print it by {asked}")

    def unused(self, head: str) -> tuple[str, ...]:
        """Columns that are nothing of a job."""
        read = set(self.of(head).values())
        return tuple(name for name in self._names(head) if name and name not in read)

    def _names(self, head: str) -> list[str]:
        names = [name.strip() for name in first_row(head, self.delimiter or delimiter_of(head))]
        return _numbered(names, self.told) or names


def _numbered(first: Sequence[str], told: Told | None) -> list[str] | None:
    """Columns of a table without a header by number, from 1, where they are told so; None of one that names them."""
    is_told = told is not None and all(name.isdigit() for name in told.values())
    return [str(number) for number in range(1, len(first) + 1)] if is_told and not is_header(first) else None


SACCT_LAYOUTS: Final = (TableByColumns(delimiter="|", marks=("JobID", "JobIDRaw")),)

SWF_COLUMNS: Final = (
    "job", "submit", "wait", "run_time", "processors", "cpu_time", "memory", "asked_processors", "asked_time",
    "asked_memory", "status", "user", "group", "application", "queue", "partition", "preceding", "think_time",
)  # fmt: skip
SWF_STATES: Final = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}
SWF_TOLD: Final = {
    "id": "job",
    "submit": "submit",
    "duration": "run_time",
    "gpus": "processors",
    "user": "user",
    "state": "status",
}


class Standard:
    """The layout of the Standard Workload Format: lines of 18 numbers, after comments that begin with a semicolon."""

    def fits(self, head: str) -> bool:
        """Whether the first line that is no comment is so."""
        row = _first_job(head)
        return len(row) == len(SWF_COLUMNS) and all(map(_NUMBER.fullmatch, row))

    def misfit(self, head: str) -> Misfit | None:
        """What is wrong where comments stand before numbers, or before nothing."""
        row = _first_job(head)
        if not head.lstrip("\ufeff ").startswith(";") or self.fits(head) or not all(map(_NUMBER.fullmatch, row)):
            return None
        return Misfit(0.9, SWF_COLUMNS[min(len(row), 17)], f"the first job has {len(row)} numbers, expected 18")

    def unused(self, head: str) -> tuple[str, ...]:
        """Columns that are nothing of a job."""
        del head
        return tuple(name for name in SWF_COLUMNS if name not in SWF_TOLD.values())


SWF_LAYOUTS: Final = (Standard(),)


def _first_job(head: str) -> list[str]:
    return next((line.split() for line in head.splitlines() if _is_job(line)), [])


def _is_job(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(";")


def read_swf(path: Path, text: str, options: Options) -> Workload:
    """Read the Standard Workload Format: each processor counts as a GPU, as the archive knows no others.

    Raises InputFileError: a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if _is_job(line)]
    sheet = Sheet(path, SWF_COLUMNS, lines, skip_bad_rows=options.skip_bad_rows)
    found = _read(sheet, SWF, SWF_TOLD, options, states=SWF_STATES)
    return replace(found, notes=(*found.notes, Note(len(found.jobs), "job", "whose processors are taken for GPUs")))


def read_sacct(path: Path, text: str, options: Options) -> Workload:
    """Read what `sacct -p` or `--parsable2` prints; rows of steps are left out and counted.

    Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    sheet = read_sheet(path, text, delimiter="|", skip_bad_rows=options.skip_bad_rows)
    return _read(sheet, SACCT, SACCT_LAYOUTS[0].of(text), options)


def read_told(told: Told, path: Path, text: str, options: Options) -> Workload:
    """Read a table by the columns that are told.

    Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
    """
    delimiter = delimiter_of(text)
    names = _numbered(first_row(text[:HEAD_CHARS], delimiter), told)
    sheet = read_sheet(path, text, names=names, delimiter=delimiter, skip_bad_rows=options.skip_bad_rows)
    return _read(sheet, NAMED, told, options)


class Published(NamedTuple):
    """A log that was published: what it is, how its files are laid out, and what its columns are."""

    name: str  # of the format
    title: str  # who published it, and the file
    told: Told  # columns by field
    layout: Bare | Header | TableByColumns  # of its files
    states: Mapping[str, str] = {}  # what its words of how a job ended mean
    never: frozenset[str] = frozenset()  # cells that say of a moment that it never came
    early_s: float | None = None  # moments before the log's first that are not said; None where all are
    note: str = ""  # what its jobs are not, though they are read so

    def read(self, path: Path, text: str, options: Options) -> Workload:
        """Read it.

        Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
        """
        names = self.layout.columns if isinstance(self.layout, Bare) else None
        sheet = read_sheet(path, text, names=names, skip_bad_rows=options.skip_bad_rows)
        if "gpus" not in self.told:  # all of it is without
            options = options._replace(keep_cpu_only=True)
        found = _read(
            sheet, self.name, self.told, options, states=self.states, never=self.never, early_s=self.early_s
        )  # fmt: skip
        notes = (Note(len(found.jobs), "job", self.note),) if self.note else ()
        return replace(found, notes=(*found.notes, *notes))


SLURM_STATES: Final = {
    "0": "PENDING", "1": "RUNNING", "2": "SUSPENDED", "3": "COMPLETED", "4": "CANCELLED", "5": "FAILED",
    "6": "TIMEOUT", "7": "NODE_FAIL", "8": "PREEMPTED", "9": "BOOT_FAIL", "10": "DEADLINE", "11": "OUT_OF_MEMORY",
}  # fmt: skip
SUPERCLOUD_TOLD: Final = {
    "id": "id_job", "user": "id_user", "submit": "time_submit", "start": "time_start", "end": "time_end",
    "gpus": "tres_alloc", "cores": "cpus_req", "nodes": "nodes_alloc", "pool": "partition", "state": "state",
}  # fmt: skip
PM100_TOLD: Final = {
    "id": "job_id", "user": "user_id", "submit": "submit_time", "start": "start_time", "end": "end_time",
    "gpus": "num_gpus_alloc", "cores": "num_cores_alloc", "nodes": "num_nodes_alloc", "pool": "partition",
    "state": "job_state",
}  # fmt: skip
FUGAKU_TOLD: Final = {
    "id": "jid", "user": "usr", "name": "jnam", "submit": "adt", "start": "sdt", "end": "edt", "gpus": "nnuma",
}  # fmt: skip
AZURE_SHAPES: Final = {
    "vmid": cells.word, "subscriptionid": cells.word, "deploymentid": cells.word, "vmcreated": cells.number,
    "vmdeleted": cells.number, "maxcpu": cells.number, "avgcpu": cells.number, "p95maxcpu": cells.number,
    "vmcategory": cells.word, "vmcorecountbucket": cells.word, "vmmemorybucket": cells.word,
}  # fmt: skip
AZURE_TOLD: Final = {
    "id": "vmid", "user": "subscriptionid", "name": "vmcategory", "submit": "vmcreated", "start": "vmcreated",
    "end": "vmdeleted",
}  # fmt: skip
DLRM_TOLD: Final = {
    "id": "instance_sn", "model": "app_name", "submit": "creation_time", "start": "scheduled_time",
    "end": "deletion_time", "gpus": "gpu_request", "cores": "cpu_request", "pool": "role",
}  # fmt: skip
SPOT_TOLD: Final = {
    "id": "job_name", "user": "organization", "submit": "submit_time", "duration": "duration", "gpus": "gpu_request",
    "workers": "worker_num", "cores": "cpu_request", "gpu_type": "gpu_model", "name": "job_type",
}  # fmt: skip

PUBLISHED: Final = (
    Published(
        "alibaba-2025", "Alibaba 2025, disaggregated_DLRM_trace.csv", DLRM_TOLD,
        Header(
            read=tuple(DLRM_TOLD.values()),
            unread=(
                "cpu_limit", "gpu_limit", "rdma_request", "rdma_limit", "memory_request", "memory_limit",
                "disk_request", "disk_limit", "max_instance_per_node",
            ),
        ),
        early_s=0.0, note="each of them a server, taken for training",
    ),
    Published(
        "alibaba-spot", "Alibaba 2026, spot GPUs, job_info_df.csv", SPOT_TOLD,
        Header(read=tuple(SPOT_TOLD.values())),
    ),
    Published(
        "supercloud", "MIT SuperCloud, slurm-log.csv", SUPERCLOUD_TOLD,
        TableByColumns(SUPERCLOUD_TOLD, ",", ("id_job",)),
        SLURM_STATES, frozenset({"0"}),
    ),
    Published(
        "pm100", "PM100 of Marconi100, its job table as CSV", PM100_TOLD,
        TableByColumns(PM100_TOLD, ",", ("num_gpus_alloc",)),
    ),
    Published(
        "f-data", "F-DATA of Fugaku, its job table as CSV", FUGAKU_TOLD, TableByColumns(FUGAKU_TOLD, ",", ("nnuma",)),
        note="whose nodes are taken for GPUs",
    ),
    Published(
        "azure-vm", "Azure 2017 and 2019, vmtable.csv", AZURE_TOLD,
        Bare(shapes=AZURE_SHAPES, read=frozenset({*AZURE_TOLD.values()})),
        note="each of them a virtual machine",
    ),
)  # fmt: skip
"""By the format's name; what each file is, and its columns, as their publishers say."""


def _read(
    sheet: Sheet, format_name: str, told: Told, options: Options, *, states: Mapping[str, str] = {},
    never: frozenset[str] = frozenset(), early_s: float | None = None,
) -> Workload:  # fmt: skip
    column = partial(_column, sheet, told, never)
    ids = [str(name).strip() or f"line-{line}" for name, line in zip(column("id"), sheet.lines, strict=True)]
    steps = [row for row, name in enumerate(ids) if format_name == SACCT and "." in name]
    ended = [states.get(str(state), str(state).split(" ")[0]) for state in column("state")]
    unended = [row for row, state in enumerate(ended) if state.upper() in NOT_ENDED and row not in set(steps)]
    rows = sorted(set(sheet.good()) - {*steps, *unended})
    last = {ids[row]: row for row in rows} if format_name == SACCT else {}  # sacct -D prints all runs of a job
    earlier = [row for row in rows if last.get(ids[row], row) != row]
    rows = sorted(set(rows) - set(earlier))
    sheet.unique([name if row in set(rows) else f"{name} {row}" for row, name in enumerate(ids)], told.get("id", "id"))
    submit_s, run_s = column("submit"), _run_times(sheet, told, rows, never, early_s)
    names, users, pools, models = (column(field) for field in ("name", "user", "pool", "model"))
    cores, nodes, types = column("cores"), column("nodes"), column("gpu_type")
    parts = [gpus_of_share(gpus * many) for gpus, many in zip(column("gpus"), column("workers"), strict=True)]
    rows = [row for row in rows if row not in sheet.bad]
    before = [row for row in rows if submit_s[row] is None]
    for row in before:
        if early_s is None:
            sheet.fail(row, "must not be empty", told["submit"])
        submit_s[row] = early_s
    ran = [row for row in rows if run_s.get(row) and row not in sheet.bad]

    def make(id_: JobId, row: int, submitted_s: float) -> TraceJob:
        spec = JobSpec(
            name=ids[row], family=models[row] or names[row] or format_name, user=users[row] or "",
            pool=pools[row] or DEFAULT_POOL, gpus=parts[row][0], cores=cores[row] or 0, gpu_type=types[row] or None,
            labels={"nodes": str(nodes[row])} if (nodes[row] or 1) > 1 else {},
        )  # fmt: skip
        return TraceJob(
            id=id_, submit_s=submitted_s, spec=spec, duration_s=run_s[row], gpu_ratio=parts[row][1],
            outcome=ended[row], line=sheet.lines[row],
        )  # fmt: skip

    gpus = [whole for whole, _ in parts]
    found = assemble(sheet, format_name, Columns(ids, submit_s, gpus), make, options, dated=True, rows=ran)
    notes = (
        Note(len(steps), "step", "of jobs, left out"),
        Note(len(unended), "job", "not ended when the log was taken, left out"),
        Note(len(earlier), "run", "of a job that was queued again, left out: its last one counts"),
        Note(len(rows) - len(ran), "job", "that never ran, left out"),
        Note(len(before) if early_s is not None else 0, "job", "there before the log began, taken as submitted then"),
        Note(sum(ratio < 1 for _, ratio in parts), "job", "with a part of a GPU (gpu_ratio)"),
    )
    return replace(found, notes=(*found.notes, *(note for note in notes if note.many)))


def _column(sheet: Sheet, told: Told, never: frozenset[str], field: str) -> list[Any]:
    parse, without, _ = FIELDS[field]
    if field not in told:
        return [without] * len(sheet)
    empty = UNKNOWN | never if field in {"start", "end"} else UNKNOWN
    return sheet.column(told[field], lambda cell: without if cell.strip() in empty else parse(cell.strip()))


def _run_times(
    sheet: Sheet, told: Told, rows: Sequence[int], never: frozenset[str], early_s: float | None
) -> dict[int, float | None]:
    """Of jobs that ran: what is told, or end - start."""
    if "duration" in told:
        return dict(enumerate(_column(sheet, told, never, "duration")))
    starts, ends = (_column(sheet, told, never, field) for field in ("start", "end"))
    found: dict[int, float | None] = {}
    for row in rows:
        start_s, end_s = early_s if starts[row] is None else starts[row], ends[row]
        if start_s is not None and end_s is not None:
            found[row] = span(sheet, row, start_s, end_s, told["end"])
    return found
