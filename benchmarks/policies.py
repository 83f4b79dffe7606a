"""Policies side by side: every preset on workloads of five papers, with intervals over seeds.

    python benchmarks/policies.py --data DIR --rows a,b [--policy NAME ...] [--seeds 5] [--belief none] [--out OUT]

Runs what is not in OUT/results.csv yet, a line each as it ends, and prints a table for each row (`policy_rows.py` says
what they are): stopped, it goes on where it was. `--table` only prints, `--picture FILE` also draws. `greedy` is a bare
loop without any part of Colane, of row (a) only, for which moving is free and all speeds are known. `bound` is below
what is within reach there: of mean jct and makespan each by itself (`policy_bound.py`; two jobs on a GPU at most).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import inf, isnan, nan
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import policy_results, policy_rows  # noqa: E402
from benchmarks.policy_bound import bound  # noqa: E402
from benchmarks.policy_greedy import Speeds, greedy  # noqa: E402
from benchmarks.policy_results import Figures, Key, figures_of  # noqa: E402
from benchmarks.policy_rows import Ask, Setting  # noqa: E402

from colane.core import Core  # noqa: E402
from colane.lab.papers.topology_large import LeastUtilities  # noqa: E402
from colane.lab.simulate.beliefs import Belief, make_beliefs  # noqa: E402
from colane.lab.simulate.driver import Driver  # noqa: E402
from colane.lab.simulate.gavel_speeds import CAPACITY_BYTES  # noqa: E402
from colane.lab.simulate.ledger import STATES  # noqa: E402
from colane.lab.simulate.run import Inputs, Run, simulate  # noqa: E402
from colane.lab.simulate.tables import somewhere  # noqa: E402
from colane.lab.simulate.watcher import Watcher  # noqa: E402
from colane.lab.simulate.world import Running, World  # noqa: E402
from colane.lab.traces.workload import TraceJob  # noqa: E402
from colane.model.hardware import GpuId  # noqa: E402
from colane.model.job import JobState  # noqa: E402
from colane.scheduling.registry import NAMES, create  # noqa: E402

GREEDY = "greedy"
BOUND = "bound"
LIMIT_S = 900.0


class Task(NamedTuple):
    """One run that is asked for."""

    key: Key
    data: Path
    checkpoints: bool
    limit_s: float


# -- one run


def run_task(task: Task) -> Figures:
    """Make the row's draw and run one policy on it."""
    key = task.key
    ask = Ask(task.data, key.seed, key.jobs, Belief(key.belief))
    setting = policy_rows.ROWS[key.row].make(ask)
    base, _, order = key.policy.partition(":")
    if base == BOUND:
        return _bound(setting)
    return _greedy(setting, order or "shortest") if base == GREEDY else _policy(setting, task)


def _greedy(setting: Setting, order: str) -> Figures:
    jobs = setting.workload.jobs
    submit_s, alone_s = [job.submit_s for job in jobs], [job.duration_s or 0.0 for job in jobs]
    start_s = time.process_time()
    kind = setting.cluster.nodes[0].gpus[0].type
    end_s = greedy(submit_s, alone_s, true_speeds(jobs, setting.world, kind), policy_rows.GAVEL_GPUS, order)
    return figures_of(submit_s, submit_s, end_s, alone_s)._replace(cpu_s=time.process_time() - start_s)


def _bound(setting: Setting) -> Figures:
    """No run: what there is no schedule for has no figure."""
    jobs, start_s = setting.workload.jobs, time.process_time()
    submit_s, alone_s = [job.submit_s for job in jobs], [job.duration_s or 0.0 for job in jobs]
    speeds = true_speeds(jobs, setting.world, setting.cluster.nodes[0].gpus[0].type)
    kinds = [(job.model, job.batch_size) for job in jobs]
    found = bound(submit_s, alone_s, kinds, speeds, policy_rows.GAVEL_GPUS)
    ends_s = [at_s + run_s for at_s, run_s in zip(submit_s, alone_s, strict=True)]
    return figures_of(submit_s, submit_s, ends_s, alone_s)._replace(
        jct_h=found.mean_jct_s / 3600, makespan_h=(found.end_s - min(submit_s)) / 3600,
        p95_h=nan, p99_h=nan, worst=nan, jain=nan, wait_s=nan, cpu_s=time.process_time() - start_s,
    )  # fmt: skip


