"""How far one measurement of a slowdown is off, from what was measured again: by family, GPU type and way of sharing.

A set that is measured once more is off its mean so far by the errors of both: with n before, the square of what it is
off by is (1 + 1/n) times the variance of one measurement on average. A family's variance is drawn towards its world's,
and that towards what is usual, so that intervals hold what they promise on a noisy machine and are no wider than that
on a quiet one.
"""

from __future__ import annotations

from typing import Final

OFF_MAX: Final = 0.5
"""What a log is off by counts as so much at most: beyond that it is another job, or a window that others disturbed."""
USUAL_WEIGHT: Final = 2.0  # what is usual counts as so many measurements of a world
WORLD_WEIGHT: Final = 8.0  # its world's counts as so many of a family

World = tuple[str, str]  # a GPU type and a way of sharing


class Scatter:
    """What was seen of it; worked out anew from the measurements that the store keeps.

    Args:
        usual: Variance of the log of a slowdown measured once, where nothing tells.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._worlds: dict[World, dict[str, tuple[float, float]]] = {}

    def seen(self, world: World, family: str, off: float, measurements: int) -> None:
        """A log of a slowdown was off the mean of so many before it by so much."""
        families = self._worlds.setdefault(world, {})
        total, count = families.get(family, (0.0, 0.0))
        families[family] = total + min(OFF_MAX, abs(off)) ** 2 / (1.0 + 1.0 / measurements), count + 1.0

    def of(self, world: World, family: str) -> float:
        """Variance of the log of a slowdown of a job of a family, measured once."""
        families = self._worlds.get(world)
        if families is None:
            return self._usual
        total = sum([each[0] for each in families.values()])
        count = sum([each[1] for each in families.values()])
        whole = (USUAL_WEIGHT * self._usual + total) / (USUAL_WEIGHT + count)
        own, times = families.get(family, (0.0, 0.0))
        return (WORLD_WEIGHT * whole + own) / (WORLD_WEIGHT + times)

    def drop(self, family: str) -> None:
        """Forget what was seen of a family."""
        for families in self._worlds.values():
            families.pop(family, None)
