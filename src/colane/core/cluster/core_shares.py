"""Jobs whose cores are tuned, by node, and the nodes on which something has changed since cores were shared out."""

from __future__ import annotations

from colane.core.cluster.useful_cores import is_tuned
from colane.model.job import Job, JobId, JobState


class CoreShares:
    """An index over live jobs, see `core.cluster.contents`.

    Attributes:
        jobs: Jobs on one node that run and whose cores may be changed, by that node's name.
        due: Nodes of which something has changed, by order number.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[JobId, None]] = {}
        self.due: dict[int, None] = {}

    def touched(self, node: int) -> None:
        """What a node is, or carries, has changed, or it is new."""
        self.due[node] = None

    def removed(self, node: int) -> None:
        """A node has gone."""
        self.due.pop(node, None)

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other; None before it came, and once it has ended."""
        before = None if old is None else shared_out_on(old)
        after = None if new is None else shared_out_on(new)
        if before == after:
            return
        if old is not None and before is not None:
            self.jobs[before].pop(old.id, None)
        if new is not None and after is not None:
            self.jobs.setdefault(after, {})[new.id] = None


def shared_out_on(job: Job) -> str | None:
    """The node whose cores a job shares with others there as they come free; None where its cores stay as they are."""
    placement = job.placement
    if job.state is not JobState.RUNNING or placement is None or len(placement.nodes) != 1:
        return None
    return placement.node if job.constraints.cores is not None and is_tuned(job.effective) else None
