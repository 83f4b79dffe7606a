"""Emulated GPUs that processes share: a page of memory for each, in which a kernel reserves its place in time.

Nothing runs. A kernel of so many seconds is given its beginning and its end on the clock of the machine when it is
launched; who waits for it sleeps until then. So device time is exact, however busy the machine is.

Kernels of all processes run one at a time in the order in which they were launched (`time-slicing`; a driver would
rather give each process an equal part of the time), or each stream for itself, all at once (`mps`). Under MPS a kernel
that fails for good fails all processes, and no new one is let in until these are gone. The standard library alone: the
job's Python and the tests' read this.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

HOME_ENV = "EMULATED_CUDA"
"""The directory in which the GPUs of a machine are."""

PAGE_BYTES = 8192
SLOTS_OFFSET, SLOTS = 64, 128
TOTAL_OFFSET = 24
"""Where the page says how much memory there is."""
_HEAD = struct.Struct("=dQQ")
"""When its last kernel ends, whether it is lost (1) and failed under MPS (2), nanoseconds of kernels so far."""
_LOST, _FAILED = 1, 2
_SLOT = struct.Struct("=QQQQ")
"""Process, when that was started (ticks), its context's bytes, and those of its allocator's blocks."""


class OutOfMemoryError(Exception):
    """The GPU has no room for it."""


class LostError(Exception):
    """The GPU has fallen off the bus."""


class BusyError(Exception):
    """The GPU is another process's alone."""


class FailedError(Exception):
    """A kernel of one of the processes that share it has failed for good; says whether this one is a new client."""

    def __init__(self, uuid: str, *, is_new: bool = False) -> None:
        super().__init__(uuid)
        self.is_new = is_new


@dataclass(frozen=True)
class Kind:
    """What an emulated GPU is like.

    Attributes:
        uuid: Its name.
        total_bytes: Its memory.
        context_bytes: What each process takes beside its tensors.
        run_ahead: How many kernels a process may have launched that have not ended.
        sharing: `time-slicing` or `mps`.
        is_exclusive: Whether one process may have it (compute mode EXCLUSIVE_PROCESS).
    """

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    total_bytes: int = 80 * 1024**3
    context_bytes: int = 450 * 1024**2
    run_ahead: int = 40
    sharing: str = "time-slicing"
    is_exclusive: bool = False


@dataclass(frozen=True)
class Span:
    """When a kernel was launched, began and ended, by the machine's monotonic clock."""

    launched_s: float
    began_s: float
    ended_s: float


def make(home: Path, *kinds: Kind) -> None:
    """Put GPUs into a directory."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "gpus.json").write_text(json.dumps([asdict(kind) for kind in kinds]))
    for kind in kinds:
        head = bytes(TOTAL_OFFSET) + kind.total_bytes.to_bytes(8, sys.byteorder)
        (home / kind.uuid).write_bytes(head.ljust(PAGE_BYTES, b"\0"))


def kinds_of(home: Path) -> list[Kind]:
    """Give the GPUs of a machine in their order."""
    return [Kind(**one) for one in json.loads((home / "gpus.json").read_text())]


def started_ticks(pid: int) -> int:
    """When a process was started; 0 of one that is gone."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = data[data.rindex(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


