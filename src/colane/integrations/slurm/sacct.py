"""`sacct`: jobs that have been."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from getpass import getuser
from typing import TYPE_CHECKING, Final

from colane.client.errors import Refused
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import ENDED_MAX, SlurmRow, long_duration, moment, named_jobs, names, rows_of
from colane.integrations.slurm.squeue import wanted_states

if TYPE_CHECKING:
    from colane.client.client import Client


def _limit(row: SlurmRow) -> str:
    limit_s: float | None = row.in_force("time_limit_s")
    return long_duration(limit_s)


def _end_s(row: SlurmRow) -> float:
    end_s = row.job.get("end_s")
    return float("inf") if end_s is None else end_s


def _state(row: SlurmRow) -> str:
    """Records know no states between: what comes, goes or waits for a turn runs. submitit waits for that alone."""
    return "RUNNING" if row.state in {"CONFIGURING", "COMPLETING", "SUSPENDED"} else row.state


def _cpu(row: SlurmRow, tasks: int) -> str:
    return long_duration(row.used["cores"] * row.used["ran"] / tasks) if "cores" in row.used else ""


def _memory(row: SlurmRow, tasks: int) -> str:
    return f"{row.used['host-memory'] / 1024 / tasks:.0f}K" if "host-memory" in row.used else ""


COLUMNS: Final[Mapping[str, tuple[str, int, Callable[[SlurmRow], object]]]] = {
    name.lower(): (name, width, value)
    for name, width, value in (
        ("JobID", 12, lambda row: row.name),
        ("JobIDRaw", 12, lambda row: row.job["id"]),
        ("JobName", 10, lambda row: row.job["name"]),
        ("User", 9, lambda row: row.job["user"]),
        ("Partition", 10, lambda row: row.job["pool"]),
        ("Account", 10, lambda row: row.account),
        ("QOS", 10, lambda row: row.qos),
        ("AllocCPUS", 10, lambda row: row.cores),
        ("ReqCPUS", 8, lambda row: row.need("cores") or 1),
        ("NCPUS", 10, lambda row: row.cores),
        ("CPUTime", 10, lambda row: long_duration(row.cores * row.elapsed_s)),
        ("CPUTimeRAW", 10, lambda row: int(row.cores * row.elapsed_s)),
        ("TotalCPU", 10, lambda row: _cpu(row, 1)),
        ("AveCPU", 10, lambda row: _cpu(row, int(row.tasks))),
        ("AveRSS", 10, lambda row: _memory(row, int(row.tasks))),
        ("NTasks", 8, lambda row: row.tasks),
        ("MaxRSS", 10, lambda row: _memory(row, 1)),
        ("NNodes", 8, lambda row: row.node_count),
        ("AllocNodes", 10, lambda row: len(row.job.get("nodes") or [])),
        ("AllocTRES", 10, lambda row: row.tres),
        ("ReqTRES", 10, lambda row: row.tres),
        ("ReqMem", 10, lambda row: f"{row.need('host_memory_bytes') // 2**20}M"),
        ("State", 10, _state),
        ("ExitCode", 8, lambda row: row.exit),
        ("DerivedExitCode", 15, lambda row: row.exit),
        ("Elapsed", 10, lambda row: long_duration(row.elapsed_s)),
        ("ElapsedRaw", 10, lambda row: int(row.elapsed_s)),
        ("Timelimit", 10, _limit),
        ("Submit", 19, lambda row: moment(row.job["submit_s"], "Unknown")),
        ("Start", 19, lambda row: moment(row.start_s, "Unknown")),
        ("End", 19, lambda row: moment(row.job.get("end_s"), "Unknown")),
        ("NodeList", 15, lambda row: row.nodes or "None assigned"),
        ("Reason", 22, lambda row: row.reason),
        ("Priority", 10, lambda row: row.job["priority"]),
        ("Comment", 14, lambda row: row.job["comment"]),
        ("WorkDir", 20, lambda row: row.job.get("workdir") or ""),
        ("Restarts", 8, lambda row: max(int(row.job["attempt"]) - 1, 0)),
        ("Cluster", 10, lambda _: "colane"),
    )
}
"""Columns by name in small letters: as Slurm writes the name, how wide, and what of a job."""

UNKNOWN: Final = frozenset({
    "maxvmsize", "avevmsize", "usercpu", "systemcpu",
    "mincpu", "maxdiskread", "maxdiskwrite", "avediskread", "avediskwrite", "maxpages", "avepages",
    "consumedenergy", "consumedenergyraw", "group", "uid", "gid", "assoc", "blockid", "layout", "eligible", "planned",
    "suspended", "tresusageinmax", "tresusageintot", "tresusageinave", "wckey", "reservation", "flags", "constraints",
})  # fmt: skip
"""Columns of Slurm's that stay empty: they are of steps, which have no records here, or are not counted."""

USUAL: Final = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF: Final = "JobID,State,ExitCode"
VALUED: Final = (
    "-j,--jobs -o,--format -S,--starttime -E,--endtime -u,--user,--uid -s,--state --name -r,--partition -A,--accounts "
    "-M,--clusters --delimiter --units -W,--wckeys -N,--nodelist -q,--qos"
)
FLAGS: Final = (
    "-P,--parsable2 -p,--parsable -n,--noheader -X,--allocations -a,--allusers -D,--duplicates -b,--brief "
    "-L,--allclusters -l,--long -T,--truncate -v,--verbose --noconvert --array"
)
REFUSED: Final = {"--json": "see colane ps --all --json", "--yaml": "see colane ps --all --json"}


