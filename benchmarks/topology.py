"""Paper C at scale: scenario 2 in full, and how long a decision takes on 1,000 and 10,000 machines.

    python benchmarks/topology.py --data DIR [--out DIR] [--gap SECONDS] [--skip-deciding]

Scenario 2 (Amaral et al., SC 2017, section 5.5.2): 10,000 jobs of the authors' generator on 1,000 Minskys, a mean gap
of 0.089 s, their measured times, four policies; with plots like their figures 10 and 11. DIR holds
C/prof_from_experiments.json.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from time import perf_counter

import numpy as np

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, Submitted
from colane.core.policy import Policy
from colane.lab.papers.plots import Slowdowns, slowdowns
from colane.lab.papers.topology_large import LeastUtilities, arrivals, large
from colane.lab.papers.topology_world import POLICIES, TOPO_AWARE, TOPO_AWARE_P, kind_of, neighbour_beliefs
from colane.lab.report import style
from colane.lab.simulate.run import Run
from colane.lab.traces import clusters
from colane.lab.traces.tables import topology
from colane.lab.traces.tables.topology import TopologyTable
from colane.lab.traces.workload import Workload
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.plan import Plan
from colane.perf.beliefs import Beliefs

MACHINES, JOBS, GAP_S = 1000, 10_000, 0.089
COLUMNS = (
    "wait mean s",
    "wait max s",
    "slow mean",
    "slow max",
    "total mean",
    "below least",
    "decide ms",
    "p99 ms",
    "wall s",
)


def scenario_2(table: TopologyTable, jobs: int, gap_s: float, out: Path | None) -> None:
    """All policies on the same jobs: waits, slowdowns, time for a decision."""
    workload = arrivals(jobs, gap_s)
    print(f"{jobs} jobs, {MACHINES} machines, mean gap {gap_s} s")
    print(f"{'policy':14}" + "".join(f"{name:>12}" for name in COLUMNS))
    found: dict[str, Slowdowns] = {}
    for policy in POLICIES:
        least = LeastUtilities()
        run = large(table, policy, workload, MACHINES, least)
        slow = found[policy.name] = slowdowns_of(run, workload, table)
        wait_s = np.subtract(run.ledger.rows.first_start_s, run.ledger.rows.submit_s)
        plan_ms = 1e3 * np.array(run.ledger.plan_s)
        waits, slows = (wait_s.mean(), wait_s.max()), (slow.execution.mean(), slow.execution.max(), slow.total.mean())
        numbers = (*waits, *slows, least.violations(), plan_ms.mean(), np.percentile(plan_ms, 99), run.wall_s)
        print(f"{policy.name:14}" + "".join(f"{number:12.3f}" for number in numbers), flush=True)
    if out is not None:
        print("plot:", style.save(slowdowns(found), out / f"scenario-2-gap-{gap_s:g}.png"))


def slowdowns_of(run: Run, workload: Workload, table: TopologyTable) -> Slowdowns:
    """Against the time alone on one socket."""
    best_s = {job.id: table.solo(kind_of(job.spec)) or np.nan for job in workload.jobs}
    rows = run.ledger.rows
    alone_s = np.array([best_s[JobId(job)] for job in rows.id])
    return Slowdowns(np.subtract(rows.end_s, rows.start_s) / alone_s, np.subtract(rows.end_s, rows.submit_s) / alone_s)


class Timed:
    """A policy whose decisions are timed."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self.turns = policy.turns
        self.min_runtime_before_preemption_s = policy.min_runtime_before_preemption_s
        self.seconds: list[float] = []
        self._plan = policy.plan

    def plan(self, view: ClusterView) -> Plan:
        """What the policy says."""
        start_s = perf_counter()
        plan = self._plan(view)
        self.seconds.append(perf_counter() - start_s)
        return plan


