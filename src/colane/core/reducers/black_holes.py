"""Nodes on which jobs of many fail at their start while others run: they are taken out, tried again, and brought back.

Such a node swallows the queue: it is free again within seconds, so it gets the next job. A user's broken script looks
different: its jobs fail on every node, and they are of one user. So a node is blamed only for quick failures in a row
that are of several users and, as far as is known, would have run elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from colane.core.cluster.state import ClusterState
from colane.core.events import Ended
from colane.core.reducers.step import Step
from colane.core.reducers.suspicions import CLOSED_S, QUICK_S, kind_of
from colane.model.hardware import Closed
from colane.model.job import Job, JobState


def note(step: Step, job: Job, event: Ended) -> None:
    """An attempt has ended; if it has run, that speaks for its nodes."""
    if job.placement is not None and _has_run(job, event):
        for node in job.placement.nodes:
            step.suspicions.ran(node, kind_of(job), step.now_s)


def blame(step: Step, job: Job, event: Ended) -> str:
    """An attempt has failed: why that is its node's fault, which is then taken out; empty where it is the job's."""
    if not step.config.black_holes or job.placement is None or len(job.placement.nodes) > 1 or _has_run(job, event):
        return ""
    if job.state is JobState.STOPPING or event.outcome in {"out-of-memory", "mps-fault"}:
        return ""
    node, suspicions = job.placement.node, step.suspicions
    suspicions.failed(node, kind_of(job), step.now_s)
    why = suspicions.evidence(step.state, node, step.now_s)
    if not why or not _others_serve(step.state, node):
        return ""
    close(step, node, why, CLOSED_S)
    return why


def close(step: Step, node: str, why: str, first_s: float) -> None:
    """Take a node out, at first for this long, each time for twice as long until a job has run there."""
    closed = Closed(why, step.now_s + step.suspicions.struck(node, first_s))
    step.state.put_node(replace(step.state.nodes[node].node, closed=closed))
    step.timers.wake(closed.until_s)
    step.touch(node)


def _has_run(job: Job, event: Ended) -> bool:
    """Whether an attempt got further than its start."""
    start_s = event.start_s if event.start_s is not None else event.end_s
    succeeded = event.outcome == "exited" and event.exit.code == 0
    return succeeded or job.first_step_s is not None or event.end_s - start_s >= QUICK_S


def _others_serve(state: ClusterState, node: str) -> bool:
    """Whether another node of its pool takes jobs: the last one is never taken out."""
    pool = state.nodes[node].node.pool
    others = [known.node for name, known in state.nodes.items() if name != node and known.node.pool == pool]
    return any(other.takes_jobs and (not other.gpus or any(gpu.healthy for gpu in other.gpus)) for other in others)


def look(step: Step) -> None:
    """Bring back the nodes whose time is over."""
    for name in list(step.state.closed) if step.state.closed else ():
        node = step.state.nodes[name].node
        if node.closed is None or node.closed.until_s > step.now_s:
            continue
        step.state.put_node(replace(node, closed=None))
        step.touch(name)