def run(words: Sequence[str], shims: str) -> int:
    """List jobs, ended ones included; return the exit code.

    Raises SlurmError: an option, a column or a time is not known.
    """
    del shims
    asked = getopt.read(words, VALUED, FLAGS, refused=REFUSED)
    if asked.rest:
        raise SlurmError(f"{asked.rest[0]} is no option; jobs are named by --jobs")
    wanted = names(asked.said.get("jobs", []))
    states = wanted_states(asked.all("state") or ["all"])
    since_s = _time(asked.last("starttime"), 0.0 if wanted else _midnight(), "--starttime")
    until_s = _time(asked.last("endtime"), float("inf"), "--endtime")
    users = set(asked.all("user"))
    if not wanted and not users and not asked.has("allusers"):
        users = {getuser()}
    with contact.client() as scheduler:
        if wanted:
            found = named_jobs(scheduler, wanted, missing=[])
        else:
            user = next(iter(users)) if len(users) == 1 else None
            found = scheduler.listing(ENDED_MAX, ended=True, user=user, elements=True)["jobs"]
        told = (("name", "name"), ("partition", "pool"))
        rows = [
            row
            for row in rows_of(found)
            if _state(row) in states
            and (wanted or not users or row.job["user"] in users)
            and _end_s(row) >= since_s
            and row.job["submit_s"] <= until_s
            and all(not (some := asked.all(option)) or row.job[field] in some for option, field in told)  # type: ignore[literal-required]
        ]
        if any(name in USED for name in _names(asked)):
            for row in rows:
                row.used = used_by(scheduler, row)
    rows.sort(key=lambda row: (row.array, row.job["id"]))
    contact.print_lines(*_lines(rows, asked))
    return 0


USED: Final = frozenset({"maxrss", "totalcpu", "averss", "avecpu"})


def used_by(scheduler: Client, row: SlurmRow) -> Mapping[str, float]:
    """Return what a job has used, by what, and for how long it `ran`; nothing of one that has not run."""
    if row.waiting or row.job.get("first_start_s") is None:
        return {}
    with suppress(Refused):  # an array has not run, nor has an element without a record
        found = scheduler.efficiency(row.job["id"])
        known = {one["what"]: one["used"] for one in found["rows"] if one["used"] is not None}
        return {**known, "ran": found["ran_s"]}
    return {}


def _names(asked: getopt.VerbWords) -> list[str]:
    text = asked.last("format") or (BRIEF if asked.has("brief") else USUAL)
    return [part.strip().partition("%")[0].lower() for part in text.split(",")]


def _lines(rows: Sequence[SlurmRow], asked: getopt.VerbWords) -> list[str]:
    columns = []
    for part in (asked.last("format") or (BRIEF if asked.has("brief") else USUAL)).split(","):
        name, _, width = part.strip().partition("%")
        known = COLUMNS.get(name.lower())
        if known is None and name.lower() not in UNKNOWN:
            shown = " ".join(one for one, _, _ in COLUMNS.values())
            raise SlurmError(f"--format: {name or part!r} is not known; these are: {shown}")
        title, wide, value = known or (name, 10, lambda _: "")
        columns.append((title, int(width) if width.lstrip("-").isdecimal() and width else wide, value))
    table = [[str(value(row)) for _, _, value in columns] for row in rows]
    titles = [title for title, _, _ in columns]
    if asked.has("parsable2") or asked.has("parsable"):
        bar = asked.last("delimiter") or "|"
        end = bar if asked.has("parsable") else ""
        return [bar.join(line) + end for line in [*([] if asked.has("noheader") else [titles]), *table]]
    widths = [wide for _, wide, _ in columns]
    head = [] if asked.has("noheader") else [titles, ["-" * wide for wide in map(abs, widths)]]
    return [" ".join(_fit(text, wide) for text, wide in zip(line, widths, strict=True)) + " " for line in head + table]


def _fit(text: str, wide: int) -> str:
    size = abs(wide)
    short = text if len(text) <= size else f"{text[: size - 1]}+"
    return short.ljust(size) if wide < 0 else short.rjust(size)


def _midnight() -> float:
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def _time(text: str | None, otherwise: float, option: str) -> float:
    """Return a moment: `now`, `now-2days`, `today`, `2030-12-01`, `2030-12-01T08:00[:00]`, `08:00`."""
    if text is None:
        return otherwise
    now = datetime.now().astimezone()
    words = {"now": now.timestamp(), "today": _midnight(), "midnight": _midnight()}
    if text in words:
        return words[text]
    if text.startswith(("now-", "now+")):
        number = text[4:].rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text[4 + len(number) :].removesuffix("s") or "second"
        if number.isdecimal() and unit in UNITS:
            away = timedelta(seconds=int(number) * UNITS[unit])
            return (now - away if text[3] == "-" else now + away).timestamp()
    try:
        if ":" in text and "-" not in text:
            text = f"{now.date()}T{text}"
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise SlurmError(f"{option}: must be a time as now-2days or 2030-12-01T08:00, got {text!r}") from error
