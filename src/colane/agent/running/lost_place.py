"""The agent's directory may be deleted under it: then nothing of its jobs can be followed or recorded any more."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from colane.agent.errors import AgentError
from colane.agent.files.jobdir import StateDir
from colane.agent.reconcile import Key
from colane.agent.running.jobs import Jobs

log = logging.getLogger(__name__)

SUPERVISOR_DIED = "supervisor-died"
END_MAX_S = 5.0  # jobs have their grace time and this long to end


class OwnPlace:
    """Where the agent keeps what it must know of its jobs."""

    def __init__(
        self, state: StateDir, jobs: Jobs, refuse: Callable[[Key, str, str], Awaitable[None]], grace_s: float
    ) -> None:
        """Begin.

        Args:
            state: The directory.
            jobs: What runs.
            refuse: Tells the scheduler of an end: of which attempt, why, and the outcome.
            grace_s: From SIGTERM to SIGKILL.
        """
        self._state = state
        self._jobs = jobs
        self._refuse = refuse
        self._end_max_s = grace_s + END_MAX_S

    async def unless_gone(self, round_: Callable[[], Awaitable[None]]) -> None:
        """Do something in it; where it is gone, end what runs.

        Raises AgentError: it was deleted or moved, or another is in its place.
        """
        try:
            if not self._state.is_gone():
                await round_()
                return
        except FileNotFoundError as error:  # what is being deleted goes file by file
            if not self._state.is_gone():
                log.warning("a file was deleted under the agent: %s", error)
                return
        problem = f"the state directory {self._state.root} was deleted, moved or replaced while the agent ran"
        for key in await self._jobs.abandon(self._end_max_s):
            await self._refuse(key, problem, SUPERVISOR_DIED)
        with suppress(OSError):  # then the next agent waits until this node is lost
            self._state.leave_identity()
        raise AgentError(f"{problem}: its jobs were stopped and are queued again; start it anew")
