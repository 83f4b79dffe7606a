"""What turns cost on a GPU, as far as an emulated one can tell: handoffs by the device's clock, waits of a boundary.

    python benchmarks/emulated_turns.py [--seconds 3]
    python benchmarks/emulated_turns.py --handovers 10000

A real agent, real PyTorch jobs over the emulated CUDA of `tests/emulated`, two of which change their turn after every
step of 2, 20 and 200 ms. A handoff is from the end of the last kernel of one job to the begin of the other's first, by
the clock of the emulated GPU; nothing of a driver is in it. Then how often a job waits for its GPU and records events.
With `--handovers` only that: so many changes of turn of two jobs that run 40 kernels ahead of the GPU, and what of one
ran in the other's turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.agents import running  # noqa: E402
from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.lane import Lane  # noqa: E402
from tests.emulated.handovers import hand_over  # noqa: E402
from tests.emulated.job.emulated_cuda.device import Kind  # noqa: E402
from tests.emulated.machine import Kernel, Machine, Ran  # noqa: E402
from tests.emulated.nvml import EmulatedNvml  # noqa: E402

LOOPS = str(ROOT / "tests" / "emulated" / "loops.py")
KERNELS = 8
"""Of a step of the loop `plain`."""
STEPS_MS = (2, 20, 200)
START_S, END_S = 120.0, 300.0
RUN_AHEAD = 40
"""Kernels that a job may have launched and that have not ended."""


class Result(NamedTuple):
    """What jobs did."""

    ran: list[Ran]
    steps: int


async def take_turns(folder: Path, jobs: int, step_ms: float, steps: int) -> Result:
    """Run so many jobs on one emulated GPU."""
    machine = Machine(folder / "gpus", Kind("GPU-0", run_ahead=20))
    sys.modules["pynvml"] = EmulatedNvml(machine.home)  # type: ignore[assignment]
    lane = Lane(FakeScheduler(), {"PATH": os.environ["PATH"]}, folder)
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.0}
    numbers = tuple(range(1, jobs + 1))
    async with running(folder / "state", lane.fake, devices="gpu") as agent:
        for job in numbers:
            command = (sys.executable, LOOPS, "plain", str(steps), str(step_ms / KERNELS))
            lane.fake.want(job, *command, env=lane.env | machine.env, turn={"paused": True})
        await agent.until(lambda: all(machine.at_boundaries(job) for job in numbers), "all wait", START_S)
        lane.fake.resume(*numbers)
        await agent.until(lambda: len(lane.fake.ends) == jobs, "all end", END_S)
    return Result([machine.ran(job) for job in numbers], steps)


def handoffs_s(result: Result) -> list[float]:
    """How long the GPU had nothing to do between two jobs' kernels."""
    tagged = [(kernel, job) for job, ran in enumerate(result.ran) for kernel in ran.kernels]
    tagged.sort(key=lambda one: one[0].began_s)
    return [after.began_s - before.ended_s for (before, one), (after, other) in pairwise(tagged) if one != other]


def overlaps(result: Result) -> int:
    """Kernels of one job that began before those of the other had ended."""
    kernels: list[Kernel] = sorted((k for ran in result.ran for k in ran.kernels), key=lambda one: one.began_s)
    turns = [(turn, job) for job, ran in enumerate(result.ran) for turn in ran.turns()]
    of = {id(kernel): job for job, ran in enumerate(result.ran) for kernel in ran.kernels}
    return sum(
        any(job != of[id(kernel)] and from_s < kernel.ended_s - 1e-6 and kernel.began_s < to_s
            for (from_s, to_s), job in turns)
        for kernel in kernels
    )  # fmt: skip


def say(step_ms: float, result: Result) -> None:
    """Print one row."""
    gaps = handoffs_s(result)
    if len(gaps) < 2:
        print(f"steps of {step_ms} ms: {len(gaps)} handoffs, the machine is too busy to tell")
        return
    turns = sum(len(ran.turns()) for ran in result.ran)
    waits = sum(ran.counts().get("synchronize", 0) for ran in result.ran)
    p99 = quantiles(gaps, n=100)[-1]
    print(
        f"steps of {step_ms} ms: {len(gaps)} handoffs, p50 {median(gaps) * 1e6:.0f} us, p99 {p99 * 1e3:.2f} ms, "
        f"{median(gaps) / (step_ms * 1e-3):.1%} of a step, {waits / turns:.2f} waits for the GPU a turn, "
        f"{overlaps(result)} overlaps"
    )


async def measure(seconds: float) -> None:
    """Take turns at each length of a step, then run one job alone."""
    for step_ms in STEPS_MS:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            steps = max(10, int(seconds * 1000 / step_ms / 2))
            say(step_ms, await take_turns(Path(folder), 2, step_ms, steps))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (ran,), steps = await take_turns(Path(folder), 1, 2, int(seconds * 500))
    counts = ran.counts()
    print(
        f"alone, {steps} steps of 2 ms: {counts.get('synchronize', 0)} waits for the GPU in all, "
        f"{counts.get('record', 0) / steps:.2f} events recorded a step"
    )


async def count_overlaps(handovers: int) -> None:
    """Hand the GPU over so often, and print how often something of one job ran in the other's turn."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        machine = Machine(place / "gpus", Kind("GPU-0", run_ahead=RUN_AHEAD))
        sys.modules["pynvml"] = EmulatedNvml(machine.home)  # type: ignore[assignment]
        lane = Lane(FakeScheduler(), {"PATH": os.environ["PATH"]}, place)
        async with running(place / "state", lane.fake, devices="gpu") as agent:
            seen = await hand_over(agent, lane, machine, handovers, within_s=float("inf"))
    print(
        f"{seen.made} handovers with run-ahead {RUN_AHEAD} in {time.monotonic() - began_s:.0f} s: "
        f"{len(seen.late)} kernels in the other's turn, at most {seen.under_way_max} streams under way at a yield"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of device time in each measurement (default 3)")
    parser.add_argument("--handovers", type=int, help="only hand the GPU over so often, and look for overlaps")
    options = parser.parse_args()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    asyncio.run(count_overlaps(options.handovers) if options.handovers else measure(options.seconds))


if __name__ == "__main__":
    main()