def true_speeds(jobs: tuple[TraceJob, ...], world: World, gpu_type: str = "v100") -> Speeds:
    """Of two jobs on one GPU of that type, by the world's own table."""
    known: dict[tuple[object, ...], tuple[float, float]] = {}

    def alone(running: Running) -> float:
        return world.steps_per_s(running, ())

    def speeds(one: int, other: int) -> tuple[float, float]:
        kinds = [(jobs[job].model, jobs[job].batch_size) for job in (one, other)]
        key = (*kinds[0], *kinds[1])
        if key not in known:
            first, second = (Running(jobs[job], gpu_type, (GpuId("a", 0),), sharing="mps") for job in (one, other))
            together = world.steps_per_s(first, [second]), world.steps_per_s(second, [first])
            declared = [jobs[job].spec.gpu_memory_bytes or 0 for job in (one, other)]
            fits = min(together) > 0 and sum(declared) <= CAPACITY_BYTES[gpu_type]
            known[key] = (together[0] / alone(first), together[1] / alone(second)) if fits else (0.0, 0.0)
        return known[key]

    return speeds


class _Least:
    """Notes the least utility of jobs where the row is paper C's."""

    def __init__(self, row: str) -> None:
        self._found = LeastUtilities() if row.startswith("c") else None

    def watchers(self, core: Core) -> Iterable[Watcher]:
        """Look on at this core's run."""
        return () if self._found is None else self._found.of(core)

    @property
    def below(self) -> int:
        """Jobs that fell below what they ask for."""
        return 0 if self._found is None else self._found.violations()


def _policy(setting: Setting, task: Task) -> Figures:
    workload, world, cluster, costs = setting
    beliefs = make_beliefs(Belief(task.key.belief), world, workload.jobs, cluster, noise=0.1, seed=0)
    if task.checkpoints:
        workload = policy_rows.preemptible(workload)
    policy, least = create(task.key.policy), _Least(task.key.row)
    given = Inputs(cluster=cluster, workload=workload, world=world, policy=policy, beliefs=beliefs, driver=costs)
    start_s = time.process_time()
    run = simulate(given, watchers=least.watchers, on_ready=_limited(task.limit_s))
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    found = _figures(run, setting)
    return found._replace(below=least.below, cpu_s=time.process_time() - start_s)


