"""A month like CODA's (paper D, section VI): FIFO, DRF and CODA on one workload, and each part of CODA alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from colane.core.events import Outcome
from colane.core.policy import Policy
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.model.category import parse_category
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId
from colane.model.plan import SetCores, Start
from colane.papers.claims import Claim, Experiment, ordering, queue_s
from colane.papers.cpu_world import HEAVY, CpuMonthWorld
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.cpu.arrays import InArrays, ReclaimCores
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.fairness.users import ShareBy
from colane.scheduling.registry import POLICIES, preset
from colane.simulate.config import DriverConfig
from colane.simulate.process import Process
from colane.simulate.request import Loaded
from colane.simulate.run import Inputs, Run, simulate
from colane.traces.clusters import Cluster
from colane.traces.coda import Coda, coda
from colane.traces.workload import TraceJob, Workload

GIB = 1 << 30
INTERVAL_S = 60.0
"""Bandwidth is looked at so often here, not every ten seconds: over hours it is the same, and a month takes less."""

NODES, CORES, GPU_BYTES, HOST_BYTES = 80, 28, 11 * GIB, 256 * GIB
LARGE_EVERY = 4
"""400 GPUs in 80 nodes of 28 cores (section VI-A) are 5 each in the mean: every fourth has eight, the others four."""

WHOLE_JOBS, WHOLE_DAYS = 100_000, 30.0
AT_ONCE_S, SHORT_S, TEN_MINUTES_S, HOUR_S = 10.0, 180.0, 600.0, 3600.0
FIFO, DRF, CODA, ARRAYS, TUNER = "fifo", "drf", "coda", "arrays alone", "tuner alone"
NO_ELIMINATOR, COLANE = "coda, eliminator off", "colane with arrays"
MAIN = (FIFO, DRF, CODA)


class Setup(NamedTuple):
    """Which policy decides, whether cores are tuned, and whether CPU jobs are throttled."""

    policy: Policy
    tunes: bool
    eliminates: bool = False


def setups() -> dict[str, Setup]:
    """Paper D's three, and CODA's parts alone."""
    return {
        FIFO: Setup(preset("slurm-fifo", name=FIFO), tunes=False),
        DRF: Setup(preset("drf", name=DRF, share_by=ShareBy.GPUS), tunes=False),
        CODA: Setup(preset("coda"), tunes=True, eliminates=True),
        NO_ELIMINATOR: Setup(preset("coda", name=NO_ELIMINATOR), tunes=True),
        ARRAYS: Setup(preset("coda", name=ARRAYS), tunes=False),
        COLANE: Setup(colane_with_arrays(), tunes=True, eliminates=True),
        TUNER: Setup(preset("slurm-fifo", name=TUNER), tunes=True),
    }


def colane_with_arrays() -> Composed:
    """Jobs by value, each taking the offer of most value, in CODA's arrays: they are parts as all others are."""
    parts = InArrays(), ReclaimCores()
    return replace(POLICIES["colane"], name=COLANE, sources=parts, cpu_jobs=CpuArray(), moving=None)


class GrantedCores:
    """Looks on and remembers how many cores each job with GPUs had last."""

    def __init__(self) -> None:
        self.last: dict[JobId, int] = {}

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Note starts and changes."""
        del now_s
        for decision in outcome.decisions:
            action = decision.action
            if isinstance(action, Start) and action.placement.slots:
                self.last[action.job] = len(action.placement.cores)
            elif isinstance(action, SetCores):
                self.last[action.job] = len(action.cores)

    def started(self, process: Process, co_runners: object) -> None:
        """Not of interest."""


class MonthNumbers(NamedTuple):
    """What a run came to, in percent.

    Attributes:
        used: Use of all GPUs, over the time in which jobs come.
        used_active: Use of those that carry a job.
        active_queueing: GPUs that carry a job, while jobs wait for some.
        fragmented: GPUs without a job while jobs wait for some, of all GPUs and all that time.
        gpu_over_10min: Jobs with GPUs that wait longer.
        gpu_over_1h: The same.
        gpu_at_once: Those that wait at most ten seconds.
        cpu_at_once: The same of jobs without GPUs.
        cpu_in_3min: Of those, jobs that wait at most three minutes.
        more_cores: Jobs with GPUs that had 1 to 5 cores more than they asked for.
        many_more_cores: Those that had more than that.
        fewer_cores: Those that had 1 to 20 fewer.
        same_cores: Those that had as many.
        cpu_restarted: Jobs without GPUs that began more than once.
    """

    used: float
    used_active: float
    active_queueing: float
    fragmented: float
    gpu_over_10min: float
    gpu_over_1h: float
    gpu_at_once: float
    cpu_at_once: float
    cpu_in_3min: float
    more_cores: float
    many_more_cores: float
    fewer_cores: float
    same_cores: float
    cpu_restarted: float


class MonthRun(NamedTuple):
    """A run and its numbers."""

    run: Run
    numbers: MonthNumbers


def cluster() -> Cluster:
    """The paper's 80 nodes."""
    return Cluster("coda", tuple(_node(number, 8 if number % LARGE_EVERY == 0 else 4) for number in range(NODES)))


