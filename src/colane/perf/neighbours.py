"""What is believed of jobs that run beside each other on one socket: how much slower they go (paper C, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from colane.model.profile import Profile, ProfileKey
from colane.perf.estimates import NeighbourEstimates

WORST_MIN = 0.3
"""Counts as the worst interference while nothing worse is known: the paper's own of two tiny batches (section 3.2)."""


MOVED_MIN = 0.01
"""A belief follows what is measured in moves of so much, so that not every stay has all places judged anew."""


class Beside(NamedTuple):
    """A job and the neighbour it was measured beside."""

    key: ProfileKey
    other: ProfileKey


class NeighbourMean(NamedTuple):
    """Mean slowdown of one pair and the samples behind it."""

    slowdown: float
    samples: int


class NeighbourBeliefs(NeighbourEstimates):
    """Slowdowns of jobs beside a neighbour on their socket: time beside it / time alone in the same place, at least 1.

    Unknown pairs do not disturb each other.

    Args:
        measured: Slowdowns to start from.

    Attributes:
        version: Grows with everything learnt.
    """

    def __init__(self, measured: Mapping[Beside, float] = MappingProxyType({})) -> None:
        self._means: dict[Beside, NeighbourMean] = {}
        self._worst: float | None = None
        self.version = 0
        for pair, slowdown in measured.items():
            self.learn(pair, slowdown)

    def __len__(self) -> int:
        return len(self._means)

    def knows(self, key: ProfileKey, other: ProfileKey) -> bool:
        """Whether the first was measured beside the second."""
        return Beside(key, other) in self._means

    def mean(self, key: ProfileKey, other: ProfileKey) -> NeighbourMean | None:
        """What is known of the first beside the second."""
        return self._means.get(Beside(key, other))

    def pairs(self) -> tuple[Beside, ...]:
        """All that were measured."""
        return tuple(self._means)

    def slowdown(self, key: ProfileKey, other: ProfileKey) -> float:
        """Of the first beside the second; 1 where it is not known."""
        known = self._means.get(Beside(key, other))
        return 1.0 if known is None else known.slowdown

    @property
    def worst(self) -> float:
        """Largest interference known: slowdown less 1."""
        if self._worst is None:
            found = max((mean.slowdown for mean in self._means.values()), default=1.0) - 1.0
            self._worst = max(WORST_MIN, found)
        return self._worst

    def learn(self, pair: Beside, slowdown: float) -> None:
        """Fold one measurement into the mean of its pair. Raises ValueError: it is not above 0."""
        if not slowdown > 0:
            raise ValueError(f"slowdown of {pair.key} beside {pair.other}: must be above 0, got {slowdown}")
        old = self._means.get(pair, NeighbourMean(0.0, 0))
        samples = old.samples + 1
        self._put(pair, NeighbourMean(old.slowdown + (max(1.0, slowdown) - old.slowdown) / samples, samples))

    def drop(self, family: str) -> None:
        """Forget what jobs of a family are like beside others, and others beside them."""
        self._means = {
            pair: mean for pair, mean in self._means.items() if family not in {pair.key.family, pair.other.family}
        }
        self._worst = None
        self.version += 1

    def believe(self, profile: Profile) -> None:
        """Take over the slowdowns of a profile; of several places the one where its GPUs are nearest to each other.

        Farther apart a job waits for its own communication, and a neighbour adds less to that.
        """
        nearest = {one.beside: one.ratio for one in reversed(profile.slowdowns)}
        for beside, ratio in nearest.items():
            pair, mean = Beside(profile.key, beside), max(1.0, ratio.value)
            known = self._means.get(pair)
            if known is None or abs(known.slowdown - mean) >= MOVED_MIN:
                self._put(pair, NeighbourMean(mean, ratio.samples))

    def _put(self, pair: Beside, mean: NeighbourMean) -> None:
        old = self._means.get(pair)
        self._means[pair] = mean
        if self._worst is not None and mean.slowdown - 1.0 >= self._worst:
            self._worst = mean.slowdown - 1.0
        elif self._worst is not None and old is not None and old.slowdown - 1.0 >= self._worst:
            self._worst = None  # the worst has become better: asked for when it is needed
        self.version += 1
