"""How long until all threads of a running job are on other cores: the change itself, and with the agent's part.

    python benchmarks/set_cores.py [--changes 100]

A job with threads, children with threads, and new ones all the time; the cores alternate between the first and the
last of this process. First the change alone, then from `POST /run` of a real agent until the kernel shows all threads
there (that look costs some milliseconds itself).
Bound, on a machine that does nothing else: a median change of less than 50 ms. Exits with 1 when it is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.growing import allowed, benched  # noqa: E402

from colane.agent.measuring import affinity  # noqa: E402
from colane.agent.measuring.affinity import CoreGrant  # noqa: E402

CHANGE_MAX_S = 0.05
CORES = sorted(os.sched_getaffinity(0))


def alternating(changes: int) -> list[frozenset[int]]:
    """The cores of each change."""
    return [frozenset({CORES[-1 if number % 2 == 0 else 0]}) for number in range(changes)]


def change_s(supervisor_pid: int, cores: frozenset[int]) -> float:
    """Seconds of one change."""
    began_s = time.perf_counter()
    problem = affinity.give(supervisor_pid, CoreGrant(cores))
    took_s = time.perf_counter() - began_s
    assert not problem, problem
    return took_s


async def measure(folder: Path, changes: int) -> tuple[list[float], list[float], int]:
    """Seconds of the changes alone, seconds with the agent, and how many threads there were."""
    fake = FakeScheduler()
    async with benched(folder, "COLANE_BENCHMARK=1", fake, CORES[:1]) as bench:
        try:
            wished = [(cores, {"cores": sorted(cores)}) for cores in alternating(changes)]
            through_agent_s = [await bench.changes(set(cores), wish) for cores, wish in wished]
            claimed_by = bench.job.claimed_by()
            assert claimed_by is not None
            alone_s = [change_s(claimed_by.pid, cores) for cores in alternating(changes)]
            threads = len(allowed(claimed_by.pid))
        finally:
            fake.end(7)
            await bench.agent.until(lambda: (7, 1) in fake.ends, "the end")
    return alone_s, through_agent_s, threads


def report(name: str, times_s: Sequence[float]) -> None:
    """Print a line."""
    print(f"{name}: median {statistics.median(times_s) * 1e3:.1f} ms, longest {max(times_s) * 1e3:.1f} ms")


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=100, help="how many changes are timed")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {len(CORES)} cores")
    with tempfile.TemporaryDirectory() as folder:
        alone_s, through_agent_s, threads = asyncio.run(measure(Path(folder), arguments.changes))
    report(f"other cores for {threads} threads", alone_s)
    report("from the nudge of its agent until all are there", through_agent_s)
    return int(statistics.median(alone_s) > CHANGE_MAX_S)


if __name__ == "__main__":
    sys.exit(main())
