"""`squeue`: jobs that wait and run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from getpass import getuser
from typing import TYPE_CHECKING, Final, TypeVar

from colane.client.errors import SchedulerError
from colane.client.told import facts_of
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import (
    ENDED_MAX,
    LIVE_MAX,
    NONE,
    STATES,
    Filter,
    SlurmRow,
    duration,
    moment,
    named_jobs,
    names,
    rows_of,
)

if TYPE_CHECKING:
    from colane.client.client import Client

Column = tuple[str, Callable[[SlurmRow], object]]
T = TypeVar("T")


def _limit(row: SlurmRow) -> str:
    limit_s: float | None = row.in_force("time_limit_s")
    return duration(limit_s)


def _left(row: SlurmRow) -> str:
    limit_s: float | None = row.in_force("time_limit_s")
    left_s = facts_of(row.job)["limit_left_s"]
    return duration(limit_s if left_s is None or row.waiting else left_s)


def _expected_end(row: SlurmRow) -> str:
    end_s, left_s = row.job.get("end_s"), facts_of(row.job)["limit_left_s"]
    return moment(time.time() + left_s if end_s is None and left_s is not None else end_s)


def _begin_s(row: SlurmRow) -> float | None:
    """When it started, would start or may start."""
    held = [hold["until_s"] for hold in row.job.get("holds") or [] if hold["until_s"] is not None]
    known = [one for one in (row.start_s, row.starts("p50_s"), row.expected_s) if one is not None]
    return known[0] if known else max(held, default=None)


LETTERS: Final[Mapping[str, Column]] = {
    "i": ("JOBID", lambda row: row.name),
    "A": ("JOBID", lambda row: row.job["id"]),
    "F": ("ARRAY_JOB_ID", lambda row: row.array),
    "K": ("ARRAY_TASK_ID", lambda row: row.index),
    "j": ("NAME", lambda row: row.job["name"]),
    "u": ("USER", lambda row: row.job["user"]),
    "U": ("UID", lambda row: row.job["user"]),
    "t": ("ST", lambda row: row.letters),
    "T": ("STATE", lambda row: row.state),
    "M": ("TIME", lambda row: duration(row.elapsed_s)),
    "l": ("TIME_LIMIT", _limit),
    "L": ("TIME_LEFT", _left),
    "S": ("START_TIME", lambda row: moment(_begin_s(row))),
    "e": ("END_TIME", _expected_end),
    "V": ("SUBMIT_TIME", lambda row: moment(row.job["submit_s"])),
    "D": ("NODES", lambda row: row.node_count),
    "N": ("NODELIST", lambda row: row.nodes),
    "B": ("EXEC_HOST", lambda row: row.nodes.partition(",")[0] or "n/a"),
    "R": ("NODELIST(REASON)", lambda row: row.nodes or f"({row.reason})"),
    "r": ("REASON", lambda row: row.reason),
    "P": ("PARTITION", lambda row: row.job["pool"]),
    "p": ("PRIORITY", lambda row: row.job["priority"]),
    "Q": ("PRIORITY", lambda row: row.job["priority"]),
    "a": ("ACCOUNT", lambda row: row.account or NONE),
    "q": ("QOS", lambda row: row.qos),
    "C": ("CPUS", lambda row: row.cores),
    "c": ("MIN_CPUS", lambda row: row.cores),
    "b": ("TRES_PER_NODE", lambda row: f"gres/gpu:{row.need('gpus') // row.node_count}" if row.need("gpus") else NONE),
    "m": (
        "MIN_MEMORY",
        lambda row: f"{row.need('host_memory_bytes') // 2**20}M" if row.need("host_memory_bytes") else "0",
    ),
    "k": ("COMMENT", lambda row: row.job["comment"] or "(null)"),
    "Z": ("WORK_DIR", lambda row: row.job.get("workdir") or NONE),
    "o": ("COMMAND", lambda row: row.job["name"]),
    "E": ("DEPENDENCY", lambda row: row.in_force("after") or "(null)"),
    "f": ("FEATURES", lambda _: "(null)"),
    "nodes": ("REQ_NODES", lambda row: row.need("nodes") or "(null)"),
    "h": ("OVER_SUBSCRIBE", lambda row: "OK" if row.need("share") else "NO"),
    "g": ("GROUP", lambda row: row.job["user"]),
    "tres": ("TRES_ALLOC", lambda row: row.tres),
    "p10": ("START_EARLIEST", lambda row: moment(row.starts("p10_s"))),
    "p90": ("START_LATEST", lambda row: moment(row.starts("p90_s"))),
    "expected": ("EXPECTED_START", lambda row: row.expected["sentence"] if row.expected else NONE),
}
"""What each letter of `--format` stands for."""

NAMES: Final = {
    "jobid": "A", "jobarrayid": "i", "arrayjobid": "F", "arraytaskid": "K", "name": "j", "username": "u",
    "statecompact": "t", "state": "T", "timeused": "M", "timelimit": "l", "timeleft": "L", "starttime": "S",
    "endtime": "e", "submittime": "V", "numnodes": "D", "nodes": "D", "nodelist": "N", "batchhost": "B",
    "reasonlist": "R", "reason": "r", "partition": "P", "priority": "p", "prioritylong": "Q", "account": "a",
    "qos": "q", "numcpus": "C", "mincpus": "c", "tres-per-node": "b", "tres-per-job": "b", "gres": "b",
    "minmemory": "m", "comment": "k", "workdir": "Z", "command": "o", "dependency": "E", "feature": "f",
    "tres-alloc": "tres", "tres": "tres", "reqnodes": "nodes", "groupname": "g", "userid": "U", "oversubscribe": "h",
    "startearliest": "p10", "startlatest": "p90", "expectedstart": "expected",
}  # fmt: skip
"""What each name of `--Format` stands for, by letters of `--format`."""

USUAL: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START: Final = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R"
EXPECTED_MAX: Final = 10
"""Of jobs that are named it is asked when they would start: the scheduler plays each queue on, up to half a second."""

_LETTER: Final = re.compile(r"%(?P<right>\.?)(?P<width>[0-9]*)(?P<letter>[A-Za-z])")

VALUED: Final = (
    "-j,--jobs -u,--user -t,--states -o,--format -O,--Format -n,--name -p,--partition -w,--nodelist -S,--sort "
    "-A,--account -q,--qos -M,--clusters"
)
FLAGS: Final = (
    "-h,--noheader --me --start -l,--long -r,--array -a,--all --hide --array-unique -v,--verbose --local "
    "--only-job-state --json"
)
REFUSED: Final = {
    "-i": "use watch(1)", "--iterate": "use watch(1)", "-s": "steps are no jobs here",
    "--steps": "steps are no jobs here", "--yaml": "see colane ps --json",
}  # fmt: skip


def run(words: Sequence[str], shims: str) -> int:
    """List jobs; return the exit code. Raises SlurmError: an option or a job is not known."""
    del shims
    asked = getopt.read(words, VALUED, FLAGS, refused=REFUSED)
    if asked.rest:
        raise SlurmError(f"{asked.rest[0]} is no option; jobs are named by --jobs")
    taken = filter_of(asked, states="states", name="name")
    wanted = names(asked.said.get("jobs", []))
    with contact.client() as scheduler:
        missing: list[int] = []
        if wanted:
            found = named_jobs(scheduler, wanted, missing=missing)
        else:
            found = scheduler.listing(
                LIVE_MAX if not _of_ended(taken.states) else ENDED_MAX,
                ended=_of_ended(taken.states),
                user=next(iter(taken.users)) if len(taken.users) == 1 else None,
                elements=True,
            )["jobs"]
        if missing and len(missing) == len(wanted):
            raise SlurmError("Invalid job id specified")
        rows = [row for row in rows_of(found, expand=asked.has("array")) if taken.takes(row)]
        rows = [row for row in rows if row.state == "PENDING" or not asked.has("start")]
        _expect(scheduler, rows[:EXPECTED_MAX] if wanted and asked.has("start") else [])
    rows.sort(key=lambda row: (row.state == "PENDING", row.job["id"], not row.waiting))
    if asked.has("json"):
        contact.print_lines(json.dumps({"jobs": [_json(row) for row in rows], "errors": [], "warnings": []}, indent=1))
    else:
        contact.print_lines(*_lines(rows, asked))
    return 0


def _json(row: SlurmRow) -> dict[str, object]:
    """As `squeue --json` tells a job (data_parser v0.0.41): numbers that may be missing in objects of their own."""
    job = row.job

    def number(value: float | None) -> dict[str, object]:
        return {"set": value is not None, "infinite": False, "number": int(value or 0)}

    limit_s = row.in_force("time_limit_s")
    return {
        "job_id": job["id"], "array_job_id": number(row.array), "array_task_id": number(job.get("array_index")),
        "name": job["name"], "user_name": job["user"], "partition": job["pool"], "account": row.account, "qos": row.qos,
        "job_state": [row.state], "state_reason": row.reason, "nodes": row.nodes, "node_count": number(row.node_count),
        "cpus": number(row.cores), "priority": number(job["priority"]), "tres_req_str": row.tres,
        "tres_alloc_str": row.tres if row.nodes else "", "submit_time": number(job["submit_s"]),
        "start_time": number(_begin_s(row)), "start_time_p10": number(row.starts("p10_s")),
        "start_time_p90": number(row.starts("p90_s")), "expected_start": row.expected,
        "end_time": number(job.get("end_s")), "comment": job["comment"],
        "time_limit": {**number(None if limit_s is None else limit_s / 60), "infinite": limit_s is None},
        "current_working_directory": job.get("workdir") or "", "restart_cnt": max(int(job["attempt"]) - 1, 0),
    }  # fmt: skip


def _expect(scheduler: Client, rows: Sequence[SlurmRow]) -> None:
    """Ask when jobs would start that wait, and of which their facts do not tell it."""
    for row in rows:
        if row.starts("p50_s") is None:
            with suppress(SchedulerError):  # one that has ended meanwhile, or a scheduler that does not say in time
                start = scheduler.start_of(row.job["id"])
                row.expected = start.get("expected_start") or row.expected
                row.expected_s = None if start["starts_in_s"] is None else start["now_s"] + start["starts_in_s"]


def wanted_states(said: Sequence[str]) -> set[str]:
    """Return Slurm's words of states; by default of those that have not ended.

    Raises SlurmError: a state is not known.
    """
    by_letters = {letters: word for word, letters in STATES.values()}
    every = {word for word, _ in STATES.values()}
    if not said:
        return every - {
            STATES[state][0] for state in ("succeeded", "failed", "out-of-memory", "timed-out", "cancelled")
        }
    if "all" in [word.lower() for word in said]:
        return every
    others = {"NODE_FAIL", "NF", "PREEMPTED", "PR", "BOOT_FAIL", "BF", "DEADLINE", "DL", "REQUEUED", "RQ", "RESIZING",
              "SIGNALING", "SI", "STOPPED", "ST", "STAGE_OUT", "SPECIAL_EXIT", "SE", "REVOKED", "RV"}  # fmt: skip
    found = set()
    for word in said:
        name = by_letters.get(word.upper(), word.upper())
        if name not in every | others:
            raise SlurmError(f"Invalid job state specified: {word}; it must be one of {', '.join(sorted(every))}")
        found.add(name)
    return found


def _of_ended(states: frozenset[str]) -> bool:
    return bool(states & {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"})


def filter_of(asked: getopt.VerbWords, *, states: str, name: str) -> Filter:
    """Read what options ask for of a list.

    Args:
        asked: What was said.
        states: Name of the option for states.
        name: Of that for names of jobs.

    Raises:
        SlurmError: A state is not known.
    """
    return Filter(
        states=frozenset(wanted_states(asked.all(states))),
        users=frozenset({*asked.all("user"), *([getuser()] if asked.has("me") else [])}),
        jobs=frozenset(asked.all(name)),
        pools=frozenset(asked.all("partition")),
        accounts=frozenset(asked.all("account")),
        nodes=frozenset(asked.all("nodelist")),
    )


def _lines(rows: Sequence[SlurmRow], asked: getopt.VerbWords) -> list[str]:
    long = asked.last("Format")
    if long is not None:
        return by_names(rows, long, LETTERS, NAMES, header=not asked.has("noheader"))
    usual = START if asked.has("start") else LONG if asked.has("long") else USUAL
    text = asked.last("format") or usual
    for match in _LETTER.finditer(text):
        if match["letter"] not in LETTERS:
            known = " ".join(sorted(one for one in LETTERS if len(one) == 1))
            raise SlurmError(f"--format: %{match['letter']} is not known; these are: {known}")

    def line(value: Callable[[str], object]) -> str:
        return _LETTER.sub(lambda match: _padded(str(value(match["letter"])), match["width"], match["right"]), text)

    header = [] if asked.has("noheader") else [line(lambda letter: LETTERS[letter][0])]
    return header + [line(lambda letter, row=row: LETTERS[letter][1](row)) for row in rows]  # type: ignore[misc]


def _padded(text: str, width: str, right: str) -> str:
    if not width:
        return text
    return text[: int(width)].rjust(int(width)) if right else text[: int(width)].ljust(int(width))


def by_names(
    rows: Sequence[T], text: str, columns_of: Mapping[str, tuple[str, Callable[[T], object]]],
    names: Mapping[str, str], *, header: bool,
) -> list[str]:  # fmt: skip
    """Return a table of columns that are named at length, as `--Format` does."""
    columns = []
    for part in text.split(","):
        name, _, width = part.strip().partition(":")
        letter = names.get(name.lower())
        if letter is None or not (width.lstrip(".").isdecimal() or not width):
            raise SlurmError(f"--Format: {part.strip()} is not known; these are: {' '.join(sorted(names))}")
        columns.append((name, columns_of[letter][1], int(width.lstrip(".") or 20), width.startswith(".")))
    lines = ["".join(_padded(name.upper(), str(wide), "." * right) for name, _, wide, right in columns)] * header
    return lines + [
        "".join(_padded(str(value(row)), str(wide), "." * right) for _, value, wide, right in columns) for row in rows
    ]
