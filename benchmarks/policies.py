"""Policies side by side on the 26 models of Gavel's measured V100 pairs, and a bare greedy loop beside them.

    python benchmarks/policies.py --data DIR [--load 1.0 --load 1.5 --load at-once] [--seeds 5] [--policy NAME ...]

400 one-GPU jobs of Gavel's run times on 36 V100s, by Poisson arrivals of that load or all at once. Every policy runs in
Colane's simulator; stopping, launching and parking are charged as `COSTS` says. `greedy` is sixty lines of its own
below, without any part of Colane: at every event the 36 jobs with least left get a GPU each, and the others join one
where the sum of speeds rises most, one joiner a GPU, as far as the memory they declare fits; it knows all speeds, and
moving is free. A row is the mean over the seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from pathlib import Path

from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.policies.registry import create
from colane.simulate.beliefs import Belief, make_beliefs
from colane.simulate.config import DriverConfig
from colane.simulate.fitting import V100_BYTES
from colane.simulate.ledger import STATES
from colane.simulate.request import Request, make_world, shared_by
from colane.simulate.run import Inputs, Run, simulate
from colane.simulate.table_world import gavel_models
from colane.simulate.world import Running, World
from colane.traces import clusters, generate
from colane.traces.workload import TraceJob, Workload

GPUS = 36
MEAN_S = 60.0 * (0.8 * 280.4 + 0.2 * 3908.6)
"""Mean of Gavel's run times (`generate.GavelDurations`)."""

AT_ONCE = "at-once"
LOADS = ("1.0", "1.5", AT_ONCE)
POLICIES = ("fifo", "srtf", "colocate", "topo-aware-share", "max-min-packed", "colane")
COSTS = DriverConfig(launch_s=20.0, restart_s=10.0, stop_s=5.0, park_bytes_per_s=10e9)
"""What moving costs: a launch and loading the saved state, saving it, and GPU memory to the host and back."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave its jobs, seconds; in order of submission."""

    submit_s: list[float]
    end_s: list[float]
    alone_s: list[float]
    moves: int = 0
    unfinished: int = 0
    cpu_s: float = 0.0

    def figures(self) -> list[float]:
        """One row of the table, see `COLUMNS`."""
        jct = sorted(end - submit for submit, end in zip(self.submit_s, self.end_s, strict=True))
        slow = [(e - s) / a for s, e, a in zip(self.submit_s, self.end_s, self.alone_s, strict=True)]
        jain = sum(slow) ** 2 / (len(slow) * sum(x * x for x in slow))
        span = max(self.end_s) - min(self.submit_s)
        hours = [statistics.mean(jct), _part(jct, 0.95), _part(jct, 0.99), span]
        return [*(x / 3600 for x in hours), max(slow), jain, self.moves, self.unfinished, self.cpu_s]


COLUMNS = ("mean jct h", "p95", "p99", "makespan h", "worst slowdown", "Jain", "moves", "unfinished", "CPU s")


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


# -- the bare greedy


Speeds = Callable[[int, int], tuple[float, float]]
"""Speeds of two jobs together, each over its own alone; zeros where they do not fit."""


def greedy(submit_s: Sequence[float], alone_s: Sequence[float], speeds: Speeds, gpus: int, order: str) -> list[float]:
    """When each job ends; `order` is `shortest`, `longest` or `arrival`."""
    left, end_s = list(alone_s), [inf] * len(alone_s)
    living: list[int] = []
    now_s, came = 0.0, 0
    while came < len(submit_s) or living:
        sign = {"shortest": 1.0, "longest": -1.0, "arrival": 0.0}[order]
        living.sort(key=lambda job: (sign * left[job], job))
        speed = _paired(living, speeds, gpus)
        ends = min((now_s + left[job] / rate for job, rate in speed.items() if rate > 0), default=inf)
        then_s = min(ends, submit_s[came] if came < len(submit_s) else inf)
        for job, rate in speed.items():
            left[job] -= rate * (then_s - now_s)
        now_s = then_s
        for job in [job for job in living if left[job] <= 1e-6]:
            living.remove(job)
            end_s[job] = now_s
        while came < len(submit_s) and submit_s[came] <= now_s:
            living.append(came)
            came += 1
    return end_s


def _paired(ordered: Sequence[int], speeds: Speeds, gpus: int) -> dict[int, float]:
    """The first of the order get a GPU each; of the others each joins where the sum of speeds rises most."""
    speed = dict.fromkeys(ordered[:gpus], 1.0)
    single = list(ordered[:gpus])
    for job in ordered[gpus:]:
        best, host = 1.0, -1
        for other in single:
            together = sum(speeds(other, job))
            if together > best:
                best, host = together, other
        if host >= 0:
            single.remove(host)
            speed[host], speed[job] = speeds(host, job)
    return speed


# -- workloads


def workload(models: Sequence[generate.JobModel], load: str, jobs: int, seed: int) -> Workload:
    """Gavel's models and run times, at that load or at once."""
    gap_s = 0.0 if load == AT_ONCE else MEAN_S / (GPUS * float(load))
    return generate.poisson(models, jobs=jobs, mean_gap_s=gap_s, seed=seed)


