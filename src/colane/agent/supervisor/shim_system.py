"""What the shim and `ranks` ask of the kernel: attributes of processes, the tree below one, its memory, signals.

Standard library alone, and of that only what starts fast: see `shim`.
"""

# ruff: noqa: PTH208, PLC0415 - pathlib and eager imports slow every start

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import sys
from collections.abc import Callable

HARMLESS = frozenset({signal.SIGSTOP, signal.SIGCONT})
"""Signals that end no process that does not catch them."""

READ_BYTES = 1 << 18

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261}


_before: Callable[[list[int]], object] = len
"""What `before_killing` was given; at first nothing that does anything."""


def before_killing(call: Callable[[list[int]], None]) -> None:
    """Have this called with the processes that a signal is about to end, each time."""
    global _before  # noqa: PLW0603  # one for each process
    _before = call


def become_user(uid: int, gid: int, *groups: int) -> None:
    """Be another user from now on, without a way back; the groups first, for a plain user may not change them."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def write_files_as(uid: int, gid: int) -> None:
    """Have the file system take what this thread does as another user's, for good: its quota and its room on the disk.

    The thread stays ours: its other ids are what decides who may send it signals.
    """
    libc("setfsgid", gid)
    libc("setfsuid", uid)
    libc("capset", (0x20080522).to_bytes(4, sys.byteorder) + bytes(4), bytes(24))  # CAP_SYS_RESOURCE goes beyond quotas


def die_with(supervisor_pid: int) -> None:
    """Have the kernel kill this process when its supervisor dies."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:  # it died before we asked to die with it
        os._exit(127)


def restore_signals() -> None:
    """Python ignores SIGPIPE and SIGXFSZ, `nohup` SIGHUP, a script's `&` SIGINT and SIGQUIT; jobs expect none."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def libc(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library."""
    try:
        import _ctypes

        result = _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen("", 0), name), arguments)
    except (ImportError, AttributeError):  # another Python than the one this was tried with
        import ctypes

        result = getattr(ctypes.CDLL(None), name)(*arguments)
    return int(result)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process in the kernel; OSError when it refuses."""
    if libc("prctl", option, value, 0, 0, 0) != 0:
        raise OSError(0, f"prctl({option}, {value}) was refused")


def prefer_memory(nodes: tuple[int, ...]) -> bool:
    """Take this process's memory from these NUMA nodes first (set_mempolicy(2)); False where that is not permitted."""
    if not nodes or (number := SET_MEMPOLICY.get(os.uname().machine)) is None:
        return not nodes
    words = max(nodes) // 64 + 1
    mask = sum(1 << node for node in set(nodes)).to_bytes(8 * words, sys.byteorder)
    mode = 1 if len(nodes) == 1 else 5  # MPOL_PREFERRED, MPOL_PREFERRED_MANY
    return libc("syscall", number, mode, mask, 64 * words + 1) == 0


def descendants() -> list[int]:
    """Every process below this one, zombies included."""
    found, todo = [], children(os.getpid())
    while todo:
        found.append(todo.pop())
        todo += children(found[-1])
    return found


def children(pid: int) -> list[int]:
    """Children of all threads of a process; none when it is gone."""
    root = f"/proc/{pid}/task"
    try:
        paths = [f"{root}/{thread}/children" for thread in os.listdir(root)]
        return [int(child) for path in paths for child in read_file(path).split()]
    except OSError:
        return []


def used_memory_bytes(limit_bytes: int) -> int:
    """Host memory of all processes below this one; what they share counts once where the sum is over the limit.

    Telling what is shared takes the kernel a walk through all pages, so it is asked only then.
    """
    pids = descendants()
    resident_bytes = sum(map(resident_memory_bytes, pids))
    return sum(map(proportional_memory_bytes, pids)) if resident_bytes > limit_bytes else resident_bytes


def resident_memory_bytes(pid: int) -> int:
    """Memory that is mapped in a process, shared or not; 0 when it is gone."""
    try:
        return int(read_file(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def proportional_memory_bytes(pid: int) -> int:
    """Memory of a process with its part of what it shares (proc_pid_smaps(5)); all of it where that is not shown."""
    try:
        lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return resident_memory_bytes(pid)
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


def kill_tree() -> None:
    """SIGKILL to all, again until none is found that has not got it: a fork may slip through one pass."""
    killed: set[int] = set()
    while fresh := [pid for pid in descendants() if pid not in killed]:
        _before(fresh)
        for pid in fresh:
            send(pid, signal.SIGKILL)
        killed.update(fresh)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone or, having gained privileges, not be ours to signal."""
    if number == signal.SIGKILL or not (number in HARMLESS or catches(pid, number) or ignores(pid, number)):
        _before([pid])
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read a small file."""
    return read_all(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def read_all(fd: int) -> bytes:
    """Read up to the end, and close."""
    parts = []
    try:
        while part := os.read(fd, READ_BYTES):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def read_stat(pid: int) -> tuple[bytes, int]:
    """State of a process and when it started, in clock ticks since boot; nothing and 0 when it is gone.

    Fields 3 and 22 of proc_pid_stat(5).
    """
    try:
        fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError):
        return b"", 0


def read_start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone."""
    return read_stat(pid)[1]


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of a signal; False of one that is gone."""
    return _has_signal(pid, b"SigCgt:", number)


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal; False of one that is gone."""
    return _has_signal(pid, b"SigIgn:", number)


def _has_signal(pid: int, mask: bytes, number: int) -> bool:
    """Whether a signal is in a mask of proc_pid_status(5)."""
    try:
        lines = read_file(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False
    bits = next((int(line.split()[1], 16) for line in lines if line.startswith(mask)), 0)
    return bool(bits >> (number - 1) & 1)


def count_oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot; 0 where it does not count."""
    try:
        lines = read_file("/proc/vmstat").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
