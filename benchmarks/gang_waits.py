"""How long gangs wait among jobs of one GPU, of told and of unknown length, beside these.

    python -m benchmarks.gang_waits [--seeds 4] [--jobs 150] [--policy NAME ...]

150 jobs of 10 families (medians of 10 min to a day, within a family by a factor of e^0.5), 15 % of them on 8 GPUs
and 15 % on 2, on two nodes of 8 GPUs; a launch of a stopped job takes 60 s. Hours in which a job did not run, of jobs
of one GPU and of 8: of half of them and of 99 of 100. The last column is the ratio of the latter by GPU, a gang's over
8 times that of jobs of one.
"""

from __future__ import annotations

import argparse
import sys
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.simulate.scenes import cluster, job, run  # noqa: E402

from colane.lab.simulate.config import DriverConfig  # noqa: E402
from colane.lab.simulate.world import NeutralWorld  # noqa: E402
from colane.scheduling.registry import create  # noqa: E402

SIZES, PARTS = (1, 2, 8), (0.7, 0.15, 0.15)
MEAN_GPUS = sum(size * part for size, part in zip(SIZES, PARTS, strict=True))


def waits(policy: str, load: float, seed: int, jobs: int, *, tells: bool) -> tuple[float, dict[int, list[float]]]:
    """Return the mean time from submission to end, and how long jobs of each size waited, in hours."""
    random, at_s, made = Random(seed), 0.0, []  # noqa: S311
    middles_s = [exp(random.uniform(log(600.0), log(86_400.0))) for _ in range(10)]
    for number in range(1, jobs + 1):
        at_s += random.expovariate(16 * load / (MEAN_GPUS * fmean(middles_s)))
        family, size = random.randrange(10), random.choices(SIZES, PARTS)[0]
        lasts_s = middles_s[family] * random.lognormvariate(0.0, 0.5)
        named, limit_s = f"f{family}-{size}", lasts_s if tells else None
        made.append(job(number, at_s, lasts_s, gpus=size, family=named, share=False, time_limit_s=limit_s))
    rows = run(made, cluster(8, 8), create(policy), NeutralWorld(), DriverConfig(restart_s=60.0)).ledger.rows
    took_h = {int(n): (end - submit) / 3600 for n, submit, end in zip(rows.id, rows.submit_s, rows.end_s, strict=True)}
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    for one in made:
        found[one.spec.gpus].append(max(0.0, took_h[int(one.id)] - (one.duration_s or 0.0) / 3600))
    return fmean(took_h.values()), found


def main() -> None:
    """Print a line for each policy, load and kind of length."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--policy", action="append")
    options = parser.parse_args()
    print("| policy | lengths | load | mean jct | 1 GPU: p50, p99 | 8 GPUs: p50, p99 | p99 by GPU |")
    print("|---|---|---|---|---|---|---|")
    for policy in options.policy or ("colane", "colane:gang_wait_ratio=none", "srsf:max_wait_s=none", "fifo"):
        for tells in (True, False):
            for load in (1.2, 1.3):
                found: dict[int, list[float]] = {size: [] for size in SIZES}
                means = []
                for seed in range(options.seeds):
                    mean, parts = waits(policy, load, seed, options.jobs, tells=tells)
                    means.append(mean)
                    for size, hours in parts.items():
                        found[size] += hours
                ranks = {size: sorted(hours) for size, hours in found.items()}
                cells = [[line[int(part * (len(line) - 1))] for part in (0.5, 0.99)] for line in ranks.values()]
                ones, gangs = cells[0], cells[-1]
                by_gpu = gangs[1] / ones[1] / SIZES[-1]
                print(
                    f"| `{policy}` | {'told' if tells else 'unknown'} | {load} | {fmean(means):.1f} "
                    f"| {ones[0]:.1f}, {ones[1]:.1f} | {gangs[0]:.1f}, {gangs[1]:.1f} | {by_gpu:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
