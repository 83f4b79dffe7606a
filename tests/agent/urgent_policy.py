"""A policy for tests of parking: who is more urgent has the devices, who has them meanwhile waits parked."""

from __future__ import annotations

from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobState
from colane.model.plan import Plan
from colane.model.reason import Reason, Why


class Urgent:
    """Parks what runs while a job of a higher priority waits; serves free devices of one GPU jobs in that order."""

    name = "urgent"

    def plan(self, view: ClusterView) -> Plan:
        """Serve by priority, then make room for the first who still waits."""
        draft = Draft(view)
        waiting = sorted((view.job(id_) for pool in view.pools for id_ in view.queue(pool)), key=_urgency)
        late = [job for job in waiting if not _serve(draft, job) and not job.home][:1]
        for job in sorted(view.jobs.values(), key=_urgency):
            if late and job.spec.priority < late[0].spec.priority and _may_park(view, job):
                draft.park(job, Reason(Why.PARKED, {"because": f"job {late[0].id} is urgent"}), for_job=late[0].id)
        return draft.plan()


def _urgency(job: Job) -> tuple[int, int]:
    return -job.spec.priority, job.id


def _may_park(view: ClusterView, job: Job) -> bool:
    return job.state is JobState.RUNNING and view.parking_refusal(job) is None


def _serve(draft: Draft, job: Job) -> bool:
    """Start a job, or bring it back, where a device is free."""
    for kind in draft.view.gpu_types(job.spec.pool, job.spec.gpu_type):
        homes = draft.homes(job) if job.home else ()
        nodes = map(draft.view.node_at, draft.free((job.spec.pool, kind)).nodes_with(1)) if not job.home else ()
        loads = [*homes, *(load for node in nodes for load in draft.free_gpus(node, kind))]
        free = next((load for load in loads if load.is_free), None)
        if free is not None:
            draft.start(job, [free], Reason(Why.FREE_GPU, {"gpu": str(free.id)}))
            return True
    return False
