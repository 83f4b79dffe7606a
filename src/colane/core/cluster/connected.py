"""Which GPUs of a node are connected best for a job, of those that it may have."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from colane.core.cluster.contents import ConnectedGpus
from colane.model.hardware import GpuId, Node
from colane.model.job import JobSpec
from colane.perf.topology import best_order, comm_of, distinct_sets, excess, shape_of_node


def best_connected(node: Node, ids: Sequence[GpuId], spec: JobSpec, ranks: int, able: Sequence[GpuId]) -> ConnectedGpus:
    """Return the best connected GPUs for ranks of a job (paper C, section 4.1).

    Args:
        node: Where they are.
        ids: Its GPUs, in its order.
        spec: What the job asks for.
        ranks: How many of its ranks lie there, at least one and at most as many as may be taken.
        able: Those that may be taken, the ones to be taken rather first: of sets as good the one that needs fewest.
    """
    shape, comm, at = shape_of_node(node), comm_of(spec), {gpu: place for place, gpu in enumerate(ids)}
    best, least = [at[gpu] for gpu in able[:ranks]], inf
    for count in range(ranks, len(able) + 1):
        free = sum([1 << at[gpu] for gpu in able[:count]])
        for gpus in distinct_sets(shape, free, ranks):
            far = excess(shape, gpus, comm)
            if far < least:
                best, least = list(gpus), far
        if not least:
            break
    ordered = best_order(shape, tuple(sorted(best)), spec.comm_pattern) if ranks > 1 else tuple(best)
    return ConnectedGpus(tuple([ids[place] for place in ordered]), least)
