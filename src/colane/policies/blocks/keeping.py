"""GPUs kept for a job that has waited too long."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from colane.core.draft import Draft
from colane.core.state import NodeState
from colane.model.job import Job, JobSpec


def keep_room(draft: Draft, job: Job) -> list[NodeState]:
    """Let nobody else start on the node that comes nearest to having room for a job; empty where none ever has.

    That is the node with the most free GPUs among those that have enough at all, so free GPUs there become more
    until the job starts. For a job over several nodes, as many of those with the most free as it takes.
    """
    spec, kept, ranks = job.spec, list[NodeState](), 0
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type):
        nodes = sorted(_nodes(draft, spec, gpu_type), key=lambda node: (-draft.free_count(node, gpu_type), node.order))
        able = nodes if spec.multi_node else [node for node in nodes if _is_able(node, spec, gpu_type)]
        for node in able:
            kept.append(node)
            ranks += 1 if spec.anti_collocation else _healthy(node, gpu_type)
            if ranks >= spec.gpus:
                return _hold(draft, job, kept, gpu_type)
        kept, ranks = [], 0
    return []


def _hold(draft: Draft, job: Job, nodes: list[NodeState], gpu_type: str) -> list[NodeState]:
    for node in nodes:
        free = list(draft.free_gpus(node, gpu_type))
        if free:
            draft.hold(job, free)
    return nodes


def _nodes(draft: Draft, spec: JobSpec, gpu_type: str) -> Iterator[NodeState]:
    """Nodes of its pool with GPUs of the type."""
    for node in draft.view.nodes.values():
        if node.node.pool == spec.pool and _healthy(node, gpu_type):
            yield node


def _healthy(node: NodeState, gpu_type: str) -> int:
    return sum(gpu.type == gpu_type and gpu.healthy for gpu in node.node.gpus)


def _is_able(node: NodeState, spec: JobSpec, gpu_type: str) -> bool:
    """Whether a node could hold a job if nobody else ran there."""
    has_rest = len(node.node.cores) >= spec.cores and node.node.host_memory_bytes >= spec.host_memory_bytes
    has_rest = has_rest and spec.host_bandwidth_bytes_per_s <= (node.node.host_bandwidth_bytes_per_s or inf)
    return has_rest and _healthy(node, gpu_type) >= spec.gpus