def _node(number: int, gpus: int) -> Node:
    devices = tuple(
        Gpu(index=i, uuid=f"{number}-{i}", type="gtx-1080ti", memory_bytes=GPU_BYTES, socket=2 * i // gpus)
        for i in range(gpus)
    )
    return Node(name=f"n{number:02}", gpus=devices, cores=tuple(range(CORES)), host_memory_bytes=HOST_BYTES)


def month(jobs: int, seed: int, heavy_ratio: float = Coda().heavy_ratio) -> Workload:
    """So many jobs of the month, in the part of it in which they come; so many CPU jobs heavy on memory bandwidth."""
    made = coda(Coda(jobs=jobs, days=WHOLE_DAYS * jobs / WHOLE_JOBS, heavy_ratio=heavy_ratio), seed=seed)
    return replace(made, jobs=tuple(map(_as_in_the_paper, made.jobs)))


def _as_in_the_paper(job: TraceJob) -> TraceJob:
    """CPU jobs may be aborted, training jobs moved (section V)."""
    has_gpus, category = job.spec.gpus > 0, parse_category(job.spec.labels.get("category", ""))
    return replace(job, spec=replace(job.spec, category=category, preemptible=has_gpus, abortable=not has_gpus))


def run_month(workload: Workload, names: Sequence[str]) -> dict[str, MonthRun]:
    """Each of these setups on one workload."""
    return {name: _run_one(workload, setups()[name]) for name in names}


def _run_one(workload: Workload, setup: Setup) -> MonthRun:
    granted, world = GrantedCores(), CpuMonthWorld()
    given = Inputs(
        cluster=cluster(), workload=workload, world=world, policy=setup.policy, driver=DriverConfig(bandwidth=world),
        tuning=TuningConfig() if setup.tunes else None,
        contention=ContentionConfig.of(INTERVAL_S) if setup.eliminates else None,
    )  # fmt: skip
    run = simulate(given, watchers=lambda _: [granted])
    return MonthRun(run, numbers_of(run, workload, granted.last))


def numbers_of(run: Run, workload: Workload, granted: Mapping[JobId, int]) -> MonthNumbers:
    """Work the numbers out."""
    curve, rows = run.ledger.curve, run.ledger.rows
    specs = {job.id: job.spec for job in workload.jobs}
    until_s, at_s = workload.jobs[-1].submit_s, np.array(curve.at_s)
    shown = at_s < until_s
    span_s = np.diff(np.append(at_s[shown], until_s))
    active, stranded = np.array(curve.active_gpus)[shown], np.array(curve.stranded_gpus)[shown]
    used = float(np.dot(np.array(curve.utilized_gpus)[shown], span_s))
    queueing = (stranded > 0) | (active == run.gpus)
    queued_gpu_s = run.gpus * float(span_s[queueing].sum())
    whole_gpu_s = run.gpus * float(span_s.sum())
    waits_s, ids = queue_s(run), [JobId(number) for number in rows.id]
    has_gpus = np.array([specs[number].gpus > 0 for number in ids])
    gpu_s, cpu_s = waits_s[has_gpus], waits_s[~has_gpus]
    change = np.array([granted.get(number, specs[number].cores) - specs[number].cores for number in ids])[has_gpus]
    parts = (
        used / whole_gpu_s,
        used / float(np.dot(active, span_s)),
        1 - float(np.dot(stranded, span_s)) / queued_gpu_s if queued_gpu_s else 1.0,
        float(np.dot(stranded, span_s)) / whole_gpu_s,
        np.mean(gpu_s > TEN_MINUTES_S),
        np.mean(gpu_s > HOUR_S),
        np.mean(gpu_s <= AT_ONCE_S),
        np.mean(cpu_s <= AT_ONCE_S),
        np.mean(cpu_s <= SHORT_S),
        np.mean((change >= 1) & (change <= 5)),
        np.mean(change > 5),
        np.mean((change <= -1) & (change >= -20)),
        np.mean(change == 0),
        np.mean(np.array(rows.attempts)[~has_gpus] > 1),
    )
    return MonthNumbers(*[100 * float(part) for part in parts])


def month_experiment(workload: Workload, found: Mapping[str, MonthRun], seed: int) -> Experiment:
    """The runs for the plots."""
    loaded = Loaded(cluster(), workload, CpuMonthWorld())
    note = "Made up to the numbers that the paper states; speeds by cores are made of its text (papers/cpu_world.py)."
    runs = tuple((seed, one.run) for one in found.values())
    return Experiment("month", "Paper D, a month of 80 nodes", {seed: loaded}, runs, note)


def _told(found: Mapping[str, MonthRun], *columns: str) -> str:
    """These columns of each setup."""
    return "; ".join([
        f"{name} {' / '.join([f'{getattr(one.numbers, column):.1f}' for column in columns])}"
        for name, one in found.items()
    ])  # fmt: skip


GAIN_POINTS = 10.0
FRAGMENTED_MAX = 2.0
CPU_IN_3MIN_MIN = 94.0


def month_claims(found: Mapping[str, MonthRun]) -> Iterator[Claim]:
    """Claims D-a and D-c to D-f, each with every number it states, and what each part of CODA does alone."""
    main = {name: found[name] for name in (*MAIN, COLANE) if name in found}
    fifo, drf, ours = (found[name].numbers for name in MAIN)
    gains = ours.used_active - max(fifo.used_active, drf.used_active)
    yield Claim(
        "D-a", "GPU utilisation, %: of GPUs in use / of all / in use while jobs wait",
        "fifo 54.4 / 45.4 / 83.5; drf 53.7 / 44.7 / 83.3; coda 68.1 / 62.1 / 91.2 (first: second over third)",
        _told(main, "used_active", "used", "active_queueing"),
        ordering(gains >= GAIN_POINTS) + " for GPUs in use, by 10 points or more; of all GPUs it cannot differ: the "
        "same jobs end in the same month, so the same work is done",
    )  # fmt: skip
    yield Claim(
        "D-b", "utilisation rises by 20.8 %", "+20.8 %", "not asserted", "does not follow from the paper's own numbers"
    )
    yield Claim(
        "D-c", "GPUs free but of no use to who waits, %", "fifo 14.3, drf 14.6, coda < 1",
        _told(main, "fragmented"),
        ordering(ours.fragmented < FRAGMENTED_MAX < min(fifo.fragmented, drf.fragmented)) + ": coda below 2",
    )  # fmt: skip
    waits = (ours.gpu_over_10min < drf.gpu_over_10min < fifo.gpu_over_10min, ours.gpu_over_1h < drf.gpu_over_1h)
    yield Claim(
        "D-d", "jobs with GPUs that wait, %: > 10 min / > 1 h / at once",
        "fifo 43.1 / 27.8; drf 28.9 / 14.3; coda: 92.1 at once",
        _told(main, "gpu_over_10min", "gpu_over_1h", "gpu_at_once"), ordering(all(waits)),
    )  # fmt: skip
    yield Claim(
        "D-e", "jobs without GPUs that start, %: within 10 s / within 3 min",
        "fifo 87.4, drf 87.8 within 10 s; coda 94.5 within 3 min",
        _told(main, "cpu_at_once", "cpu_in_3min"), ordering(ours.cpu_in_3min >= CPU_IN_3MIN_MIN) + ": coda 94 or more",
    )  # fmt: skip
    yield Claim(
        "D-f", "cores against those asked for, % of jobs: 1 to 5 more / 1 to 20 fewer / as many / over 5 more",
        "57.1 / 33.6 / 9.3 (derived) / 0",
        _told({CODA: found[CODA]}, "more_cores", "fewer_cores", "same_cores", "many_more_cores"),
        ordering(ours.more_cores > ours.fewer_cores > ours.same_cores)
        + "; the numbers follow from needs and requests that are made up",
    )  # fmt: skip
    yield Claim(
        "D-parts", "each part alone: GPUs in use used / fragmented / GPU jobs > 10 min / CPU jobs within 3 min, %",
        "not published",
        _told(found, "used_active", "fragmented", "gpu_over_10min", "cpu_in_3min"), "ours alone",
    )  # fmt: skip
    yield Claim(
        "D-aborts", "jobs without GPUs that are aborted and begin anew, %", "not published",
        _told({CODA: found[CODA]}, "cpu_restarted"), "ours alone",
    )  # fmt: skip


HEAVIER = 10
"""So many times as many CPU jobs that are heavy on bandwidth: what it takes for the eliminator to show."""


def heavy_at_once(workload: Workload) -> float:
    """How many CPU jobs heavy on memory bandwidth run at once, in the mean, while jobs come."""
    heavy_s = sum(job.duration_s or 0.0 for job in workload.jobs if HEAVY in job.spec.labels)
    return heavy_s / workload.jobs[-1].submit_s


def eliminator_claim(found: Mapping[str, MonthRun], heavier: Mapping[str, MonthRun], at_once: float) -> Claim:
    """What the month loses without the eliminator (D-i), and one with `HEAVIER` times the heavy jobs."""
    columns = ("used_active", "fragmented", "cpu_in_3min")
    lost = found[CODA].numbers.used_active - found[NO_ELIMINATOR].numbers.used_active
    more = heavier[CODA].numbers.used_active - heavier[NO_ELIMINATOR].numbers.used_active
    share = 100 * Coda().heavy_ratio
    return Claim(
        "D-i", f"without the contention eliminator, {share:g} % of CPU jobs heavy on bandwidth: GPUs in use used / "
        f"fragmented / CPU jobs within 3 min, %; then with {HEAVIER} times as many",
        "utilisation -2.3, fragmentation unchanged, waiting jobs x2",
        f"{_told({name: found[name] for name in (CODA, NO_ELIMINATOR)}, *columns)}; "
        f"{HEAVIER} times: {_told({name: heavier[name] for name in (CODA, NO_ELIMINATOR)}, *columns)}",
        f"{-lost:+.2f} points without it, {-more:+.2f} with {HEAVIER} times the heavy jobs; not derivable: "
        f"{at_once:.1f} of them run at once on {NODES} nodes, so that 2.3 points would be more than all training there",
    )  # fmt: skip


def generator_claim(workload: Workload) -> Claim:
    """What the made-up month is like against what the paper states of its own (D-j)."""
    gpu = [job for job in workload.jobs if job.spec.gpus]
    cores = np.array([job.spec.cores for job in gpu])
    hours = np.array([job.duration_s or 0.0 for job in gpu]) / HOUR_S
    cpu = [job for job in workload.jobs if not job.spec.gpus]
    heavy = np.mean([HEAVY in job.spec.labels for job in cpu])
    parts = (np.mean(cores <= 2), np.mean(cores > 10), np.mean(hours > 1), np.mean(hours > 2), heavy)
    ours = " / ".join([f"{100 * float(part):.1f}" for part in parts])
    asked = (76.1, 15.3, 68.5, 39.6, 0.5)
    near = all(abs(100 * float(part) - wanted) <= 2.0 for part, wanted in zip(parts, asked, strict=True))
    return Claim(
        "D-j", "the workload, % of jobs with GPUs: 1 or 2 cores / > 10 / > 1 h / > 2 h; CPU jobs heavy on memory",
        "76.1 / 15.3 / 68.5 / 39.6 / 0.5", ours, "met within 2 points" if near else "not met",
    )  # fmt: skip
