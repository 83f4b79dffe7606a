"""Which cluster this node's jobs are of: a scheduler whose records were lost counts its jobs from 1 again."""

from __future__ import annotations

import logging
from dataclasses import replace

from colane.agent.files.heard import KnownHistory
from colane.agent.files.jobdir import StateDir
from colane.agent.reconcile import Desired

log = logging.getLogger(__name__)

OLDER = (
    "a scheduler of this cluster that is older than the one this node follows answers (its start {told}, known is "
    "{known}): it is not obeyed. Two schedulers run; end the older one"
)


class Membership:
    """The cluster whose jobs are here, and what to do when the scheduler says that it is another one."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._refused = KnownHistory()

    def follow(self, cluster_id: str, desired: Desired, told: KnownHistory) -> Desired | None:
        """Return what shall run here, as far as that can be followed.

        Args:
            cluster_id: Of the scheduler that wants it; empty where it does not say.
            desired: What it wants.
            told: Its start, and how many events that cluster has had.

        Returns:
            The same; nothing at all while jobs of another cluster are still here: they end first. None where the
            scheduler is an older one of the same cluster than one that was followed: what it wants is out of date.
        """
        known = self._state.cluster_id
        if cluster_id in {"", known}:
            if self._is_older(told):
                return None
            self._state.note(told)
            return desired
        left = len(self._state.live()) if known else 0
        if left:
            log.warning("the scheduler is of another cluster than the %d jobs here: they are ended first", left)
            return replace(desired, jobs=())
        self._state.join(cluster_id)
        self._state.note(told)
        return desired

    def hears(self, cluster_id: str, told: KnownHistory) -> bool:
        """Take note of what came with another answer; False where it came from an older scheduler."""
        if cluster_id != self._state.cluster_id:
            return True
        if self._is_older(told):
            return False
        self._state.note(told)
        return True

    def _is_older(self, told: KnownHistory) -> bool:
        """Whether a newer start was heard of, or another with the same number.

        A scheduler on an older copy of the store is none of these: by what this node reports it knows, and says that it
        is of another cluster.
        """
        known = self._state.heard
        if not told.epoch or told.epoch > known.epoch or told.epoch_id == known.epoch_id:
            return False
        if told != self._refused:
            log.warning("%s", OLDER.format(told=told.epoch, known=known.epoch))
            self._refused = told
        return True
