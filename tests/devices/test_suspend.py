"""Moving a process's GPU memory to the host: against a double of the driver that keeps its rules."""

from __future__ import annotations

import threading

import pytest

from colane.devices import suspend
from colane.devices.suspend import CannotSuspendError, ProcessState, Saved, Suspender, problem
from tests.devices.fake_cuda import NOT_SUPPORTED, FakeCuda

PID, GIB = 4711, 2**30


def one_process(state: ProcessState | None = ProcessState.RUNNING, refuses: str = "") -> FakeCuda:
    """A driver with one process, or none."""
    return FakeCuda({} if state is None else {PID: state}, refuses)


def suspender(cuda: FakeCuda) -> Suspender:
    return cuda.suspender()


def test_a_process_leaves_the_gpu_and_comes_back() -> None:
    cuda = one_process()
    driver = suspender(cuda)
    saved = driver.suspend(PID, 8 * GIB)
    assert (saved, driver.state(PID)) == (Saved(PID, 8 * GIB), ProcessState.CHECKPOINTED)
    driver.resume(saved, lambda: 80 * GIB)
    assert driver.state(PID) is ProcessState.RUNNING
    assert cuda.calls == ["lock", "checkpoint", "restore", "unlock"]


def test_nothing_is_restored_without_room_and_it_can_be_tried_again() -> None:
    cuda = one_process()
    driver = suspender(cuda)
    saved = driver.suspend(PID, 8 * GIB)
    with pytest.raises(CannotSuspendError, match=f"needs {9 * GIB} bytes of its GPU, {9 * GIB - 1} are free"):
        driver.resume(saved, lambda: 9 * GIB - 1, GIB)
    assert "restore" not in cuda.calls
    driver.resume(saved, lambda: 9 * GIB, GIB)
    assert driver.state(PID) is ProcessState.RUNNING


def test_a_process_the_driver_cannot_save_runs_on() -> None:
    cuda = one_process(refuses="checkpoint")
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessCheckpoint gives CUDA_ERROR_NOT_SUPPORTED"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.states[PID] is ProcessState.RUNNING
    cuda = one_process(refuses="lock")
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessLock"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.calls == ["lock"]


def test_a_resume_that_ended_between_restore_and_unlock_is_finished() -> None:
    cuda = one_process(ProcessState.LOCKED)
    suspender(cuda).resume(Saved(PID, GIB), lambda: 0)
    assert cuda.states[PID] is ProcessState.RUNNING


@pytest.mark.parametrize("state", [ProcessState.CHECKPOINTED, ProcessState.FAILED])
def test_only_a_running_process_is_suspended(state: ProcessState) -> None:
    cuda = one_process(state)
    with pytest.raises(CannotSuspendError, match=f"is {state.name.lower()}, not running"):
        suspender(cuda).suspend(PID, GIB)
    assert cuda.calls == []


def test_one_that_was_locked_by_a_process_that_died_is_moved_all_the_same() -> None:
    cuda = one_process(ProcessState.LOCKED)
    suspender(cuda).suspend(PID, GIB)
    assert (cuda.states[PID], cuda.calls) == (ProcessState.CHECKPOINTED, ["checkpoint"])


def test_only_a_suspended_process_is_resumed() -> None:
    with pytest.raises(CannotSuspendError, match="is running, not suspended"):
        suspender(one_process()).resume(Saved(PID, GIB), lambda: 80 * GIB)
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessGetState gives error 1"):
        suspender(one_process(None)).suspend(PID, GIB)


def test_machines_that_cannot_say_why() -> None:
    def absent(name: str) -> object:
        raise OSError(name)

    with pytest.raises(CannotSuspendError, match="there is no NVIDIA driver here"):
        Suspender(absent, "x86_64")
    with pytest.raises(CannotSuspendError, match="too old: it lacks cuCheckpointProcessGetState"):
        Suspender(lambda _name: object(), "x86_64")
    with pytest.raises(CannotSuspendError, match="this is aarch64"):
        Suspender(absent, "aarch64")
    assert problem(absent, "x86_64") == "there is no NVIDIA driver here (libcuda.so.1)"
    assert problem(lambda _name: one_process(), "x86_64") == ""


def test_a_driver_that_never_answers_is_asked_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be of a process with NCCL: who waited for it would move no other job's memory ever again."""
    cuda = one_process()
    driver = suspender(cuda)
    monkeypatch.setattr(suspend, "ANSWER_MAX_S", 0.01)
    for_ever = threading.Event()
    monkeypatch.setattr(cuda, "cuCheckpointProcessGetState", lambda *_: for_ever.wait())
    with pytest.raises(CannotSuspendError, match="does not answer: cuCheckpointProcessGetState has not returned"):
        driver.suspend(PID, GIB)
    with pytest.raises(CannotSuspendError, match="has not answered: cuCheckpointProcessGetState does not return"):
        driver.resume(Saved(PID, GIB), lambda: 80 * GIB)
    for_ever.set()
    assert cuda.calls == []


def test_a_refusal_that_has_spoilt_the_process_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = one_process(refuses="checkpoint")

    def spoils(pid: int, _args: None) -> int:
        cuda.states[pid] = ProcessState.FAILED
        return NOT_SUPPORTED

    monkeypatch.setattr(cuda, "cuCheckpointProcessCheckpoint", spoils)
    with pytest.raises(CannotSuspendError, match="CUDA_ERROR_NOT_SUPPORTED, and has left the process failed"):
        suspender(cuda).suspend(PID, GIB)
