"""What a group of finished jobs achieved, as numbers. Pure functions.

Names are those every part of Colane uses: `jct` = end - submission, `run_span` = end - first start (paper A,
chapter 6, calls this JCT), `queue` = first start - submission, `makespan` = last end - first submission.
Means and percentiles are over the jobs that succeeded; makespan and GPU use are over all jobs that ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colane.lab.report.records import Interval, RunGroup, RunRecord
from colane.model.job import JobState
from colane.model.profile import ProfileKey
from colane.model.words import count

ALONE_SHARED_RATIO_MAX = 0.01
"""A job that shared its GPUs for less than this part of its run counts as alone: jobs that follow one another
on a GPU overlap by the time an end takes to be reported."""

SECONDS_PER_HOUR = 3600.0
WorkKey = tuple[ProfileKey, int]
"""Jobs alike in key and number of steps do the same work; where the steps are unknown, so is the work."""


class Summary(NamedTuple):
    """Distribution of a metric over so many jobs."""

    jobs: int
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """What one group achieved. None is not known, or not defined without a job that ran."""

    name: str  # the group's
    policy: str  # policies of its records, joined by `+` when there were several
    jobs: int  # records in all
    finished: int  # those that succeeded
    states: Mapping[JobState, int]  # number of records by state
    never_started: int  # records of jobs that were never started
    devices: int  # number of devices
    makespan_s: float | None  # last end - first submission of the jobs that ran
    jct_s: Summary | None  # end - submission
    queue_s: Summary | None  # first start - submission
    run_span_s: Summary | None  # end - first start
    gpu_active_ratio: float | None  # part of the devices' time, first submission to last end, with at least one job
    jobs_per_hour: float | None  # succeeded jobs / makespan
    steps_per_s: float | None  # steps of all jobs / makespan; None unless every job that ran says its steps
    failures: int  # records that ended failed, out of memory or timed out
    restarts: int  # starts after the first, of all jobs
    slowdown_exec: Summary | None  # run span / run span of the same work alone
    slowdown_total: Summary | None  # JCT / run span of the same work alone, or as the record says
    slowdown_variance: float | None  # population variance of `slowdown_total`


class Comparison(NamedTuple):
    """Change from a baseline in percent of the baseline's value; None where the baseline has none or 0.

    `gpu_active_points` is a difference of two ratios in percentage points.
    """

    base: str
    other: str
    makespan_percent: float | None
    run_span_percent: float | None
    jct_percent: float | None
    queue_percent: float | None
    gpu_active_points: float | None


class StepTimes(NamedTuple):
    """Mean step time of one kind of job alone and together, with the number of jobs behind each."""

    key: ProfileKey
    alone_s: float | None
    alone_jobs: int
    together_s: float | None
    together_jobs: int

    @property
    def slowdown(self) -> float | None:
        """Step time together / alone."""
        if not self.alone_s or self.together_s is None:
            return None
        return self.together_s / self.alone_s


def distribution(summary: Summary | None) -> dict[str, float] | None:
    """Mean and percentiles as JSON has them."""
    return None if summary is None else {name: getattr(summary, name) for name in ("mean", "p50", "p95", "p99")}


def summarise(values: Iterable[float]) -> Summary | None:
    """Mean and percentiles (linear interpolation, as numpy's default); None for no values."""
    found = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=float)
    if found.size == 0:
        return None
    p50, p95, p99 = (float(value) for value in np.percentile(found, (50, 95, 99)))
    return Summary(int(found.size), float(found.mean()), p50, p95, p99)


def measure(group: RunGroup, alone_s: Mapping[WorkKey, float] | None = None) -> GroupMetrics:
    """All metrics of one group.

    Run spans of each kind of work alone are those of `run_spans_alone`; None takes this group's own.
    """
    known_s = run_spans_alone([group]) if alone_s is None else alone_s
    done = [record for record in group.records if record.succeeded]
    span_s = makespan_s(group.records)
    steps = [record.steps for record in group.records if record.first_start_s is not None]
    made = [known for known in steps if known is not None]
    total = slowdowns_total(group, known_s)
    return GroupMetrics(
        name=group.name,
        policy="+".join(sorted({record.policy for record in group.records if record.policy})),
        jobs=len(group.records),
        finished=len(done),
        states=Counter(record.state for record in group.records),
        never_started=sum(record.first_start_s is None for record in group.records),
        devices=len(group.all_devices),
        makespan_s=span_s,
        jct_s=summarise(record.jct_s for record in done),
        queue_s=summarise(record.queue_s for record in done if record.queue_s is not None),
        run_span_s=summarise(record.run_span_s for record in done if record.run_span_s is not None),
        gpu_active_ratio=gpu_active_ratio(group),
        jobs_per_hour=len(done) / span_s * SECONDS_PER_HOUR if span_s else None,
        steps_per_s=sum(made) / span_s if span_s and len(made) == len(steps) else None,
        failures=sum(record.state in FAILED for record in group.records),
        restarts=sum(record.restarts for record in group.records),
        slowdown_exec=summarise(slowdowns_exec(group, known_s).values()),
        slowdown_total=summarise(total.values()),
        slowdown_variance=float(np.var(list(total.values()))) if total else None,
    )


