"""Moving a process's GPU memory to the host and back, by the driver (cuCheckpointProcess*, CUDA 12.8 and later).

The driver blocks the process's CUDA calls, copies its device memory into host memory of its own and lets go of the GPU;
addresses, streams and graphs are the same again after a restore. It works for single processes on x86-64 without
unified memory, CUDA IPC (before driver 610), NCCL communicators or MIG. With NCCL the driver may never answer, so each
call has its time; every PyTorch for GPUs has that library mapped, used or not, so its being there says nothing. A
restore without enough free memory leaves the process stuck for ever, so a restore has to see to it that no process
takes the memory meanwhile; here it is checked right before.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
SYMBOLS: Final = (
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
)
LOCK_TIMEOUT_MS: Final = 10_000
"""A job that waits at a step boundary has no work in flight, so the lock is a matter of milliseconds."""

ANSWER_MAX_S: Final = 30.0
MOVE_MAX_S: Final = 600.0
"""A call that takes longer never returns: nothing is asked of the driver after that. Memory of 80 GB goes to a host
that must find its pages first at 2 GB/s."""
_MOVES: Final = frozenset({"cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore"})

MARGIN_BYTES: Final = 512 * 2**20
"""Free memory wanted beyond what was saved: a context takes some hundred MB that NVML counts differently."""

_SUCCESS: Final = 0


class ProcessState(IntEnum):
    """CUprocessState."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CannotSuspendError(Exception):
    """It cannot be done; the message is one line that says why, and how the process is left if not as it was."""


class _LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs; what is reserved must be zero."""

    _fields_ = (("timeoutMs", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


@dataclass(frozen=True, slots=True)
class Saved:
    """A process whose GPU memory is on the host."""

    pid: int  # the process
    memory_bytes: int  # what it held of the GPU, and needs again


def problem(load: Callable[[str], Any] = ctypes.CDLL, machine: str = "") -> str:
    """Say why memory of processes cannot be moved off the GPUs of this machine; empty when it may be possible.

    It does not initialise the driver, which takes seconds.
    """
    try:
        _open(load, machine)
    except CannotSuspendError as error:
        return str(error)
    return ""


def _open(load: Callable[[str], Any], machine: str) -> Any:  # noqa: ANN401 - a library
    machine = machine or platform.machine()
    if machine != "x86_64":
        raise CannotSuspendError(f"processes can be moved off a GPU on x86_64 only, this is {machine}")
    try:
        library = load(LIBRARY)
    except OSError as error:
        raise CannotSuspendError(f"there is no NVIDIA driver here ({LIBRARY})") from error
    missing = [name for name in SYMBOLS if not hasattr(library, name)]
    if missing:
        raise CannotSuspendError(f"the driver is too old: it lacks {missing[0]} (it came with driver 570)")
    return library


class Suspender:
    """The driver's process checkpoints. Keep one: initialising the driver takes seconds.

    Args:
        load: Loads a library by name; `ctypes.CDLL` for the real one.
        machine: Kind of processor.

    Raises:
        CannotSuspendError: This machine or its driver cannot.
    """

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL, machine: str = "") -> None:
        self._cuda = _open(load, machine)
        self._silent = ""
        self._call("cuInit", 0)

    def state(self, pid: int) -> ProcessState:
        """Return how a process stands. Raises CannotSuspendError: it uses no GPU, or may not be looked at."""
        state = ctypes.c_int(-1)
        self._call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
        return ProcessState(state.value)

    def suspend(self, pid: int, memory_bytes: int) -> Saved:
        """Move a process's GPU memory to the host; it goes on until its next CUDA call, which waits.

        Args:
            pid: The process; it should wait at a step boundary.
            memory_bytes: What it holds of the GPU now, so that room can be kept for it.

        Raises:
            CannotSuspendError: It does not run on the GPU, or the driver refuses: it runs on, if the driver lets it.
        """
        state = self.state(pid)
        if state is ProcessState.RUNNING:
            lock = _LockArgs(timeoutMs=LOCK_TIMEOUT_MS)
            self._call("cuCheckpointProcessLock", pid, ctypes.byref(lock))
        elif state is not ProcessState.LOCKED:  # a process locked it and died before it went on
            raise CannotSuspendError(f"process {pid} is {state.name.lower()}, not running")
        try:
            self._call("cuCheckpointProcessCheckpoint", pid, None)
        except CannotSuspendError as error:
            left = self.state(pid)
            if left is ProcessState.LOCKED:
                self._call("cuCheckpointProcessUnlock", pid, None)
            elif left is not ProcessState.RUNNING:
                raise CannotSuspendError(f"{error}, and has left the process {left.name.lower()}") from error
            raise
        return Saved(pid, memory_bytes)

    def resume(self, saved: Saved, free_bytes: Callable[[], int], margin_bytes: int = MARGIN_BYTES) -> None:
        """Move a process's memory back to its GPU and let it go on.

        Args:
            saved: What `suspend` returned.
            free_bytes: Free memory of its GPU, asked right before; no other may take any until this returns.
            margin_bytes: Wanted beyond what was saved.

        Raises:
            CannotSuspendError: There is no room (it stays on the host and can be resumed later), or the driver refuses.
        """
        state = self.state(saved.pid)
        if state is ProcessState.CHECKPOINTED:
            need, have = saved.memory_bytes + margin_bytes, free_bytes()
            if have < need:
                raise CannotSuspendError(f"process {saved.pid} needs {need} bytes of its GPU, {have} are free")
            self._call("cuCheckpointProcessRestore", saved.pid, None)
        elif state is not ProcessState.LOCKED:
            raise CannotSuspendError(f"process {saved.pid} is {state.name.lower()}, not suspended")
        self._call("cuCheckpointProcessUnlock", saved.pid, None)

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - ctypes
        """Call the driver from a thread that may be left behind."""
        if self._silent:
            raise CannotSuspendError(f"the driver has not answered: {self._silent} does not return")
        codes: list[int] = []
        thread = threading.Thread(
            target=lambda: codes.append(getattr(self._cuda, name)(*arguments)), name=name, daemon=True
        )
        thread.start()
        limit_s = MOVE_MAX_S if name in _MOVES else ANSWER_MAX_S
        thread.join(limit_s)
        if not codes:
            self._silent = name
            raise CannotSuspendError(f"the driver does not answer: {name} has not returned for {limit_s:.0f} s")
        if codes[0] != _SUCCESS:
            raise CannotSuspendError(f"the driver refuses: {name} gives {self._error(codes[0])}")

    def _error(self, code: int) -> str:
        """Return the driver's name of an error."""
        text = ctypes.c_char_p()
        known = self._cuda.cuGetErrorName(code, ctypes.byref(text)) == _SUCCESS and text.value is not None
        return (text.value or b"").decode() if known else f"error {code}"
