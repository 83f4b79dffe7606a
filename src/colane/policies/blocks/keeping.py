"""GPUs kept for a job that has waited too long."""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.draft import Draft
from colane.core.state import NodeState
from colane.model.job import Job


def keep_room(draft: Draft, job: Job) -> NodeState | None:
    """Let nobody else start on the node that comes nearest to having room for a job; None where none ever has.

    That is the node with the most free GPUs among those that have enough at all, so free GPUs there become more
    until the job starts.
    """
    nodes = _able(draft, job)
    best = max(nodes, key=lambda found: (found[0], -found[1].order), default=None)
    if best is None:
        return None
    free, node, gpu_type = best
    if free:
        draft.hold(job, list(draft.free_gpus(node, gpu_type)))
    return node


def _able(draft: Draft, job: Job) -> Iterator[tuple[int, NodeState, str]]:
    """Nodes that could hold a job if nobody else ran there, with their free GPUs."""
    spec = job.spec
    for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
        for node in draft.view.nodes.values():
            has_gpus = sum(gpu.type == kind and gpu.healthy for gpu in node.node.gpus) >= spec.gpus
            has_rest = len(node.node.cores) >= spec.cores and node.node.host_memory_bytes >= spec.host_memory_bytes
            if node.node.pool == spec.pool and has_gpus and has_rest:
                yield draft.free_count(node, kind), node, kind
