"""What the agent asks of the scheduler; `colane.client.agent_link.AgentLink` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from colane.api.nodes import FinishedAnswer, FinishedJobsAnswer, LaunchObject, NodeObject
from colane.api.reports import FinishedObject, RegistrationObject, ReportObject


class Scheduler(Protocol):
    """The agent's side of the scheduler's REST API.

    Every method raises `SchedulerUnreachable` when there is no answer, and another `SchedulerError` with the
    answer's `status` when the scheduler refuses.
    """

    async def register(self, node: RegistrationObject) -> NodeObject:
        """Make this node known; refused with 409 while another live agent has its name."""
        ...

    async def report(self, name: str, report: ReportObject) -> NodeObject:
        """Tell what is here, and learn what shall be: the node object."""
        ...

    async def launch_info(self, job_id: int) -> LaunchObject:
        """Give what is needed to start a job."""
        ...

    async def finished(self, finished: FinishedObject) -> FinishedAnswer:
        """Tell that an attempt has ended; the answer tells how far the cluster is."""
        ...

    async def finished_together(self, ends: Sequence[FinishedObject]) -> FinishedJobsAnswer:
        """Tell that several attempts have ended, at most `ENDS_MAX`; refused with 405 by one that is older."""
        ...
