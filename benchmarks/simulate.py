"""How fast the simulator is: CPU seconds, memory and events per second on recorded and made-up workloads.

Each case runs in a process of its own. Bounds are CPU seconds of the whole case, with reading or making the workload
where it says so.

    python benchmarks/simulate.py [--data DIR] [--case NAME ...] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces import clusters, read
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.generate import heavy_load
from colane.lab.traces.workload import Workload, compress, only_pools
from colane.model.hardware import Gpu, Node
from colane.scheduling.registry import create

PHILLY_SCALE = 9.0
"""Offers the virtual clusters a load above 1 for nearly all of the trace."""


class Case(NamedTuple):
    """One figure: how to make its inputs, its bound in CPU seconds, in GB, and whether making them counts."""

    title: str
    make: Callable[[Path], tuple[Cluster, Workload]]
    policy: str
    bound_cpu_s: float
    bound_gb: float | None = None
    reading_counts: bool = True


def philly(data: Path) -> tuple[Cluster, Workload]:
    """The 82,000 jobs of Microsoft's Philly on their virtual clusters."""
    cluster = clusters.load("philly")
    return cluster, only_pools(read.read(data / "traces/philly.csv.gz"), cluster.pools)


def philly_compressed(data: Path) -> tuple[Cluster, Workload]:
    """The same with arrivals so dense that the queue is hardly ever empty."""
    cluster, workload = philly(data)
    return cluster, compress(workload, PHILLY_SCALE)


def paper_d(_data: Path) -> tuple[Cluster, Workload]:
    """100,000 jobs on the 400 GPUs of paper D."""
    cluster = clusters.load("paper-d")
    return cluster, heavy_load(jobs=100_000, gpus=cluster.gpus, seed=0, load=0.95)


def paper_d_shared(data: Path) -> tuple[Cluster, Workload]:
    """The same with memory declared, so that jobs may share."""
    cluster, workload = paper_d(data)
    jobs = tuple(replace(job, spec=replace(job.spec, gpu_memory_bytes=3 << 30)) for job in workload.jobs)
    return cluster, replace(workload, jobs=jobs)


def huge(_data: Path) -> tuple[Cluster, Workload]:
    """1,000,000 jobs on 12,500 nodes of 8 GPUs."""
    gpus = tuple(Gpu(index=i, uuid=f"gpu-{i}", type="A100", memory_bytes=40 << 30) for i in range(8))
    nodes = tuple(Node(name=f"node-{i:05}", gpus=gpus) for i in range(12_500))
    return Cluster("huge", nodes), heavy_load(jobs=1_000_000, gpus=100_000, seed=0, load=0.95)


CASES = {
    "philly": Case("FIFO, Philly, 82,000 jobs, reading included", philly, "fifo", 5.0, 0.5),
    "philly-compressed": Case("FIFO, Philly compressed, reading included", philly_compressed, "fifo", 10.0),
    "paper-d": Case("FIFO, 100,000 jobs on paper-d", paper_d, "fifo", 6.0, reading_counts=False),
    "paper-d-colocate": Case(
        "colocate, 100,000 jobs on paper-d", paper_d_shared, "colocate", 12.0, reading_counts=False
    ),
    "huge": Case("FIFO, 1,000,000 jobs on 12,500 x 8 GPUs", huge, "fifo", 90.0, 4.0, reading_counts=False),
}


def main() -> int:
    """Run the cases, each in a process of its own; 1 when a bound is missed."""
    options = _options()
    if options.alone:
        return run_case(CASES[options.case[0]], options.data, profile=options.profile)
    missed = 0
    for name in options.case or CASES:
        words = [sys.executable, __file__, "--case", name, "--alone", "--data", str(options.data)]
        missed |= subprocess.run([*words, *(["--profile"] if options.profile else [])], check=False).returncode
    return missed


def run_case(case: Case, data: Path, *, profile: bool) -> int:
    """Run one case here and print its line."""
    start_s = time.process_time()
    cluster, workload = case.make(data)
    made_s = time.process_time() - start_s
    given = Inputs(cluster=cluster, workload=workload, world=NeutralWorld(), policy=create(case.policy))
    if profile:
        return _profiled(given)
    run = simulate(given)
    run_s = time.process_time() - start_s - made_s
    return _print(case, run, made_s, run_s)


def _print(case: Case, run: Run, made_s: float, run_s: float) -> int:
    cpu_s = run_s + (made_s if case.reading_counts else 0.0)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    memory = f", {gigabytes:.2f} GB" + ("" if case.bound_gb is None else f" (bound {case.bound_gb:g})")
    load = "" if run.offered_load is None else f", offered load {run.offered_load:.2f}"
    print(
        f"{case.title}: {cpu_s:.2f} CPU s (bound {case.bound_cpu_s:g}){memory}; {run.ledger.events:,} events, "
        f"{run.ledger.events / run_s:,.0f} a second{load}, {len(run.refused)} refused, "
        f"{sum(run.ledger.plan_s):.2f} s in the policy",
        flush=True,
    )
    return int(cpu_s > case.bound_cpu_s or gigabytes > (case.bound_gb or gigabytes))


def _profiled(given: Inputs) -> int:
    profile = cProfile.Profile()
    profile.runcall(simulate, given)
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COLANE_DATA", ".")))
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--profile", action="store_true", help="Show where the time goes instead.")
    parser.add_argument("--alone", action="store_true", help="In this process; for one case.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