class _limited:  # noqa: N801 - used as a function
    """Stops a driver that has used so much CPU."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def __call__(self, driver: Driver) -> None:
        signal.signal(signal.SIGPROF, lambda _number, _frame: driver.stop())
        signal.setitimer(signal.ITIMER_PROF, self._limit_s)


def _figures(run: Run, setting: Setting) -> Figures:
    rows, by_id = run.ledger.rows, {int(job.id): job for job in setting.workload.jobs}
    done = [i for i in range(len(rows)) if STATES[rows.state[i]] is JobState.SUCCEEDED and not isnan(rows.end_s[i])]
    for flaw in run.ledger.flaws[:3]:
        print("flaw:", flaw, file=sys.stderr)
    types = {pool: _types(setting, pool) for pool in setting.cluster.pools}
    alone_s = [_alone_s(by_id[rows.id[i]], types[by_id[rows.id[i]].spec.pool], setting.world) for i in done]
    found = figures_of(
        [rows.submit_s[i] for i in done], [rows.first_start_s[i] for i in done], [rows.end_s[i] for i in done], alone_s
    )
    launches_s, users = setting.costs.launch_s * len(rows), [by_id[rows.id[i]].spec.user for i in done]
    most = max(users, key=users.count, default="")
    slow = [
        (rows.end_s[i] - rows.submit_s[i]) / alone
        for i, alone, user in zip(done, alone_s, users, strict=True)
        if user != most
    ]
    return found._replace(
        others=mean(slow) if slow else 0.0,
        moves=max(0, len(run.ledger.stays) + run.ledger.stays_dropped - len(rows)),
        lost_h=max(0.0, run.ledger.idle_s + run.ledger.redone_s - launches_s) / 3600,
        unfinished=run.submitted - len(done),
        flaws=len(run.ledger.flaws),
        interrupted=int(run.ledger.interrupted),
    )


def _types(setting: Setting, pool: str) -> list[str]:
    return sorted({gpu.type for node in setting.cluster.nodes if node.pool == pool for gpu in node.gpus})


def _alone_s(job: TraceJob, gpu_types: Iterable[str], world: World) -> float:
    """Run time alone on the type where that is shortest."""
    speeds = [world.steps_per_s(somewhere(job, kind), ()) for kind in gpu_types]
    return min((world.work_steps(job) / speed for speed in speeds if speed > 0), default=inf)


# -- all of them


class Options(argparse.Namespace):
    """What is asked for."""

    data: Path
    rows: str
    seeds: int
    jobs: int
    policy: list[str]
    belief: Belief
    checkpoints: bool
    out: Path
    workers: int
    limit_s: float
    table: bool
    picture: Path | None


def main() -> int:
    """Run what is missing and print all that is asked for."""
    options = _options()
    try:
        tasks = list(_tasks(options))
    except ValueError as error:
        sys.exit(str(error))
    results = policy_results.Results(options.out / "results.csv")
    if not options.table:
        _run(tasks, results, options.workers)
    found = results.read()
    for text in policy_results.tables(found, [task.key for task in tasks]):
        print(text, flush=True)
    if options.picture is not None:
        policy_results.draw(policy_results.ratios_of(found, [task.key for task in tasks]), options.picture)
    return 0


def _tasks(options: Options) -> Iterator[Task]:
    for name in policy_rows.chosen(options.rows):
        row = policy_rows.ROWS[name]
        for policy in options.policy or _policies(name):
            for seed in row.seeds[: options.seeds]:
                jobs = options.jobs or row.jobs
                key = Key(name, policy, options.belief.value, int(options.checkpoints), jobs, seed)
                yield Task(key, options.data, options.checkpoints, options.limit_s)


def _policies(row: str) -> list[str]:
    more = {
        "a": (GREEDY, BOUND, "colane:objective=makespan", "colane:objective=fair"),
        "b": ("max-min:solver=lp",),
        "d": ("pack:gain_min=none",),
    }
    return [*NAMES, *more.get(row[0], ())]


def _run(tasks: list[Task], results: policy_results.Results, workers: int) -> None:
    known = results.read()
    left = [task for task in tasks if task.key not in known]
    with ProcessPoolExecutor(workers) as pool:
        waiting = {pool.submit(run_task, task): task for task in left}
        for count, future in enumerate(as_completed(waiting), 1):
            key, figures = waiting[future].key, future.result()
            results.add(key, figures)
            said = f"{key.row} {key.policy} seed {key.seed}: {figures.cpu_s:.0f} CPU s"
            print(f"{count} of {len(left)}: {said}", file=sys.stderr, flush=True)


def _options() -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COLANE_DATA", ".")))
    parser.add_argument("--rows", default="all", help="Letters or names, such as a:1.5,c.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=0, help="Of each row, in place of its own number.")
    parser.add_argument("--policy", action="append", help="One of Colane's, or greedy:shadow-price. Default: all.")
    parser.add_argument("--belief", type=Belief, default=Belief.ORACLE, choices=tuple(Belief))
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false", help="No job can be stopped.")
    parser.add_argument("--out", type=Path, default=Path("policies"), help="Folder of the results.")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="CPU seconds a run may take.")
    parser.add_argument("--table", action="store_true", help="Run nothing, print what there is.")
    parser.add_argument("--picture", type=Path, help="Draw mean jct and makespan there, as SVG or PNG.")
    return parser.parse_args(namespace=Options())


if __name__ == "__main__":
    sys.exit(main())
