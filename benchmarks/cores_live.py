"""Paper D live: the right cores for a job that waits for its data, a memory hog held back, and what both cost.

    python benchmarks/cores_live.py [--repeats 3] [--window 10] [--only loading|hog|change|cost]

* loading: a job whose three loader workers take longer than its training runs with 1, 2, ... cores that stay, and once
  with the core tuner from one core. Its steps/s after tuning against the best fixed number (bound: 95 %), and after how
  many changes (bound: 4).
* hog: a job that trains in one thread, alone for a while; then `colane.workloads stream` with a thread for each core
  starts beside it, bound to no core, and is held back by the eliminator with its own settings. Steps/s from 30 s after
  the hog's start against those alone (bound: 90 %), and what they are without the eliminator.
* change: until all threads of a job are on other cores, median (bound: 50 ms); `set_cores.py` has more.
* cost: CPU time of an agent's and the core's part in tuning and eliminator (bound: 1 % of a core);
  `contention_cost.py` has more.

Each run has a scheduler and an agent of its own, so that nothing is known of the jobs. A hog that only copies slows
no job on another core of a machine with few; here it slows training by taking its core, which the eliminator sees and
ends in the same way. That it helps where memory alone is short needs a machine where that can happen.
Exits with 1 when a bound is broken. A machine that does other work breaks them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import contention_cost, set_cores

from colane.client.client import Client
from colane.cpu.contention import ContentionConfig
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.demo.cores import has_settled, training

CORES = len(os.sched_getaffinity(0))
TUNED_MIN, CHANGES_MAX, BESIDE_MIN, RECOVERED_MAX_S, CHANGE_MAX_S, COST_MAX = 0.95, 4, 0.90, 30.0, 0.05, 0.01
MEASURED_S, WARM_UP_S, NOW_S = 20.0, 5.0, 5.0
WAIT_MAX_S = 600.0
JOBS, ROUNDS, CHANGES = 8, 200, 50
HOG = [sys.executable, "-m", "colane.workloads", "stream", "--threads", str(CORES)]

Verdict = tuple[str, str, bool]
"""What was measured, what came of it, and whether it keeps its bound."""


class Point(NamedTuple):
    """How many steps a job had made at some moment of its own clock."""

    at_s: float
    steps: int


class Live:
    """A scheduler, an agent, and a training job."""

    def __init__(self, stack: LocalEngine, client: Client) -> None:
        self._stack = stack
        self.client = client

    def submit(self, request: dict[str, Any], **env: str) -> int:
        """Start a job; wait until it runs, and trains if it has a GPU."""
        number = self.client.submit({**request, "env": {**os.environ, **env}})
        trains = request.get("gpus", 1)

        def has_begun() -> object:
            job = self.client.job(number)
            return job["steps"] if trains else job["start_s"]

        self.until(has_begun, f"job {number} begins")
        return number

    def until(self, is_so: Callable[[], Any], what: str) -> None:
        """Look until it is so."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"waited in vain: {what}")
            self._stack.watch(0.2)

    def point(self, number: int) -> Point:
        """Its last step."""
        sample = self.client.job(number)["progress"]
        return Point(sample["last_step_s"] or 0.0, sample["steps"]) if sample else Point(0.0, 0)

    def speed(self, number: int, over_s: float) -> float:
        """Steps per second over the next while, by the job's own clock."""
        first = last = self.point(number)
        began_s = time.monotonic()
        while time.monotonic() - began_s < over_s or last.at_s <= first.at_s:
            self._stack.watch(0.2)
            last = self.point(number)
        return (last.steps - first.steps) / (last.at_s - first.at_s)

    def rest(self, seconds: float) -> None:
        """Let time pass."""
        self._stack.watch(seconds)


@contextmanager
def live(**settings: Any) -> Iterator[Live]:  # noqa: ANN401 - as each setting says
    """Both, with nothing known, and these options."""
    with tempfile.TemporaryDirectory() as folder:
        config = LocalConfig.of(
            Path(folder) / "state", "here", policy="fifo", devices="cpu:1", mps="off", heartbeat=0.5, **settings,
        )  # fmt: skip
        with LocalEngine(config) as stack, stack.client() as client:
            yield Live(stack, client)


def fixed_speed(cores: int) -> float:
    """Steps per second with so many cores for good."""
    with live(contention="off") as here:
        number = here.submit({**training(workers=3, side=64), "cores": cores}, OMP_NUM_THREADS="1")
        here.rest(WARM_UP_S)
        return here.speed(number, MEASURED_S)


def tuned(window_s: float) -> tuple[float, int, int]:
    """Steps per second once its cores are found, how many there are, and how often they were changed."""
    with live(contention="off", core_tuner="linear", core_window=f"{window_s:g}s") as here:
        number = here.submit(training(workers=3, side=64), OMP_NUM_THREADS="1")
        here.until(lambda: has_settled(here.client.job(number)), "the search ends")
        here.rest(WARM_UP_S)
        speed, job = here.speed(number, MEASURED_S), here.client.job(number)
    changes = sum(line["why"] == "cores-changed" for line in job["story"])
    return speed, len(job["booked_cores"]), changes


