"""Whether the bandwidth of a node's memory is short by the doing of others, so that what runs there teaches nothing."""

from __future__ import annotations

from typing import Final

from colane.core.cluster.state import ClusterState
from colane.cpu.contention import ContentionConfig

FRESH_INTERVALS: Final = 2  # what was measured so many intervals ago says nothing of now


def is_contended(state: ClusterState, node: str, config: ContentionConfig | None, now_s: float) -> bool:
    """Whether a node was just seen to be short of bandwidth of which jobs without GPUs use a part.

    A job is not what it is alone while others take the bandwidth it needs. Training that is short of it by itself
    always is, and goes on teaching.
    """
    known = state.nodes.get(node)
    sample = None if known is None else known.bandwidth
    if config is None or known is None or sample is None or sample.at_s + FRESH_INTERVALS * config.interval_s < now_s:
        return False
    if sample.used_ratio is None or sample.used_ratio < config.threshold_ratio:
        return False
    jobs = {int(job): state.jobs[job] for job in known.jobs}
    return any(
        job in jobs and not jobs[job].effective.gpus and used >= config.used_min_ratio for job, used in sample.by_job
    )
