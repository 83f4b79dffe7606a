"""`scancel`: cancel jobs, or send them a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colane.client.errors import Refused
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.rows import LIVE_MAX, named_jobs, names, rows_of
from colane.integrations.slurm.squeue import filter_of
from colane.model.arrays import element_id, known_indexes
from colane.verbs.of_jobs import REQUEUE

if TYPE_CHECKING:
    from colane.client.client import Client


# -- Signals to the processes of jobs that run on this machine, which is where people and submitit send them.


def signal_named(text: str | None) -> int | None:
    """Return a signal's number: `USR2`, `SIGUSR2` or `12`; None where none is named.

    Raises SlurmError: there is no such signal.
    """
    if text is None:
        return None
    try:
        return (
            signal.Signals(int(text)) if text.isdecimal() else signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
        )
    except (KeyError, ValueError) as error:
        raise SlurmError(f"--signal: there is no signal {text!r}; name one as USR1, TERM or 10") from error


def send(scheduler: Client, job_id: int, elements: set[int] | None, number: int) -> str:
    """Send a signal to the tasks of a job; return what to complain of."""
    job = scheduler.job(job_id)
    ids = [job_id]
    if (array := job.get("elements")) is not None:
        known = known_indexes(array["indexes"])
        asked = map(known.ordinal_of, sorted(elements or ()))
        wanted = range(array["count"]) if elements is None else [one for one in asked if one is not None]
        ids = [element_id(job_id, one) for one in wanted]
    told = 0
    for each in ids:
        for pid in _listeners(each):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                told += 1
    if told:
        return ""
    return (
        f"Kill job error on job id {job_id}: no process of it runs on this machine under your name; signals are passed "
        f"on from there alone ('colane {REQUEUE.deed} JOB' asks a job with --signal to save from anywhere)"
    )


def _listeners(job_id: int) -> list[int]:
    """The `srun`s of a job, which pass a signal on to their tasks; where it has none, its first process."""
    of_job = dict(_processes(job_id))
    steps = [pid for pid, words in of_job.items() if any(word.rpartition(b"/")[2] == b"srun" for word in words[:5])]
    if steps:
        return steps
    parents = {pid: _parent(pid) for pid in of_job}
    return [pid for pid, parent in parents.items() if parent not in of_job][:1]


def _processes(job_id: int) -> Iterator[tuple[int, list[bytes]]]:
    mark = f"COLANE_JOB_ID={job_id}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


VALUED: Final = (
    "-u,--user -n,--name,--jobname -t,--state -p,--partition -s,--signal -A,--account -q,--qos -w,--nodelist "
    "-M,--clusters"
)
FLAGS: Final = "--me -b,--batch -f,--full -Q,--quiet -v,--verbose -H,--hurry -c,--ctld --wckey"
REFUSED: Final = {
    "-i": "leave it out: it does not ask",
    "--interactive": "leave it out: it does not ask",
}
KILL: Final = 9


def run(words: Sequence[str], shims: str) -> int:
    """Cancel jobs, or signal those that run; return the exit code.

    Raises SlurmError: nothing is named, or something that is not there.
    """
    del shims
    asked = getopt.read(words, VALUED, FLAGS, refused=REFUSED)
    number = signal_named(asked.last("signal"))
    filters = any(asked.has(name) for name in ("user", "me", "jobname", "state", "partition", "account", "nodelist"))
    if not asked.rest and not filters:
        raise SlurmError("No job identification provided: scancel JOB..., or --me, --user, --name, --state")
    code = 0
    with contact.client() as scheduler:
        if (user := _whose_queued(asked)) is not None:
            scheduler.cancel_queued(user=user)
        wanted = _found(scheduler, asked) if filters else names(asked.rest)
        for job_id, elements in wanted:
            said = _end(scheduler, job_id, elements, number)
            if said and not asked.has("quiet"):
                contact.note("scancel", f"error: {said}")
            code |= bool(said)
    return code


def _whose_queued(asked: getopt.VerbWords) -> str | None:
    """Return the user of which all that waits is meant: that is one request, however many jobs these are."""
    taken = filter_of(asked, states="state", name="jobname")
    others = taken.jobs or taken.pools or taken.accounts or taken.nodes
    is_all = not (asked.rest or others or asked.has("signal") or asked.has("qos"))
    return next(iter(taken.users)) if is_all and len(taken.users) == 1 and taken.states == {"PENDING"} else None


def _found(scheduler: Client, asked: getopt.VerbWords) -> list[tuple[int, set[int] | None]]:
    """What filters take of all jobs, or of those that are named: jobs, whole arrays, or some elements of an array."""
    taken = filter_of(asked, states="state", name="jobname")
    missing: list[int] = []
    if asked.rest:
        jobs = named_jobs(scheduler, names(asked.rest), missing=missing)
    else:
        jobs = scheduler.listing(LIVE_MAX, elements=True)["jobs"]
    is_by_element = bool(asked.rest) or asked.has("state") or asked.has("nodelist")
    found: dict[int, set[int] | None] = dict.fromkeys(missing)  # what is not there is complained of
    for row in rows_of(jobs, expand=True):
        if not taken.takes(row):
            continue
        if not row.index.isdecimal() or not is_by_element:
            found[row.array] = None
        elif (some := found.setdefault(row.array, set())) is not None:
            some.add(int(row.index))
    return list(found.items())


def _end(scheduler: Client, job_id: int, elements: set[int] | None, number: int | None) -> str:
    """Cancel or signal; return what to complain of."""
    try:
        if number is not None and number != KILL:
            return send(scheduler, job_id, elements, number)
        if elements is None:
            scheduler.cancel(job_id)
        else:
            scheduler.cancel(job_id, elements=",".join(map(str, sorted(elements))))
    except Refused as refused:
        if refused.status == 404:
            return f"Kill job error on job id {job_id}: Invalid job id specified"
        if refused.status == 403:
            return f"Kill job error on job id {job_id}: Access/permission denied"
        if refused.status != 409:  # one that has ended is as it should be
            raise
    return ""
