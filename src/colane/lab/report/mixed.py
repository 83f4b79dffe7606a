"""What a mixed batch shows, from looks at its jobs while they ran: a table, and a sentence for each mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, pairwise
from typing import NamedTuple

from colane.lab.report import tables
from colane.lab.report.prose import duration, percent
from colane.model.words import count

FELT_S = 1.0  # less than this is how long it takes to look, or to end a process
STEADY_STEPS = 10  # a speed over fewer steps says little


class MixedRole(StrEnum):
    """Which mechanism a job is there for."""

    SHARING = "shares a device"
    CORES = "starved of cores"
    WITHOUT_DEVICE = "needs no device"
    ELASTIC = "elastic"
    URGENT = "urgent"


class JobLook(NamedTuple):
    """One look at a job."""

    at_s: float  # when, since the batch was submitted
    devices: tuple[str, ...]  # it is on; empty of one that waits, or needs none
    lanes: tuple[int, ...]  # its lane on each of them
    cores: int  # it may use
    is_parked: bool = False  # it waits at a step boundary, for another to have its device
    steps: int = 0  # made so far
    step_s: float | None = None  # when the last of them ended, by its own clock; None before the first


class CoreSample(NamedTuple):
    """One look at the cores of a job."""

    at_s: float  # when, since the beginning
    cores: int  # cores it may use; 0 while it does not run
    steps_per_s: float | None = None  # since the look before; None of a job that makes no steps, or has not begun


class DeviceSpan(NamedTuple):
    """A job has so many devices from one time to another."""

    devices: int
    start_s: float
    end_s: float


class LossPoint(NamedTuple):
    """A step, how many devices made it, and its loss."""

    step: int
    devices: int
    loss: float


class Stretch(NamedTuple):
    """A time in which nothing about a job's place changed; devices, lanes and cores as in `JobLook`."""

    start_s: float
    end_s: float
    devices: tuple[str, ...]
    lanes: tuple[int, ...]
    cores: int
    is_parked: bool


@dataclass(frozen=True, kw_only=True)
class MixedJob:
    """A job of a run; times count from the submission of the batch."""

    name: str  # its own
    role: MixedRole  # what it is there for
    submit_s: float  # when it was submitted
    start_s: float | None  # first start of its process; None where it never started
    end_s: float  # when it ended
    looks: Sequence[JobLook] = ()  # in order of time, while it ran
    cores_told: str = ""  # what was said last of the search for its cores; empty where nothing was
    held_back: int = 0  # how often it was held back for training beside it

    @property
    def whole_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s

    @property
    def waited_s(self) -> float:
        """From submission to its first start."""
        return (self.end_s if self.start_s is None else self.start_s) - self.submit_s

    def stretches(self) -> list[Stretch]:
        """Its looks, those alike that follow one another put together."""
        found: list[Stretch] = []
        for _, alike in groupby(self.looks, key=lambda look: look[1:5]):
            first = next(alike)
            if found:
                found[-1] = found[-1]._replace(end_s=first.at_s)
            found.append(Stretch(first.at_s, self.end_s, *first[1:5]))
        return found

    def speeds(self) -> dict[int, float]:
        """Steps a second with each number of cores it had, by its own clock; as far as they are known."""
        made: dict[int, list[float]] = {}
        for before, after in pairwise(self.looks):
            if before.cores == after.cores and before.step_s and after.step_s and not after.is_parked:
                sums = made.setdefault(after.cores, [0.0, 0.0])
                sums[0] += after.steps - before.steps
                sums[1] += after.step_s - before.step_s
        return {cores: n / span_s for cores, (n, span_s) in made.items() if n >= STEADY_STEPS and span_s > 0}


@dataclass(frozen=True, kw_only=True)
class MixedRun:
    """The batch under one policy."""

    name: str  # of the run
    devices: tuple[str, ...]  # names of all devices
    cores: int  # of the machine
    jobs: Mapping[str, MixedJob]  # by name
    others_ratio: float | None = None  # mean part of the devices that others used; None is unknown
    # speed-up of each set that was measured, by the names of its families
    deltas: Mapping[str, float] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """The last end."""
        return max((job.end_s for job in self.jobs.values()), default=0.0)

    def of(self, role: MixedRole) -> list[MixedJob]:
        """Jobs that are there for this, in order."""
        return [job for job in self.jobs.values() if job.role is role]


