"""Paper D's evaluation (Zhao et al.: CODA), as far as a simulation can tell: the CPU side of training."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colane.cpu.contention import ContentionConfig
from colane.lab.papers.claims import (
    FULL,
    Claim,
    Effort,
    Evaluation,
    Figure,
    Origin,
    Sense,
    Stated,
    Trait,
    ours,
)
from colane.lab.papers.cpu_month import (
    CODA,
    HEAVIER,
    HOUR_S,
    NO_ELIMINATOR,
    SHORT_S,
    cluster,
    eliminator_claim,
    generator_claim,
    heavy_at_once,
    month,
    month_claims,
    month_experiment,
    otherwise_claims,
    run_month,
    setups,
)  # fmt: skip
from colane.lab.papers.cpu_tuning import TuningRun, tuning_claims, tuning_runs
from colane.lab.papers.cpu_world import BEST_CORES, CORE_BANDWIDTH_RATIO, HEAVY, CpuMonthWorld, best_cores
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.table_files import SYNERGY, file_of
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.coda import Coda
from colane.lab.traces.tables import synergy
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec

INTERVAL_S = 10.0  # the paper's
RUN_S, NEIGHBOUR_FROM_S = 2 * HOUR_S, 900.0
"""How long training takes alone, and when the other job starts: its undisturbed speed is known by then."""

SEVERE_PERCENT = 10.0  # a loss from here on is severe; chosen, the paper says no number


class Loss(NamedTuple):
    """Part of its speed, in percent, that a model loses while the other job is there, or was there first."""

    alone: float
    held_back: float
    came_second: float


def loss_percent(model: str, neighbour_from_s: float, *, eliminates: bool) -> float:
    """What a model on one GPU of a node loses beside a job whose cores use all of its bandwidth."""
    training = JobSpec(name=model, family=model, gpus=1, cores=best_cores(model, 1))
    heat = JobSpec(name="heat", family="heat", gpus=0, cores=round(1 / CORE_BANDWIDTH_RATIO), labels={HEAVY: "heavy"})
    jobs = (
        TraceJob(id=JobId(1), submit_s=0.0, spec=training, duration_s=RUN_S),
        TraceJob(id=JobId(2), submit_s=neighbour_from_s, spec=heat, duration_s=10 * RUN_S),
    )
    world = CpuMonthWorld()
    given = Inputs(
        cluster=Cluster("node", cluster().nodes[:1]), workload=Workload(name="neighbours", jobs=jobs), world=world,
        policy=setups()[CODA].policy, driver=DriverConfig(bandwidth=world),
        contention=ContentionConfig.of(INTERVAL_S) if eliminates else None,
    )  # fmt: skip
    rows = simulate(given).ledger.rows
    end_s = dict(zip(rows.id, rows.end_s, strict=True))[1]
    return 100 * (1 - (RUN_S - neighbour_from_s) / (end_s - neighbour_from_s))


def contention_claim() -> Claim:
    """Claim D-n: figure 7, whose losses are an input, and what the eliminator leaves of them."""
    found = {
        model: Loss(
            loss_percent(model, NEIGHBOUR_FROM_S, eliminates=False),
            loss_percent(model, NEIGHBOUR_FROM_S, eliminates=True),
            loss_percent(model, 0.0, eliminates=True),
        )
        for model in BEST_CORES
    }
    given = "losses are made of it"
    lost = {model: loss.alone for model, loss in found.items()}
    worst = max(found, key=lambda model: found[model].held_back)
    vision = {model: lost[model] for model in ("alexnet", "vgg16", "inception3", "resnet50")}
    second = max(found, key=lambda model: found[model].came_second)
    stated: tuple[Stated, ...] = (
        Figure("language models lose", 50, min(lost["bi-att-flow"], lost["transformer"]), "%", "figure 7",
               printed="50%", bound=Sense.AT_LEAST, given=given),
        Trait("DeepSpeech loses more than Wavenet", lost["deepspeech"] > lost["wavenet"],
              f"{lost['deepspeech']:.1f} %, {lost['wavenet']:.1f} %", "figure 7", given=given),
        Trait("of vision models AlexNet alone loses", [name for name, part in vision.items() if part] == ["alexnet"],
              f"{lost['alexnet']:.1f} %", "figure 7", given=given),
        Trait("no model is sensitive to the last-level cache", None, where="figure 7",
              unjudged="nothing here has a cache to contend for"),
        Trait("no training job is severely degraded once the eliminator acts",
              found[worst].held_back < SEVERE_PERCENT,
              f"at most {found[worst].held_back:.1f} % ({worst}; {found[worst].alone:.1f} % without)", "section V"),
        Trait("nor beside a job that was there first", found[second].came_second < SEVERE_PERCENT,
              f"at most {found[second].came_second:.1f} % ({second})", "section V", Origin.DERIVED),
    )  # fmt: skip
    note = (
        "The losses of figure 7 go in, so that meeting them says nothing. Each model was run for two hours beside a "
        f"job that uses all bandwidth from the 15th minute on: the eliminator leaves {found[worst].held_back:.1f} % of "
        f"at most {max(lost.values()):.1f} %. Where the other was there first, nothing is known of the model's "
        f"speed: it is taken for slowed until it has made steps with bandwidth enough; {found[second].came_second:.1f} "
        "% are left."
    )
    world = "one node of the month; losses are made of the paper's text"
    return Claim("D-n", "training beside a job that uses all memory bandwidth", stated, world, note)


NO_PCIE = "no bandwidth of PCIe is simulated"
PCIE_CLAIM = Claim("D-p", "training of two GPUs a job beside another: PCIe", (
    Trait("two jobs of one GPU each do not slow each other", None, where="section IV-C", unjudged=NO_PCIE),
    Figure("beside a model that needs more of it, at least", 5, None, "%", "section IV-C", printed="5%-10%",
           bound=Sense.AT_LEAST, unjudged=NO_PCIE),
    Figure("and at most", 10, None, "%", "section IV-C", printed="5%-10%", bound=Sense.AT_MOST, unjudged=NO_PCIE),
    Figure("AlexNet and ResNet-50 take at most", 12, None, "GB/s", "section IV-C", printed="12 GB/s", unjudged=NO_PCIE),
))  # fmt: skip
"""What the paper measured of PCIe, with nothing here to hold it against: the eliminator watches the host's memory."""


