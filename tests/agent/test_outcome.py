from __future__ import annotations

import signal
from typing import Any

import pytest

from colane.agent.running.outcome import ExitOutcome, classify

TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1\n"
CUDA = f"{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def record(**changes: Any) -> dict[str, Any]:
    fields = {"outcome": "exited", "exit_code": None, "signal": None, "detail": "", "stopped": False, "oom_kills": 0}
    return fields | changes


@pytest.mark.parametrize(
    "last",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: CUDA error: out of memory",
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate; MemoryError: 3 GiB",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
    ],
)
def test_out_of_memory_is_read_from_the_end_of_the_log(last: str) -> None:
    assert classify(record(exit_code=1), f"{TRACEBACK}{last}\n") == ExitOutcome("out-of-memory", last)


def test_an_abort_after_bad_alloc() -> None:
    tail = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    assert classify(record(outcome="signalled", signal=signal.SIGABRT), tail).name == "out-of-memory"


@pytest.mark.parametrize(
    ("fields", "tail", "name"),
    [
        ({"exit_code": 0}, CUDA, "exited"),
        ({"exit_code": 1}, "ValueError: no\n", "exited"),
        ({"exit_code": 1}, CUDA + "retrying with a smaller batch\n" * 30 + "ValueError\n", "exited"),
        ({"exit_code": 1, "stopped": True}, CUDA, "exited"),
        ({"outcome": "signalled", "signal": 15}, CUDA, "signalled"),
        ({"outcome": "signalled", "signal": 9, "stopped": True, "oom_kills": 1}, "", "signalled"),
        ({"outcome": "signalled", "signal": 9}, "", "signalled"),
        ({"outcome": "signalled", "signal": 9, "oom_kills": 1}, "", "out-of-memory"),
        ({"exit_code": 1, "oom_kills": 1}, "worker (pid 5) is killed by signal: Killed.\n", "out-of-memory"),
        ({"exit_code": 1, "oom_kills": 0}, "worker (pid 5) is killed by signal: Killed.\n", "exited"),
        ({"exit_code": 1, "oom_kills": 1}, "ValueError: no\n", "exited"),
        ({"outcome": "supervisor-died", "stopped": True}, CUDA, "supervisor-died"),
    ],
)
def test_what_is_and_what_is_not(fields: dict[str, Any], tail: str, name: str) -> None:
    assert classify(record(**fields), tail).name == name


def test_the_detail_of_a_start_that_failed_is_kept() -> None:
    failed = record(outcome="not-started", detail="command 'x': No such file or directory")
    assert classify(failed, CUDA) == ExitOutcome("not-started", "command 'x': No such file or directory")
