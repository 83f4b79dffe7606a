"""Nodes that are drained: no job starts there, and the jobs that are there go on elsewhere as far as they can.

A job that may be stopped is asked to save its state, if it has said how, and waits for its turn like others: wherever
the policy finds it a place next, at whatever of its sizes, it goes on. One that would lose its work finishes, as with
Slurm's drain, unless the drain has a deadline: a job still there then is stopped and queued again.

A job parked on the node's host goes on only there, so parking empties no node: it comes back to its GPU, and saves
there.
"""

from __future__ import annotations

from dataclasses import replace

from colane.core.cluster.draft import Draft
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.events import NodeDrained
from colane.core.reducers.step import Step
from colane.model.hardware import Drain
from colane.model.job import Job, JobState
from colane.model.job_spec import serves_elsewhere
from colane.model.phases import COMING_UP
from colane.model.plan import Plan
from colane.model.reason import Reason, Why


def drained(step: Step, event: NodeDrained) -> None:
    """A node is drained, or is not any more; the jobs there are seen to by `Drains`."""
    known = step.state.nodes.get(event.node)
    if known is None:
        step.stale.append((event, "no such node"))
        return
    old = known.node
    node = replace(old, notice=event.drain) if event.by_agent else replace(old, drain=event.drain)
    if node == old:
        return
    step.state.draining.pop(event.node, None)  # the deadline may be another one
    step.state.put_node(node)
    step.touch(event.node)


class Drains:
    """Lets the jobs of drained nodes go.

    Args:
        state: The cluster's state.
    """

    name = "drain"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def notice(self, step: Step) -> None:
        """The nodes whose deadline is over; that of the others is waited for."""
        for name in self._state.draining:
            leaves_s = self._state.nodes[name].node.leaves_s
            self._state.draining[name] = leaves_s <= step.now_s
            if leaves_s > step.now_s:
                step.timers.wake(leaves_s)

    def plan(self, view: ClusterView) -> Plan:
        """Stop the jobs that are to leave now."""
        draft = Draft(view)
        names = sorted(self._state.draining)
        for job_id in sorted({job for name in names for job in view.nodes[name].jobs}):
            job = view.job(job_id)
            here = [name for name in names if job.placement is not None and name in job.placement.nodes]
            over = [name for name in here if self._state.draining[name]]
            if here and leaves_now(job, is_over=bool(over), has_end=any(has_end(view, name) for name in here)):
                name = (over or here)[0]
                draft.stop(job, _reason(name, view.nodes[name].node.drains[0], is_over=bool(over)))
        return draft.plan()


def has_end(view: ClusterView, name: str) -> bool:
    """Whether the drain of a node has a deadline."""
    return any(drain.deadline_s is not None for drain in view.nodes[name].node.drains)


def leaves_now(job: Job, *, is_over: bool, has_end: bool) -> bool:
    """Whether a job of a drained node is stopped now.

    Protection after a launch is waited for where there is time; so is that after it could not save its state.
    """
    if job.state is JobState.STOPPING or is_over:
        return job.state is not JobState.STOPPING
    if job.state is JobState.CHECKPOINTING or not may_be_stopped(job):
        return False
    if job.state is JobState.RUNNING_PROTECTED:
        return has_end and not job.totals.saves_failed
    comes_back = job.parked and not job.suspended and job.effective.checkpoint is not None
    return not comes_back


def may_be_stopped(job: Job) -> bool:
    """Whether its owner allows that it is stopped, to go on or to be run again later."""
    lent = job.spec.abortable and not job.spec.gpus
    return lent or job.effective.preemptible or serves_elsewhere(job.spec, job.constraints)


def lets_go(state: ClusterState, job: Job) -> bool:
    """Whether a drained node lets a plan stop a job that it might not stop elsewhere."""
    nodes = [name for name in (job.placement.nodes if job.placement is not None else ()) if name in state.draining]
    if not nodes or job.state is JobState.STOPPING:
        return False
    passing = job.state in {*COMING_UP, JobState.RUNNING_PROTECTED} or serves_elsewhere(job.spec, job.constraints)
    return any(state.draining[name] for name in nodes) or (passing and may_be_stopped(job))


def _reason(name: str, drain: Drain, *, is_over: bool) -> Reason:
    return Reason(Why.DRAIN_OVER if is_over else Why.DRAINED, {"node": name, "because": drain.because})
