"""A month like CODA's (paper D, section VI): FIFO, DRF and CODA on one workload, and each part of CODA alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from colane.core.events import Outcome
from colane.core.policy import Policy
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.lab.papers.claims import (
    FULL,
    Claim,
    Effort,
    Experiment,
    Figure,
    Origin,
    Sense,
    Stated,
    Trait,
    on_gpu,
    ours,
    queue_s,
    span_s,
)
from colane.lab.papers.cpu_world import HEAVY, CpuMonthWorld
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.coda import Coda, coda
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId
from colane.model.job_spec import parse_category
from colane.model.plan import SetCores, Start
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.options import with_options
from colane.scheduling.mechanisms.cpu.arrays import ReclaimCores
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.fairness.shares import ShareBy
from colane.scheduling.mechanisms.topology.free import Free, NodesBy
from colane.scheduling.registry import POLICIES, create

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
        FIFO: Setup(_as_published("slurm-fifo", FIFO), tunes=False),
        DRF: Setup(with_options(_as_published("drf", DRF), {"share_by": ShareBy.GPUS}), tunes=False),
        CODA: Setup(_as_published("coda", CODA), tunes=True, eliminates=True),
        NO_ELIMINATOR: Setup(_as_published("coda", NO_ELIMINATOR), tunes=True),
        ARRAYS: Setup(_as_published("coda", ARRAYS), tunes=False),
        COLANE: Setup(colane_with_arrays(), tunes=True, eliminates=True),
        TUNER: Setup(_as_published("slurm-fifo", TUNER), tunes=True),
    }


def _as_published(policy: str, name: str) -> Composed:
    return replace(create(policy, as_published=True), name=name)


def colane_with_arrays() -> Composed:
    """Jobs in the order of `colane`, each taking what is of most value, in CODA's arrays: parts as all others are."""
    parts = Free(NodesBy.ARRAYS), ReclaimCores()
    return replace(POLICIES["colane"], name=COLANE, sources=parts, cpu_jobs=CpuArray(), chooser=None, moving=None)


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
    """What a run came to, in percent."""

    used: float  # use of all GPUs, over the time in which jobs come
    used_active: float  # use of those that carry a job
    active_queueing: float  # GPUs that carry a job, while jobs wait for some
    fragmented: float  # GPUs without a job while jobs wait for some, of all GPUs and all that time
    gpu_over_10min: float  # jobs with GPUs that wait longer
    gpu_over_1h: float  # the same
    gpu_at_once: float  # those that wait at most ten seconds
    cpu_at_once: float  # the same of jobs without GPUs
    cpu_in_3min: float  # of those, jobs that wait at most three minutes
    more_cores: float  # jobs with GPUs that had 1 to 5 cores more than they asked for
    many_more_cores: float  # those that had more than that
    fewer_cores: float  # those that had 1 to 20 fewer
    same_cores: float  # those that had as many
    cpu_restarted: float  # jobs without GPUs that began more than once


class MonthRun(NamedTuple):
    """A run, its numbers, whose each job is, and which have GPUs."""

    run: Run
    numbers: MonthNumbers
    owners: Mapping[int, str]
    gpu_jobs: Sequence[int]


def cluster() -> Cluster:
    """The paper's 80 nodes."""
    return Cluster("coda", tuple(_node(number, 8 if number % LARGE_EVERY == 0 else 4) for number in range(NODES)))


