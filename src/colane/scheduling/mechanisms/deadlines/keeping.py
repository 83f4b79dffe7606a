"""Keeps promised deadlines in a plan, before the policy decides anything: whatever that is, it sees what is left.

As long as all jobs that may come save their state at once, a job with time left lends its GPUs: the policy gives them
to others, and it starts on what is left. From so long before as those take to leave no other comes to them, and they
leave once nothing else keeps the job from starting. One that runs is left alone by all that moves jobs. A job whose
GPUs are gone is the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from colane.core.cluster.contents import JobsOfKind, NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.model.job_spec import JobKind
from colane.model.plan import Stop
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Bind
from colane.scheduling.mechanisms.guarantees.keeping import gpus_of

BECAUSE = "it has a deadline to meet"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Starts what was promised in time, and takes its GPUs back from others."""

    def is_settled(self, view: ClusterView, pool: str) -> bool:
        return not view.derived(DeadlineJobs).of(pool)

    def keep(self, draft: Draft, pool: str, bind: Bind) -> bool:  # noqa: ARG002
        jobs, lends = draft.view.derived(DeadlineJobs).of(pool), False
        late_s = _latest_s(jobs) if jobs else {}
        for job in jobs:
            if job.placement is not None:
                draft.leave_alone(job.id)
            elif job.is_waiting:
                loads = _loads(draft, job)
                if loads:
                    lends = _serve(draft, pool, job, loads, late_s[job.id]) or lends
        return lends

    def fill(self, draft: Draft, pool: str, bind: Bind) -> None:  # noqa: ARG002
        """Start those that lend their GPUs on what the policy has no use for: their own, or others as good.

        Not on GPUs of a job with a deadline that goes before it on its own, nor on any such job's elsewhere.
        """
        jobs = [job for job in draft.view.derived(DeadlineJobs).of(pool) if job.id in draft.waits]
        before, seats = set[GpuId](), {gpu for job in jobs for gpu in gpus_of(job)}
        for job in jobs:
            loads = _loads(draft, job)
            if loads and not any(load.id in draft.held for load in loads):
                place = loads if all(load.is_free and load.id not in before for load in loads) else []
                if not place and len(loads) == 1:
                    place = _elsewhere(draft, job, loads[0], seats)
                if place and draft.has_room(draft.view.nodes[place[0].id.node], job.effective.at(len(place))):
                    del draft.waits[job.id]
                    draft.start(job, place, _reason(draft, job, place, Why.KEEPS_DEADLINE))
            before.update(gpus_of(job))


def _elsewhere(draft: Draft, job: Job, own: GpuLoad, seats: set[GpuId]) -> list[GpuLoad]:
    """A free GPU of the same kind for a job of one, on which it takes no longer; none without one."""
    for node in draft.view.nodes.values():
        if node.node.pool == job.spec.pool and node.node.takes_jobs and draft.has_room(node, job.effective):
            for load in draft.free_gpus(node, own.gpu.type):
                if load.id not in seats and not load.gpu.is_disturbed and draft.fits_alone(load, job.effective):
                    return [load]
    return []


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


def _serve(draft: Draft, pool: str, job: Job, loads: Sequence[GpuLoad], late_s: float) -> bool:
    """Start it on its GPUs, keep them for it, or lend them as long as they are left in time; whether it does that."""
    spec = job.effective.at(len(loads))
    mine = [load for load in loads if load.id not in draft.held]
    node = draft.view.nodes[loads[0].id.node]
    settle_s = job.constraints.promised.settle_s if job.constraints.promised is not None else None
    again_s = late_s if settle_s is None else late_s - settle_s
    lends = settle_s is not None and draft.now_s < again_s and not draft.view.derived(StayingJobs).of(pool)
    if lends and not draft.view.guarantees:
        draft.plan_again(pool, again_s)
    elif len(mine) == len(loads) and all(load.is_free for load in loads) and draft.has_room(node, spec, len(loads)):
        draft.start(job, loads, _reason(draft, job, loads, Why.KEEPS_DEADLINE))
        return False
    else:
        lends = False
        if draft.now_s < late_s:
            draft.plan_again(pool, late_s)
        elif len(mine) == len(loads):
            _vacate(draft, job, loads)
        draft.hold(job, [load for load in mine if load is draft.view.gpu(load.id)], spec)
    draft.wait(job.id, _reason(draft, job, loads, Why.DEADLINE_SEATS))
    draft.leave_alone(job.id)
    draft.plan_after_moves(pool)
    return lends


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
        return sorted(found.values(), key=lambda job: (job.due_s or inf, job.id)) if found else []


class StayingJobs(JobsOfKind):
    """Jobs that may come to further GPUs, and that are not sure to leave them at once when they are asked to."""

    def belongs(self, job: Job) -> bool:
        spec = job.effective
        if not spec.gpus or job.constraints.promised is not None or not (job.is_waiting or spec.sizes):
            return False
        leaves = spec.preemptible and job.spec.kind is not JobKind.INFERENCE
        return not leaves or (spec.checkpoint is not None and spec.checkpoint.lead_s > 0)