def loading(repeats: int, window_s: float) -> list[Verdict]:
    """Fixed numbers and the tuner in turn."""
    ratios, changes = [], []
    for number in range(repeats):
        fixed = {cores: fixed_speed(cores) for cores in range(1, CORES + 1)}
        speed, cores, changed = tuned(window_s)
        said = ", ".join(f"{n}: {one:.2f}" for n, one in fixed.items())
        print(
            f"loading {number + 1}: steps/s by cores {said}; tuned {speed:.2f} with {cores} after {changed} changes",
            flush=True,
        )
        ratios.append(speed / max(fixed.values()))
        changes.append(changed)
    ratio, most = statistics.median(ratios), max(changes)
    return [
        ("steps/s after tuning over the best fixed number of cores", f"{ratio:.0%}", ratio >= TUNED_MIN),
        ("changes until it is found, at most", str(most), most <= CHANGES_MAX),
    ]


class BesideHog(NamedTuple):
    """A job beside a hog.

    Attributes:
        alone: Its steps per second before.
        beside: The same from `RECOVERED_MAX_S` after the hog began.
        held_s: From the hog's begin until it was seen held back; infinite where it was not by then.
        well_s: The same until the job was as fast as it has to be, or was so all the time.
    """

    alone: float
    beside: float
    held_s: float
    well_s: float

    @property
    def ratio(self) -> float:
        """What is left of its speed."""
        return self.beside / self.alone


def beside_hog(**settings: Any) -> BesideHog:  # noqa: ANN401 - as each setting says
    """Run both, with these options of the scheduler."""
    request = {**training(workers=0, side=32), "core_hints": []}
    with live(**settings) as here:
        number = here.submit(request, OMP_NUM_THREADS="1")
        here.rest(3 * WARM_UP_S)
        alone = here.speed(number, MEASURED_S)
        hog = here.submit({"command": HOG, "gpus": 0})
        began_s, held_s, well_s = time.monotonic(), inf, inf
        while time.monotonic() - began_s < RECOVERED_MAX_S:
            now = here.speed(number, NOW_S)
            after_s = time.monotonic() - began_s
            if here.client.job(hog)["throttle"] is not None:
                held_s = min(held_s, after_s)
            well_s = min(well_s, after_s) if now >= BESIDE_MIN * alone else inf
        return BesideHog(alone, here.speed(number, MEASURED_S), held_s, well_s)


def hog(repeats: int) -> list[Verdict]:
    """A hog beside a job, without the eliminator and with it, several times."""
    found = []
    for number in range(repeats):
        without, one = beside_hog(contention="off"), beside_hog()
        print(
            f"hog {number + 1}: eliminator off {without.ratio:.0%} of {without.alone:.2f} steps/s; on {one.ratio:.0%} "
            f"of {one.alone:.2f}, held back within {one.held_s:.0f} s, at {BESIDE_MIN:.0%} for good within "
            f"{one.well_s:.0f} s",
            flush=True,
        )
        found.append((without.ratio, one.ratio))
    left, kept = (statistics.median(ratios) for ratios in zip(*found, strict=True))
    what = f"steps/s beside the hog from {RECOVERED_MAX_S:g} s after its start over those alone"
    if left >= BESIDE_MIN:
        what += " (it slows no job here: shows nothing)"
    return [(what, f"{kept:.0%}", kept >= BESIDE_MIN)]


def change() -> list[Verdict]:
    """A change of cores alone."""
    with tempfile.TemporaryDirectory() as folder:
        alone_s, _, threads = asyncio.run(set_cores.measure(Path(folder), CHANGES))
    middle_s = statistics.median(alone_s)
    return [(f"other cores for all {threads} threads, median", f"{1e3 * middle_s:.1f} ms", middle_s < CHANGE_MAX_S)]


def cost() -> list[Verdict]:
    """CPU time of an interval, over its length."""
    spent_s = contention_cost.agent_s(JOBS, ROUNDS) + contention_cost.core_s(JOBS, ROUNDS)
    ratio = spent_s / ContentionConfig().interval_s
    return [(f"tuner and eliminator with {JOBS} jobs, of a core", f"{ratio:.3%}", ratio < COST_MAX)]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--window", type=float, default=10.0, help="seconds of each try of the tuner")
    parser.add_argument("--only", choices=("loading", "hog", "change", "cost"))
    asked = parser.parse_args()
    if CORES < 2:
        raise SystemExit("of one core nothing can be given or taken")
    print(f"load before: {os.getloadavg()[0]:.1f} on {CORES} cores; {asked.repeats} repeats", flush=True)
    parts: dict[str, Callable[[], list[Verdict]]] = {
        "loading": lambda: loading(asked.repeats, asked.window),
        "hog": lambda: hog(asked.repeats),
        "change": change,
        "cost": cost,
    }
    verdicts = [row for name, part in parts.items() if asked.only in (None, name) for row in part()]
    for what, found, keeps in verdicts:
        print(f"{what:85} {found:>9}  {'holds' if keeps else 'DOES NOT HOLD'}")
    print(f"load after: {os.getloadavg()[0]:.1f}")
    return int(not all(keeps for _, _, keeps in verdicts))


if __name__ == "__main__":
    sys.exit(main())
