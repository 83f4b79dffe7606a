"""Asks jobs to save their state by the signal they have named, once for each asking.

`shim_ending` says which processes get the signal: a handler that saves is to run once for each rank.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from colane.agent import processes
from colane.agent.files.jobdir import JobDir, asked, read_json, write_json
from colane.agent.gate.page import ControlPage
from colane.agent.processes import ProcessId
from colane.agent.reconcile import DesiredJob, Key, SaveRequest
from colane.agent.supervisor.shim import TO_SHELL_ENV
from colane.agent.supervisor.shim_ending import audience
from colane.agent.supervisor.shim_files import ASKED

DEAF: Final = "job {key} does not catch {signal}, by which it is to be asked to save its state (--checkpoint)"

NOT_WRITTEN: Final = "job {key} is not asked to save its state before that can be written down: {problem}"

PROGRAM_WORDS = 4  # a program of ours is run as these many words: Python, its two options, the program


class Saver:
    """Tells jobs of this node to save their state."""

    def __init__(self, find: Callable[[Key], JobDir], programs: Path) -> None:
        """Begin.

        Args:
            find: Gives a job's directory.
            programs: Where those of ours are, of whatever version: what a process of theirs catches is not the job's.
        """
        self._find = find
        self._programs = os.fsencode(programs) + b"/"
        self._deaf: dict[Key, str] = {}

    def follow(self, jobs: Iterable[DesiredJob]) -> None:
        """Tell those that are to save and do not know yet; one that catches no signal yet is told in a later round."""
        requests = {job.key: job.save for job in jobs if job.save is not None and job.run}
        self._deaf = {key: said for key, said in self._deaf.items() if key in requests}
        for key, request in requests.items():
            job = self._find(key)
            if asked(job.path)[0] < request.number:
                self._tell(job, request)

    def messages(self) -> tuple[str, ...]:
        """Jobs that are to save and cannot be told."""
        return tuple(self._deaf.values())

    def _tell(self, job: JobDir, request: SaveRequest) -> None:
        number, claimed_by, told_s = signal.Signals.__members__.get(request.signal), job.claimed_by(), time.time()
        if number is None:
            self._deaf[job.key] = (
                f"job {job.key} cannot be asked to save its state: there is no signal {request.signal} here"
            )
            return
        listeners = [] if claimed_by is None else self._catchers(claimed_by.pid, number, to_shell=_to_shell(job))
        with suppress(OSError):
            page = ControlPage(job.steps_path)
            page.want_ranks(request.ranks)
            page.close()
        before = read_json(job.path / ASKED)
        had = [(process.pid, process.start_ticks) for process in listeners]
        record = {"number": request.number, "at_s": told_s, "signal": request.signal, "told": had}
        try:  # before the signal: the end of a job that has had it must not be taken for one by itself
            if listeners:
                write_json(job.path / ASKED, record)
        except OSError as error:
            self._deaf[job.key] = NOT_WRITTEN.format(key=job.key, problem=error.strerror)
            return
        told = [process for process in listeners if _send(process, number)]
        if told:
            self._deaf.pop(job.key, None)
            return
        self._deaf[job.key] = DEAF.format(key=job.key, signal=request.signal)
        if listeners:
            _write_back(job, before)

    def _catchers(self, supervisor_pid: int, number: int, *, to_shell: bool) -> list[ProcessId]:
        """Those below a supervisor that a signal is for: the first that catch it."""
        pids = [pid for pid in audience(supervisor_pid, number, to_shell=to_shell) if not self._is_ours(pid)]
        return [process for pid in pids if (process := processes.identify(pid)) is not None]

    def _is_ours(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return any(word.startswith(self._programs) for word in words[:PROGRAM_WORDS])


def _to_shell(job: JobDir) -> bool:
    """Whether the signal is for the job's script alone."""
    try:
        return TO_SHELL_ENV in job.command().env
    except (OSError, ValueError):
        return False


def _write_back(job: JobDir, before: Mapping[str, Any] | None) -> None:
    """No process has got the signal after all: what was written before holds."""
    with suppress(OSError):
        if before is None:
            (job.path / ASKED).unlink()
        else:
            write_json(job.path / ASKED, before)


def _send(process: ProcessId, number: int) -> bool:
    """Send a signal to exactly this process; whether it was there."""
    fd = processes.open_pidfd(process)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True
