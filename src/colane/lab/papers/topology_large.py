"""Paper C on many machines: the waits of thousands of jobs, and how long a decision takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final

import numpy as np

from colane.core import Core
from colane.core.events import Outcome
from colane.core.policy import Policy
from colane.lab.papers.claims import FULL, Claim, Effort, Figure, Origin, Sense, Trait, ours, queue_s, said, span_s
from colane.lab.papers.topology_world import POLICIES, kind_of, minskys, neighbour_beliefs
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources, TopologySpeeds
from colane.lab.simulate.world import Running
from colane.lab.traces import generate
from colane.lab.traces.tables.topology import TopologyTable
from colane.lab.traces.workload import Workload
from colane.model import topologies
from colane.model.job import CommPattern, JobId
from colane.perf.beliefs import Beliefs
from colane.perf.estimates import profile_key
from colane.perf.topology import Comm, comm_of, excess, flat, shape_of, shape_of_node
from colane.perf.utility import harm_beside, job_utility, system_utility
from colane.scheduling.mechanisms.topology.drb import drb
from colane.scheduling.mechanisms.topology.node_fit import Question, exact

MASKS = 400  # random sets of free GPUs for each preset
GOLDEN = (1.0000, 0.2534, 0.1861, 0.1202, 0.3612)


def golden_utilities() -> tuple[float, ...]:
    """Two GPUs on one socket and across, each alone and beside a neighbour of ratio 0.95; across for the system."""
    across = excess(flat((0, 0, 1, 1)), (0, 2), Comm())
    ratio = 0.95
    return (
        job_utility(0.0, 0.0), job_utility(across, 0.0), job_utility(0.0, ratio), job_utility(across, ratio),
        system_utility(across, 0.0, 0.5),
    )  # fmt: skip


def golden_claim() -> Claim:
    """Utilities of the authors' code."""
    found = golden_utilities()
    stated = tuple(
        Figure(name, golden, value, "", "HiEST/gpu-topo-aware", Origin.CODE, ratio=0.0, slack=5e-5, digits=4)
        for name, golden, value in zip(GOLDEN_NAMES, GOLDEN, found, strict=True)
    )
    return Claim("C-utility", "utilities on a machine of two sockets with two GPUs each", stated, "arithmetic")


GOLDEN_NAMES = (
    "at its best", "across sockets", "beside a neighbour", "across sockets beside a neighbour", "of the system"
)  # fmt: skip


def drb_losses(preset: str, masks: int = MASKS, seed: int = 0) -> list[float]:
    """1 - utility of DRB / utility of the exact placer, over random free GPUs, sizes and job graphs of a preset."""
    shape, random = shape_of(topologies.PRESETS[preset]()), Random(seed)  # noqa: S311 - a sample, no secret
    losses = []
    for _ in range(masks):
        free = random.randrange(1, 1 << shape.gpus)
        ranks = random.randint(1, free.bit_count())
        question = Question(shape, free, (), ranks, Comm(random.choice(tuple(CommPattern))))
        losses.append(1 - drb(question)[0].system / exact(question)[0].system)
    return losses


def drb_claims() -> Iterator[Claim]:
    """Never better than exact, and little worse."""
    for preset in topologies.PRESETS:
        losses = drb_losses(preset)
        mean = sum(losses) / len(losses)
        bound = 0.05
        stated = (
            Figure("mean", bound, mean, "", "", Origin.OURS, bound=Sense.AT_MOST, digits=4),
            Figure("never better than the exact placer", 0, min(losses), "", "", Origin.OURS, bound=Sense.AT_LEAST,
                   slack=1e-9, digits=4),
            ours("at most", f"{100 * max(losses):.1f} %"),
        )  # fmt: skip
        claim = f"part of the utility that DRB loses, {MASKS} random free sets of {preset}"
        yield Claim(f"C-drb-{preset}", claim, stated, "arithmetic")


LOAD_GAP_S = 89.0
"""Mean gap between jobs times machines that offers a load of about 1 in the long run: 357 GPU-seconds a job."""
MACHINES = 100
JOBS = 4000
DECIDING_MACHINES = 1000
DECIDING_JOBS = 1500


class LeastUtilities:
    """Looks on at a run and keeps the least utility of every job: it falls only when a neighbour starts."""

    def __init__(self) -> None:
        self.by_job: dict[JobId, tuple[float, float]] = {}  # least utility and the least it asks for
        self._core: Core | None = None

    def of(self, core: Core) -> tuple[LeastUtilities]:
        """Look on at this core's run."""
        self._core = core
        return (self,)

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Not of interest: ends slow no job."""

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Judge all jobs on the node."""
        on_node = [process.running, *co_runners]
        for running in on_node:
            others = [other for other in on_node if other is not running]
            spec = running.job.spec
            before = self.by_job.get(running.job.id, (1.0, 0.0))[0]
            self.by_job[running.job.id] = min(before, self._utility(running, others)), spec.utility_min

    def violations(self) -> int:
        """Jobs that fell below what they ask for."""
        return sum(least < asked for least, asked in self.by_job.values())

    def _utility(self, running: Running, others: Sequence[Running]) -> float:
        if self._core is None:
            raise AssertionError("looks on at no run")
        state, spec = self._core.state, running.job.spec
        shape = shape_of_node(state.nodes[running.gpus[0].node].node)
        comm = excess(shape, tuple(sorted(gpu.number for gpu in running.gpus)), comm_of(spec))
        key = profile_key(spec, running.gpu_type)
        near = [other for other in others if set(other.sockets) & set(running.sockets)]
        kinds = [profile_key(other.job.spec, other.gpu_type) for other in near]
        harms = [harm_beside(state.beliefs, key, other) for other in kinds]
        return job_utility(comm, max(harms, default=0.0))


