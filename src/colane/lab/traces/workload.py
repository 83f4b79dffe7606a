"""A workload: jobs with the times they were submitted and what is known of how long they run."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from colane.model.hardware import DEFAULT_POOL
from colane.model.job import JobId, JobSpec
from colane.model.phases import DependsOn
from colane.model.profile import Memory
from colane.model.words import count

_KINDS: Final = {each.value: each for each in DependsOn}


class TraceCondition(NamedTuple):
    """What another job of the trace must have done."""

    on: DependsOn  # that. In a simulation every job does what it did where it was recorded, so that an end is an end
    name: str  # the other job


def parse_conditions(text: str) -> list[TraceCondition]:
    """Return the conditions that a cell names. Raises ValueError: it names none."""
    found = []
    for part in text.split(",") if text.strip() else ():
        kind, colon, name = part.strip().partition(":")
        if not colon or kind not in _KINDS or not name:
            known = ", ".join(_KINDS)
            raise ValueError(f"must be conditions as ok:NAME with commas between them ({known}), got {part[:40]!r}")
        found.append(TraceCondition(_KINDS[kind], name))
    return found


def conditions_of(job: TraceJob, ids: Mapping[str, JobId]) -> Iterator[tuple[DependsOn, JobId]]:
    """Yield what a job waits for; of jobs that were left out it does not wait."""
    for on, name in parse_conditions(job.after):
        if name in ids:
            yield on, ids[name]


def problem(job: TraceJob, ids: Mapping[str, JobId]) -> str | None:
    """Return what is wrong with what a job waits for; None where nothing is."""
    for _, name in parse_conditions(job.after):
        other = ids.get(name)
        if other is None:
            return f"there is no job {name!r}"
        if other >= job.id:
            return f"job {name!r} is not submitted before it"
    return None


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a workload; a value that is never changed, not frozen for the same reason as `JobSpec`."""

    id: JobId  # ascending with submission, from 1. The name the file gives it is `spec.name`
    submit_s: float  # seconds since the workload's origin
    spec: JobSpec  # what it asks for. `spec.gpus` is 0 for a job that uses no GPU
    # recorded run time, taken as its run time alone on what it asks for; None is unknown
    duration_s: float | None = None
    gpu_ratio: float = 1.0  # part of each of its GPUs it asks for; 1 is a whole GPU
    outcome: str = ""  # how it ended where it was recorded, in the words of the trace
    line: int = 0  # line of the file it was read from; 0 where there is none
    # for so long after its submission it may not start: its owner held it, or gave it a time to begin
    held_s: float = 0.0
    cancelled_s: float | None = None  # so long after its submission it is cancelled, if it has not started by then
    after: str = ""  # what other jobs, by their names, must have done before it starts; see `traces.conditions`
    # P: what of its peak, `spec.gpu_memory_bytes`, it holds between steps; None is unknown
    persistent_bytes: int | None = None
    # its time limit as it was changed after its submission, infinite for none; None: never changed
    changed_limit_s: float | None = None
    # how long each attempt ran that failed before the one that is its duration, without its launch; none of its work is
    # kept
    failed_s: tuple[float, ...] = ()
    is_timed: bool = False  # whether its steps were made of its recorded run time

    @property
    def is_cpu_only(self) -> bool:
        """Whether it asks for no GPU."""
        return self.spec.gpus == 0

    @property
    def memory(self) -> Memory | None:
        """P and E on each of its GPUs, as far as the trace tells; None where it tells none."""
        peak = self.spec.gpu_memory_bytes
        return None if peak is None else Memory.of_peak(peak, self.persistent_bytes)

    @property
    def model(self) -> str:
        """What it trains: the family its profiles go by."""
        return self.spec.family

    @property
    def batch_size(self) -> int | None:
        """Samples per GPU and step."""
        return self.spec.batch_size

    @property
    def steps(self) -> int | None:
        """Steps until it is done."""
        return self.spec.steps_total


GPU_SPEC = "gpu_spec"  # label of a job that may have one of several GPU types: these, which is not enforced
SEVERAL = "|"  # between them


def gpu_types_asked(job: TraceJob) -> frozenset[str]:
    """The GPU types of which a job may have any; empty where its spec says all, by one type or by none."""
    spec = job.spec.labels.get(GPU_SPEC, "")
    return frozenset(spec.split(SEVERAL)) if spec else frozenset()


class Note(NamedTuple):
    """Something a reader did to the jobs, and to how many."""

    many: int
    noun: str
    what: str

    def __str__(self) -> str:
        """One clause, such as `12 CPU-only jobs left out`."""
        return f"{count(self.many, self.noun)} {self.what}"


ILL: Final = re.compile(r"(?i)fail|time|node_|out.?of.?mem|oom|kill|cancel|boot|deadline|evict|lost")
"""How words of traces begin that say of a job that it did not end well."""

