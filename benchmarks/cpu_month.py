"""A month like CODA's (paper D) under FIFO, DRF and CODA: every number of its claims, over several seeds.

    python benchmarks/cpu_month.py [--jobs 100000] [--seeds 5] [--setups fifo,drf,coda] [--keep FILE]
        [--load 1.1] [--user-skew 1]

With `--keep` each run is added to a file as it ends, and one that is there already is not run again. Prints the mean
of each number and half the width of its 95 % interval (Student), and the CPU time of each run.
Bound, as source, on a machine that does nothing else: the month under CODA in less than 120 s. Exits with 1 when it is
broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colane.lab.papers.cpu_month import (
    CODA,
    MAIN,
    WHOLE_JOBS,
    MonthNumbers,
    late_s_by_user,
    month,
    run_month,
    setups,
)

MONTH_MAX_S = 120.0
STUDENT_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""By number of values."""


def spread(values: Sequence[float]) -> str:
    """Half the width of the interval; empty of one value."""
    if len(values) < 2:
        return ""
    return f" +- {STUDENT_95.get(len(values), 2.0) * np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


class Kept(NamedTuple):
    """One run and the CPU time it took."""

    setup: str
    jobs: int
    seed: int
    cpu_s: float
    numbers: MonthNumbers
    late_s: dict[str, float]


def run(setup: str, jobs: int, seed: int, load: float, user_skew: float) -> Kept:
    """Run a month."""
    workload = month(jobs, seed, load=load, user_skew=user_skew)
    began_s = time.process_time()
    found = run_month(workload, (setup,))[setup]
    assert not found.run.ledger.flaws, found.run.ledger.flaws[0]
    return Kept(setup, jobs, seed, time.process_time() - began_s, found.numbers, late_s_by_user(found))


def kept_in(path: Path | None) -> dict[tuple[str, int, int], Kept]:
    """Runs of a file, by setup, jobs and seed."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    rows = [Kept(**{**row, "numbers": MonthNumbers(**row["numbers"])}) for row in map(json.loads, lines)]
    return {(row.setup, row.jobs, row.seed): row for row in rows}


def keep(path: Path | None, row: Kept) -> None:
    """Add a run."""
    if path is not None:
        with path.open("a") as file:
            print(json.dumps({**row._asdict(), "numbers": row.numbers._asdict()}), file=file)


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=WHOLE_JOBS, help="of the month")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--setups", default=",".join(MAIN), help=f"some of {', '.join(setups())}")
    parser.add_argument("--keep", type=Path, help="file of runs, all of one load and skew")
    parser.add_argument("--load", type=float, default=1.0, help="jobs come so many times as fast")
    parser.add_argument("--user-skew", type=float, default=0.0, help="the N-th user submits 1 / N ** SKEW")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}; {arguments.jobs} jobs, {arguments.seeds} seeds", flush=True)
    kept = kept_in(arguments.keep)
    is_broken, first = False, dict[str, float]()
    for name in arguments.setups.split(","):
        rows: list[Kept] = []
        for seed in range(1, arguments.seeds + 1):
            row = kept.get((name, arguments.jobs, seed))
            if row is None:
                row = run(name, arguments.jobs, seed, arguments.load, arguments.user_skew)
                keep(arguments.keep, row)
            rows.append(row)
        show(name, rows)
        late_s = rows[0].late_s
        first = first or late_s
        shorter = sum(late_s[user] < first[user] for user in first)
        print(f"  99 % of the jobs of {shorter} of {len(first)} users wait less than under the first, seed 1")
        times_s = [row.cpu_s for row in rows]
        is_broken = is_broken or (name == CODA and arguments.jobs == WHOLE_JOBS and min(times_s) > MONTH_MAX_S)
    return int(is_broken)


def show(name: str, rows: Sequence[Kept]) -> None:
    """Print one setup."""
    print(f"{name}: CPU time {', '.join(f'{row.cpu_s:.0f}' for row in rows)} s")
    for field, values in zip(MonthNumbers._fields, zip(*[row.numbers for row in rows], strict=True), strict=True):
        print(f"  {field:16} {np.mean(values):6.1f}{spread(values)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
