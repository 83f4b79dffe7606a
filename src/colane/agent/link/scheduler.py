"""What the agent asks of the scheduler; `colane.client.agent_link.AgentLink` is the real one."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]


class Scheduler(Protocol):
    """The agent's side of the scheduler's REST API.

    Every method raises `SchedulerUnreachable` when there is no answer, and another `SchedulerError` with the
    answer's `status` when the scheduler refuses.
    """

    async def register(self, node: Object) -> Object:
        """Make this node known; refused with 409 while another live agent has its name."""
        ...

    async def report(self, name: str, report: Object) -> Object:
        """Tell what is here, and learn what shall be: the node object."""
        ...

    async def launch_info(self, job_id: int) -> Object:
        """Give what is needed to start a job."""
        ...

    async def finished(self, finished: Object) -> Object:
        """Tell that an attempt has ended; the answer tells how far the cluster is."""
        ...
