"""A month like CODA's (paper D) under FIFO, DRF and CODA: every number of its claims, over several seeds.

    python benchmarks/cpu_month.py [--jobs 100000] [--seeds 5] [--setups fifo,drf,coda]

Prints the mean of each number and half the width of its 95 % interval (Student), and the CPU time of each run.
Bound, as source, on a machine that does nothing else: the month under CODA in less than 120 s. Exits with 1 when it is
broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import numpy as np

from colane.papers.cpu_month import CODA, MAIN, WHOLE_JOBS, MonthNumbers, month, run_month, setups

MONTH_MAX_S = 120.0
STUDENT_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""By number of values."""


def spread(values: Sequence[float]) -> str:
    """Half the width of the interval; empty of one value."""
    if len(values) < 2:
        return ""
    return f" +- {STUDENT_95.get(len(values), 2.0) * np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=WHOLE_JOBS, help="of the month")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--setups", default=",".join(MAIN), help=f"some of {', '.join(setups())}")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}; {arguments.jobs} jobs, {arguments.seeds} seeds", flush=True)
    is_broken = False
    for name in arguments.setups.split(","):
        rows: list[MonthNumbers] = []
        times_s = []
        for seed in range(1, arguments.seeds + 1):
            workload = month(arguments.jobs, seed)
            began_s = time.process_time()
            found = run_month(workload, (name,))[name]
            times_s.append(time.process_time() - began_s)
            assert not found.run.ledger.flaws, found.run.ledger.flaws[0]
            rows.append(found.numbers)
        print(f"{name}: CPU time {', '.join(f'{one_s:.0f}' for one_s in times_s)} s")
        for field, values in zip(MonthNumbers._fields, zip(*rows, strict=True), strict=True):
            print(f"  {field:16} {np.mean(values):6.1f}{spread(values)}", flush=True)
        is_broken = is_broken or (name == CODA and arguments.jobs == WHOLE_JOBS and min(times_s) > MONTH_MAX_S)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
