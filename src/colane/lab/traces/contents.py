"""What a workload holds, in a few numbers, by which a column misread or a wrong unit is seen at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isfinite
from statistics import median
from typing import NamedTuple

from colane.lab.traces.workload import Workload
from colane.model.words import count, percent

SHOWN_MAX = 8  # so many GPU numbers or outcomes are shown, the most frequent ones
DAY_S = 86_400
UNITS_MIN, WHOLE_MIN = 2, 10
"""A time is told in the largest unit of which it has so many, and in whole ones from so many on."""

HOUR_S = 3600
MINUTE_S = 60


class Content(NamedTuple):
    """One thing that a workload holds: a word for programs, and a line for people."""

    code: str
    message: str


def contents(workload: Workload) -> Iterator[Content]:
    """Say what a workload holds: units, GPUs, durations, steps, outcomes, and how many kinds of jobs."""
    if workload.times:
        yield Content("times", f"times are read as {workload.times}")
    yield Content("gpus", _gpus(workload))
    yield from _lengths(workload)
    outcomes = Counter(job.outcome for job in workload.jobs if job.outcome)
    if outcomes:
        jobs = len(workload.jobs)
        shown = [f"{name} {percent(many / jobs)} ({many:,})" for name, many in outcomes.most_common(SHOWN_MAX)]
        yield Content("outcomes", "ended as " + ", ".join(shown) + _more(outcomes))
    pools, users = {job.spec.pool for job in workload.jobs}, {job.spec.user for job in workload.jobs}
    models = {(job.model, job.batch_size) for job in workload.jobs}
    kinds = (count(len(pools), "pool"), count(len(users), "user"), count(len(models), "pair"))
    yield Content("kinds", ", ".join(kinds) + " of model and batch")


def time(value_s: float) -> str:
    """A length of time as people say it, to two or three digits."""
    for unit_s, unit in ((DAY_S, "days"), (HOUR_S, "h"), (MINUTE_S, "min")):
        units = value_s / unit_s
        if units >= WHOLE_MIN:
            return f"{units:,.0f} {unit}"
        if units >= UNITS_MIN:
            return f"{units:.2g} {unit}"
    return f"{value_s:.3g} s"


def _gpus(workload: Workload) -> str:
    asked = Counter(job.spec.gpus for job in workload.jobs)
    shown = sorted(asked.most_common(SHOWN_MAX))
    parts = sum(job.gpu_ratio < 1 for job in workload.jobs)
    text = ", ".join(f"{gpus} ({many:,})" for gpus, many in shown) + _more(asked)
    return f"GPUs asked for (by so many jobs): {text}" + (f"; a part of each by {parts:,}" if parts else "")


def _lengths(workload: Workload) -> Iterator[Content]:
    known = [job for job in workload.jobs if job.duration_s is not None and isfinite(job.duration_s)]
    if known:
        lengths = [job.duration_s or 0.0 for job in known]
        hours = sum(job.spec.gpus * job.gpu_ratio * (job.duration_s or 0.0) for job in known) / HOUR_S
        spread = f"{time(min(lengths))} to {time(max(lengths))}, half of them {time(median(lengths))} or less"
        said = f"{len(known):,} jobs run for {spread}" if len(known) > 1 else f"1 job runs for {time(lengths[0])}"
        yield Content("durations", f"{said}; {hours:,.3g} GPU-hours")
    steps = [job.steps for job in workload.jobs if job.steps is not None]
    if steps:
        spread = f"jobs of {min(steps):,} to {max(steps):,} steps, half of them {median(steps):,.0f} or less"
        yield Content("steps", f"{len(steps):,} {spread}" if len(steps) > 1 else f"1 job of {count(steps[0], 'step')}")


def _more(kinds: Counter[int] | Counter[str]) -> str:
    left = len(kinds) - SHOWN_MAX
    return f" and {left} more" if left > 0 else ""
