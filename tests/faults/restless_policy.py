"""A policy for tests of resizing: jobs of several sizes are resized and stopped for others without end."""

from __future__ import annotations

from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobState
from colane.model.plan import Plan
from colane.model.reason import Reason, Why

POOL = "default"
ASKED_EVERY_S = 0.2


class Restless:
    """Starts who waits on one device; others shrink for who waits, grow and shrink again, or are stopped."""

    name = "restless"

    def plan(self, view: ClusterView) -> Plan:
        """Serve who waits; then one job more changes its size, or gives way."""
        draft = Draft(view)
        late = [job for job in map(view.job, view.queue(POOL)) if not _serve(draft, job)]
        movable = [job for job in view.jobs.values() if job.state is JobState.RUNNING and job.effective.sizes]
        movable = sorted((job for job in movable if job.effective.preemptible), key=lambda job: job.id)
        large = [job for job in movable if job.gpu_count > 1]
        if large:
            _resize(draft, large[0], 1)
        elif (late or len(movable) > 1) and movable:
            draft.stop(movable[-1], Reason(Why.PREEMPTED, {"because": "it is restless"}, (movable[0].id,)))
        else:
            _grow(draft, movable)
        draft.plan_while_idle(POOL)
        draft.plan_after_moves(POOL)
        draft.plan_again(POOL, view.now_s + ASKED_EVERY_S)
        return draft.plan()


def _serve(draft: Draft, job: Job) -> bool:
    """Start a job where a device is free."""
    for kind in draft.view.gpu_types(POOL, job.spec.gpu_type):
        for order in draft.free((POOL, kind)).nodes_with(1):
            free = draft.free_gpus(draft.view.node_at(order), kind)[0]
            draft.start(job, [free], Reason(Why.FREE_GPU, {"gpu": str(free.id)}))
            return True
    return False


def _resize(draft: Draft, job: Job, gpus: int) -> None:
    loads = [draft.load(gpu) for gpu in job.gpus_held][:gpus]
    draft.resize(job, loads, Reason(Why.SHRUNK, {"had": job.gpu_count, "gpus": gpus}))


def _grow(draft: Draft, jobs: list[Job]) -> None:
    """Let the first job that can have one device more, where one of its node is free."""
    for job in jobs:
        node = draft.view.nodes[job.gpus_held[0].node]
        free = draft.free_gpus(node, draft.load(job.gpus_held[0]).gpu.type)
        size = job.gpu_count + 1
        if free and size in job.effective.sizes:
            loads = [draft.load(gpu) for gpu in (*job.gpus_held, free[0].id)]
            draft.resize(
                job, sorted(loads, key=lambda load: load.id), Reason(Why.GROWN, {"had": size - 1, "gpus": size})
            )
            return
