"""Tells how an attempt ended: exited, killed, out of memory, never started."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

REFUSED: Final = "gpu-refused"

TAIL_BYTES = 8192  # what is read of the end of a log: a Python traceback's last lines are always within it

TAIL_LINES = 20  # an error that is further above was survived, unless the last lines say that it was not

_MEMORY_WORDS = re.compile(
    # PyTorch on NVIDIA's and AMD's GPUs, and CuPy, JAX, Paddle and RMM, that call their errors alike
    r"\b(?:CUDA|HIP)(?: driver)?(?: error:)? out of memory|\w*OutOfMemoryError\b|\b\w*MemoryError\b|\bout_of_memory\b"
    r"|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|ResourceExhaustedError: Out of memory"
    r"|OOM when allocating"  # TensorFlow
    # The driver, the runtime and what stands on them: llama.cpp and NCCL tell the runtime's words
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|(?:Malloc\w*|HIP|CUDA|[Cc]uda) (?:\w+ )?(?:failed|failure|retry failed):? '?(?:\d+ ')?out of memory"
    r"|\bCU\w+_STATUS_(?:\w+_)?ALLOC(?:ATION)?_FAILED|CUFFT_ALLOC_FAILED|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"
    # Servers of language models, which take a share of the GPU when they begin
    r"|No available memory for the cache blocks|larger than the available KV cache memory"
    r"|Free memory on device .* is less than desired GPU memory utilization"
    r"|Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static"
    r"|(?:unable|failed) to allocate \w+ buffer|Failed to allocate memory for requested buffer"
    r"|Requested amount of GPU memory \(.*\) could not be allocated"  # TensorRT
    # The host's
    r"|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc"
)
_REFUSED_WORDS = re.compile(
    r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE"
    # A library's handle needs memory of the GPU before anything is computed with it, and may fail for other reasons
    r"|CUBLAS_STATUS_NOT_INITIALIZED.*cublasCreate|CUDNN_STATUS_NOT_INITIALIZED"
)
_SAYS_ABOVE = re.compile(r"See root cause above|Root Cause \(first observed failure\)")
"""Words of launchers and servers that end because one of their processes has: what it said may stand far above."""
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
        `not-started`, `exited`, `signalled`, `out-of-memory` or `gpu-refused`, where a process got nothing of its GPU
        to begin with: beside others that may be for them. A job that was asked to stop did not run out of memory,
        whatever it printed on its way out.
    """
    if record["outcome"] == "not-started" or record["stopped"] or record["exit_code"] == 0:
        return ExitOutcome(record["outcome"], record["detail"])
    if evidence := _memory_evidence(record, tail):
        return ExitOutcome("out-of-memory", evidence)
    refused = next((line.strip() for line in tail.splitlines()[-TAIL_LINES:] if _REFUSED_WORDS.search(line)), "")
    if refused and record["signal"] in {None, *_ABORTS}:
        return ExitOutcome(REFUSED, refused[:500])
    return ExitOutcome(record["outcome"], record["detail"])


def printable(text: str) -> str:
    """Make what a job printed fit for a line of ours."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _memory_evidence(record: Mapping[str, Any], tail: str) -> str:
    lines = tail.splitlines()
    if not _SAYS_ABOVE.search(tail):
        lines = lines[-TAIL_LINES:]
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
