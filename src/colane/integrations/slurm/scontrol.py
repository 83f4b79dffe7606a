"""`scontrol`: show and update jobs, and do to them what `verbs.of_jobs` has Slurm's words for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from colane.client.errors import Refused, SchedulerError
from colane.client.told import in_force
from colane.integrations.slurm import contact, quantities
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.launch import batch_files, file_name
from colane.integrations.slurm.rows import SlurmRow, duration, moment, named_jobs, names, rows_of
from colane.integrations.slurm.sinfo import LONG_STATES, SlurmNode, state_of, times_of
from colane.model.arrays import element_id, known_indexes
from colane.model.hardware import nodes_named
from colane.verbs.of_jobs import JOB_VERBS, REQUEUE, RESUME

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.api.nodes import PoolObject
    from colane.client.client import Client

CONFLICT, NOT_FOUND = 409, 404
NO_ELEMENT: Final = 4294967294  # what Slurm writes for `%a` of a job that is no element (NO_VAL)

CHANGES: Final = {
    **{word: row for row in JOB_VERBS.values() for word in row.slurm if word != row.deed},
    **{row.deed.value: row for row in JOB_VERBS.values() if row.slurm},
}
ELSEWHERE: Final = {
    f"{REQUEUE.deed}hold": f"{REQUEUE.deed}, then hold",
    "top": "there is no order that users change",
    "reconfigure": "'colane config reload' reads limits and channels again, others when the scheduler starts",
    "create": "machines join by themselves: colane agent",
    "delete": "see colane nodes",
    "shutdown": "stop the scheduler's process",
    "ping": "see colane check",
    "reboot": "that is for the machine's own tools",
}


def run(words: Sequence[str], shims: str) -> int:
    """Show or change; return the exit code. Raises SlurmError: it is not known, or cannot be done."""
    del shims
    left = [word for word in words if word not in {"-o", "--oneliner", "-d", "--details", "-Q", "--quiet", "-v", "-dd"}]
    is_line = any(word in {"-o", "--oneliner"} for word in words)
    verb, rest = (left[0].lower(), left[1:]) if left else ("", [])
    if verb == "show":
        return _show(rest, is_line=is_line)
    if verb == "update":
        return _update(rest)
    if verb not in CHANGES:
        advice = ELSEWHERE.get(verb, f"it must be one of show, {', '.join(CHANGES)}")
        raise SlurmError(f"{verb or 'a command'} is not done here: {advice}")
    if not rest:
        raise SlurmError(f"{verb} needs the number of a job")
    with contact.client() as scheduler:
        codes = [_change(scheduler, verb, job_id, elements) for job_id, elements in names(rest)]
    return max(codes)


def _change(scheduler: Client, verb: str, job_id: int, elements: set[int] | None) -> int:
    code = 0
    for each in _ids(scheduler, job_id, elements):
        try:
            if CHANGES[verb] is REQUEUE and not SlurmRow(scheduler.job(each)).may_be_requeued:
                contact.note("scontrol", f"error: job {each} was submitted with --no-requeue: colane requeue {each}")
                code = 1
                continue
            scheduler.act(CHANGES[verb], each)
        except Refused as refused:
            if refused.status not in {CONFLICT, NOT_FOUND}:
                raise
            contact.note("scontrol", _refused(each, refused))
            code = 1
    return code


def _refused(job_id: int, refused: Refused) -> str:
    named, said = f"job {job_id}", str(refused)
    return f"error: {said}" if said.startswith(named) else f"error: {named}: {said}"


def _ids(scheduler: Client, job_id: int, elements: set[int] | None) -> list[int]:
    """Return the id of a job, or those of elements of an array."""
    if elements is None:
        return [job_id]
    array = scheduler.job(job_id).get("elements")
    known = None if array is None else known_indexes(array["indexes"])
    ordinals = [None if known is None else known.ordinal_of(index) for index in sorted(elements)]
    if None in ordinals:
        raise SlurmError(f"Invalid job id specified for job {job_id}")
    return [element_id(job_id, one) for one in ordinals if one is not None]


JOB_WORDS: Final = ("jobid", "job")


def _update(words: Sequence[str]) -> int:
    asked = dict(word.partition("=")[::2] for word in words)
    asked = {name.lower(): value for name, value in asked.items()}
    named = [asked.pop(word) for word in JOB_WORDS if word in asked]
    if not named:
        raise SlurmError("update is done of jobs alone: scontrol update JobId=12 TimeLimit=2:00:00")
    if not asked:
        raise SlurmError(f"update needs what to change: {', '.join(UPDATES)}")
    for name in asked:
        if name.rstrip("+-") not in {known.lower() for known in UPDATES}:
            raise SlurmError(
                f"update {name} is not done here, only {', '.join(UPDATES)}: cancel the job and submit it again"
            )
    code = 0
    with contact.client() as scheduler:
        for job_id, elements in names([named[-1]]):
            for each in _ids(scheduler, job_id, elements):
                try:
                    for name, value in asked.items():
                        UPDATES_BY_NAME[name.rstrip("+-")](scheduler, each, value, name[len(name.rstrip("+-")) :])
                except Refused as refused:
                    contact.note("scontrol", _refused(each, refused))
                    code = 1
    return code


def _time_limit(scheduler: Client, job_id: int, value: str, sign: str) -> None:
    try:
        limit_s = quantities.seconds(value)
    except ValueError as error:
        raise SlurmError(f"TimeLimit {error}") from error
    if sign:
        before_s = in_force(scheduler.job(job_id), "time_limit_s")
        if before_s is None or limit_s is None:
            raise SlurmError(
                f"TimeLimit{sign}={value}: job {job_id} has no time limit to change: give TimeLimit={value}"
            )
        limit_s = before_s + (limit_s if sign == "+" else -limit_s)
        if limit_s <= 0:
            raise SlurmError(f"TimeLimit{sign}={value}: nothing is left of the {duration(before_s)} of job {job_id}")
    scheduler.change(job_id, {"time_limit_s": limit_s})


def _at_once(scheduler: Client, job_id: int, value: str, sign: str) -> None:
    if sign or not (value.isascii() and value.isdecimal()):
        raise SlurmError(f"ArrayTaskThrottle must be a number, 0 for no limit, got {sign}{value!r}")
    scheduler.change(job_id, {"at_once": int(value) or None})


def _begin(scheduler: Client, job_id: int, value: str, sign: str) -> None:
    if sign:
        raise SlurmError(f"StartTime must be a time, got {sign}{value!r}")
    scheduler.act(RESUME, job_id, at=quantities.begin(value))


UPDATES: Final[Mapping[str, Callable[[Client, int, str, str], None]]] = {
    "TimeLimit": _time_limit, "ArrayTaskThrottle": _at_once, "StartTime": _begin,
}  # fmt: skip
"""What is changed of a job, by its Slurm name; each is told the value and the sign before the `=`."""

UPDATES_BY_NAME: Final = {name.lower(): change for name, change in UPDATES.items()}


def _show(words: Sequence[str], *, is_line: bool) -> int:
    what, rest = (words[0].lower(), words[1:]) if words else ("", [])
    if what in {"hostnames", "hostname"}:
        contact.print_lines(*_hosts(rest[0] if rest else os.environ.get("SLURM_JOB_NODELIST", "")))
        return 0
    if what == "hostlist":
        contact.print_lines(rest[0] if rest else "")
        return 0
    shown: Mapping[str, Callable[[Client, Sequence[str]], list[list[str]]]] = {
        "job": _jobs, "jobs": _jobs, "jobid": _jobs, "node": _nodes, "nodes": _nodes, "partition": _pools,
        "partitions": _pools, "config": _config, "res": _reservations, "reservation": _reservations,
        "reservations": _reservations,
    }  # fmt: skip
    what, _, joined = what.partition("=")
    if {"--json", "--yaml"} & set(words):
        raise SlurmError("--json is not done here: see colane show JOB --json, colane nodes --json")
    if what not in shown:
        raise SlurmError(
            f"show {what or 'nothing'} is not done here: show job, node, partition, res, config or hostnames"
        )
    with contact.client() as scheduler:
        for lines in shown[what](scheduler, [joined] if joined else rest):
            contact.print_lines(" ".join(lines) if is_line else "\n   ".join(lines), *([] if is_line else [""]))
    return 0


def _hosts(text: str) -> list[str]:
    """The machines of a list, each by a name that resolves here: where that is not its own, its agent's address."""
    try:
        names = nodes_named(text) if text else []
    except ValueError as error:
        raise SlurmError(f"show hostnames: {error}") from error
    if all(map(_resolves, names)):
        return names
    found = names
    with suppress(SchedulerError), contact.client() as scheduler:
        hosts = {node["name"]: urlsplit(node["address"]).hostname for node in scheduler.nodes()}
        found = [name if _resolves(name) else hosts.get(name) or name for name in names]
    if len(set(found)) < len(set(names)):
        found = names  # agents of one machine are told apart by name
    if lost := [name for name in found if not _resolves(name)]:
        contact.note("scontrol", f"{', '.join(lost)}: no host name here, and no agent's own address stands for it")
    return found