RUN_WELL: Final = "recorded as failed or stopped, simulated for as long as recorded, once, and as ended well"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in order of submission."""

    name: str  # for people: the file's name, or the generator with its seed
    jobs: tuple[TraceJob, ...]  # by submission; jobs submitted at the same time keep the order of their ids in the file
    source: str = ""  # path read, or parameters of the generator
    format: str = "made up"  # name of the format it was read as; `made up` for a generator's
    guessed: bool = False  # whether the format was guessed from the content
    origin_s: float = 0.0  # unix seconds of `submit_s` = 0 where the file has dates (its zone taken as UTC), else 0
    notes: tuple[Note, ...] = ()  # what was left out or changed, with counts
    times: str = ""  # in what unit the file has its times; empty for a generator's
    unused: tuple[str, ...] = ()  # columns of the file that its reader does not look at
    bad_rows: tuple[str, ...] = ()  # messages of the rows that were skipped as bad, in order of the file
    # columns that are more likely to be in another unit, where the reader alone can tell: one line each
    doubts: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """What was left out, changed or not looked at, one clause each."""
        unused = (f"columns not used: {', '.join(self.unused)}",) if self.unused else ()
        ill = sum(job.cancelled_s is None and bool(ILL.match(job.outcome)) for job in self.jobs)
        return tuple(map(str, (*self.notes, Note(ill, "job", RUN_WELL)) if ill else self.notes)) + unused

    @property
    def span_s(self) -> float:
        """Seconds from the first submission to the last."""
        return self.jobs[-1].submit_s - self.jobs[0].submit_s if self.jobs else 0.0


@contextmanager
def collector_held() -> Iterator[None]:
    """Hold the cyclic collector while jobs are made or simulated: they stay, and it would walk them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.unfreeze()  # what was made is taken for old: only a full collection looks at it
            gc.enable()


def order(
    submit_s: Sequence[float] | Mapping[int, float], names: Sequence[str] | Mapping[int, str], rows: Iterable[int]
) -> list[int]:
    """Sort rows by submission, then by id where all ids are numbers, else as they stand in the file."""
    kept = list(rows)
    if all(names[row].isdecimal() for row in kept):
        return sorted(kept, key=lambda row: (submit_s[row], int(names[row]), row))
    return sorted(kept, key=lambda row: (submit_s[row], row))


def compress(workload: Workload, time_scale: float) -> Workload:
    """Return the workload with all times of submission and holding divided by a factor: 2 doubles the offered load.

    Raises ValueError: the factor is not above 0.
    """
    if not time_scale > 0:
        raise ValueError(f"time scale must be above 0, got {time_scale}")
    jobs = tuple(
        replace(
            job, submit_s=job.submit_s / time_scale, held_s=job.held_s / time_scale,
            cancelled_s=None if job.cancelled_s is None else job.cancelled_s / time_scale,
        )
        for job in workload.jobs
    )  # fmt: skip
    return replace(workload, jobs=jobs)


def only_pools(workload: Workload, pools: Collection[str]) -> Workload:
    """Return the jobs of these pools, with a note of how many jobs of each other pool were left out."""
    others = Counter(job.spec.pool for job in workload.jobs if job.spec.pool not in pools)
    kept = tuple(job for job in workload.jobs if job.spec.pool in pools)
    notes = tuple(
        Note(others[pool], "job", f"of pool {pool} left out: the cluster has no such pool") for pool in sorted(others)
    )
    return replace(workload, jobs=kept, notes=workload.notes + notes)


def only_outcomes(workload: Workload, outcomes: Collection[str]) -> Workload:
    """Return the jobs that ended so, in the words of the trace, with a note of how many of each other were left out.

    Raises ValueError: no job ended so; how jobs ended is named.
    """
    ended = Counter(job.outcome for job in workload.jobs)
    known = sorted(filter(None, ended))
    for outcome in outcomes:
        if outcome not in known:
            has = f"jobs ended as {', '.join(known)}" if known else f"format {workload.format} records none"
            raise ValueError(f"no job of {workload.name} ended as {outcome!r}; {has}")
    kept = tuple(job for job in workload.jobs if job.outcome in outcomes)
    notes = tuple(
        Note(ended[outcome], "job", f"that ended as {outcome or 'not recorded'} left out, as asked")
        for outcome in sorted(ended)
        if outcome not in outcomes
    )
    return replace(workload, jobs=kept, notes=workload.notes + notes)


def merge_pools(workload: Workload, pool: str = DEFAULT_POOL) -> Workload:
    """Return the workload with every job in one pool, to run a trace of virtual clusters on one cluster."""
    jobs = tuple(replace(job, spec=replace(job.spec, pool=pool)) for job in workload.jobs)
    return replace(workload, jobs=jobs)


def spread_large(workload: Workload, gpus_max: Mapping[str, int]) -> Workload:
    """Return the workload with leave to lie on several nodes for each job larger than the largest node of its pool."""
    large = {job.id for job in workload.jobs if job.spec.gpus > gpus_max.get(job.spec.pool, job.spec.gpus)}
    if not large:
        return workload
    jobs = tuple(
        replace(job, spec=replace(job.spec, multi_node=True)) if job.id in large else job for job in workload.jobs
    )
    note = Note(len(large), "job", "larger than any node may lie on several")
    return replace(workload, jobs=jobs, notes=(*workload.notes, note))
