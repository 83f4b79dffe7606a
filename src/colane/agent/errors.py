"""What an agent cannot mend itself."""

from __future__ import annotations


class AgentError(Exception):
    """The agent cannot go on; the message is one line for the person who started it."""


class NotLaunchableError(Exception):
    """One job can be started nowhere any more; the message is for its owner."""
