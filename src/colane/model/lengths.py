"""How long jobs of a family ran: what is kept of those that have ended."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import floor, log2
from typing import Final, NamedTuple

BINS_PER_OCTAVE: Final = 4  # so many bins from one length to its double


BIN_MAX: Final = 31 * BINS_PER_OCTAVE
"""Of 68 years and more; what ends within a second is in bin 0. So no record has more than 125 bins."""


JOBS_MAX: Final = 1000.0  # once a record has so many jobs, all of them count half: what comes later says more


HALVINGS_MAX: Final = 8  # so many are kept: what came before them counts next to nothing


class LengthBin(NamedTuple):
    """Jobs that ran for much the same time."""

    number: int  # of the bin: times from 2^(number / 4) seconds up to 2^((number + 1) / 4)
    jobs: float  # how many; not a whole number once older ones count less


class FamilyLengths(NamedTuple):
    """How long the jobs of one family ran until they succeeded, over all their attempts, pauses left out."""

    family: str  # whose
    bins: tuple[LengthBin, ...] = ()  # ascending; those without jobs are left out
    halved_s: tuple[float, ...] = ()  # when all came to count half, the last times

    @property
    def jobs(self) -> float:
        """How many it is made of."""
        return sum([one.jobs for one in self.bins])

    def part_of(self, since_s: float) -> float:
        """What a job that ended then counts now: so much, too, one that came then and has not ended."""
        return float(0.5 ** (len(self.halved_s) - bisect_right(self.halved_s, since_s)))

    def with_job(self, service_s: float, now_s: float = 0.0) -> FamilyLengths:
        """The same with one more job, that ran for so many seconds and has ended now."""
        number, bins = bin_of(service_s), self.bins
        at = bisect_left(bins, LengthBin(number, 0.0))
        is_there = at < len(bins) and bins[at].number == number
        one = LengthBin(number, bins[at].jobs + 1.0 if is_there else 1.0)
        bins, halved_s = (*bins[:at], one, *bins[at + is_there :]), self.halved_s
        if self.jobs + 1 > JOBS_MAX:
            bins = tuple([LengthBin(one.number, 0.5 * one.jobs) for one in bins])
            halved_s = (*halved_s, now_s)[-HALVINGS_MAX:]
        return FamilyLengths(self.family, bins, halved_s)


def bin_of(service_s: float) -> int:
    """Return the bin of a time in seconds."""
    return min(BIN_MAX, floor(log2(service_s) * BINS_PER_OCTAVE)) if service_s > 1.0 else 0
