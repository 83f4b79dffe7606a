"""Moving a process's GPU memory to the host: against a double of the driver that keeps its rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from colane.devices.suspend import CannotSuspendError, ProcessState, Saved, Suspender

PID, GIB = 4711, 2**30
NOT_SUPPORTED, INVALID_VALUE, ILLEGAL_STATE = 801, 1, 401
NAMES = {NOT_SUPPORTED: b"CUDA_ERROR_NOT_SUPPORTED", ILLEGAL_STATE: b"CUDA_ERROR_ILLEGAL_STATE"}


@dataclass
class FakeCuda:
    """One process that uses a GPU; calls in a wrong state are refused, a restore without room hangs it for ever."""

    states: dict[int, ProcessState] = field(default_factory=lambda: {PID: ProcessState.RUNNING})
    refuses: str = ""
    calls: list[str] = field(default_factory=list)

    def cuInit(self, _flags: int) -> int:  # noqa: N802 - the driver's names
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = NAMES.get(code)
        return 0 if code in NAMES else INVALID_VALUE

    def cuCheckpointProcessGetState(self, pid: int, state: Any) -> int:  # noqa: N802
        if pid not in self.states:
            return INVALID_VALUE
        state._obj.value = self.states[pid].value
        return 0

    def cuCheckpointProcessLock(self, pid: int, args: Any) -> int:  # noqa: N802
        assert args._obj.timeoutMs > 0
        assert not any(args._obj.reserved1)
        return self._move("lock", pid, ProcessState.RUNNING, ProcessState.LOCKED)

    def cuCheckpointProcessCheckpoint(self, pid: int, _args: None) -> int:  # noqa: N802
        return self._move("checkpoint", pid, ProcessState.LOCKED, ProcessState.CHECKPOINTED)

    def cuCheckpointProcessRestore(self, pid: int, _args: None) -> int:  # noqa: N802
        return self._move("restore", pid, ProcessState.CHECKPOINTED, ProcessState.LOCKED)

    def cuCheckpointProcessUnlock(self, pid: int, _args: None) -> int:  # noqa: N802
        return self._move("unlock", pid, ProcessState.LOCKED, ProcessState.RUNNING)

    def _move(self, what: str, pid: int, before: ProcessState, after: ProcessState) -> int:
        self.calls.append(what)
        if self.refuses == what:
            return NOT_SUPPORTED
        if self.states[pid] is not before:
            return ILLEGAL_STATE
        self.states[pid] = after
        return 0


def suspender(cuda: FakeCuda) -> Suspender:
    return Suspender(lambda _name: cuda, "x86_64")


def test_a_process_leaves_the_gpu_and_comes_back() -> None:
    cuda = FakeCuda()
    driver = suspender(cuda)
    saved = driver.suspend(PID, 8 * GIB)
    assert (saved, driver.state(PID)) == (Saved(PID, 8 * GIB), ProcessState.CHECKPOINTED)
    driver.resume(saved, lambda: 80 * GIB)
    assert driver.state(PID) is ProcessState.RUNNING
    assert cuda.calls == ["lock", "checkpoint", "restore", "unlock"]


def test_nothing_is_restored_without_room_and_it_can_be_tried_again() -> None:
    cuda = FakeCuda()
    driver = suspender(cuda)
    saved = driver.suspend(PID, 8 * GIB)
    with pytest.raises(CannotSuspendError, match=f"needs {9 * GIB} bytes of its GPU, {9 * GIB - 1} are free"):
        driver.resume(saved, lambda: 9 * GIB - 1, GIB)
    assert "restore" not in cuda.calls
    driver.resume(saved, lambda: 9 * GIB, GIB)
    assert driver.state(PID) is ProcessState.RUNNING


def test_a_process_the_driver_cannot_save_runs_on() -> None:
    cuda = FakeCuda(refuses="checkpoint")
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessCheckpoint gives CUDA_ERROR_NOT_SUPPORTED"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.states[PID] is ProcessState.RUNNING
    cuda = FakeCuda(refuses="lock")
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessLock"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.calls == ["lock"]


def test_a_resume_that_ended_between_restore_and_unlock_is_finished() -> None:
    cuda = FakeCuda(states={PID: ProcessState.LOCKED})
    suspender(cuda).resume(Saved(PID, GIB), lambda: 0)
    assert cuda.states[PID] is ProcessState.RUNNING


@pytest.mark.parametrize("state", [ProcessState.LOCKED, ProcessState.CHECKPOINTED, ProcessState.FAILED])
def test_only_a_running_process_is_suspended(state: ProcessState) -> None:
    cuda = FakeCuda(states={PID: state})
    with pytest.raises(CannotSuspendError, match=f"is {state.name.lower()}, not running"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.calls == []


def test_only_a_suspended_process_is_resumed() -> None:
    with pytest.raises(CannotSuspendError, match="is running, not suspended"):
        suspender(FakeCuda()).resume(Saved(PID, GIB), lambda: 80 * GIB)
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessGetState gives error 1"):
        suspender(FakeCuda(states={})).suspend(PID, GIB)


def test_machines_that_cannot_say_why() -> None:
    def absent(name: str) -> object:
        raise OSError(name)

    with pytest.raises(CannotSuspendError, match="there is no NVIDIA driver here"):
        Suspender(absent, "x86_64")
    with pytest.raises(CannotSuspendError, match="too old: it lacks cuCheckpointProcessGetState"):
        Suspender(lambda _name: object(), "x86_64")
    with pytest.raises(CannotSuspendError, match="this is aarch64"):
        Suspender(absent, "aarch64")