def mixed_table(base: MixedRun, other: MixedRun) -> tables.Table:
    """One row for each job: how long it waited and took, in both runs."""
    columns = (
        tables.text("job", "Job"),
        tables.text("role", "What it is"),
        *(
            tables.seconds(f"{key}_{run.name}", f"{run.name}: {heading}")
            for run in (base, other)
            for key, heading in (("waited_s", "waited"), ("whole_s", "submission to end"))
        ),
        tables.change("change_percent", "Change"),
    )
    twins = [(name, job, twin) for name, job in base.jobs.items() if (twin := other.jobs.get(name)) is not None]
    rows = tuple([
        (name, one.role.value, one.waited_s, one.whole_s, two.waited_s, two.whole_s, change(one.whole_s, two.whole_s))
        for name, one, two in twins
    ])  # fmt: skip
    note = "Change: of the time from submission to end."
    return tables.Table("mixed", "The mixed batch, job by job", columns, rows, note)


def change(before_s: float, after_s: float) -> float | None:
    """In percent; None of nothing."""
    return 100 * (after_s / before_s - 1) if before_s > 0 else None


def mechanism_sentences(base: MixedRun, other: MixedRun) -> tuple[str, ...]:
    """One for each mechanism: what it did, and what that gained or cost, as measured."""
    of_one = {
        MixedRole.CORES: _cores, MixedRole.WITHOUT_DEVICE: _without_device, MixedRole.ELASTIC: _elastic,
        MixedRole.URGENT: _urgent,
    }  # fmt: skip
    jobs = {role: [next(iter(run.of(role)), None) for run in (base, other)] for role in of_one}
    told = [of_one[role](base, other, was, now) for role, (was, now) in jobs.items() if was and now]
    return tuple(filter(None, (_sharing(base, other), *told)))


def _sharing(base: MixedRun, other: MixedRun) -> str:
    before, after = (run.of(MixedRole.SHARING) for run in (base, other))
    if not before or not after:
        return ""
    span_before_s, span_after_s = (sum(job.whole_s for job in jobs) / len(jobs) for jobs in (before, after))
    together_s = shared_s(other)
    said = (
        f"Sharing: {_instead('the small jobs took', span_after_s, span_before_s)} from submission to end on average; "
    )
    if together_s >= FELT_S:
        found = ", ".join(f"{delta:.2f} ({names})" for names, delta in other.deltas.items())
        speedup = f", with a measured speed-up of {found}" if found else ""
        return said + f"jobs ran side by side on a device for {duration(together_s)}{speedup}."
    return said + f"no job ran beside another{_why_alone(other)}."


def _why_alone(run: MixedRun) -> str:
    lost = [f"{names}: {delta:.2f}" for names, delta in run.deltas.items() if delta < 1]
    if lost:
        return f", as sharing was measured not to pay ({', '.join(lost)} times as fast as one after another)"
    if run.others_ratio is not None and run.others_ratio >= OTHERS_HINDER:
        return f", as other work used {100 * run.others_ratio:.0f} % of the devices"
    per_device = run.cores / max(len(run.devices), 1)
    return f", as each device is one core here ({run.cores} in all)" if per_device < 2 else ""


OTHERS_HINDER = 0.1


def shared_s(run: MixedRun) -> float:
    """How long two jobs or more were on one device and none of them parked."""
    spans = [
        (stretch.start_s, stretch.end_s, device)
        for job in run.jobs.values()
        for stretch in job.stretches()
        if not stretch.is_parked
        for device in stretch.devices
    ]
    return sum(_overlap_s([(a, b) for a, b, on in spans if on == device]) for device in run.devices)


def _overlap_s(spans: Sequence[tuple[float, float]]) -> float:
    """Time covered twice or more."""
    edges = sorted([(start_s, 1) for start_s, _ in spans] + [(end_s, -1) for _, end_s in spans])
    depth, total_s = 0, 0.0
    for (at_s, step), (next_s, _) in pairwise(edges):
        depth += step
        total_s += next_s - at_s if depth > 1 else 0.0
    return total_s


