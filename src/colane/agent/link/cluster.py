"""Which cluster this node's jobs are of: a scheduler whose records were lost counts its jobs from 1 again."""

from __future__ import annotations

import logging
from dataclasses import replace

from colane.agent.reconcile import Desired
from colane.agent.running.jobdir import StateDir

log = logging.getLogger(__name__)


class Membership:
    """The cluster whose jobs are here, and what to do when the scheduler says that it is another one."""

    def __init__(self, state: StateDir) -> None:
        self._state = state

    def follow(self, cluster_id: str, desired: Desired, events: int = 0) -> Desired:
        """Return what shall run here, as far as that can be followed.

        Args:
            cluster_id: Of the scheduler that wants it; empty where it does not say.
            desired: What it wants.
            events: How many events that cluster has had.

        Returns:
            The same; nothing at all while jobs of another cluster are still here: they end first.
        """
        known = self._state.cluster_id
        if cluster_id in {"", known}:
            self._state.note_events(events)
            return desired
        left = len(self._state.live()) if known else 0
        if left:
            log.warning("the scheduler is of another cluster than the %d jobs here: they are ended first", left)
            return replace(desired, jobs=())
        self._state.join(cluster_id)
        self._state.note_events(events)
        return desired