@lru_cache
def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _jobs(scheduler: Client, words: Sequence[str]) -> list[list[str]]:
    if words:
        missing: list[int] = []
        found = named_jobs(scheduler, names(words), missing=missing)
        if missing:
            raise SlurmError("Invalid job id specified")
    else:
        found = scheduler.live_jobs()
    rows = [*rows_of(found)]
    whole = {row.array: scheduler.job(row.array) for row in rows}  # a list leaves out what was submitted
    return [_job(row, whole[row.array]) for row in rows]


def _job(row: SlurmRow, whole: JobObject) -> list[str]:
    job = row.job
    limit_s, array = row.in_force("time_limit_s"), job.get("array_index")
    element = f" ArrayJobId={row.array} ArrayTaskId={row.index}" if row.waiting or array is not None else ""
    return [
        f"JobId={job['id']}{element} JobName={job['name']}",
        f"UserId={job['user']} Account={row.account or '(null)'} QOS={row.qos}",
        f"Priority={job['priority']}",
        f"JobState={row.state} Reason={row.reason} Dependency={row.in_force('after') or '(null)'}",
        f"Requeue={int(row.may_be_requeued)} Restarts={max(int(job['attempt']) - 1, 0)}",
        f"BatchFlag=1 Reboot=0 ExitCode={row.exit}",
        f"RunTime={duration(row.elapsed_s)} TimeLimit={duration(limit_s)}",
        (
            f"SubmitTime={moment(job['submit_s'])} StartTime={moment(row.start_s, 'Unknown')} "
            f"EndTime={moment(job.get('end_s'), 'Unknown')}"
        ),
        f"Partition={job['pool']} NodeList={row.nodes or '(null)'}",
        f"NumNodes={row.node_count} NumCPUs={row.cores} NumTasks={row.tasks} TRES={row.tres}",
        f"Comment={job['comment'] or '(null)'}",
        f"WorkDir={whole.get('workdir') or '(null)'}",
        *_files(row, whole),
    ]


