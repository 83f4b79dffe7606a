"""The least change with which a job that waits would start now: a copied core is asked with that one need otherwise."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from colane.core.core import Core
from colane.core.events import Tick
from colane.model.job import Job, JobId
from colane.model.job_spec import JobSpec, under
from colane.server.planning.copies import ask
from colane.server.planning.plans import SmallerNeed, Value, smaller_than

BUDGET_S: Final = 0.5
ONE_BY_ONE_MAX: Final = 16  # so many values of a need are each tried


class LeastChange(NamedTuple):
    """One need otherwise: the field of a request, its value, and both as `colane submit` takes them."""

    field: str
    value: Value
    option: str


def least_changes(core: Core, job_id: JobId, now_s: float, budget_s: float = BUDGET_S) -> list[LeastChange]:
    """Return by which single changes a waiting job would start at once, of each need the least.

    Copies of this process are asked, so the core is left as it was. Of many values of a need it is taken that where one
    will do, so will all that ask for less.

    Args:
        core: In step with what is known.
        job_id: A live job.
        now_s: Now.
        budget_s: How long a look at all needs may take; what was found by then is told.
    """
    job, until_s, found = core.state.jobs.get(job_id), monotonic() + budget_s, list[LeastChange]()

    if job is None or not job.is_waiting or job.holds:
        return []

    def starts(need: SmallerNeed | None = None, value: Value = None) -> bool:
        spec = job.spec if need is None else replace(job.spec, **need.fields(value))
        return monotonic() < until_s and ask(partial(_starts_with, core, job, spec, now_s))

    if starts():
        return []
    for need in _otherwise(job, core):
        values = need.values
        best: SmallerNeed | Value = need
        if len(values) <= ONE_BY_ONE_MAX:
            best = next((value for value in reversed(values) if starts(need, value)), need)
        elif starts(need, values[0]):
            place = bisect_left(range(1, len(values)), True, key=lambda place: not starts(need, values[place]))
            best = values[place]
        if not isinstance(best, SmallerNeed):
            found.append(LeastChange(need.field, best, need.said(best)))
    return found


def _starts_with(core: Core, job: Job, spec: JobSpec, now_s: float) -> bool:
    changed = job.copied()
    changed.spec, changed.effective = spec, under(spec, job.constraints)
    core.state.put_job(changed)
    outcome = core.step([Tick()], now_s, whole=True)
    return outcome.rejected is None and core.state.jobs[job.id].placement is not None


def _otherwise(job: Job, core: Core) -> Iterator[SmallerNeed]:
    """Yield needs that could be less, with the values to try, the least that is asked for first."""
    spec, nodes = job.spec, [node.node for node in core.state.nodes.values()]
    for need in smaller_than(spec, spec.gpus, nodes, step=spec.gpus_per_node or 1):
        if need.field != "gpus" or not spec.sizes:
            yield need
    for pool in dict.fromkeys(node.pool for node in nodes):
        if pool != spec.pool:
            yield SmallerNeed("pool", "--pool", [pool])