class Gpu:
    """One GPU as one process has it open."""

    def __init__(self, home: Path, kind: Kind) -> None:
        self.kind = kind
        self._record = home / f"checkpoint.{os.getpid()}"
        self._file = os.open(home / kind.uuid, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(self._file, PAGE_BYTES)
        weakref.finalize(self, os.close, self._file)
        self._threads = threading.RLock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between processes the lock goes with the process that held it, whatever becomes of that."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def reserve(self, ready_s: float, kernel_s: float, launched_s: float) -> Span:
        """Give a kernel its time, not before its stream is ready.

        Raises:
            LostError: The GPU is lost.
            FailedError: It is shared through MPS, and a kernel has failed.
        """
        with self._alone():
            free_s, _, busy_ns = _HEAD.unpack_from(self._map)
            self.check()
            one_at_a_time = self.kind.sharing != "mps"
            began_s = max(launched_s, ready_s, free_s if one_at_a_time else 0.0)
            span = Span(launched_s, began_s, began_s + kernel_s)
            _HEAD.pack_into(self._map, 0, max(free_s, span.ended_s), 0, busy_ns + int(kernel_s * 1e9))
        return span

    def wait_for_driver(self) -> None:
        """Wait while the driver has this process locked or off the GPU, as `libcuda.c` writes down."""
        while self._record.exists() and any(self._record.read_bytes()[:4]):
            time.sleep(0.01)

    @property
    def busy_s(self) -> float:
        """Seconds of all kernels that were launched so far."""
        return float(_HEAD.unpack_from(self._map)[2]) * 1e-9

    @property
    def is_lost(self) -> bool:
        """Whether it does not answer any more."""
        return bool(_HEAD.unpack_from(self._map)[1] & _LOST)

    def check(self) -> None:
        """See whether it works for this process, which is a client of it.

        Raises:
            LostError: The GPU is lost.
            FailedError: It is shared through MPS, and a kernel has failed.
        """
        flags = _HEAD.unpack_from(self._map)[1]
        if flags & _LOST:
            raise LostError(self.kind.uuid)
        if flags & _FAILED:
            raise FailedError(self.kind.uuid)

    def fail(self) -> None:
        """A kernel fails for good: shared through MPS, it fails for all processes until they are gone."""
        if self.kind.sharing == "mps":
            self._mark(_FAILED, is_set=True)

    def lose(self, *, lost: bool = True) -> None:
        """Let it fall off the bus, or come back."""
        self._mark(_LOST, is_set=lost)

    def _mark(self, flag: int, *, is_set: bool) -> None:
        with self._alone():
            free_s, flags, busy_ns = _HEAD.unpack_from(self._map)
            _HEAD.pack_into(self._map, 0, free_s, flags | flag if is_set else flags & ~flag, busy_ns)

    def held(self) -> dict[int, int]:
        """Bytes of each process that lives."""
        with self._alone():
            return {pid: context + blocks for _, pid, _, context, blocks in self._living()}

    def hold(self, blocks_bytes: int) -> None:
        """Let this process have a context, and so much memory for its blocks.

        Raises:
            OutOfMemoryError: There is not as much.
            LostError: The GPU is lost.
            FailedError: It is shared through MPS, and a kernel has failed.
        """
        own = os.getpid()
        with self._alone():
            living = list(self._living())
            if not living:
                self._mark(_FAILED, is_set=False)
            try:
                self.check()
            except FailedError as error:
                raise FailedError(self.kind.uuid, is_new=own not in {pid for _, pid, *_ in living}) from error
            if self.kind.is_exclusive and any(pid != own for _, pid, *_ in living):
                raise BusyError(self.kind.uuid)
            others = sum(context + blocks for _, pid, _, context, blocks in living if pid != own)
            if others + self.kind.context_bytes + blocks_bytes > self.kind.total_bytes:
                raise OutOfMemoryError(f"{self.kind.uuid}: {others} bytes are others'")
            taken = {slot: pid for slot, pid, *_ in living}
            slot = next((slot for slot, pid in taken.items() if pid == own), None)
            if slot is None:
                slot = next(slot for slot in range(SLOTS) if slot not in taken)
            entry = (own, started_ticks(own), self.kind.context_bytes, blocks_bytes)
            _SLOT.pack_into(self._map, SLOTS_OFFSET + slot * _SLOT.size, *entry)

    def _living(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Slots of processes that live; memory of one that is gone is free, as the driver sees to."""
        for slot in range(SLOTS):
            pid, ticks, context, blocks = _SLOT.unpack_from(self._map, SLOTS_OFFSET + slot * _SLOT.size)
            if pid and started_ticks(pid) == ticks:
                yield slot, pid, ticks, context, blocks
