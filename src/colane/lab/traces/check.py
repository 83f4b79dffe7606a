"""Judge a workload before a run: what is wrong, what will not fit, and how much it asks of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from colane.lab.traces.clusters import Cluster
from colane.lab.traces.contents import contents
from colane.lab.traces.units import odd_units
from colane.lab.traces.workload import TraceJob, Workload, gpu_types_asked
from colane.model.inventory import Inventory, Lack, Shortfall
from colane.model.job import JobSpec, NeedClass
from colane.model.words import count

EXAMPLES_MAX = 3  # a finding names at most this many jobs
HEAVY_LOAD = 1.0  # from this offered load on, the queue grows as long as jobs arrive


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"  # the trace cannot be run as it is
    WARNING = "warning"  # it runs, but not all of it, or not as one may think
    INFO = "info"  # worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    level: Level  # how bad it is
    code: str  # what was found, for programs
    message: str  # one line with numbers
    count: int = 0  # jobs or rows concerned; 0 where it concerns the whole


def check_trace(workload: Workload, cluster: Cluster | None = None) -> list[Finding]:
    """Judge a workload, and whether a cluster can hold it. Errors come first.

    Bad rows are findings where the workload was read with `skip_bad_rows`. With a cluster: also jobs that fit nowhere
    in it, and the load they offer.
    """
    findings = [*_bad_rows(workload), *_notes(workload)]
    if not workload.jobs:
        return [Finding(Level.ERROR, "empty", "holds no jobs"), *findings]
    findings += _times(workload) + _names(workload) + [_span(workload)] + _contents(workload)
    if cluster is not None:
        findings += _fit(workload, cluster) + _other_types(workload, cluster) + _load(workload, cluster)
    levels = list(Level)
    return sorted(findings, key=lambda finding: levels.index(finding.level))


def why_not(spec: JobSpec, inventory: Inventory) -> str | None:
    """Why a job could not run even on an empty cluster, None when it could. One line with numbers."""
    shortfall = inventory.shortfall(spec)
    return None if shortfall is None else _sentence(spec, shortfall, inventory.gpu_types(spec.pool))


def split(workload: Workload, cluster: Cluster) -> tuple[tuple[TraceJob, ...], tuple[tuple[TraceJob, str], ...]]:
    """Return the jobs an empty cluster could hold, and the others each with its reason.

    A job of several sizes would like best the largest that the cluster could hold.
    """
    inventory, known = Inventory(cluster.nodes), dict[NeedClass, str | None]()
    held: list[TraceJob] = []
    rejected: list[tuple[TraceJob, str]] = []
    for one in workload.jobs:
        spec = inventory.sized(one.spec)
        job, need = one if spec is one.spec else replace(one, spec=spec), spec.need
        if need not in known:
            known[need] = why_not(spec, inventory)
        reason = known[need]
        if reason is None:
            held.append(job)
        else:
            rejected.append((job, reason))
    return tuple(held), tuple(rejected)


def offered_load(jobs: Iterable[TraceJob], gpus: int, span_s: float) -> float | None:
    """GPU-seconds asked for per GPU-second there is over a span; None without GPUs or span. Unknown durations are 0."""
    if gpus == 0 or span_s <= 0:
        return None
    asked = sum(job.spec.gpus * job.gpu_ratio * (job.duration_s or 0.0) for job in jobs)
    return asked / (gpus * span_s)


def _bad_rows(workload: Workload) -> list[Finding]:
    rows = workload.bad_rows
    if not rows:
        return []
    more = len(rows) - EXAMPLES_MAX
    named = "; ".join(rows[:EXAMPLES_MAX]) + (f"; and {more} more" if more > 0 else "")
    return [Finding(Level.ERROR, "bad-rows", f"{count(len(rows), 'bad row')}: {named}", len(rows))]


def _notes(workload: Workload) -> list[Finding]:
    notes = [Finding(Level.INFO, "note", str(note), note.many) for note in workload.notes]
    if workload.unused:
        unused = f"not used: {', '.join(workload.unused)}"
        notes.append(Finding(Level.INFO, "unused-columns", unused, len(workload.unused)))
    return notes


def _contents(workload: Workload) -> list[Finding]:
    found = [Finding(Level.INFO, content.code, content.message) for content in contents(workload)]
    return [*(Finding(Level.WARNING, "odd-unit", odd) for odd in odd_units(workload)), *found]


class _Test(NamedTuple):
    level: Level
    code: str
    what: str
    holds: Callable[[TraceJob], bool]


def _times(workload: Workload) -> list[Finding]:
    found = ((test, [job for job in workload.jobs if test.holds(job)]) for test in _TESTS)
    return [_finding(test.level, test.code, test.what, jobs) for test, jobs in found if jobs]


def _is_time(value_s: float) -> bool:
    return math.isfinite(value_s) and value_s >= 0


_TESTS = (
    _Test(Level.ERROR, "bad-submit", "are submitted at a negative or non-finite time",
          lambda job: not _is_time(job.submit_s)),
    _Test(Level.ERROR, "bad-duration", "have a negative or non-finite duration",
          lambda job: job.duration_s is not None and not _is_time(job.duration_s)),
    _Test(Level.ERROR, "no-length", "have neither duration nor steps, so it cannot be said when they end",
          lambda job: job.duration_s is None and job.steps is None),
    _Test(Level.INFO, "steps-only", "have steps but no duration: their run time follows from measured speeds",
          lambda job: job.duration_s is None and job.steps is not None),
    _Test(Level.WARNING, "no-time", "run for 0 s", lambda job: job.duration_s == 0),
    _Test(Level.INFO, "cpu-only", "ask for no GPU", lambda job: job.is_cpu_only),
)  # fmt: skip


def _names(workload: Workload) -> list[Finding]:
    first: dict[str, TraceJob] = {}
    twice = [job for job in workload.jobs if first.setdefault(job.spec.name, job) is not job]
    return [_finding(Level.WARNING, "duplicate-name", "have the name of an earlier job", twice)] if twice else []


def _span(workload: Workload) -> Finding:
    span_s, jobs = workload.span_s, len(workload.jobs)
    if span_s == 0:
        return Finding(Level.INFO, "span", f"{count(f'{jobs:,}', 'job')}, all submitted at once")
    over = f"{span_s:,.0f} s ({span_s / 86_400:.1f} days)" if span_s >= 86_400 else f"{span_s:,.6g} s"
    return Finding(
        Level.INFO, "span", f"{count(f'{jobs:,}', 'job')} submitted over {over}, one every {span_s / jobs:,.3g} s"
    )


def _fit(workload: Workload, cluster: Cluster) -> list[Finding]:
    _, rejected = split(workload, cluster)
    reasons: dict[str, list[TraceJob]] = {}
    for job, reason in rejected:
        reasons.setdefault(reason, []).append(job)
    return [
        _finding(Level.WARNING, "never-fits", f"can never run on {cluster.name}: {reason}", jobs)
        for reason, jobs in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _other_types(workload: Workload, cluster: Cluster) -> list[Finding]:
    """Jobs that may have one of several GPU types, where there are others that they may be put on."""
    inventory = Inventory(cluster.nodes)
    types = {pool: set(inventory.gpu_types(pool)) for pool in cluster.pools}
    asked = ((job, gpu_types_asked(job)) for job in workload.jobs if job.spec.gpus)
    jobs = [job for job, named in asked if named and types.get(job.spec.pool, set()) - named]
    what = f"name several GPU types and may be put on others that {cluster.name} has, as one type alone can be required"
    return [_finding(Level.WARNING, "other-gpu-types", what, jobs)] if jobs else []


def _load(workload: Workload, cluster: Cluster) -> list[Finding]:
    held, _ = split(workload, cluster)
    if all(job.duration_s is None for job in held):
        return []
    load = offered_load(held, cluster.gpus, workload.span_s)
    if load is None:
        return []
    findings = [_load_finding("the cluster", load)]
    if len(cluster.pools) > 1:
        for pool in sorted(cluster.pools):
            gpus = sum(len(node.gpus) for node in cluster.nodes if node.pool == pool)
            mine = offered_load((job for job in held if job.spec.pool == pool), gpus, workload.span_s)
            if mine is not None:
                findings.append(_load_finding(f"pool {pool}", mine))
    return findings


def _load_finding(where: str, load: float) -> Finding:
    asked = f"asks {load:.3f} GPU-seconds of {where} for each it has, while jobs arrive"
    if load < HEAVY_LOAD:
        return Finding(Level.INFO, "offered-load", asked)
    return Finding(Level.WARNING, "offered-load", f"{asked}: its queue grows all the time")


def _finding(level: Level, code: str, what: str, jobs: list[TraceJob]) -> Finding:
    named = ", ".join(
        (f"{job.spec.name} of line {job.line}" if job.line else job.spec.name) for job in jobs[:EXAMPLES_MAX]
    )
    more = len(jobs) - EXAMPLES_MAX
    tail = f" and {more:,} more" if more > 0 else ""
    said = _of_one(what) if len(jobs) == 1 else what
    return Finding(level, code, f"{count(f'{len(jobs):,}', 'job')} {said} ({named}{tail})", len(jobs))


def _of_one(what: str) -> str:
    """What is said of several jobs, as it is said of one."""
    verb, _, rest = what.partition(" ")
    one = {"are": "is", "have": "has", "can": "can"}.get(verb, f"{verb}s")
    return f"{one} {rest}".replace("they end", "it ends").replace("their run time", "its run time")


def _sentence(spec: JobSpec, shortfall: Shortfall, types: Sequence[str]) -> str:
    lack, need, most = shortfall.lack, f"{shortfall.need:.0f}", f"{shortfall.most:.0f}"
    least = " at least" if spec.sizes else ""
    if lack is Lack.GPUS:
        return f"needs {count(spec.gpus, 'GPU')}{least} {_where(spec)} {most}"
    if lack is Lack.AT_ONCE and spec.multi_node:
        gpus = count(spec.gpus, "GPU")
        return f"needs {gpus}{least}, the nodes of its pool have memory and cores for {most} of its ranks"
    texts = {
        Lack.NODES: f"no node is in pool {spec.pool!r}; with any pool taken (--any-pool) it may run",
        Lack.GPU_TYPE: f"needs GPU type {spec.gpu_type}, there are {', '.join(types) or 'no GPUs'}",
        Lack.GPU_MEMORY: _memory_sentence(spec, shortfall),
        Lack.CORES: f"needs {count(need, 'core')} on one node, the largest has {most}: lower them, or take a larger",
        Lack.HOST_MEMORY: f"needs {need} bytes of host memory, the largest node has {most}",
        Lack.HOST_BANDWIDTH: f"needs {need} bytes/s to host memory, the fastest node has {most}",
        Lack.AT_ONCE: "no single node has all of the GPUs, cores and memory it needs",
    }
    return texts[lack]


def _where(spec: JobSpec) -> str:
    if not spec.multi_node:
        return "on one node, the largest has"
    each = f", {spec.gpus_per_node} on each" if spec.gpus_per_node else ""
    return f"over several nodes{each}, its pool has"


def _memory_sentence(spec: JobSpec, shortfall: Shortfall) -> str:
    if shortfall.need > shortfall.most:
        return f"needs {shortfall.need:.0f} bytes of GPU memory, the largest GPU has {shortfall.most:.0f}"
    return f"needs {count(spec.gpus, 'GPU')} with {shortfall.need:.0f} bytes of memory on one node, none has so many"
