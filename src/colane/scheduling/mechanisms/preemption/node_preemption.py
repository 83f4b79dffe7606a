"""What a node has for ranks of a waiting job: what is free, what comes free, and what would if jobs left.

A job that waits for a place of enough utility declines any other, so none is to leave for one that it would decline.
The terms of the utility (paper C) are weighed alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobSpec
from colane.model.resources import host_needs
from colane.perf.estimates import profile_key
from colane.perf.topology import comm_of, shape_of_node
from colane.perf.utility import job_utility
from colane.perf.views import harm_beside
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.mechanisms.preemption.victims import NodeVictims, Unit, amount_of
from colane.scheduling.mechanisms.topology.connected import least_utility
from colane.scheduling.mechanisms.topology.node_fit import Neighbour, Question, exact, interference
from colane.scheduling.mechanisms.topology.sites import residents
from colane.scheduling.mechanisms.topology.spread import spread_excess

EVERY_JOB = None
"""Whomever GPUs that come free are kept for."""

Takers = AbstractSet[JobId | None] | None
"""Jobs for which what comes free may be kept to count."""


class NodePreemption:
    """A node in a plan; `units` are the jobs that would leave the node in question.

    Args:
        context: Where it is asked.
        postpones: Whether a job is offered no place below the utility it asks for.
    """

    def __init__(self, context: SchedulingContext, *, postpones: bool = False) -> None:
        self._context = context
        self._postpones = postpones
        self._draft = context.draft

    def kinds(self, job: Job, spec: JobSpec) -> list[str]:
        """GPU types for a job, best first."""
        draft, preferred = self._draft, self._context.queue.preferred
        types = draft.view.gpu_types_for(spec)
        return fastest_first(draft, spec, types) if preferred is None else preferred(job, spec, types)

    def without_leaving(self, site: NodeVictims) -> int:
        """No more GPUs of a node than this are free or come free."""
        return len(site.coming) + sum(self._draft.free_count(site.node, kind) for kind in site.node.free)

    def gpus(
        self, site: NodeVictims, job: Job, spec: JobSpec, takers: Takers, units: Iterable[Unit]
    ) -> tuple[GpuLoad, ...] | None:
        """GPUs of one type for all of a job, if those of `units` and those kept for `takers` come free."""
        if job.home and (job.placement is None or job.placement.node != site.node.node.name):
            return None
        if not self.has_host(site, job, spec, spec.gpus, takers, units):
            return None
        for kind in self.kinds(job, spec):
            loads = self.loads(site, job, spec, kind, takers, units)
            found = self._good(site, job, spec, loads) if len(loads) >= spec.gpus else None
            if found is not None:
                return found
        return None

    def starts_on(self, job: Job, spec: JobSpec, parts: Sequence[tuple[NodeState, Sequence[GpuLoad]]]) -> bool:
        """Whether a job would not decline these GPUs of several nodes."""
        least = self._least(job)
        return not least or utility_over_nodes(self._draft, spec, parts) >= least

    def _good(self, site: NodeVictims, job: Job, spec: JobSpec, loads: list[GpuLoad]) -> tuple[GpuLoad, ...] | None:
        """The first of these GPUs; of a job that asks for a utility the best, if they are good enough for it."""
        least = self._least(job)
        if not least:
            return tuple(loads[: spec.gpus])
        return best_emptied(self._draft, site.node, spec, loads, least)

    def _least(self, job: Job) -> float:
        """One that waits parked goes on where it is."""
        return least_utility(self._context, job) if self._postpones and not job.home else 0.0

    def has_host(
        self, site: NodeVictims, job: Job, spec: JobSpec, ranks: int, takers: Takers, units: Iterable[Unit]
    ) -> bool:
        """Whether a node would have the cores, the host memory and its bandwidth that so many ranks book."""
        draft, node, need = self._draft, site.node, host_needs(spec, ranks)
        cores = len(draft.cores_free(node)) + amount_of(site.cores, takers)
        if cores + sum(u.cores for u in units) < need.cores:
            return False
        host_bytes = draft.host_memory_free_bytes(node) + amount_of(site.host_memory_bytes, takers)
        if not job.home and host_bytes + sum(u.host_memory_bytes for u in units) < need.host_memory_bytes:
            return False
        bandwidth = draft.host_bandwidth_free(node) + amount_of(site.host_bandwidth, takers)
        return bandwidth + sum(u.host_bandwidth for u in units) >= need.host_bandwidth_bytes_per_s

    def loads(
        self, site: NodeVictims, job: Job, spec: JobSpec, kind: str, takers: Takers, units: Iterable[Unit]
    ) -> list[GpuLoad]:
        """GPUs of a type that it fits on; a caller that asks for more takers gets the same ones first."""
        return [load for load in self._loads(site, job, kind, takers, units) if self._draft.fits_alone(load, spec)]

    def _loads(
        self, site: NodeVictims, job: Job, kind: str, takers: Takers, units: Iterable[Unit]
    ) -> Iterator[GpuLoad]:
        """Those made free for the job first, then free ones, then what is promised to none, then to others."""
        draft = self._draft
        homes = {load.id for load in draft.homes(job)} if job.home else None
        made = [coming.gpu for coming in site.coming if coming.kept_for == job.id]
        made += [gpu for unit in units for gpu in unit.gpus]
        free = [load.id for load in draft.free_gpus(site.node, kind)]
        rest = [coming for coming in site.coming if coming.kept_for != job.id]
        rest = [coming for coming in rest if takers is None or coming.kept_for in takers]
        others = [coming.gpu for coming in sorted(rest, key=lambda coming: (coming.kept_for or 0, coming.gpu))]
        for gpu in (*sorted(made), *free, *others):
            load = draft.load(gpu)
            untouched = load is draft.view.gpu(gpu)
            kept = load.returning or gpu in draft.held or (homes is not None and gpu not in homes)
            usable = load.is_usable if homes is None else load.gpu.healthy
            if untouched and load.gpu.type == kind and usable and not kept:
                yield load


# -- whether a job would start on GPUs that others leave for it


def best_emptied(
    draft: Draft, node: NodeState, spec: JobSpec, loads: Sequence[GpuLoad], least: float
) -> tuple[GpuLoad, ...] | None:
    """Of GPUs of a node, those on which a job's utility is highest once all are empty; None where it is below `least`.

    Args:
        draft: Decisions so far.
        node: Where they are.
        spec: A job of so many of them at most.
        loads: GPUs of one type that are free, or that all jobs on them leave.
        least: Utility that the job asks for.
    """
    by_number = {load.id.number: load for load in loads}
    fits = exact(_question(draft, node, spec, loads, spec.gpus))
    best = max(fits, key=lambda fit: fit.job, default=None)
    return None if best is None or best.job < least else tuple([by_number[gpu] for gpu in best.gpus])


def utility_over_nodes(draft: Draft, spec: JobSpec, parts: Iterable[tuple[NodeState, Sequence[GpuLoad]]]) -> float:
    """Utility of a job on GPUs of several nodes once these are empty."""
    asked = [(_question(draft, node, spec, loads, len(loads)), _numbers(loads)) for node, loads in parts]
    suffered = max([interference(question, question.shape.sockets_of(gpus))[0] for question, gpus in asked])
    shaped = [(question.shape, gpus) for question, gpus in asked]
    return job_utility(spread_excess(shaped, comm_of(spec), on_each=spec.gpus_per_node), suffered)


def _question(draft: Draft, node: NodeState, spec: JobSpec, loads: Sequence[GpuLoad], ranks: int) -> Question:
    """The job on a GPU among these leaves; all others on the node remain."""
    shape, key, emptied = shape_of_node(node.node), profile_key(spec, loads[0].gpu.type), set(_numbers(loads))
    stay = [one for one in residents(draft, node) if emptied.isdisjoint(one.gpus)]
    beliefs = draft.beliefs
    near = [
        Neighbour(shape.sockets_of(one.gpus), harm_beside(beliefs, key, one.key), harm_beside(beliefs, one.key, key))
        for one in stay
    ]
    relevant = tuple(sorted([one for one in near if one.suffered or one.caused]))
    return Question(shape, sum([1 << gpu for gpu in emptied]), relevant, ranks, comm_of(spec))


def _numbers(loads: Sequence[GpuLoad]) -> tuple[int, ...]:
    return tuple([load.id.number for load in loads])
