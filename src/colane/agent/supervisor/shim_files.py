"""The shim's files: which process claims a job's directory, records that appear whole, the lease, the output.

Standard library alone, and of that only what starts fast: see `shim`.
"""

# ruff: noqa: PTH104, PTH108 - pathlib slows every start

from __future__ import annotations

import json
import os
import select
import time

from colane.agent.supervisor.shim_system import read_file, read_start_ticks

COMMAND, CLAIM, STARTED, EXIT, LOG_PREFIX = "command", "claim", "started", "exit", "log."
MEMORY_LIMIT = "memory_limit"
"""Bytes of host memory that the job may use now, where that is not what `command` says any more."""
STOP = "stop"
"""An order to end the job, which the agent then gives by SIGTERM: `cause`, `outcome`, `signal`, `lead_s`."""
ASKED = "asked.json"
"""What the job was asked to save last: `at_s`, `signal`, and the processes `told`."""
LEASE = "lease"
"""In the agent's directory, two above a job's: when its jobs must stop and be gone, unless it is renewed before."""
LEASE_PATH = f"../../{LEASE}"

LEASE_READS = 3
"""Readings before one that is being written is given up."""

HALT, STANDS = "halt", "stands"
"""An order that all processes stand until it is taken back, and which order they stand by."""

HALT_MARGIN_S = 1.0
"""A job is halted so long before it would have to be gone: its supervisor may wake late on a busy machine."""
HALTED_MAX_S = 900.0
"""A job that was halted for so long is killed: it may hold a lock that the one started elsewhere waits for."""

LOG_SEGMENTS = 8
"""A log over its cap keeps its first and its latest half; it is dropped in pieces of an eighth."""

RETRY_S = 1.0
"""After a failed write (disk full) output is thrown away this long, so that the job never waits for a disk; the exit
record is tried again as often."""

RECORD_BYTES = 4096
"""Reserved for the exit record before the job starts, so that a job that fills the disk still ends on record."""


def claim() -> bool:
    """Make the current directory this process's own; False when another process has it."""
    draft, boot = f"{CLAIM}.{os.getpid()}", read_file("/proc/sys/kernel/random/boot_id").decode().strip()
    # Pid, start time and boot of a process: together they never come again.
    publish(draft, f"{os.getpid()} {read_start_ticks(os.getpid())} {boot}\n", durable=False)
    try:
        os.link(draft, CLAIM)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def reserve() -> None:
    """Keep room on the disk for the exit record; on a full disk `publish_exit` waits for room instead."""
    fd = os.open(f"{EXIT}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, RECORD_BYTES)
    except OSError:
        return
    finally:
        os.close(fd)


def publish(name: str, text: str, *, durable: bool) -> None:
    """Make a file appear whole; with `durable` it survives a power cut."""
    fd = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        length = os.pwrite(fd, text.encode(), 0)
        os.ftruncate(fd, length)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(f"{name}.new", name)
    if durable:  # the new name too
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(directory)
        os.close(directory)


def publish_exit(text: str, wake_fd: int) -> None:
    """Write the exit record, trying again while the disk refuses; without its directory no agent waits for it."""
    waiter = select.poll()
    waiter.register(wake_fd, 0)
    while True:
        try:
            publish(EXIT, text, durable=True)
        except FileNotFoundError:
            return
        except OSError:
            waiter.poll(RETRY_S * 1000)
        else:
            return


def since_boot_s() -> float:
    """Seconds since boot: the clock of leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_line(stop_s: float, kill_s: float) -> bytes:
    """The lease as it is written: always as long, and said twice, so that a torn one is told from a whole one."""
    text = f"{stop_s:20.3f} {kill_s:20.3f}"
    return f"{text} {text}\n".encode()


def read_lease(path: str) -> tuple[float, float] | None:
    """When to ask the job to end, where it cannot be halted, and when it must be gone; None where there is no lease."""
    for _ in range(LEASE_READS):
        try:
            fields = read_file(path).split()
        except OSError:
            return None
        if len(fields) == 4 and fields[:2] == fields[2:]:
            return float(fields[0]), float(fields[1])
    return None


def read_order() -> str:
    """By which order the job of the current directory is to stand; empty where there is none."""
    try:
        return read_file(HALT).decode()
    except OSError:
        return ""


def halt_at_s(lease: tuple[float, float]) -> float:
    """When a job is halted whose lease was not renewed."""
    return max(lease[0], lease[1] - HALT_MARGIN_S)


def read_object(path: str) -> dict[str, object]:
    """What a file of JSON says; nothing where there is none, or no whole one."""
    try:
        said = json.loads(read_file(path))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def read_memory_limit(otherwise_bytes: int) -> int:
    """Bytes of host memory that the job of the current directory may use now; as before where none are given."""
    try:
        return int(read_file(MEMORY_LIMIT))
    except (OSError, ValueError):
        return otherwise_bytes


class CappedLog:
    """The job's output on disk, at most a cap of it: the first half and the latest half."""

    def __init__(self, cap_bytes: int) -> None:
        self.seen_bytes = 0
        self.truncated = False
        self._segment_bytes = max(cap_bytes // LOG_SEGMENTS, 1)
        self._segments: list[str] = []
        self._fd = -1
        self._room_bytes = 0
        self._retry_at_s = 0.0

    def write(self, data: bytes) -> None:
        """Keep the data, or lose it and remember that: never wait, never fail."""
        view = memoryview(data)
        while view:
            written = self._write_some(view)
            self.seen_bytes += written or len(view)
            view = view[written:] if written else view[:0]

    def close(self) -> None:
        """Leave the segment written so far."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._room_bytes = -1, 0

    def _write_some(self, view: memoryview) -> int:
        """Write into the segment, give the number of bytes; 0 means that the rest is lost."""
        if time.monotonic() < self._retry_at_s:
            return 0
        try:
            if self._room_bytes == 0:
                self._open_segment()
            written = os.write(self._fd, view[: self._room_bytes])
        except OSError:
            self._give_up()
            return 0
        self._room_bytes -= written
        return written

    def _open_segment(self) -> None:
        self.close()
        if len(self._segments) >= LOG_SEGMENTS:
            self.truncated = True
            os.unlink(self._segments.pop(LOG_SEGMENTS // 2))
        name = f"{LOG_PREFIX}{self.seen_bytes}"
        self._fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._segments.append(name)
        self._room_bytes = self._segment_bytes

    def _give_up(self) -> None:
        """The next segment begins behind what is lost; an empty one would stand in its way."""
        self.truncated = True
        self._retry_at_s = time.monotonic() + RETRY_S
        if self._fd >= 0 and self._room_bytes == self._segment_bytes:
            os.unlink(self._segments.pop())
        self.close()