FAILED = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.TIMED_OUT})
"""States that count as failures; a cancelled job is its owner's wish."""


def makespan_s(records: Sequence[RunRecord]) -> float | None:
    """Last end - first submission of the jobs that ran (paper A, chapter 6); None when none did."""
    window = _window(records)
    return None if window is None else window[1] - window[0]


def gpu_active_ratio(group: RunGroup) -> float | None:
    """Part of the devices' time with at least one job; None without a device or any time."""
    window, devices = _window(group.records), group.all_devices
    if window is None or not devices or window[1] <= window[0]:
        return None
    active_s = 0.0
    for intervals in intervals_by_device(group.records).values():
        active_s += covered_s(cover(intervals, 1), *window)
    return min(active_s / (len(devices) * (window[1] - window[0])), 1.0)


def intervals_by_device(records: Iterable[RunRecord]) -> dict[str, list[Interval]]:
    """When the last attempt of each job ran, pauses left out, by the devices it ran on."""
    found: dict[str, list[Interval]] = defaultdict(list)
    for record in records:
        for device in dict.fromkeys(record.gpus):
            found[device] += record.ran_s
    return found


class Cover(NamedTuple):
    """How long a depth was reached up to each time: `so_far_s[i]` seconds until `times_s[i]`."""

    times_s: NDArray[np.float64]
    so_far_s: NDArray[np.float64]


def cover(intervals: Sequence[Interval], depth: int) -> Cover:
    """Time during which at least `depth` of the intervals hold, in O(n log n)."""
    edges = np.asarray(intervals, dtype=float).reshape(-1, 2)
    times_s = np.concatenate((edges[:, 0], edges[:, 1]))
    change = np.repeat((1, -1), len(edges))
    order = np.argsort(times_s, kind="stable")
    times_s, held = times_s[order], np.cumsum(change[order])
    spent_s = np.where(held[:-1] >= depth, np.diff(times_s), 0.0)
    return Cover(times_s, np.concatenate(([0.0], np.cumsum(spent_s))) if len(edges) else times_s)


def covered_s(reached: Cover, from_s: float, to_s: float) -> float:
    """Seconds of `from_s` to `to_s` that the cover holds."""
    if reached.times_s.size == 0:
        return 0.0
    before_s, after_s = np.interp((from_s, to_s), reached.times_s, reached.so_far_s)
    return float(after_s - before_s)


def shared_ratios(records: Sequence[RunRecord]) -> dict[int, float]:
    """By job id, the part of its GPUs' time another job ran there too; jobs that never ran are left out."""
    crowded = {device: cover(found, 2) for device, found in intervals_by_device(records).items()}
    ratios: dict[int, float] = {}
    for record in records:
        if record.interval_s is not None and record.gpus:
            shared_s = sum(covered_s(crowded[device], *ran_s) for device in record.gpus for ran_s in record.ran_s)
            span_s = sum(end_s - start_s for start_s, end_s in record.ran_s) * len(record.gpus)
            ratios[record.id] = min(shared_s / span_s, 1.0) if span_s > 0 else 0.0
    return ratios


def works_of(group: RunGroup) -> dict[int, WorkKey]:
    """The work of each job that says its steps, by job id."""
    keys = group.keys_by_id()
    return {record.id: (keys[record.id], record.steps) for record in group.records if record.steps}


def run_spans_alone(groups: Sequence[RunGroup]) -> dict[WorkKey, float]:
    """Mean run span of each kind of work over the jobs that ran it alone, at one go, to success."""
    found_s: dict[WorkKey, list[float]] = defaultdict(list)
    for group in groups:
        ratios, works = shared_ratios(group.records), works_of(group)
        for record in group.records:
            alone = ratios.get(record.id, 1.0) <= ALONE_SHARED_RATIO_MAX
            work = works.get(record.id)
            at_one_go = not record.restarts and not record.pauses_s
            if work and alone and record.succeeded and at_one_go and record.run_span_s:
                found_s[work].append(record.run_span_s)
    return {work: sum(spans_s) / len(spans_s) for work, spans_s in found_s.items()}


