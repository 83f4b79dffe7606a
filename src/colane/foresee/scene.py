"""What is known of a pool at one moment, in the terms of the roll-outs: who runs, who waits, and in which order."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from colane.perf.estimates import LengthEstimates
from colane.perf.lengths import Lengths

LEFT_MIN_S: Final = 1.0  # no job that runs is taken to have less left

Rank = tuple[float, ...]

NOTHING_LEARNT: Final = Lengths()


class PresentJob(NamedTuple):
    """A live job of a pool."""

    job: int  # which
    owner: str  # whose jobs are like it, and of which family: `ann|train`
    gpus: int  # it asks for, or has
    had_s: float  # service it has had that counts
    left_s: float | None  # what it has left where that is told, as fast as it goes now; None where it is not
    most_s: float | None  # what it may still run by its limit; None without one
    slice_s: float | None  # after so much more service it loses its place in the order; None where it does not
    runs: bool  # whether it has its GPUs
    stays: bool  # whether none takes them from it
    rank: Rank  # its place in the order
    least_gpus: int = 0  # it would start with, where it can run on fewer
    level: Rank | None = None  # those of one pass each other where they fit; None passes none
    speed: float = 1.0  # beside what it runs with, over that alone where it is fastest

    def rest_s(self, length_s: float) -> float:
        """What is left of it where it is so long and no length is told, its limit counted."""
        left_s = max(LEFT_MIN_S, (length_s - self.had_s) / self.speed if self.left_s is None else self.left_s)
        return left_s if self.most_s is None else min(left_s, self.most_s)

    def in_place_s(self, left_s: float) -> float:
        """How long it keeps its place in the order where it has so much left."""
        return left_s if self.slice_s is None else min(left_s, max(LEFT_MIN_S, self.slice_s))


class PoolScene(NamedTuple):
    """A pool at one moment."""

    now_s: float  # the time
    gpus: int  # that jobs of it may have
    present: list[PresentJob]  # its live jobs that have GPUs or may get some, by submission
    law: LengthEstimates = NOTHING_LEARNT  # how long jobs of each family run, as decisions go by it
    cleared: frozenset[int] = frozenset()  # jobs for which others leave their GPUs just now

    def is_beyond(self, one: PresentJob) -> bool:
        """Whether a job waits for more GPUs than there are: it does not start as things are, whatever ends."""
        return not one.runs and (one.least_gpus or one.gpus) > self.gpus

    def middle_s(self, one: PresentJob) -> float:
        """Return the middle of what is believed to be left of a job; infinite where its family tells nothing either."""
        family = one.owner.partition("|")[2]
        tells = one.left_s is None and self.law.tells(family)
        return one.rest_s(one.had_s + self.law.rest(family, one.had_s).p50_s if tells else inf)
