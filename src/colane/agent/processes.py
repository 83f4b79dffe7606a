"""Processes as Linux shows them: which they are for certain, what is below them, what they used."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from colane.agent.supervisor.shim_system import children
from colane.devices.host import boot_id

_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Fields of /proc/PID/stat behind the name, counted from the state (proc_pid_stat(5), field 3).
_STATE, _PARENT, _TIMES, _START, _RESIDENT = 0, 1, slice(11, 15), 19, 21
_DEAD_STATES = frozenset("ZXx")


class ProcessId(NamedTuple):
    """A process and no other: a pid comes again, with the same start in the same boot it does not."""

    pid: int
    start_ticks: int
    boot_id: str


class _Stat(NamedTuple):
    state: str
    parent: int
    own_ticks: int
    child_ticks: int
    start_ticks: int
    resident_bytes: int


def identify(pid: int) -> ProcessId | None:
    """Return the process under a pid now; None when there is none (a zombie counts as none)."""
    stat = _read_stat(pid)
    if stat is None or stat.state in _DEAD_STATES:
        return None
    return ProcessId(pid, stat.start_ticks, boot_id())


def open_pidfd(process: ProcessId) -> int | None:
    """Open a descriptor of exactly this process, readable when it ends; None when it is gone."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return None
    # The descriptor holds the process it was opened on, so looking after opening leaves no gap.
    if identify(process.pid) == process:
        return fd
    os.close(fd)
    return None


class Tree(NamedTuple):
    """A supervisor and everything below it."""

    processes: tuple[ProcessId, ...] = ()  # which they are, the supervisor first
    cpu_s: float = 0.0  # CPU time of what is below it, with that of children which have ended and been waited for
    resident_bytes: int = 0  # host memory that what is below it holds; what processes share counts for each of them
    is_stopped: bool = False  # whether something is below it, and all of that was stopped (SIGSTOP, Ctrl-Z)

    def __bool__(self) -> bool:
        """Whether any process is there."""
        return bool(self.processes)


def read_tree(pid: int) -> Tree:
    """Walk the processes from `pid` down."""
    pids = [pid]
    for parent in pids:
        pids += children(parent)
    stats = [(pid, stat) for pid in pids if (stat := _read_stat(pid)) is not None]
    processes = tuple(ProcessId(pid, stat.start_ticks, boot_id()) for pid, stat in stats)
    ticks = sum(stat.child_ticks + (stat.own_ticks if below != pid else 0) for below, stat in stats)
    resident_bytes = sum(stat.resident_bytes for below, stat in stats if below != pid)
    states = {stat.state for below, stat in stats if below != pid} - _DEAD_STATES
    return Tree(processes, ticks / _CLOCK_TICKS_PER_S, resident_bytes, states == {"T"})


def is_below(pid: int, root: ProcessId) -> bool:
    """Whether a process is `root` or was started below it."""
    while pid > 1 and pid != root.pid:
        stat = _read_stat(pid)
        pid = 0 if stat is None else stat.parent
    return pid == root.pid and identify(pid) == root


def is_marked(pid: int, marker: bytes, root: ProcessId) -> bool:
    """Whether a process carries a job's marker though it is not below its `root`: one in a container, for example.

    Only root's and those of the same user are believed.
    """
    try:
        owner, ours = (os.stat(f"/proc/{one}").st_uid for one in (pid, root.pid))  # noqa: PTH116 - no file
    except OSError:
        return False
    return owner in {0, ours} and identify(root.pid) == root and marker in _environment(pid)


def marked(marker: bytes) -> list[int]:
    """Find processes whose environment holds the marker (`NAME=value`), of any parent."""
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208 - names are enough
    return [pid for pid in pids if marker in _environment(pid)]


def kill(processes: Iterable[ProcessId]) -> bool:
    """SIGKILL each that is still the same process; whether there was any."""
    found = False
    for process in processes:
        fd = open_pidfd(process)
        if fd is not None:
            found = True
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.close(fd)
    return found


def terminate(process: ProcessId) -> None:
    """SIGTERM a process if it is still the same one."""
    fd = open_pidfd(process)
    if fd is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
        os.close(fd)


def own_number(pid: int) -> int:
    """Return how a process numbers itself, in its own pid namespace; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
        return pid  # a kernel without pid namespaces
    return 0


def variables(pid: int) -> dict[bytes, bytes]:
    """Return the environment a process was started with; empty when it is gone, or not ours to read."""
    parts = (entry.partition(b"=") for entry in _environment(pid))
    return {name: value for name, _, value in parts}


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _read_stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - read for each process every two seconds
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    user, system, child_user, child_system = map(int, fields[_TIMES])
    return _Stat(
        fields[_STATE].decode(),
        int(fields[_PARENT]),
        user + system,
        child_user + child_system,
        int(fields[_START]),
        int(fields[_RESIDENT]) * _PAGE_BYTES,
    )


def resident_bytes(pid: int) -> int:
    """Host memory that a process holds; 0 when it is gone."""
    stat = _read_stat(pid)
    return 0 if stat is None else stat.resident_bytes