def _files(row: SlurmRow, whole: JobObject) -> list[str]:
    """Where a batch script writes and reads: its patterns filled in, or as they are for elements that wait."""
    files, job = batch_files(whole.get("command") or ()), row.job
    if files is None or not files.out:
        return []
    values: dict[str, str | int] = {"x": job["name"], "u": job["user"] or "", "s": "batch", "n": 0, "t": 0, "%": "%"}
    if not row.waiting:
        index = job.get("array_index")
        values |= {"j": job["id"], "J": job["id"], "A": row.array, "a": NO_ELEMENT if index is None else index}
    if row.nodes:
        values["N"] = row.nodes.partition(",")[0]
    named = [file_name(pattern, values) for pattern in (files.err or files.out, files.input or "/dev/null", files.out)]
    return [f"{word}={path}" for word, path in zip(("StdErr", "StdIn", "StdOut"), named, strict=True)]


def _nodes(scheduler: Client, words: Sequence[str]) -> list[list[str]]:
    found = [SlurmNode(node, state_of(node)) for node in scheduler.nodes() if not words or node["name"] in words]
    if words and not found:
        raise SlurmError(f"Node {words[0]} not found")
    return [
        [
            f"NodeName={each.node['name']}",
            f"CPUTot={len(each.node['cores'])} Gres={each.gres}",
            f"NodeAddr={each.node['address'] or each.node['name']} NodeHostName={each.node['name']}",
            f"RealMemory={each.node['host_memory_bytes'] // 2**20}",
            f"State={LONG_STATES[each.state].upper()} Partitions={each.node['pool']}",
        ]
        for each in found
    ]


def _pools(scheduler: Client, words: Sequence[str]) -> list[list[str]]:
    pools: dict[str, list[str]] = {}
    for node in scheduler.nodes():
        pools.setdefault(node["pool"], []).append(node["name"])
    if words and words[0] not in pools:
        raise SlurmError(f"Partition {words[0]} not found")
    rules = scheduler.pools()
    return [
        [f"PartitionName={pool}", *allowed(rules.get(pool)), f"Nodes={','.join(nodes)} TotalNodes={len(nodes)}"]
        for pool, nodes in pools.items()
        if not words or pool in words
    ]


def allowed(rule: PoolObject | None) -> list[str]:
    """Whose jobs a pool takes, how they may be served, and for how long they run."""
    if rule is None:
        return ["AllowGroups=ALL MaxTime=UNLIMITED State=UP"]
    groups, users, qos = (",".join(rule[name] or ()) or "ALL" for name in ("groups", "users", "qos"))
    usual = "NONE" if rule["time_limit_default_s"] is None else duration(rule["time_limit_default_s"])
    open_to = f"AllowGroups={'ALL' if groups == 'ALL' and users == 'ALL' else groups} AllowQos={qos}"
    return [
        open_to if users == "ALL" else f"{open_to} AllowUsers={users}",
        f"DefaultTime={usual} MaxTime={duration(rule['time_limit_max_s'])} State=UP",
    ]


def _reservations(scheduler: Client, words: Sequence[str]) -> list[list[str]]:
    found = [one for one in scheduler.reservations() if not words or one["name"] in words]
    if words and not found:
        raise SlurmError(f"Reservation {words[0]} not found")
    lines = list[list[str]]()
    for one in found:
        state, begin, end, took = times_of(one)
        lines.append(
            [
                f"ReservationName={one['name']} StartTime={begin} EndTime={end} Duration={took}",
                f"Nodes={','.join(one['nodes'])} NodeCnt={len(one['nodes'])}",
                f"Users={','.join(one['users'])} Accounts=(null) State={state}",
            ]
        )
    return lines or [["No reservations in the system"]]


def _config(scheduler: Client, words: Sequence[str]) -> list[list[str]]:
    del words
    return [["ClusterName = colane", "SLURM_VERSION = 25.11.0", f"SlurmctldHost = {scheduler.url}"]]
