"""An observer of a simulated workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from colane.core.events import Outcome
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running


class Watcher(Protocol):
    """An observer of a run."""

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """The core has answered."""

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """A process starts beside these others."""