def slowdowns_exec(group: RunGroup, alone_s: Mapping[WorkKey, float]) -> dict[int, float]:
    """Run span / run span of the same work alone, by job id, of the succeeded jobs for which it is known."""
    bases_s = {job: alone_s.get(work) for job, work in works_of(group).items()}
    return {
        record.id: record.run_span_s / base_s
        for record in group.records
        if record.succeeded and (base_s := bases_s.get(record.id)) and record.run_span_s is not None
    }


def slowdowns_total(group: RunGroup, alone_s: Mapping[WorkKey, float]) -> dict[int, float]:
    """JCT / run span of the same work alone, by job id; the record's own value goes first."""
    found: dict[int, float] = {}
    bases_s = {job: alone_s.get(work) for job, work in works_of(group).items()}
    for record in group.records:
        base_s = bases_s.get(record.id)
        if record.succeeded and record.slowdown_total is not None:
            found[record.id] = record.slowdown_total
        elif record.succeeded and base_s:
            found[record.id] = record.jct_s / base_s
    return found


def step_times(groups: Sequence[RunGroup]) -> tuple[StepTimes, ...]:
    """Mean step time of each kind of job, of jobs that ran alone and of jobs that shared, over all groups.

    A job that shared for a part of its run counts as together; sets measured on purpose tell more exactly.
    """
    alone_s: dict[ProfileKey, list[float]] = defaultdict(list)
    together_s: dict[ProfileKey, list[float]] = defaultdict(list)
    for group in groups:
        ratios, keys_by_id = shared_ratios(group.records), group.keys_by_id()
        for record in group.records:
            if record.step_s is not None and record.id in ratios:
                into = alone_s if ratios[record.id] <= ALONE_SHARED_RATIO_MAX else together_s
                into[keys_by_id[record.id]].append(record.step_s)
    keys = sorted(alone_s.keys() | together_s.keys(), key=str)
    return tuple(
        StepTimes(key, _mean(alone_s[key]), len(alone_s[key]), _mean(together_s[key]), len(together_s[key]))
        for key in keys
    )


def percent_change(old: float | None, new: float | None) -> float | None:
    """(new - old) / old in percent; None where either is unknown or old is 0."""
    return None if old is None or new is None or old == 0 else (new - old) / old * 100.0


def compare(base: GroupMetrics, other: GroupMetrics) -> Comparison:
    """Changes of the makespan and of the means, as paper A, section 6 states its gains."""
    ratios = (base.gpu_active_ratio, other.gpu_active_ratio)
    return Comparison(
        base=base.name,
        other=other.name,
        makespan_percent=percent_change(base.makespan_s, other.makespan_s),
        run_span_percent=percent_change(mean_of(base.run_span_s), mean_of(other.run_span_s)),
        jct_percent=percent_change(mean_of(base.jct_s), mean_of(other.jct_s)),
        queue_percent=percent_change(mean_of(base.queue_s), mean_of(other.queue_s)),
        gpu_active_points=None if None in ratios else ((ratios[1] or 0.0) - (ratios[0] or 0.0)) * 100.0,
    )


def mean_of(summary: Summary | None) -> float | None:
    """The mean, where there is one."""
    return None if summary is None else summary.mean


def batch_differences(base: RunGroup, other: RunGroup) -> tuple[str, ...]:
    """How two batches differ in the work they hold, one phrase each; empty when they may be compared."""
    first, second = (Counter(_work_name(record) for record in group.records) for group in (base, other))
    return tuple(
        f"{name}: {first[name]} in {base.name}, {second[name]} in {other.name}"
        for name in sorted(first.keys() | second.keys())
        if first[name] != second[name]
    )


def _work_name(record: RunRecord) -> str:
    batch = "" if record.batch_size is None else f" b{record.batch_size}"
    steps = "" if record.steps_total is None else f" {count(record.steps_total, 'step')}"
    return f"{record.family}{batch}{steps}"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _window(records: Iterable[RunRecord]) -> Interval | None:
    ran = [record for record in records if record.first_start_s is not None]
    if not ran:
        return None
    first_s = min(record.submit_s for record in ran)
    return first_s, max(first_s, *(record.end_s for record in ran))
