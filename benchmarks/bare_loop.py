"""The least that a FIFO simulation of Philly costs: read the trace, first fit, a heap of ends. Beside it: Colane.

The loop and `colane simulate` run as processes of their own, in turn, and what counts is CPU seconds of the quickest;
the last line is the ratio, which is to be at most 10. Both must give the same mean wait: they do the same work.

    python benchmarks/bare_loop.py [--data DIR] [--rounds N]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict, deque
from datetime import datetime
from pathlib import Path

from colane.lab.traces import clusters

RATIO_MAX = 10.0
"""Times the CPU of the bare loop."""
WAIT_TOLERANCE_S = 0.01


def loop(trace: Path, nodes: dict[str, list[int]]) -> float:
    """Mean wait in seconds of the jobs that fit on one node, pool by pool in order of arrival."""
    jobs, epoch = [], datetime(1970, 1, 1)  # noqa: DTZ001 - the stamps carry no zone
    with gzip.open(trace, "rt") as file:
        for row in csv.DictReader(file):
            at_s = (datetime.fromisoformat(row["timestamp"]) - epoch).total_seconds()
            jobs.append((at_s, float(row["duration"]), int(row["num_gpus"]), row["cluster"]))
    jobs = [job for job in jobs if job[3] in nodes and job[2] <= max(nodes[job[3]])]
    jobs.sort(key=lambda job: job[0])
    free = {pool: list(gpus) for pool, gpus in nodes.items()}
    waiting: dict[str, deque[tuple[float, float, int, str]]] = defaultdict(deque)
    ends: list[tuple[float, int, str, int]] = []
    waits_s: list[float] = []
    next_job = 0
    while next_job < len(jobs) or ends:
        now_s = min(jobs[next_job][0] if next_job < len(jobs) else 1e30, ends[0][0] if ends else 1e30)
        touched = set()
        while ends and ends[0][0] <= now_s:
            _, gpus, pool, node = heapq.heappop(ends)
            free[pool][node] += gpus
            touched.add(pool)
        while next_job < len(jobs) and jobs[next_job][0] <= now_s:
            waiting[jobs[next_job][3]].append(jobs[next_job])
            touched.add(jobs[next_job][3])
            next_job += 1
        for pool in touched:
            while queue := waiting[pool]:
                at_s, duration_s, gpus, _ = queue[0]
                found = next((n for n, left in enumerate(free[pool]) if left >= gpus), None)
                if found is None:
                    break
                queue.popleft()
                free[pool][found] -= gpus
                waits_s.append(now_s - at_s)
                heapq.heappush(ends, (now_s + duration_s, gpus, pool, found))
    return sum(waits_s) / len(waits_s)


def run_loop(trace: Path) -> None:
    """Print the mean wait."""
    nodes: dict[str, list[int]] = defaultdict(list)
    for node in clusters.load("philly").nodes:
        nodes[node.pool].append(len(node.gpus))
    print(loop(trace, nodes))


def cpu_s(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a process and of its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


def bare(trace: Path) -> tuple[float, float]:
    """CPU seconds and mean wait of the bare loop."""
    spent_s, said = cpu_s([sys.executable, __file__, "--loop", str(trace)])
    return spent_s, float(said)


def simulated(trace: Path) -> tuple[float, float]:
    """CPU seconds and mean wait of `colane simulate`, with its report and files."""
    with tempfile.TemporaryDirectory() as out:
        colane = str(Path(sysconfig.get_path("scripts")) / "colane")
        spent_s, _ = cpu_s([colane, "simulate", "-t", str(trace), "-c", "philly", "-p", "fifo", "-o", out])
        return spent_s, mean_wait_s(Path(out))


def mean_wait_s(out: Path) -> float:
    """What the simulation says of waiting."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return float(summary["runs"][0]["queue_s"]["mean"])


def compare(trace: Path, rounds: int) -> bool:
    """Print every round and the ratio of the quickest; whether waits agree and the bound is kept."""
    print(f"load before: {os.getloadavg()[0]:.1f}")
    spent_s = []
    for _ in range(rounds):
        (bare_s, bare_wait_s), (whole_s, whole_wait_s) = bare(trace), simulated(trace)
        spent_s.append((bare_s, whole_s))
        print(f"bare loop {bare_s:.2f} CPU s (mean wait {bare_wait_s:.3f} s), ", end="")
        print(f"colane simulate {whole_s:.2f} CPU s (mean wait {whole_wait_s:.3f} s)", flush=True)
        if abs(bare_wait_s - whole_wait_s) > WAIT_TOLERANCE_S:
            print("the waits differ: the two do not do the same work")
            return False
    ratio = min(whole for _, whole in spent_s) / min(least for least, _ in spent_s)
    print(f"load after: {os.getloadavg()[0]:.1f}")
    print(f"ratio {ratio:.1f} (bound: {RATIO_MAX:g})")
    return ratio <= RATIO_MAX


def main() -> int:
    """Run both, or the loop alone in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COLANE_DATA", "../shared/data")))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loop", type=Path, metavar="TRACE", help="run the bare loop alone")
    asked = parser.parse_args()
    if asked.loop is not None:
        run_loop(asked.loop)
        return 0
    return 0 if compare(asked.data / "traces/philly.csv.gz", max(1, asked.rounds)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
