"""Tells how an attempt ended: exited, killed, out of memory, never started."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

TAIL_BYTES = 8192
"""What is read of the end of a log: a Python traceback's last lines are always within it."""

TAIL_LINES = 20

_MEMORY_WORDS = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|torch\.(cuda\.)?OutOfMemoryError|\bMemoryError\b"
    r"|Cannot allocate memory|can't allocate memory|std::bad_alloc|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
)
_WORKER_KILLED = re.compile(r"killed by signal: Killed|died with <Signals\.SIGKILL")
_ABORTS = frozenset({signal.SIGABRT, signal.SIGSEGV})


class ExitOutcome(NamedTuple):
    """An outcome's name, and for people what lies behind it."""

    name: str
    detail: str = ""


def classify(record: Mapping[str, Any], tail: str) -> ExitOutcome:
    """Judge an exit record with the end of the log.

    Args:
        record: What the shim recorded.
        tail: The end of the log.

    Returns:
        `not-started`, `exited`, `signalled` or `out-of-memory`. A job that was asked to stop did not run out of
        memory, whatever it printed on its way out.
    """
    if record["outcome"] == "not-started" or record["stopped"] or record["exit_code"] == 0:
        return ExitOutcome(record["outcome"], record["detail"])
    evidence = _memory_evidence(record, tail)
    return ExitOutcome("out-of-memory", evidence) if evidence else ExitOutcome(record["outcome"], record["detail"])


def printable(text: str) -> str:
    """Make what a job printed fit for a line of ours."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _memory_evidence(record: Mapping[str, Any], tail: str) -> str:
    lines = tail.splitlines()[-TAIL_LINES:]
    kernel_killed = record["oom_kills"] > 0
    if kernel_killed and record["signal"] == signal.SIGKILL:
        return "killed by the kernel for want of host memory"
    if record["signal"] is not None and record["signal"] not in _ABORTS:
        return ""
    said = next((line.strip() for line in reversed(lines) if _MEMORY_WORDS.search(line)), "")
    if said:
        return said[:500]
    worker = next((line.strip() for line in reversed(lines) if _WORKER_KILLED.search(line)), "")
    return (
        f"a worker was killed by the kernel for want of host memory: {worker[:400]}" if kernel_killed and worker else ""
    )