def true_speeds(jobs: Sequence[TraceJob], world: World) -> Speeds:
    """Of two jobs on one V100, by the world's own table."""
    known: dict[tuple[object, ...], tuple[float, float]] = {}

    def alone(running: Running) -> float:
        return world.steps_per_s(running, ())

    def speeds(one: int, other: int) -> tuple[float, float]:
        key = (*_kind(jobs[one]), *_kind(jobs[other]))
        if key not in known:
            first, second = _on_gpu(jobs[one]), _on_gpu(jobs[other])
            together = world.steps_per_s(first, [second]), world.steps_per_s(second, [first])
            declared = [jobs[job].spec.gpu_memory_bytes or 0 for job in (one, other)]
            fits = min(together) > 0 and sum(declared) <= V100_BYTES
            known[key] = (together[0] / alone(first), together[1] / alone(second)) if fits else (0.0, 0.0)
        return known[key]

    return speeds


def _kind(job: TraceJob) -> tuple[object, ...]:
    return job.model, job.batch_size


def _on_gpu(job: TraceJob) -> Running:
    return Running(job, "v100", (GpuId("anywhere", 0),), sharing="mps")


# -- running


def run_greedy(made: Workload, world: World, order: str) -> Outcome:
    """The bare loop."""
    submit_s = [job.submit_s for job in made.jobs]
    alone_s = [job.duration_s or 0.0 for job in made.jobs]
    start_s = time.process_time()
    end_s = greedy(submit_s, alone_s, true_speeds(made.jobs, world), GPUS, order)
    return Outcome(submit_s, end_s, alone_s, cpu_s=time.process_time() - start_s)


def run_policy(made: Workload, world: World, cluster: clusters.Cluster, name: str, options: Options) -> Outcome:
    """A policy in Colane's simulator."""
    beliefs = make_beliefs(options.belief, world, made.jobs, cluster, noise=0.1, seed=0)
    if options.checkpoints:
        jobs = tuple(replace(job, spec=replace(job.spec, preemptible=True)) for job in made.jobs)
        made = replace(made, jobs=jobs)
    costs = replace(COSTS, checkpoints=options.checkpoints)
    given = Inputs(cluster=cluster, workload=made, world=world, policy=create(name), beliefs=beliefs, driver=costs)
    start_s = time.process_time()
    return _outcome(simulate(given), made, time.process_time() - start_s)


def _outcome(run: Run, made: Workload, cpu_s: float) -> Outcome:
    rows, by_id = run.ledger.rows, {int(job.id): job for job in made.jobs}
    done = [i for i in range(len(rows)) if STATES[rows.state[i]] is JobState.SUCCEEDED and not isnan(rows.end_s[i])]
    for flaw in run.ledger.flaws[:3]:
        print("flaw:", flaw, file=sys.stderr)
    return Outcome(
        [rows.submit_s[i] for i in done],
        [rows.end_s[i] for i in done],
        [by_id[rows.id[i]].duration_s or 0.0 for i in done],
        moves=max(0, len(run.ledger.stays) + run.ledger.stays_dropped - len(rows)),
        unfinished=run.jobs - len(done),
        cpu_s=cpu_s,
    )


class Options(argparse.Namespace):
    """What is asked for."""

    data: Path
    load: list[str]
    seeds: int
    jobs: int
    policy: list[str]
    belief: Belief
    checkpoints: bool


def main() -> int:
    """Print a table for each load."""
    options = _options()
    models = gavel_models(options.data)
    cluster = shared_by(clusters.load("v100-36"), "mps")
    for load in options.load or LOADS:
        print(f"\nload {load}, {options.jobs} jobs, {options.seeds} seeds, beliefs {options.belief}", flush=True)
        print(f"{'':34}" + "".join(f"{column:>15}" for column in COLUMNS), flush=True)
        for name in ("greedy", *(options.policy or POLICIES)):
            base, _, order = name.partition(":")
            figures = []
            for seed in range(1, 1 + options.seeds):
                made = workload(models, load, options.jobs, seed)
                world = make_world(Request(tables=options.data), made, cluster)
                if base == "greedy":
                    outcome = run_greedy(made, world, order or "shortest")
                else:
                    outcome = run_policy(made, world, cluster, name, options)
                figures.append(outcome.figures())
            print(f"{name:34}" + _row(map(statistics.mean, zip(*figures, strict=True))), flush=True)
    return 0


def _row(figures: Iterable[float]) -> str:
    return "".join(f"{figure:15.2f}" for figure in figures)


def _options() -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COLANE_DATA", ".")))
    parser.add_argument("--load", action="append", help="A number, or at-once.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--policy", action="append", help="One of Colane's, or greedy:longest.")
    parser.add_argument("--belief", type=Belief, default=Belief.ORACLE, choices=tuple(Belief))
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false", help="Nobody can be stopped.")
    return parser.parse_args(namespace=Options())


if __name__ == "__main__":
    sys.exit(main())
