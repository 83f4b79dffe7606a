"""Pollux's own workload with elastic jobs, beside what its authors published of three schedulers (OSDI 2021, artifact).

    python benchmarks/pollux.py --data DIR [--workload 6] [--gpus-max 16] [--faster 1.5] [--fixed] [-p colane]

Every job may run on 1, 2, 3, 4, 6, 8, ... GPUs up to the most, or on as many as it asks for, over nodes; it keeps its
total batch. Throughputs are known beforehand, a restart takes 30 s. `fifo` has each on as many as it asks for, and so
has every policy under `--fixed`. `--faster` is by how much sooner one job comes after the other.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from colane.lab.simulate.beliefs import Belief
from colane.lab.simulate.request import Loaded, Request, inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.traces.workload import TraceJob, compress

SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PUBLISHED: Final = "published for workload 6: Pollux 2,446 s, Tiresias 3,470 s, Optimus 5,302 s (jobs choose batches)"
WORKLOADS: Final = "traces/pollux-profiles/workloads/workload-{}.csv"


def request(data: Path, workload: int) -> Request:
    """What its authors' simulator has: 16 nodes of four T4s, 30 s for a restart."""
    return Request(
        cluster="pollux", trace=str(data / WORKLOADS.format(workload)), tables=data, multi_node=True, preemptible=True,
        belief=Belief.PROFILED, costs={"launch_s": 30.0, "stop_s": 0.0}, noise=0.0,
    )  # fmt: skip


def elastic(loaded: Loaded, gpus_max: int) -> Loaded:
    """With every job of many sizes."""

    def sized(job: TraceJob) -> TraceJob:
        sizes = tuple(sorted({*[n for n in SIZES if n <= gpus_max], job.spec.gpus}))
        return replace(job, spec=replace(job.spec, sizes=sizes, multi_node=True))

    return replace(loaded, workload=replace(loaded.workload, jobs=tuple(map(sized, loaded.workload.jobs))))


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workload", type=int, default=6)
    parser.add_argument("--gpus-max", type=int, default=16)
    parser.add_argument("--faster", type=float, default=1.0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("-p", "--policy", action="append")
    args = parser.parse_args()
    asked = request(args.data, args.workload)
    loaded = load(asked, 0)
    loaded = replace(loaded, workload=compress(loaded.workload, args.faster))
    for policy in args.policy or ["fifo", "f-sched", "colane"]:
        began_s = time.perf_counter()
        sized = loaded if policy == "fifo" or args.fixed else elastic(loaded, args.gpus_max)
        run = simulate(inputs(asked, sized, policy, 0))
        rows = run.ledger.rows
        jct_s, took_s = float(np.mean(np.subtract(rows.end_s, rows.submit_s))), time.perf_counter() - began_s
        print(
            f"{policy}: {len(rows)} jobs, mean jct {jct_s:,.0f} s, makespan {max(rows.end_s):,.0f} s, "
            f"{np.mean(rows.attempts):.2f} starts a job, {max(rows.attempts)} at most; "
            f"{len(run.ledger.flaws)} refused plans; {took_s:.0f} s"
        )
    if args.workload == 6 and args.faster == 1.0:
        print(PUBLISHED)


if __name__ == "__main__":
    main()