class OnePool:
    """All cores of a cluster in virtual time."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._world = CpuMonthWorld()
        self._ends: list[tuple[float, int]] = []
        self._waiting: list[TraceJob] = []
        self.waits_s: list[float] = []

    def submit(self, job: TraceJob) -> None:
        """A job comes; jobs that have ended by then make room first."""
        self.until(job.submit_s)
        if job.spec.gpus:
            self._start(best_cores(job.model, job.spec.gpus), job.submit_s, self._world.work_steps(job))
        else:
            self._waiting.append(job)
            self._serve(job.submit_s)

    def until(self, now_s: float) -> None:
        """Let time pass."""
        while self._ends and self._ends[0][0] <= now_s:
            end_s, cores = heappop(self._ends)
            self._free += cores
            self._serve(end_s)

    def _serve(self, now_s: float) -> None:
        """Start all that fit, in order of arrival."""
        left: list[TraceJob] = []
        for job in self._waiting:
            if job.spec.cores <= self._free:
                self.waits_s.append(now_s - job.submit_s)
                self._start(job.spec.cores, now_s, job.duration_s or 0.0)
            else:
                left.append(job)
        self._waiting = left

    def _start(self, cores: int, now_s: float, length_s: float) -> None:
        self._free -= cores
        heappush(self._ends, (now_s + length_s, cores))


def cpu_jobs_within(workload: Workload, cores: int, wait_s: float) -> float:
    """Part of the CPU jobs that could start within so long, 0..1."""
    pool = OnePool(cores)
    for job in workload.jobs:
        pool.submit(job)
    pool.until(float("inf"))
    return float(np.mean(np.array(pool.waits_s) <= wait_s))


def pool_claim(workload: Workload) -> Claim:
    """What the month's own CPU jobs allow, beside claim D-e."""
    cores = sum(len(node.cores) for node in cluster().nodes)
    within = 100 * cpu_jobs_within(workload, cores, SHORT_S)
    claim = "CPU jobs that could start within 3 min: all cores one pool, training first, by arrival"
    note = "What coda lacks of it is the price of 80 nodes and of borrowing."
    return Claim("D-e-pool", claim, (ours("", f"{within:.1f} %"),), "the month, without nodes", note)


@dataclass(frozen=True, slots=True)
class CpuEvaluation(Evaluation):
    """Claims, with what is written beside them."""

    tuning: tuple[TuningRun, ...] = ()  # every search of a tuner


MONTH_JOBS, MONTH_SEED = 10_000, 1
"""The first tenth of the month: three days; `benchmarks/cpu_month.py` runs all of it, with several seeds."""


def evaluate(
    tables: Path | None, effort: Effort = FULL, jobs: int | None = None, names: Sequence[str] | None = None
) -> CpuEvaluation:
    """Run everything.

    Of the month so many jobs are run; None takes `MONTH_JOBS`, or a tenth of them for a quick look. `names` are the
    setups that run it; None takes all. Raises InputFileError: there are no tables.
    """
    curves = synergy.read_matrix(file_of(tables, SYNERGY))
    effort.tell("tuners on Synergy's curves")
    runs = tuning_runs(curves)
    workload = month(jobs or (MONTH_JOBS // 10 if effort.is_quick else MONTH_JOBS), MONTH_SEED)
    found = run_month(workload, tuple(setups()) if names is None else names, effort)
    effort.tell("the contention eliminator")
    claims = tuple(month_claims(found))
    if {CODA, NO_ELIMINATOR} <= found.keys():
        heavier = month(len(workload.jobs), MONTH_SEED, HEAVIER * Coda().heavy_ratio)
        claims += (eliminator_claim(found, run_month(heavier, (CODA, NO_ELIMINATOR)), heavy_at_once(workload)),)
    claims += tuple(otherwise_claims(len(workload.jobs), MONTH_SEED, effort))
    claims += (contention_claim(), PCIE_CLAIM, pool_claim(workload), generator_claim(workload))
    claims += tuple(tuning_claims(runs, curves))
    experiment = month_experiment(workload, found, MONTH_SEED)
    return CpuEvaluation(claims=claims, experiments=(experiment,), tuning=tuple(runs))


def write_tables(found: CpuEvaluation, out: Path) -> None:
    """Write every search as a row of `tuning.csv`. Raises OSError: it cannot be written."""
    with (out / "tuning.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([TuningRun._fields, *found.tuning])