def _node(number: int, gpus: int) -> Node:
    devices = tuple(
        Gpu(index=i, uuid=f"{number}-{i}", type="gtx-1080ti", memory_bytes=GPU_BYTES, socket=2 * i // gpus)
        for i in range(gpus)
    )
    return Node(name=f"n{number:02}", gpus=devices, cores=tuple(range(CORES)), host_memory_bytes=HOST_BYTES)


def month(
    jobs: int, seed: int, heavy_ratio: float = Coda().heavy_ratio, *, load: float = 1.0, user_skew: float = 0.0
) -> Workload:
    """So many jobs of the month, in the part of it in which they come; so many CPU jobs heavy on memory bandwidth.

    They come `load` times as fast; `user_skew` says how unlike the numbers of jobs of users are (`Coda`).
    """
    days = WHOLE_DAYS * jobs / WHOLE_JOBS / load
    made = coda(Coda(jobs=jobs, days=days, heavy_ratio=heavy_ratio, user_skew=user_skew), seed=seed)
    return replace(made, jobs=tuple(map(_as_in_the_paper, made.jobs)))


def _as_in_the_paper(job: TraceJob) -> TraceJob:
    """CPU jobs may be aborted, training jobs moved (section V)."""
    has_gpus, category = job.spec.gpus > 0, parse_category(job.spec.labels.get("category", ""))
    return replace(job, spec=replace(job.spec, category=category, preemptible=has_gpus, abortable=not has_gpus))


def run_month(workload: Workload, names: Sequence[str], effort: Effort = FULL) -> dict[str, MonthRun]:
    """Each of these setups on one workload."""
    found = {}
    for place, name in enumerate(names, 1):
        effort.tell(f"{len(workload.jobs):,} jobs of the month under {name} ({place} of {len(names)})")
        found[name] = _run_one(workload, setups()[name])
    return found


def _run_one(workload: Workload, setup: Setup) -> MonthRun:
    granted, world = GrantedCores(), CpuMonthWorld()
    given = Inputs(
        cluster=cluster(), workload=workload, world=world, policy=setup.policy, driver=DriverConfig(bandwidth=world),
        tuning=TuningConfig() if setup.tunes else None,
        contention=ContentionConfig.of(INTERVAL_S) if setup.eliminates else None,
    )  # fmt: skip
    run = simulate(given, watchers=lambda _: [granted])
    owners = {int(job.id): job.spec.user for job in workload.jobs}
    gpu_jobs = [int(job.id) for job in workload.jobs if job.spec.gpus]
    return MonthRun(run, numbers_of(run, workload, granted.last), owners, gpu_jobs)


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
WITHIN_POINTS = 5.0
"""A share that is met lies so near, in points: the month is made up to the paper's marginals, not to its jobs."""

MONTH = "a month made up to the paper's marginal numbers on its 80 nodes; speeds by cores are made of its text"
MONTH_NOTE = (
    "The paper's jobs are not public. The month meets their marginals (D-j) and yet waits less under FIFO than they "
    "did (D-k), so what follows from long lines is not met by it: D-faster has the same with longer ones."
)
FASTER: Final = 1.1  # times as fast as published numbers have it, jobs come: lines are as long as those published


MUCH_LONGER, SMALL_NUMBER, HALF = 1.5, 0.1, 0.5
SAME_S = 1.0  # times that differ by no more are the same

USERS_NOTE = (
    "Users submit equally many jobs here, since the paper says no numbers: DRF has no busy one to take from. D-users "
    "has the same with unlike users."
)


def _share(what: str, stated: float, found: float, where: str, bound: Sense = Sense.NEAR, **more: str) -> Figure:
    slack = WITHIN_POINTS if bound is Sense.NEAR else 0.0
    return Figure(what, stated, found, "%", where, ratio=0.0, slack=slack, bound=bound, printed=more.get("printed", ""))


def month_claims(found: Mapping[str, MonthRun]) -> Iterator[Claim]:
    """Claims D-a to D-f, D-k and the figures 11 to 13, each with every number it states; then each part of CODA."""
    main = {name: found[name] for name in (*MAIN, COLANE) if name in found}
    yield from _use_claims(main)
    yield from _wait_claims(main)
    yield from _latency_claims(found)
    yield _cores_claim(found[CODA].numbers)
    told = _told(found, "used_active", "fragmented", "gpu_over_10min", "cpu_in_3min")
    what = "GPUs in use used / fragmented / GPU jobs > 10 min / CPU jobs within 3 min, %"
    yield Claim("D-parts", "each part of CODA alone", (ours(what, told),), MONTH)
    told = _told({CODA: found[CODA]}, "cpu_restarted")
    yield Claim("D-aborts", "jobs without GPUs that are aborted and begin anew", (ours("%", told),), MONTH)


USE_OF_ALL = {FIFO: 45.4, DRF: 44.7, CODA: 62.1}
ACTIVE = {FIFO: 83.5, DRF: 83.3, CODA: 91.2}
FRAGMENTED = {FIFO: 14.3, DRF: 14.6}


def _use_claims(main: Mapping[str, MonthRun]) -> Iterator[Claim]:
    fifo, drf, coda_ = (main[name].numbers for name in MAIN)
    gain = coda_.used_active - max(fifo.used_active, drf.used_active)
    stated: list[Stated] = [
        _share(f"of all GPUs, {name}", stated, main[name].numbers.used, "section VI-B")
        for name, stated in USE_OF_ALL.items()
    ]
    stated += [
        _share(f"in use while jobs wait, {name}", stated, main[name].numbers.active_queueing, "section VI-B")
        for name, stated in ACTIVE.items()
    ]
    stated += [
        Figure(
            f"of GPUs in use, {name}", round(100 * USE_OF_ALL[name] / ACTIVE[name], 1), main[name].numbers.used_active,
            "%", "first over second", Origin.DERIVED, ratio=0.0, slack=WITHIN_POINTS,
        )
        for name in MAIN
    ]  # fmt: skip
    stated += [
        Trait("coda uses GPUs in use better by ten points", gain >= GAIN_POINTS, f"{gain:+.1f} points", "section VI-B",
              Origin.DERIVED),
        ours("in use used / of all / in use while jobs wait", _told(main, "used_active", "used", "active_queueing")),
    ]  # fmt: skip
    note = (
        "Of all GPUs it cannot differ by as much here: the same jobs end in the same month under each policy, so the "
        "same work is done. " + MONTH_NOTE
    )
    yield Claim("D-a", "utilisation of the GPUs", tuple(stated), MONTH, note)
    headline = Figure(
        "utilisation rises by", 20.8, coda_.used - fifo.used, "points", "section I", ratio=0.0, slack=WITHIN_POINTS,
        printed="20.8",
    )  # fmt: skip
    itself = Figure(
        "worked out from section VI-B", 16.7, round(USE_OF_ALL[CODA] - USE_OF_ALL[FIFO], 1), "points", "section VI-B",
        ratio=0.0, unjudged="arithmetic of the paper's own numbers",
    )  # fmt: skip
    note = "It does not follow from the paper's own numbers: 62.1 - 45.4 = 16.7 points, and 62.1 / 45.4 = +36.8 %."
    yield Claim("D-b", "the headline", (headline, itself), MONTH, note)
    stated = [
        _share(name, stated, main[name].numbers.fragmented, "section VI-C") for name, stated in FRAGMENTED.items()
    ]
    stated += [
        _share("coda", 1, coda_.fragmented, "section VI-C", Sense.BELOW, printed="less than 1%"),
        Trait("coda is far below both", coda_.fragmented < FRAGMENTED_MAX < min(fifo.fragmented, drf.fragmented),
              _told(main, "fragmented"), "section VI-C"),
    ]  # fmt: skip
    yield Claim("D-c", "GPUs free but of no use to waiting jobs", tuple(stated), MONTH, MONTH_NOTE)


def _wait_claims(main: Mapping[str, MonthRun]) -> Iterator[Claim]:
    fifo, drf, coda_ = (main[name].numbers for name in MAIN)
    where = "section VI-C"
    over_10min = coda_.gpu_over_10min <= min(drf.gpu_over_10min, fifo.gpu_over_10min)
    stated: tuple[Stated, ...] = (
        _share("over 10 min, fifo", 43.1, fifo.gpu_over_10min, where),
        _share("over 10 min, drf", 28.9, drf.gpu_over_10min, where),
        _share("over 1 h, fifo", 27.8, fifo.gpu_over_1h, where),
        _share("over 1 h, drf", 14.3, drf.gpu_over_1h, where),
        _share("at once, coda", 92.1, coda_.gpu_at_once, where, Sense.AT_LEAST, printed="92.1"),
        Trait("fewest wait under coda, then drf, then fifo", over_10min and drf.gpu_over_10min < fifo.gpu_over_10min,
              _told(main, "gpu_over_10min", "gpu_over_1h", "gpu_at_once"), where),
    )  # fmt: skip
    yield Claim("D-d", "jobs with GPUs that wait", stated, MONTH, MONTH_NOTE)
    stated = (
        _share("within 10 s, fifo", 87.4, fifo.cpu_at_once, where),
        _share("within 10 s, drf", 87.8, drf.cpu_at_once, where),
        _share("within 3 min, coda", 94.5, coda_.cpu_in_3min, where),
        Trait("fewer start at once under coda than under fifo and drf",
              coda_.cpu_at_once < min(fifo.cpu_at_once, drf.cpu_at_once), _told(main, "cpu_at_once", "cpu_in_3min"),
              where, Origin.DERIVED),
    )  # fmt: skip
    note = (
        "Reversed: CPU jobs wait behind no line of GPU jobs in any of the three here, so fewer wait than there; "
        "D-e-pool is what the month allows at most."
    )
    yield Claim("D-e", "jobs without GPUs that start soon", stated, MONTH, note)


def _latency_claims(found: Mapping[str, MonthRun]) -> Iterator[Claim]:
    """What the paper draws in figures 11 to 13, and what it saw in a week."""
    waits = {name: _waits_s(found[name].run) for name in MAIN}
    owners, gpu_jobs = found[FIFO].owners, found[FIFO].gpu_jobs
    late = {name: late_s_by_user(found[name]) for name in MAIN}
    users, (shorter, both) = sorted(late[CODA]), _waiting_less(late)
    trains = {owners[job] for job in gpu_jobs}
    idle = max((late[CODA][user] / max(late[DRF][user], SHORT_S) for user in users if user not in trains), default=0.0)
    stated = (
        Trait("99 % of a user's jobs wait less under coda than under fifo and drf, every user",
              len(shorter) == len(users), f"{len(shorter)} of {len(users)} users", "figure 12"),
        Trait("so do those of users with GPU jobs", trains <= set(shorter),
              f"{len(trains & set(shorter))} of {len(trains)} users", "figure 12"),
        Trait("of users with CPU jobs alone they wait not much longer than under drf", idle < MUCH_LONGER,
              f"at most {idle:.2f} times as long", "section VI-C"),
        Trait("under drf less than under fifo, most users", 2 * len(both) > len(users),
              f"{len(both)} of {len(users)} users", "figure 12"),
    )  # fmt: skip
    yield Claim("D-l", "99 %-ile of the queueing of each user", stated, MONTH, USERS_NOTE)
    yield _each_job_claim(found, waits, gpu_jobs)
    gpu_s = np.array([waits[FIFO][job] for job in gpu_jobs])
    stated_k = (
        _share("at least 3 min", 48.1, 100 * float(np.mean(gpu_s >= SHORT_S)), "section III-C"),
        _share("over 10 min", 41.3, 100 * float(np.mean(gpu_s > TEN_MINUTES_S)), "section III-C"),
    )
    yield Claim("D-k", "jobs with GPUs that waited in an observed week, under FIFO", stated_k, MONTH, MONTH_NOTE)
    yield Claim("D-h", "too few cores", (
        on_gpu("most models are not best with 2 cores, Transformer on one GPU is", "figure 3"),
        on_gpu("how much slower they are", "figure 3"),
    ))  # fmt: skip


def _waiting_less(late: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[str]]:
    """Users who wait less under CODA than under both others, and under DRF than under FIFO."""
    users = sorted(late[CODA])
    shorter = [user for user in users if late[CODA][user] <= min(late[FIFO][user], late[DRF][user])]
    return shorter, [user for user in users if late[DRF][user] < late[FIFO][user]]


def otherwise_claims(jobs: int, seed: int, effort: Effort) -> Iterator[Claim]:
    """The month with longer lines, and with users who submit unlike numbers of jobs: what notes refer to."""
    found = run_month(month(jobs, seed, load=FASTER), MAIN, effort)
    told = _told(found, "gpu_over_10min", "gpu_over_1h", "fragmented", "cpu_in_3min")
    what = "GPU jobs > 10 min / > 1 h / GPUs of no use to them / CPU jobs within 3 min, %"
    yield Claim("D-faster", f"jobs come {FASTER} times as fast", (ours(what, told),), MONTH)
    late = {name: late_s_by_user(one) for name, one in run_month(month(jobs, seed, user_skew=1.0), MAIN).items()}
    of, less = f"of {len(late[CODA])} users", _waiting_less(late)
    stated = ours("less under coda than both", f"{len(less[0])} {of}"), ours("drf than fifo", f"{len(less[1])} {of}")
    yield Claim("D-users", "99 %-ile of queueing where the N-th user submits 1 / N of the first", stated, MONTH)


def _each_job_claim(
    found: Mapping[str, MonthRun], waits: Mapping[str, Mapping[int, float]], gpu_jobs: Sequence[int]
) -> Claim:
    """Figure 13: queueing and processing of each job with GPUs under FIFO and under CODA."""
    took = {
        name: dict(zip(found[name].run.ledger.rows.id, span_s(found[name].run).tolist(), strict=True))
        for name in (FIFO, CODA)
    }
    run_s, wait_s = (
        {name: np.array([of[name][job] for job in gpu_jobs]) for name in (FIFO, CODA)} for of in (took, waits)
    )
    longer = run_s[CODA] > run_s[FIFO] + SAME_S
    neither = ~longer & (wait_s[CODA] <= wait_s[FIFO] + SAME_S)
    sooner = run_s[CODA] + wait_s[CODA] <= run_s[FIFO] + wait_s[FIFO] + SAME_S
    halves = [float(np.median(run_s[FIFO][part])) if part.any() else 0.0 for part in (longer, ~longer)]
    where = "figure 13"
    stated = (
        Trait("from submission to end most jobs with GPUs take less", bool(sooner.mean() > HALF),
              f"{100 * sooner.mean():.1f} % of them, or as long", where),
        Trait("neither queueing nor processing is longer, most jobs", bool(neither.mean() > HALF),
              f"{100 * neither.mean():.1f} % of them", where),
        Trait("processing is longer of a small number", bool(longer.mean() < SMALL_NUMBER),
              f"{100 * longer.mean():.1f} % of them", where),
        Trait("which is that of short jobs", halves[0] < halves[1],
              f"half of them run {halves[0]:,.0f} s or less under fifo, half of the others {halves[1]:,.0f} s", where),
    )  # fmt: skip
    more = (run_s[CODA][longer] / run_s[FIFO][longer] - 1) * 100
    note = (
        "The paper lays longer processing to the module's overhead, which short jobs cannot make up for. Here tuning "
        f"costs nothing but the time spent on other numbers of cores: {100 * longer.mean():.1f} % of jobs run longer"
        + (f", half of them by {np.median(more):.1f} % or less." if more.size else ".")
    )
    if longer.any() and halves[0] >= halves[1]:
        note += " They are no shorter than others: what is lost is a part of the run time, not a fixed time."
    return Claim("D-m", "coda against fifo, each job", stated, MONTH, note)


def late_s_by_user(found: MonthRun) -> dict[str, float]:
    """99 %-ile of the waits of each user's jobs."""
    by_user: dict[str, list[float]] = {}
    for job, wait_s in _waits_s(found.run).items():
        by_user.setdefault(found.owners[job], []).append(wait_s)
    return {user: float(np.percentile(waits_s, 99)) for user, waits_s in by_user.items()}


def _waits_s(run: Run) -> dict[int, float]:
    return {int(job): float(wait) for job, wait in zip(run.ledger.rows.id, queue_s(run), strict=True)}


def _cores_claim(numbers: MonthNumbers) -> Claim:
    where = "section VI-D"
    stated = (
        _share("1 to 5 more", 57.1, numbers.more_cores, where),
        _share("1 to 20 fewer", 33.6, numbers.fewer_cores, where),
        Figure("as many", 9.3, numbers.same_cores, "%", where, Origin.DERIVED, ratio=0.0, slack=WITHIN_POINTS),
        Figure("over 5 more", 0, numbers.many_more_cores, "%", where, Origin.DERIVED, ratio=0.0, slack=1.0),
        Trait(
            "more have more than have fewer", numbers.more_cores > numbers.fewer_cores > numbers.same_cores, where=where
        ),
    )
    note = (
        "Needs and requests are made up: the optimum of several GPUs is that of one and a core for each further, and "
        "one or two cores on four GPUs are then more than five too few. The paper gives no curve to set it by."
    )
    return Claim("D-f", "cores against those asked for, jobs with GPUs", stated, MONTH, note)


HEAVIER = 10  # so many times as many CPU jobs that are heavy on bandwidth: what it takes for the eliminator to show


def heavy_at_once(workload: Workload) -> float:
    """How many CPU jobs heavy on memory bandwidth run at once, in the mean, while jobs come."""
    heavy_s = sum(job.duration_s or 0.0 for job in workload.jobs if HEAVY in job.spec.labels)
    return heavy_s / workload.jobs[-1].submit_s


def eliminator_claim(found: Mapping[str, MonthRun], heavier: Mapping[str, MonthRun], at_once: float) -> Claim:
    """What the month loses without the eliminator (D-i), and one with `HEAVIER` times the heavy jobs."""
    columns = ("used_active", "fragmented", "cpu_in_3min")
    with_, without = found[CODA].numbers, found[NO_ELIMINATOR].numbers
    lost = without.used_active - with_.used_active
    more = heavier[NO_ELIMINATOR].numbers.used_active - heavier[CODA].numbers.used_active
    queued = {name: float(queue_s(found[name].run).sum()) for name in (CODA, NO_ELIMINATOR)}
    ratio = queued[NO_ELIMINATOR] / queued[CODA] if queued[CODA] else 1.0
    stated = (
        Figure("utilisation changes by", -2.3, lost, "points", "section VI-E", printed="2.3%", ratio=0.0, slack=1.0,
               digits=2),
        Figure("jobs that wait, times as many", 2, ratio, "x", "section VI-E", Origin.DERIVED, digits=2),
        Figure("fragmentation changes by", 0, without.fragmented - with_.fragmented, "points", "section VI-E",
               Origin.DERIVED, ratio=0.0, slack=1.0, digits=2),
        ours(f"utilisation, {HEAVIER} times the heavy jobs", f"{more:+.2f} points"),
        ours("used / fragmented / CPU jobs within 3 min",
             _told({name: found[name] for name in (CODA, NO_ELIMINATOR)}, *columns)),
    )  # fmt: skip
    note = (
        f"Heavy jobs are {100 * Coda().heavy_ratio:g} % of CPU jobs: {at_once:.1f} of them run at once on {NODES} "
        "nodes, so that 2.3 points of all GPUs would be more than all training there."
    )
    return Claim("D-i", "without the contention eliminator", stated, MONTH, note)


def generator_claim(workload: Workload) -> Claim:
    """What the made-up month is like against what the paper states of its own (D-j)."""
    gpu = [job for job in workload.jobs if job.spec.gpus]
    cores = np.array([job.spec.cores for job in gpu])
    hours = np.array([job.duration_s or 0.0 for job in gpu]) / HOUR_S
    cpu = [job for job in workload.jobs if not job.spec.gpus]
    heavy = np.mean([HEAVY in job.spec.labels for job in cpu])
    parts = (np.mean(cores <= 2), np.mean(cores > 10), np.mean(hours > 1), np.mean(hours > 2), heavy)
    asked = (
        ("1 or 2 cores", 76.1, "section III-C"), ("over 10 cores", 15.3, "section III-C"),
        ("over 1 h", 68.5, "section VI-F"), ("over 2 h", 39.6, "section VI-F"),
        ("CPU jobs heavy on memory", 0.5, "section VI-E"),
    )  # fmt: skip
    stated = tuple(
        Figure(what, wanted, 100 * float(part), "%", where, given="the month is drawn to it")
        for (what, wanted, where), part in zip(asked, parts, strict=True)
    )
    return Claim("D-j", "the workload, jobs with GPUs", stated, MONTH)
