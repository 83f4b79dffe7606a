"""Exhaustive answers for small worlds."""

from __future__ import annotations

from itertools import combinations

from colane.core.cluster.state import ClusterState
from colane.model.hardware import GpuId
from colane.model.job import JobSpec


def any_free_place(state: ClusterState, spec: JobSpec) -> bool:
    """Whether some node has a set of free GPUs, cores and memory for a job alone."""
    for node in state.nodes.values():
        if node.node.pool != spec.pool:
            continue
        if node.cores_free < spec.cores or node.host_memory_free_bytes < spec.host_memory_bytes:
            continue
        if node.host_bandwidth_free < spec.host_bandwidth_bytes_per_s:
            continue
        loads = [state.gpus[GpuId(node.node.name, gpu.index)] for gpu in node.node.gpus]
        for chosen in combinations(loads, spec.gpus):
            types = {load.gpu.type for load in chosen}
            memory = state.beliefs.memory(spec, chosen[0].gpu.type)
            suits = len(types) == 1 and spec.gpu_type in (None, *types) and all(load.is_free for load in chosen)
            if suits and (memory is None or all(sum(memory) <= load.capacity_bytes for load in chosen)):
                return True
    return False
