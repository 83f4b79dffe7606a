"""A policy that does everything a plan may do, at random: legal by what the draft answers, and without any purpose."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobState
from colane.model.phases import Throttle
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why

PARKED = Reason(Why.PARKED, {"because": "chance has it"})


class Shuffler:
    """Serves waiting jobs where they find free GPUs, and now and then changes one that runs."""

    name = "shuffler"
    turns = Turns()
    min_runtime_before_preemption_s = 0.0

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def plan(self, view: ClusterView) -> Plan:
        """At most one change of each running job, and starts of jobs for which there is room."""
        draft = Draft(view)
        if view.explain is None:
            changes: tuple[Callable[[Draft, Job], None], ...] = (_park, _park, _stop, _resize, _set_cores, _remark)
            for job in sorted(view.jobs.values(), key=lambda job: job.id):
                if job.state is JobState.RUNNING and self._random.random() < 0.3:
                    self._random.choice(changes if job.effective.gpus else (_set_throttle, _remark))(draft, job)
        for pool in view.pools:
            for job_id in view.queue(pool):
                self._serve(draft, view.job(job_id))
        return draft.plan()

    def _serve(self, draft: Draft, job: Job) -> None:
        if job.home:
            free = [load for load in draft.homes(job) if load.is_free]
            if free and draft.has_room_at_home(job):
                draft.start(job, [self._random.choice(free)], Reason(Why.FREE_GPU, {"gpu": str(free[0].id)}))
            return
        for kind in draft.view.gpu_types(job.spec.pool, job.effective.gpu_type):
            for order in draft.free((job.spec.pool, kind)).nodes_with(job.effective.gpus):
                node = draft.view.node_at(order)
                loads = [load for load in draft.free_gpus(node, kind) if draft.fits_alone(load, job.effective)]
                fits = len(loads) >= job.effective.gpus and draft.has_room(node, job.effective)
                if fits and job.effective.fits_one_node:
                    if self._random.random() < 0.2:
                        draft.hold(job, loads[: job.effective.gpus])
                    else:
                        draft.start(job, loads[: job.effective.gpus], Reason(Why.FREE_GPU, {"gpu": str(loads[0].id)}))
                    return


def _park(draft: Draft, job: Job) -> None:
    if draft.parking_refusal(job) is None:
        draft.park(job, PARKED)


def _stop(draft: Draft, job: Job) -> None:
    if job.effective.preemptible:
        draft.stop(job, Reason(Why.PREEMPTED, {"because": "chance has it"}, (job.id,)))


def _resize(draft: Draft, job: Job) -> None:
    """To other free GPUs of one node, or from some of its own to more or fewer: any of its sizes."""
    if not job.effective.preemptible or job.spec.gpus_per_node or job.placement is None:
        return
    sizes = job.effective.sizes or (job.effective.gpus,)
    spec = job.effective.at(sizes[(job.id + int(draft.now_s)) % len(sizes)])
    for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
        for order in draft.free((spec.pool, kind)).nodes_with(1):
            node = draft.view.node_at(order)
            own = [draft.load(gpu) for gpu in job.gpus_held if gpu.node == node.node.name][: job.id % 2]
            loads = own + [load for load in draft.free_gpus(node, kind) if draft.fits_alone(load, spec)]
            loads = loads[: spec.gpus]
            same = {load.id for load in loads} == set(job.placement.gpus)
            if len(loads) == spec.gpus and not same and draft.has_room(node, spec):
                facts: dict[str, str | int | float] = {"need": spec.gpus, "had": job.gpu_count, "because": "why not"}
                draft.resize(job, loads, Reason(Why.RESIZED, facts))
                return


def _set_cores(draft: Draft, job: Job) -> None:
    if job.placement is None or len(job.placement.nodes) > 1:
        return
    node = draft.view.nodes[job.placement.node]
    cores = tuple(sorted((*job.placement.cores, *draft.cores_free(node))))[:2]
    facts: dict[str, str | int | float] = {"cores": len(cores), "had": len(job.placement.cores), "because": "why not"}
    draft.set_cores(job, cores, Reason(Why.CORES_CHANGED, facts))


def _set_throttle(draft: Draft, job: Job) -> None:
    """Of a core or two to all it has, as far as that is free."""
    if job.placement is None:
        return
    node, held = draft.view.nodes[job.placement.node], job.throttle.withheld if job.throttle else ()
    whole = (*job.placement.cores, *held) if job.placement.cores else node.node.cores
    free = [core for core in whole if core in job.placement.cores or core in draft.cores_unbooked(node)]
    cores = tuple(sorted((free if job.placement.cores else whole)[: 1 + job.id % 4]))
    withheld = tuple([core for core in whole if core not in cores]) if job.placement.cores else ()
    ratio = 1.0 if job.id % 2 else 0.5
    throttle = None if cores == tuple(sorted(whole)) and ratio == 1 else Throttle(cores, withheld, ratio)
    draft.set_throttle(job, throttle, Reason(Why.TAKEN_TO_RUN))


def _remark(draft: Draft, job: Job) -> None:
    draft.remark(job, Reason(Why.TAKEN_TO_RUN))
