"""Signals to the processes of jobs that run on this machine, which is where people and submitit send them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from colane.integrations.slurm.errors import SlurmError
from colane.model.arrays import element_id, known_indexes
from colane.verbs.of_jobs import REQUEUE

if TYPE_CHECKING:
    from colane.client.client import Client


def signal_named(text: str | None) -> int | None:
    """Return a signal's number: `USR2`, `SIGUSR2` or `12`; None where none is named.

    Raises:
        SlurmError: There is no such signal.
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
