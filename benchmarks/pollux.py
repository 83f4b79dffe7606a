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

from colane.lab.papers.elastic_workloads import asked_of, elastic
from colane.lab.simulate.request import inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.traces.workload import compress

PUBLISHED: Final = "published for workload 6: Pollux 2,446 s, Tiresias 3,470 s, Optimus 5,302 s (jobs choose batches)"


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
    asked = asked_of(args.data, args.workload)
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