def large(
    table: TopologyTable, policy: Policy, workload: Workload, machines: int, least: LeastUtilities | None = None
) -> Run:
    """Jobs on many machines; in the world of the same times in which a job recovers when its neighbour has left."""
    # Nothing is learnt from what runs, as the paper's schedulers know their profile alone.
    world = TableWorld(Sources((TopologySpeeds(table),)), workload.jobs, counts_steps=False)
    cluster = minskys(machines)
    beliefs = Beliefs(neighbours=neighbour_beliefs(table, cluster.nodes[0].gpus[0].type))
    inputs = Inputs(cluster=cluster, workload=workload, world=world, policy=policy, beliefs=beliefs)
    return simulate(inputs) if least is None else simulate(inputs, watchers=least.of)


def arrivals(jobs: int, mean_gap_s: float, seed: int = 0) -> Workload:
    """Jobs as the authors' generator draws them; gaps are exponential, as theirs are whole seconds."""
    drawn = generate.topology(jobs=jobs, seed=seed)
    submit_s = np.cumsum(np.random.default_rng(seed).exponential(mean_gap_s, jobs)).tolist()
    timed = tuple(replace(job, submit_s=at_s) for job, at_s in zip(drawn.jobs, submit_s, strict=True))
    return replace(drawn, jobs=timed)


PLANNED_S: Final = {"topo-aware-p": ("3 s for TOPO-AWARE", 3), "fcfs": ("0.45", 0.45), "best-fit": ("0.44", 0.44)}
"""Mean time for a decision in scenario 2, as printed."""


def large_claims(table: TopologyTable, effort: Effort = FULL) -> Iterator[Claim]:
    """Waits, slowdowns, jobs that were served too badly, and the time of a decision."""
    jobs, machines = (JOBS // 4, MACHINES // 4) if effort.is_quick else (JOBS, MACHINES)
    effort.tell(f"{jobs:,} jobs on {machines} machines")
    workload = arrivals(jobs, LOAD_GAP_S / machines)
    watchers = {policy.name: LeastUtilities() for policy in POLICIES}
    runs = {policy.name: large(table, policy, workload, machines, watchers[policy.name]) for policy in POLICIES}
    waits = {policy: float(queue_s(run).mean()) for policy, run in runs.items()}
    ideal_s = {job.id: table.solo(kind_of(job.spec)) or np.nan for job in workload.jobs}
    slower = {
        policy: float(np.nanmean(span_s(run) / [ideal_s[JobId(job)] for job in run.ledger.rows.id]))
        for policy, run in runs.items()
    }
    broken = {policy: watcher.violations() for policy, watcher in watchers.items()}
    aware = max(waits["topo-aware"], waits["topo-aware-p"])
    what = f"{jobs} jobs on {machines} machines, load 1"
    stated = (
        Trait("FCFS waits longest", waits["fcfs"] == max(waits.values()), said(waits, "s"), "section 5.5.2"),
        Trait("BF comes next", waits["best-fit"] > aware, where="section 5.5.2"),
        Trait("the topology-aware ones slow jobs least",
              max(slower["topo-aware"], slower["topo-aware-p"]) < min(slower["fcfs"], slower["best-fit"]),
              said(slower, "x", 3), "figure 11 (a)"),
    )  # fmt: skip
    yield Claim("C-h", f"scenario 2 at a part of its size ({what}): mean wait, slowdown", stated, LARGE_WORLD)
    stated_slo = (
        Figure("topo-aware-p", 0, broken["topo-aware-p"], "", "section 5.5", Origin.DERIVED, ratio=0.0, digits=0),
        ours("all", said(broken, "jobs", 0)),
    )
    yield Claim("C-h-slo", "the same: jobs that fell below their least utility", stated_slo, LARGE_WORLD)
    effort.tell(f"decisions on {DECIDING_MACHINES} machines")
    deciding = arrivals(DECIDING_JOBS, LOAD_GAP_S / DECIDING_MACHINES)
    plan_s = {
        policy.name: large(table, policy, deciding, DECIDING_MACHINES).ledger.plan_s
        for policy in POLICIES
        if policy.name in PLANNED_S
    }
    late_s = float(np.percentile(plan_s["topo-aware-p"], 99))
    stated_i = (
        *(
            Figure(name, most_s, float(np.mean(plan_s[name])), "s", "section 5.5.3", printed=printed,
                   bound=Sense.AT_MOST, digits=5)
            for name, (printed, most_s) in PLANNED_S.items()
        ),
        Figure("topo-aware-p, 99 % of them", 3, late_s, "s", "section 5.5.3", Origin.DERIVED, bound=Sense.AT_MOST,
               digits=5),
    )  # fmt: skip
    claim = f"time for a decision, {DECIDING_MACHINES} machines"
    yield Claim("C-i", claim, stated_i, LARGE_WORLD, "Of this machine.")


LARGE_WORLD = "the authors' times; jobs as their generator draws them, gaps exponential"