class Stream:
    """Jobs that come and go on a cluster kept at one load; run times are drawn, so that only deciding is measured."""

    RUN_S = (50.0, 150.0)
    GPUS = (1, 1, 2, 2, 3, 4)

    def __init__(self, table: TopologyTable, preset: str, machines: int, policy: Policy) -> None:
        node = clusters.load(preset).nodes[0]
        beliefs = Beliefs(neighbours=neighbour_beliefs(table, node.gpus[0].type))
        self.timed = Timed(policy)
        self.core = Core(self.timed, ClusterState(beliefs), CoreConfig(opaque_after_s=0.0))
        self.core.step([NodeRegistered(replace(node, name=f"m{k:05}")) for k in range(machines)], 0.0)
        self.gpus = machines * len(node.gpus)
        self._random, self._now_s, self._next = Random(0), 0.0, 1  # noqa: S311 - a sample, no secret
        self._ends: list[tuple[float, JobId, int]] = []

    def run(self, load: float, jobs: int) -> None:
        """Fill the cluster to a load in small batches, then let so many jobs arrive, one at a time."""
        mean_gpus = sum(self.GPUS) / len(self.GPUS)
        for _ in range(int(self.gpus * load / mean_gpus / 100)):
            self._step([self._submitted() for _ in range(100)])
        self.timed.seconds.clear()
        gap_s = mean_gpus * sum(self.RUN_S) / 2 / (self.gpus * load)
        for _ in range(jobs):
            arrival_s = self._now_s + self._random.expovariate(1 / gap_s)
            for event in self._ended(arrival_s):
                self._step([event])
            self._now_s = arrival_s
            self._step([self._submitted()])

    def _submitted(self) -> Event:
        pick, job = self._random, JobId(self._next)
        self._next += 1
        spec = JobSpec(
            name=str(job), family=pick.choice(("bvlc_alexnet", "bvlc_alexnet", "bvlc_googlenet")),
            batch_size=pick.choice((1, 1, 1, 4, 4, 64, 128)), gpus=pick.choice(self.GPUS),
            utility_min=pick.uniform(0.3, 0.52),
        )  # fmt: skip
        return Submitted(job, spec)

    def _ended(self, until_s: float) -> Iterator[Event]:
        while self._ends and self._ends[0][0] <= until_s:
            self._now_s, job, attempt = heappop(self._ends)
            yield Ended(job, attempt, "exited", Exit(0, None), self._now_s, self._now_s)

    def _step(self, events: list[Event]) -> None:
        while events:
            outcome = self.core.step(events, self._now_s)
            started = [job for job in outcome.jobs if job.state is JobState.ASSIGNED]
            for job in started:
                heappush(self._ends, (self._now_s + self._random.uniform(*self.RUN_S), job.id, job.attempt))
            events = [Launched(job.id, job.attempt, 0, self._now_s) for job in started]


def deciding(table: TopologyTable, jobs: int, load: float) -> None:
    """Time of a decision while jobs come and go."""
    print(f"\ndecisions while {jobs} jobs come and as many go, load {load}")
    print(f"{'machines':>20}{'policy':>14}{'mean ms':>10}{'p99 ms':>10}{'max ms':>10}{'memory MiB':>12}")
    for preset, machines in (("minsky", 1000), ("dgx1", 1000), ("dgx1", 10_000)):
        for policy in (TOPO_AWARE, TOPO_AWARE_P):
            stream = Stream(table, preset, machines, policy)
            stream.run(load, jobs)
            ms = 1e3 * np.array(stream.timed.seconds)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            size = f"{machines} x {stream.gpus // machines}"
            numbers = f"{ms.mean():10.3f}{np.percentile(ms, 99):10.3f}{ms.max():10.1f}{memory:12.0f}"
            print(f"{size:>20}{policy.name:>14}{numbers}", flush=True)


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gap", type=float, default=GAP_S)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--deciding-jobs", type=int, default=2000)
    parser.add_argument("--skip-scenario", action="store_true")
    parser.add_argument("--skip-deciding", action="store_true")
    args = parser.parse_args()
    table = topology.read(args.data / "C" / "prof_from_experiments.json")
    if not args.skip_scenario:
        scenario_2(table, args.jobs, args.gap, args.out)
    if not args.skip_deciding:
        deciding(table, args.deciding_jobs, args.load)


if __name__ == "__main__":
    main()
