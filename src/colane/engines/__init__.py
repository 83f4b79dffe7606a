"""What starts a scheduler's agents.

`local` starts that of this machine (`colane up`), `ssh_nodes` those of machines that ssh reaches (`colane node add`),
`slurm` those in pilots (`colane up --engine slurm`), `ray` those on a Ray cluster (`colane up --engine ray`).

Engines start and supervise agents, and decide nothing: leases, heartbeats and what runs where are the scheduler's.
"""

from __future__ import annotations

from typing import Protocol


class EngineError(Exception):
    """What was to be started does not run; the message is one line that names the fix.

    Attributes:
        exit_code: Of the process that failed, where one did; its own words on standard error are then the message.
    """

    def __init__(self, message: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Engine(Protocol):
    """Starts agents and keeps them there. All three raise `EngineError` where that cannot be."""

    def start(self) -> None:
        """Start the agents, and return once the scheduler has heard of them."""

    def watch(self, max_s: float | None = None) -> None:
        """Keep them there for so many seconds, for ever without a bound."""

    def stop(self) -> None:
        """Stop the agents; nothing of them is left, and it does no harm where there are none."""
