"""What only a real GPU can prove of suspending to the host: contents intact, memory given back, how fast.

    python gpu/suspend.py [--part PART] [--minutes 8] [--out DIR] [--tiny | --small]

A process fills GPU memory with a known pattern; the driver moves it to the host and back, several times. `--tiny`
checks that a machine that cannot do it says so. Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from gpu.harness import Object, Run, Script, job_env, main  # noqa: E402

from colane.devices.suspend import CannotSuspendError, ProcessState, Suspender  # noqa: E402

GIB: Final = 2**30
SIZES_GIB: Final = (8, 40, 100)
SMALL_SIZES_GIB: Final = (0.0625, 0.25)
CYCLES: Final = 3
BYTES_PER_S_MIN: Final = 10e9
BASELINE_SLACK_BYTES: Final = 256 * 2**20
PART_OF_FREE: Final = 0.8
LEFT_MIN_S: Final = 60.0
"""One size takes less than this."""

HOLDS: Final = """
import sys, torch
words = int(sys.argv[1]) // 8
held = torch.arange(words, dtype=torch.int64, device="cuda")
total = int(held.sum())
torch.cuda.synchronize()
print("ready", flush=True)
for _ in sys.stdin:
    print("intact" if int(held.sum()) == total and int(held[-1]) == words - 1 else "spoilt", flush=True)
"""


COPIES: Final = """
import json, mmap, sys, time, torch
size = int(sys.argv[1])
def speed(work):
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return size / (time.perf_counter() - began_s)
def touch(advice):
    pages = mmap.mmap(-1, size)
    if advice is not None:
        pages.madvise(advice)
    for at in range(0, size, 4096):
        pages[at] = 1
held, found = torch.ones(size, dtype=torch.uint8, device="cuda"), {}
found["host pages touched first, of 4 KiB"] = speed(lambda: touch(getattr(mmap, "MADV_NOHUGEPAGE", None)))
found["host pages touched first, huge"] = speed(lambda: touch(getattr(mmap, "MADV_HUGEPAGE", None)))
for name, pinned in (("pageable", False), ("pinned", True)):
    place = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    found[f"to host, {name}, first"] = speed(lambda: place.copy_(held))
    found[f"to host, {name}, again"] = speed(lambda: place.copy_(held))
    found[f"back, {name}"] = speed(lambda: held.copy_(place))
    parts = list(zip(place.chunk(4), held.chunk(4), [torch.cuda.Stream() for _ in range(4)]))
    def together():
        for host, device, stream in parts:
            with torch.cuda.stream(stream):
                host.copy_(device, non_blocking=True)
    found[f"to host, {name}, four streams"] = speed(together)
print(json.dumps(found))
"""
"""Speeds (bytes/s) of what moving to the host may be made of."""


def copies(run: Run) -> Object:
    """Why moving is no faster: beside the driver's own, copies from pinned and pageable memory, and fresh host pages.

    As fast as pageable copies: the driver stages through a buffer. As fast as fresh pages are touched: it is the
    host's pages that cost, and huge ones or a second move help. Slower than both: the driver copies in parts.
    """
    size = int((SMALL_SIZES_GIB[0] if run.small else SIZES_GIB[0] / 2) * GIB)
    env = {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
    done = subprocess.run(
        [sys.executable, "-c", COPIES, str(size)], env=env, capture_output=True, text=True, check=False
    )
    run.check("it could be measured", done.returncode == 0, done.stderr[-500:])
    return {"bytes": size, "bytes_per_s": json.loads(done.stdout) if done.returncode == 0 else {}}


def features(run: Run) -> Object:
    """Whether this machine can, and that it says why where it cannot."""
    try:
        Suspender()
    except CannotSuspendError as error:
        run.check("a machine that cannot says so in one line", "\n" not in str(error), error)
        return {"can": False, "because": str(error)}
    return {"can": True}


def cycle(run: Run) -> Object:
    """Move processes of several sizes off the GPU and back."""
    try:
        driver = Suspender()
    except CannotSuspendError as error:
        run.notes.append(str(error))
        return {"status": "incomplete", "because": str(error)}
    sizes_gib = SMALL_SIZES_GIB if run.small else SIZES_GIB
    sizes = [int(size * GIB) for size in sizes_gib if size * GIB <= run.memory_use.free_bytes * PART_OF_FREE]
    try:
        return {"sizes": [_cycles(run, driver, size) for size in sizes if run.left_s > LEFT_MIN_S]}
    except CannotSuspendError as error:
        run.check("the driver does as it is asked", passed=False, detail=error)
        return {"because": str(error)}


def _cycles(run: Run, driver: Suspender, size_bytes: int) -> Object:
    baseline_bytes = run.memory_use.free_bytes
    saves_s, restores_s = [], []
    with _holder(run, size_bytes) as process:
        held_bytes = baseline_bytes - run.memory_use.free_bytes
        for _ in range(CYCLES):
            start_s = time.perf_counter()
            saved = driver.suspend(process.pid, held_bytes)
            saves_s.append(time.perf_counter() - start_s)
            left_bytes = baseline_bytes - run.memory_use.free_bytes
            run.check(f"{size_bytes} bytes: memory is given back", left_bytes < BASELINE_SLACK_BYTES, left_bytes)
            start_s = time.perf_counter()
            driver.resume(saved, lambda: run.memory_use.free_bytes)
            restores_s.append(time.perf_counter() - start_s)
            run.check(f"{size_bytes} bytes: it runs again", driver.state(process.pid) is ProcessState.RUNNING)
            run.check(f"{size_bytes} bytes: contents are intact", _ask(process) == "intact")
    save, restore = size_bytes / min(saves_s), size_bytes / min(restores_s)
    if not run.small:
        run.check(f"{size_bytes} bytes: saved at 10 GB/s", save >= BYTES_PER_S_MIN, save)
        run.check(f"{size_bytes} bytes: restored at 10 GB/s", restore >= BYTES_PER_S_MIN, restore)
    return {"bytes": size_bytes, "held_bytes": held_bytes, "save_s": saves_s, "restore_s": restores_s}


@contextmanager
def _holder(run: Run, size_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """A process that holds so much GPU memory and says when asked whether it is intact."""
    words = [sys.executable, "-c", HOLDS, str(size_bytes)]
    env = {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise OSError("the process that holds memory did not start; is torch with CUDA installed?")
        yield process
    finally:
        process.kill()
        process.wait()


def _ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


SCRIPT: Final = Script(
    name="suspend",
    about="Suspend processes to the host and check what comes back.",
    parts={"features": features, "cycle": cycle, "copies": copies},
    tiny_parts=("features",),
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
