"""Which of several optimizers ends an iteration, learnt from the order in which they step.

One optimizer: each of its steps ends an iteration. A GAN's two take turns (D G D G): the last of the round does.
Where one steps more often than the other (five times D, then G), it is the frequent one; where one follows the
other for good (a second training in the same script), both. Pure; keys are whatever tells optimizers apart.
"""

from __future__ import annotations

MANY = 64  # so many newcomers in a row are no round: they are optimizers made anew for each step

KNOWN_MAX = 4096


class Cycle:
    """Counts iterations from the steps of any number of optimizers."""

    __slots__ = ("_known", "_last", "_leader", "_owed")

    def __init__(self) -> None:
        self._leader: object = None
        self._last: object = None
        self._known: set[object] = set()
        self._owed = 0

    def event(self, key: object) -> int:
        """Return how many iterations have ended with this step.

        More than one when it turns out that earlier steps, taken for parts of an iteration, were whole ones.
        """
        repeated = key == self._last
        self._last = key
        if key == self._leader:
            owed, self._owed = self._owed, 0
            return 1 + owed if repeated else 1
        if key not in self._known:
            return self._meet(key)
        self._owed = 0
        if not repeated:
            return 0
        self._leader = key
        return 2

    def _meet(self, key: object) -> int:
        """Take a newcomer for the new end of the round; what that leaves uncounted is owed until it is known."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        is_first = self._leader is None
        self._known.add(key)
        self._leader = key
        if is_first:
            return 1
        self._owed += 1
        if self._owed < MANY:
            return 0
        self._owed = 0
        return MANY
