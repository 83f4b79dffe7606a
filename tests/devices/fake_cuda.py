"""A double of the driver's process checkpoints that keeps its rules: who calls in a wrong state is refused."""

# ruff: noqa: N802 - the names are the driver's

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from colane.devices.suspend import ProcessState, Suspender

NOT_SUPPORTED, INVALID_VALUE, ILLEGAL_STATE = 801, 1, 401
NAMES = {NOT_SUPPORTED: b"CUDA_ERROR_NOT_SUPPORTED", ILLEGAL_STATE: b"CUDA_ERROR_ILLEGAL_STATE"}


@dataclass
class FakeCuda:
    """Processes that use a GPU, by pid; `refuses` names the call that this driver does not support."""

    states: dict[int, ProcessState] = field(default_factory=dict)
    refuses: str = ""
    calls: list[str] = field(default_factory=list)

    def suspender(self) -> Suspender:
        """The module under test on this driver."""
        return Suspender(lambda _name: self, "x86_64")

    def cuInit(self, _flags: int) -> int:
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        text._obj.value = NAMES.get(code)
        return 0 if code in NAMES else INVALID_VALUE

    def cuCheckpointProcessGetState(self, pid: int, state: Any) -> int:
        if pid not in self.states:
            return INVALID_VALUE
        state._obj.value = self.states[pid].value
        return 0

    def cuCheckpointProcessLock(self, pid: int, args: Any) -> int:
        assert args._obj.timeoutMs > 0
        assert not any(args._obj.reserved1)
        return self._move("lock", pid, ProcessState.RUNNING, ProcessState.LOCKED)

    def cuCheckpointProcessCheckpoint(self, pid: int, _args: None) -> int:
        return self._move("checkpoint", pid, ProcessState.LOCKED, ProcessState.CHECKPOINTED)

    def cuCheckpointProcessRestore(self, pid: int, _args: None) -> int:
        return self._move("restore", pid, ProcessState.CHECKPOINTED, ProcessState.LOCKED)

    def cuCheckpointProcessUnlock(self, pid: int, _args: None) -> int:
        return self._move("unlock", pid, ProcessState.LOCKED, ProcessState.RUNNING)

    def _move(self, what: str, pid: int, before: ProcessState, after: ProcessState) -> int:
        self.calls.append(what)
        if self.refuses == what:
            return NOT_SUPPORTED
        if self.states[pid] is not before:
            return ILLEGAL_STATE
        self.states[pid] = after
        return 0
