"""What processes truly hold of a GPU's memory: what NVML says of them, against what PyTorch's allocator says.

    python gpu/memory.py [--part PART] [--minutes 8] [--out DIR] [--small]

The gap is contexts, workspaces of libraries and what is reserved by nobody's count. Without a GPU it says so and ends
with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from gpu.harness import Object, Run, Script, job_env, main  # noqa: E402

from colane.devices.types import MemoryUse  # noqa: E402

TRUTH_SLACK_BYTES: Final = 64 * 2**20
"""What the driver holds for a process beside what it counts as its own."""

WIDTH, SMALL_WIDTH = 8192, 256
BATCH, SMALL_BATCH = 64, 1

STAGES: Final = """
import json, sys, torch
width, batch = map(int, sys.argv[1:])
def tell(name):
    torch.cuda.synchronize()
    found = {"allocated_bytes": torch.cuda.memory_allocated(), "reserved_bytes": torch.cuda.memory_reserved()}
    print(json.dumps({"stage": name, **found}), flush=True)
    sys.stdin.readline()
torch.cuda.init()
torch.zeros(1, device="cuda")
tell("context")
a = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)
b = a @ a
tell("matrix product")
conv = torch.nn.Conv2d(64, 64, 3, padding=1, device="cuda")
conv(torch.randn(batch, 64, 64, 64, device="cuda")).sum().backward()
tell("convolution")
del a, b, conv
tell("freed, yet reserved")
torch.cuda.empty_cache()
tell("given back")
"""
"""Stops at each stage until it is told to go on."""


def truth(run: Run) -> Object:
    """What NVML says that processes hold, against what PyTorch's allocator says: the gap is contexts and workspaces."""
    baseline_bytes = _untold_bytes(run, run.memory_use)
    with _staged(run) as one, _staged(run) as two:
        stages = [_stage(run, (one, two), baseline_bytes) for _ in range(5)]
    for stage in stages:
        judge_stage(run, stage)
    run.keep({"stages": stages})
    gaps = [process["device_bytes"] - process["reserved_bytes"] for s in stages for process in s["processes"]]
    return {"stages": stages, "gap_min_bytes": min(gaps), "gap_max_bytes": max(gaps)}


def judge_stage(run: Run, stage: Object) -> None:
    """Check one stage of all processes."""
    name, processes = stage["stage"], stage["processes"]
    is_seen = all(process["device_bytes"] > 0 for process in processes)
    run.check(f"{name}: NVML names the processes by the pids seen here", is_seen, processes)
    holds = all(process["device_bytes"] >= process["reserved_bytes"] for process in processes)
    run.check(f"{name}: a device holds what is reserved on it, and more", holds, processes)
    whole, rest = sum(process["device_bytes"] for process in processes), stage["used_bytes"]
    close = abs(rest - whole) <= TRUTH_SLACK_BYTES * len(processes)
    run.check(f"{name}: the processes add up to what is used", close, f"{whole} of {rest}")


def _untold_bytes(run: Run, use: MemoryUse, own: Sequence[int] = ()) -> int:
    """What is in use but for what processes besides these hold: those of the part before may be about to end."""
    others = [held or 0 for pid, held in (use.by_pid or {}).items() if pid not in own]
    return run.gpus[0].memory_bytes - use.free_bytes - sum(others)


@contextmanager
def _staged(run: Run) -> Iterator[subprocess.Popen[str]]:
    env = {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
    sizes = (SMALL_WIDTH, SMALL_BATCH) if run.small else (WIDTH, BATCH)
    words = [sys.executable, "-c", STAGES, *map(str, sizes)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _stage(run: Run, processes: Sequence[subprocess.Popen[str]], baseline_bytes: int) -> Object:
    """All at the same stage: what each says of itself, and NVML of it; then they go on."""
    told = []
    for process in processes:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise OSError("the process that was to hold GPU memory ended; is PyTorch with CUDA installed?")
        told.append(json.loads(line))
    use = run.memory_use
    held = use.by_pid or {}
    seen = [{**one, "device_bytes": held.get(p.pid) or 0} for one, p in zip(told, processes, strict=True)]
    used_bytes = _untold_bytes(run, use, [process.pid for process in processes]) - baseline_bytes
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return {"stage": told[0]["stage"], "used_bytes": used_bytes, "processes": seen}


SCRIPT: Final = Script(
    name="memory",
    about="What processes truly hold of a GPU's memory.",
    parts={"truth": truth},
    tiny_parts=(),
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
