"""Simulated runs as plain columns, and what they achieved. Fit for a million jobs: no object per job.

Names are those of `metrics`. Times are seconds of virtual time; a time that did not come is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from colane.foresee.judged import Foretold
from colane.lab.report.metrics import Summary, summarise
from colane.lab.report.records import JobTime
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Runs that are reported together."""

    title: str  # heading
    # what the runs are a function of, for people and programs: cluster, trace, world, belief, and so on
    inputs: Mapping[str, Any]
    runs: tuple[SimulatedRun, ...]  # by policy, then by seed; the first policy is the one the others are compared with
    jobs: Mapping[int, Mapping[int, TraceJob]]  # the workload's jobs by id, by seed
    notes: tuple[str, ...] = ()  # what a reader must know: what was left out, assumed, or given to the policy
    runs_asked: int = 0
    metrics: tuple[SimulatedMetrics, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Measure every run once."""
        measured = tuple(measure_run(run, self.jobs[run.seed]) for run in self.runs)
        object.__setattr__(self, "metrics", measured)

    @property
    def policies(self) -> tuple[str, ...]:
        """In order of the runs."""
        return tuple(dict.fromkeys(run.policy for run in self.runs))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted({run.seed for run in self.runs}))

    @property
    def is_partial(self) -> bool:
        """Whether it was stopped before all runs had ended."""
        return len(self.runs) < self.runs_asked or any(run.is_partial for run in self.runs)

    @property
    def is_interrupted(self) -> bool:
        """Whether it was stopped otherwise than as was asked for."""
        return len(self.runs) < self.runs_asked or any(run.is_partial and not run.is_cut for run in self.runs)

    def of(self, policy: str) -> list[tuple[SimulatedRun, SimulatedMetrics]]:
        """Runs of a policy with their metrics, by seed."""
        pairs = zip(self.runs, self.metrics, strict=True)
        return sorted((pair for pair in pairs if pair[0].policy == policy), key=lambda pair: pair[0].seed)

    def first(self) -> dict[str, SimulatedRun]:
        """The run of each policy with the smallest seed: the one that is drawn."""
        return {policy: self.of(policy)[0][0] for policy in self.policies}


Floats = NDArray[np.float64]


WORD_MAX: Final = 160  # characters of a policy's name in the name of a file, which file systems bound to 255


def file_word(policy: str) -> str:
    """Return a policy's name as every file of its runs has it: percent-encoded, but for `=` and `,`."""
    word = quote(policy, safe="=,")
    return word if len(word) <= WORD_MAX else f"{word[: WORD_MAX - 17]}-{sha256(policy.encode()).hexdigest()[:16]}"


class ReportedSpan(NamedTuple):
    """A job on its GPUs: all of an attempt, or what lies between two times it was parked."""

    job: int
    gpus: tuple[str, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """Jobs that were submitted, one place each in every column."""

    id: NDArray[np.int64]  # job of the workload
    state: Sequence[JobState]  # how it ended, or where it stood when the run stopped
    submit_s: Floats  # when it was submitted
    first_start_s: Floats  # start of its first attempt
    start_s: Floats  # start of its last attempt
    end_s: Floats  # when it ended for good
    attempts: NDArray[np.int64]  # starts
    gpu_s: Floats  # GPU-seconds it was given; of a GPU that carries k jobs each is given 1/k
    alone_s: Floats  # run time alone where it last ran
    gpus: Sequence[str]  # where it last ran, as `node/index`, joined by blanks

    @property
    def succeeded(self) -> NDArray[np.bool_]:
        """Which of them did what they were asked for."""
        return np.fromiter((state is JobState.SUCCEEDED for state in self.state), dtype=bool, count=len(self.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCurves:
    """The cluster over time: every row holds until the next."""

    at_s: Floats  # when
    active_gpus: Floats  # GPUs that carry at least one job
    utilized_gpus: Floats  # GPUs' worth of use
    stranded_gpus: Floats  # GPUs without a job while a job of their pool waits
    waiting: Floats  # jobs waiting
    running: Floats  # jobs on GPUs

    def mean(self, column: Floats, from_s: float, to_s: float) -> float:
        """Time-weighted mean of a column; 0 before the first row."""
        if self.at_s.size == 0 or to_s <= from_s:
            return 0.0
        edges = np.clip(np.append(self.at_s, max(to_s, float(self.at_s[-1]))), from_s, to_s)
        return float(np.dot(column, np.diff(edges)) / (to_s - from_s))

    def ratio(self, column: Floats, span_s: tuple[float, float] | None, gpus: int) -> float | None:
        """Mean part of so many GPUs over a span; None where there is neither."""
        if span_s is None or span_s[1] <= span_s[0] or not gpus:
            return None
        return min(self.mean(column, *span_s) / gpus, 1.0)


CURVES: Final = tuple([one.name for one in fields(ClusterCurves)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefError:
    """Relative errors |predicted - true| / true at starts."""

    alone: Summary | None = None  # of the speed of jobs that started alone; None when none was predicted
    shared: Summary | None = None  # of the speed-up of the sets jobs started in; None when none was predicted
    alone_unknown: int = 0  # starts alone without a prediction
    shared_unknown: int = 0  # starts beside others without a prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One policy on one workload."""

    policy: str  # its name
    seed: int  # of the random draws
    jobs: int  # jobs of the workload
    refused: tuple[str, ...]  # jobs that were not submitted, one line each
    columns: JobColumns  # those that were
    curves: ClusterCurves  # the cluster over time
    gpus: Sequence[str]  # GPUs of the cluster, as `node/index`
    stays: tuple[ReportedSpan, ...] = ()  # attempts on GPUs; empty where the run is too large to draw
    offered_load: float | None = None  # GPU-seconds asked for per GPU-second while jobs arrive; None without durations
    # how wrong predictions were; None in a world whose speeds are not predicted
    belief_error: BeliefError | None = None
    flaws: tuple[str, ...] = ()  # plans that were refused, one line each
    decisions: int = 0  # actions the policy took
    events: int = 0  # events the core was told
    plan_s: Floats = field(default_factory=lambda: np.empty(0))  # wall time of each call of the policy
    wall_s: float = 0.0  # wall time of the run
    is_partial: bool = False  # whether it was stopped
    is_cut: bool = False  # at a time that was asked for
    # where the time of each job went, by job; empty where the run is too large to keep it
    times: Mapping[int, JobTime] = field(default_factory=dict)
    # time each job waited for its turn in a lane; only jobs that did
    pause_s: Mapping[int, float] = field(default_factory=dict)
    # of how many jobs the policy did not know what it is defined by, by what that is (`lacking`)
    lacks: Mapping[str, int] = field(default_factory=dict)
    # of the jobs that may have one of several GPU types, which is not enforced, those that last ran on another; and all
    # that ran
    on_other_types: tuple[int, int] = (0, 0)
    stuck: str = ""  # the first of the jobs that never ended, and why
    # how often `ageing`, `hysteresis` and `protection` decided; empty where nothing was counted
    guards: Mapping[str, int] = field(default_factory=dict)
    is_as_published: bool = False  # whether the policy is in the form in which it was published, without guards of ours
    # what was foreseen of starts and ends, and what came of it; None where nothing was
    foretold: tuple[Foretold, ...] | None = None

    @property
    def window_s(self) -> tuple[float, float] | None:
        """First submission and last end of the jobs that ran; the end of the run for those that still do."""
        ran = np.isfinite(self.columns.first_start_s)
        if not ran.any():
            return None
        ends = np.where(np.isfinite(self.columns.end_s), self.columns.end_s, self.curves.at_s[-1])
        return float(self.columns.submit_s[ran].min()), float(ends[ran].max())


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMetrics:
    """What one run achieved. None is not defined without a job that ran.

    `jct`, `queue`, `run_span` and `makespan` are those of `metrics`; `wait_s` is all the time a job was without GPUs or
    waited for its turn on them, None of a run too large to keep it. Over the time from first submission to last end:
    `gpu_active_ratio` counts GPUs with a job, `gpu_utilization_ratio` their use (busy fraction x efficiency), and
    `fragmentation_ratio` GPUs left without a job while a job of their pool waits. `slowdown` = jct / run time alone.
    """

    jobs: int
    submitted: int
    refused: int
    finished: int
    unfinished: int
    never_started: int
    states: Mapping[str, int]
    makespan_s: float | None
    jct_s: Summary | None
    queue_s: Summary | None
    wait_s: Summary | None
    run_span_s: Summary | None
    gpu_active_ratio: float | None
    gpu_utilization_ratio: float | None
    fragmentation_ratio: float | None
    gpu_hours: float
    slo_violations: int
    slo_jobs: int
    restarts: int
    slowdown: Summary | None
    slowdown_variance: float | None
    decision_s: Summary | None
    decision_max_s: float | None


def measure_run(run: SimulatedRun, jobs: Mapping[int, TraceJob]) -> SimulatedMetrics:
    """All metrics of one run. The workload's jobs say their objectives."""
    columns, done = run.columns, run.columns.succeeded
    ended = np.isfinite(columns.end_s)
    jct_s = (columns.end_s - columns.submit_s)[done]
    slowdown = slowdowns(jct_s, columns.alone_s[done])
    window = run.window_s
    violations = slo_violations(columns, jobs)
    spent = {job: run.times[job].spent for job in columns.id[done].tolist()} if run.times else {}
    waited_s = [one.queueing_s + one.paused_s + run.pause_s.get(job, 0.0) for job, one in spent.items()]
    return SimulatedMetrics(
        jobs=run.jobs,
        submitted=len(columns.id),
        refused=len(run.refused),
        finished=int(done.sum()),
        unfinished=int((~ended).sum()),
        never_started=int((~np.isfinite(columns.first_start_s)).sum()),
        states={str(state): many for state, many in sorted(Counter(columns.state).items())},
        makespan_s=None if window is None else window[1] - window[0],
        jct_s=summarise(jct_s),
        queue_s=summarise((columns.first_start_s - columns.submit_s)[done]),
        wait_s=summarise(waited_s) if run.times else None,
        run_span_s=summarise((columns.end_s - columns.first_start_s)[done]),
        gpu_active_ratio=run.curves.ratio(run.curves.active_gpus, window, len(run.gpus)),
        gpu_utilization_ratio=run.curves.ratio(run.curves.utilized_gpus, window, len(run.gpus)),
        fragmentation_ratio=run.curves.ratio(run.curves.stranded_gpus, window, len(run.gpus)),
        gpu_hours=float(columns.gpu_s.sum()) / 3600,
        slo_violations=sum(violations.values()),
        slo_jobs=len(violations),
        restarts=int(np.maximum(columns.attempts - 1, 0).sum()),
        slowdown=summarise(slowdown),
        slowdown_variance=float(np.var(slowdown)) if slowdown.size else None,
        decision_s=summarise(run.plan_s),
        decision_max_s=float(run.plan_s.max()) if run.plan_s.size else None,
    )


OBJECTIVES = frozenset({"slo", "slo_ratio", "minimal_utility"})  # labels that say what a job is promised


def slo_violations(columns: JobColumns, jobs: Mapping[int, TraceJob]) -> dict[int, bool]:
    """Whether each job with an objective missed it, by id.

    Label `slo`: seconds from submission to end. Label `slo_ratio` (Gavel's traces): the same in multiples of the job's
    time alone where it ran. Label `minimal_utility` u (Amaral et al., SC 2017): the job may run 1 / u of that time. A
    job that did not succeed has missed it.
    """
    found: dict[int, bool] = {}
    for place, id_ in enumerate(columns.id.tolist()):
        labels = jobs[id_].spec.labels
        if not labels or not OBJECTIVES & labels.keys():
            continue
        jct_s = columns.end_s[place] - columns.submit_s[place]
        run_s = columns.end_s[place] - columns.first_start_s[place]
        missed = columns.state[place] is not JobState.SUCCEEDED
        missed |= "slo" in labels and jct_s > float(labels["slo"])
        missed |= "slo_ratio" in labels and jct_s > float(labels["slo_ratio"]) * columns.alone_s[place]
        missed |= "minimal_utility" in labels and run_s * float(labels["minimal_utility"]) > columns.alone_s[place]
        found[id_] = bool(missed)
    return found


def slowdowns(jct_s: Floats, alone_s: Floats) -> Floats:
    """JCT over the run time alone, of jobs of which that is known."""
    known = np.isfinite(alone_s) & (alone_s > 0)
    return np.asarray(jct_s[known] / alone_s[known])


class Interval(NamedTuple):
    """Mean over seeds, and half the width of its 95 % confidence interval (Student's t); None with one seed."""

    mean: float
    half_width: float | None


T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t at 97.5 % for 1 to 15 degrees of freedom."""

T_975_BEYOND = 2.131  # for more degrees of freedom, on the safe side of the normal's 1.96


def confidence(values: Sequence[float | None]) -> Interval | None:
    """Mean over seeds with its 95 % confidence interval; None where no seed has a value."""
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return None
    if len(known) == 1:
        return Interval(known[0], None)
    freedom = len(known) - 1
    t = T_975[freedom - 1] if freedom <= len(T_975) else T_975_BEYOND
    return Interval(float(np.mean(known)), float(t * np.std(known, ddof=1) / np.sqrt(len(known))))
