"""Whether a job would start on GPUs that others leave for it: by the utility it asks for at least.

A job that waits for a place of enough utility declines any other, so none is to leave for one that it would decline.
The terms of the utility (paper C) are weighed alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.job import JobSpec
from colane.perf.estimates import profile_key
from colane.perf.topology import comm_of, shape_of_node
from colane.perf.utility import job_utility
from colane.perf.views import harm_beside
from colane.scheduling.mechanisms.topology.node_fit import Neighbour, Question, exact, interference
from colane.scheduling.mechanisms.topology.sites import residents
from colane.scheduling.mechanisms.topology.spread import spread_excess


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
    return job_utility(spread_excess(shaped, comm_of(spec), apart=spec.anti_collocation), suffered)


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