def _cores(base: MixedRun, other: MixedRun, before: MixedJob, after: MixedJob) -> str:
    had, now = (_distinct([s.cores for s in job.stretches() if s.devices]) for job in (before, after))
    said = f"Cores: {_instead('the job that waits for its data took', after.whole_s, before.whole_s)}; "
    said += f"it had {_many(now, 'core')}, under {base.name} {_many(had, 'core')}"
    speeds = sorted(after.speeds().items())
    if speeds:
        said += ", and made " + " and ".join(f"{speed:.1f} steps/s with {cores}" for cores, speed in speeds)
    if len(speeds) > 1:
        return f"{said}."
    return f"{said}; {_why_no_more(after, other, now)}."


def _why_no_more(job: MixedJob, run: MixedRun, had: Sequence[int]) -> str:
    if job.cores_told:
        return f"said last of the search for its cores: {job.cores_told}"
    most = run.cores // max(len(run.devices), 1)
    if max(had, default=0) >= most:
        return f"a device has no more than {_many([most], 'core')} here"
    return "it ended before a search for more of them had begun"


def _without_device(base: MixedRun, _other: MixedRun, before: MixedJob, after: MixedJob) -> str:
    said = f"The job without a device began after {duration(after.waited_s)} (under {base.name} after "
    said += f"{duration(before.waited_s)}) and ran beside the training"
    if after.held_back:
        times = "once" if after.held_back == 1 else f"{after.held_back} times"
        return f"{said}; it was held back {times} because training beside it went slower by it."
    if abs(before.waited_s - after.waited_s) < FELT_S:
        return f"{said}: no difference, as neither lets it wait for a device, and nothing beside it needed protection."
    return f"{said}."


def _elastic(_base: MixedRun, other: MixedRun, before: MixedJob, after: MixedJob) -> str:
    had = _distinct([len(s.devices) for s in after.stretches() if s.devices])
    took = _instead("the elastic job took", after.whole_s, before.whole_s)
    if len(other.devices) < 2:
        return (
            f"Elasticity: nothing to gain here, as {other.cores} cores make one device and an elastic job needs a "
            f"second one to grow into; {took}, on one device all the time."
        )
    said = f"Elasticity: {took}, on {_many(had, 'device')}"
    return f"{said}." if len(had) > 1 else f"{said} all the time: its size was not changed."


def _urgent(_base: MixedRun, other: MixedRun, before: MixedJob, after: MixedJob) -> str:
    said = f"Urgency: {_instead('the urgent job waited', after.waited_s, before.waited_s)} for its start and "
    said += f"{_instead('took', after.whole_s, before.whole_s)} in all"
    waits_s = {job.name: [s.end_s - s.start_s for s in job.stretches() if s.is_parked] for job in other.jobs.values()}
    named = " and ".join(
        f"{name} for {duration(sum(spans_s))}" for name, spans_s in waits_s.items() if sum(spans_s) > 0
    )
    if named:
        return f"{said}; {named} waited at a step boundary meanwhile and lost no step."
    beside = _co_runners(other, after)
    return f"{said}; it ran beside {' and '.join(beside)}." if beside else f"{said}; no job was made to wait for it."


def _co_runners(run: MixedRun, job: MixedJob) -> list[str]:
    """Jobs on a device of a job at the same time for more than a moment."""

    def together_s(co_runner: MixedJob) -> float:
        return sum(
            max(0.0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s))
            for a in job.stretches()
            for b in co_runner.stretches()
            if set(a.devices) & set(b.devices)
        )

    return [other.name for other in run.jobs.values() if other is not job and together_s(other) >= FELT_S]


def _instead(what: str, after_s: float, before_s: float) -> str:
    return f"{what} {duration(after_s)} instead of {duration(before_s)} ({percent(change(before_s, after_s))})"


def _distinct(values: Sequence[int]) -> list[int]:
    """In order, those that follow an equal one left out."""
    return [value for value, _ in groupby(values)]


def _many(counts: Sequence[int], noun: str) -> str:
    return count(", then ".join(map(str, counts)) or "no", noun)
