"""Keeps promised deadlines in a plan, before the policy decides anything: whatever that is, it sees what is left.

A job whose GPUs are free starts there; others leave them for it once nothing else keeps it from starting, and no other
job comes to them. One that runs is left alone by all that moves jobs. A job whose GPUs are gone is the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.model.plan import Stop
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Bind

BECAUSE = "it has a deadline to meet"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Starts what was promised in time, and takes its GPUs back from others."""

    def keeps_nothing(self, view: ClusterView, pool: str) -> bool:
        return not view.derived(DeadlineJobs).of(pool)

    def keep(self, draft: Draft, pool: str, bind: Bind) -> None:  # noqa: ARG002
        jobs = draft.view.derived(DeadlineJobs).of(pool)
        late_s = _latest_s(jobs) if jobs else {}
        for job in jobs:
            if job.placement is not None:
                draft.leave_alone(job.id)
            elif job.is_waiting:
                loads = _loads(draft, job)
                if loads:
                    _serve(draft, pool, job, loads, late_s[job.id])


def _loads(draft: Draft, job: Job) -> list[GpuLoad]:
    """Its GPUs; none where one of them is gone."""
    nodes, promised = draft.view.nodes, job.constraints.promised
    gpus = () if promised is None else promised.gpus
    if not all(gpu.node in nodes and gpu in nodes[gpu.node].ids.values() for gpu in gpus):
        return []
    loads = [draft.load(gpu) for gpu in gpus]
    return loads if all(load.is_usable for load in loads) else []


def _latest_s(jobs: Sequence[Job]) -> dict[JobId, float]:
    """When others are asked at the latest to leave the GPUs of each that waits, those behind it on these kept, too."""
    found: dict[JobId, float] = {}
    before_s: dict[GpuId, float] = {}
    for job in reversed(jobs):
        promised, due_s = job.constraints.promised, job.due_s
        if job.placement is None and promised is not None and due_s is not None:
            takes_s = due_s - promised.start_by_s
            late_s = found[job.id] = min([due_s, *[before_s.get(gpu, inf) for gpu in promised.gpus]]) - takes_s
            before_s.update(dict.fromkeys(promised.gpus, late_s))
    return found


def _serve(draft: Draft, pool: str, job: Job, loads: Sequence[GpuLoad], late_s: float) -> None:
    spec = job.effective.at(len(loads))
    mine = [load for load in loads if load.id not in draft.held]
    node = draft.view.nodes[loads[0].id.node]
    if len(mine) == len(loads) and all(load.is_free for load in loads) and draft.has_room(node, spec, len(loads)):
        draft.start(job, loads, _reason(draft, job, loads, Why.KEEPS_DEADLINE))
        return
    if draft.now_s < late_s:
        draft.plan_again(pool, late_s)
    elif len(mine) == len(loads):
        _vacate(draft, job, loads)
    draft.hold(job, [load for load in mine if load is draft.view.gpu(load.id)], spec)
    draft.wait(job.id, _reason(draft, job, loads, Why.DEADLINE_SEATS))
    draft.leave_alone(job.id)
    draft.plan_after_moves(pool)


def _vacate(draft: Draft, job: Job, loads: Sequence[GpuLoad]) -> None:
    """Stop those on its GPUs once all of them can leave: until then they go on there."""
    there = {other: draft.view.job(other) for load in loads for other in load.jobs}
    staying = [other for other in there.values() if not other.is_leaving]
    if all(other.is_movable and other.effective.preemptible for other in staying):
        for other in staying:
            if draft.is_undecided(other.id):
                draft.act(Stop(other.id, Reason(Why.PREEMPTED, {"because": BECAUSE}, (job.id,)), job.id))


def _reason(draft: Draft, job: Job, loads: Sequence[GpuLoad], why: Why) -> Reason:
    """With how long it has, and how much later it could start."""
    left_s, promised = (job.due_s or inf) - draft.now_s, job.constraints.promised
    slack_s = left_s if promised is None else promised.start_by_s - draft.now_s
    gpus = ", ".join(str(load.id) for load in loads)
    there: dict[JobId, GpuId] = {other: load.id for load in loads for other in load.jobs}
    facts: dict[str, str | int | float] = {"gpus": gpus, "left_s": left_s, "slack_s": slack_s}
    return Reason(why, facts, tuple(sorted(there)))


class DeadlineJobs(NodesMatterNot):
    """They."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[JobId, Job]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other."""
        if new is not None and new.constraints.promised is not None:
            self._jobs.setdefault(new.spec.pool, {})[new.id] = new
        elif old is not None and old.constraints.promised is not None:
            self._jobs[old.spec.pool].pop(old.id, None)

    def all(self) -> list[Job]:
        """Those of all pools."""
        return [job for jobs in self._jobs.values() for job in jobs.values()]

    def of(self, pool: str) -> list[Job]:
        """Those of a pool, in order of their deadlines."""
        found = self._jobs.get(pool)
        return sorted(found.values(), key=_due) if found else []


def _due(job: Job) -> tuple[float, JobId]:
    due_s = job.due_s
    return inf if due_s is None else due_s, job.id
