"""What is left of jobs whose owners tell no length, by how long those ran that have ended: the Gittins quotient.

A job that has run for some time ends within the next slice with some probability, and takes so much of it on average.
Of all slices that with the best chance for its time is counted: what it takes for one end, E[min(rest, slice)] /
P(rest <= slice), is what the job is expected to have left. Ranking by it gives the least mean time to the end where
lengths are drawn from a known distribution (Gittins, Glazebrook and Weber, Multi-armed Bandit Allocation Indices, 2011,
section 3; Aalto, Ayesta and Righter, On the Gittins index in the M/G/1 queue, 2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf, log2
from typing import Final, NamedTuple

from colane.model.lengths import FamilyLengths, bounds_s
from colane.perf.knowledge import LengthKnowledge

OTHERS_JOBS: Final = 4.0
"""What is known of all families together counts as so many jobs of each."""

MADE_UP: Final = (1.0, 2.0)
"""A job may be longer than any before: so many times the next made-up length, the less likely the more ran on."""

MADE_UP_MIN_S: Final = 64.0
MADE_UP_RATIO: Final = 4.0
"""The least made-up length, and how many times the one before each other is; the next is beyond all that have ended.

It does not grow with what a job has had: of two jobs longer than any before, the older is nearer to its end, and goes
on. If it had more left, alike jobs would take turns, and all of them would end last.
"""

AGES_PER_OCTAVE: Final = 16
"""Jobs are told apart by what they have had so finely: it is taken as 4 % less at most.

Never as more: a job would be taken to have outlived those of its length shortly before its end.
"""

ROUNDING: Final = 1e-9
"""By such a part of a time logarithms do not tell one from another for sure."""

NEWS_MIN: Final = 10.0
NEWS_PART: Final = 0.1
"""Jobs are judged anew once so many more have ended, and so large a part of all: what waits is then ranked anew.

The first ones say most: until there are so many, jobs are judged anew whenever there are twice as many.
"""


class Lengths(LengthKnowledge):
    """How long jobs of each family ran.

    What is noted is added up once it is asked for: where nothing asks, an end costs no more than to note it.
    """

    def __init__(self, known: Iterable[FamilyLengths] = ()) -> None:
        self._version = 0
        self._noted: list[tuple[str, float]] = []
        self._families = {one.family: one for one in known}
        self._judged = dict(self._families)
        self._news = 0
        self._all: dict[int, float] = {}
        self._jobs = 0.0
        self._mixed: dict[str, list[tuple[tuple[float, float], float]]] = {}
        self._known: dict[str, dict[int, float]] = {}
        self._look_at_all()

    @property
    def version(self) -> int:
        """Grows whenever jobs are judged otherwise than before."""
        self._add_up()
        return self._version

    def of_family(self, family: str) -> FamilyLengths | None:
        """What is known of a family."""
        self._add_up()
        return self._families.get(family)

    def note(self, family: str, service_s: float) -> None:
        """A job of it has ended, after so many seconds of service."""
        self._noted.append((family, service_s))

    def learn(self, family: str, service_s: float) -> FamilyLengths:
        """The same; the family's record with it."""
        self._add_up()
        return self._learn(family, service_s)

    def _add_up(self) -> None:
        if self._noted:
            noted, self._noted = self._noted, []
            for family, service_s in noted:
                self._learn(family, service_s)

    def _learn(self, family: str, service_s: float) -> FamilyLengths:
        known = self._families.get(family, FamilyLengths(family)).with_job(service_s)
        self._families[family] = known
        self._news += 1
        if self._news >= max(min(NEWS_MIN, self._jobs), NEWS_PART * self._jobs):
            self._judged = dict(self._families)
            self._look_at_all()
        return known

    def forget(self, family: str) -> None:
        """Know nothing of a family any more."""
        self._add_up()
        if self._families.pop(family, None) is not None:
            self._judged = dict(self._families)
            self._look_at_all()

    def left_s(self, family: str, had_s: float) -> float:
        """What is expected to be left of a job of unknown length that has had so many seconds of service."""
        self._add_up()
        if family not in self._judged:
            family = ""  # of all that nothing is known of by themselves as much is left
        known = self._known.setdefault(family, {})
        age = _age(had_s)
        left_s = known.get(age)
        if left_s is None:
            left_s = known[age] = self._quotient_s(family, 2.0 ** (age / AGES_PER_OCTAVE) if age >= 0 else 0.0)
        return left_s

    def same_until_s(self, had_s: float) -> float:
        """Up to how many seconds of service as much is left as after so many, while jobs are judged as they are."""
        return float(2.0 ** ((_age(had_s) + 1) / AGES_PER_OCTAVE)) * (1.0 - ROUNDING)

    def _quotient_s(self, family: str, had_s: float) -> float:
        mixed = self._mixed.get(family)
        if mixed is None:
            mixed = self._mixed[family] = self._mix(family)
        rests = [_Rest.of(bounds_s, jobs, had_s) for bounds_s, jobs in mixed if bounds_s[1] > had_s]
        made_up: float = (1.0 + sum([rest.jobs for rest in rests], 0.0)) ** -0.5
        longest_s = mixed[-1][0][0] if mixed else 0.0
        next_s = MADE_UP_MIN_S
        while next_s <= max(had_s, longest_s):
            next_s *= MADE_UP_RATIO
        for times in MADE_UP:
            rest_s = next_s * times - had_s
            rests.append(_Rest(rest_s, rest_s, made_up))
        return _quotient_s(sorted(rests))

    def _look_at_all(self) -> None:
        self._version += 1
        self._news = 0
        self._mixed.clear()
        self._known.clear()
        self._all.clear()
        for family in self._judged.values():
            for number, jobs in family.bins:
                self._all[number] = self._all.get(number, 0.0) + jobs
        self._jobs = sum(self._all.values(), 0.0)

    def _mix(self, family: str) -> list[tuple[tuple[float, float], float]]:
        """Bounds and weight of each bin, of this family and, as so many jobs, of all together."""
        part = min(1.0, OTHERS_JOBS / self._jobs) if self._all else 0.0
        weights = {number: part * jobs for number, jobs in self._all.items()}
        for number, jobs in self._judged.get(family, FamilyLengths(family)).bins:
            weights[number] += jobs
        return [(bounds_s(number), weights[number]) for number in sorted(weights)]


def _age(had_s: float) -> int:
    """By which jobs are told apart that have had so many seconds; below 0 up to the first."""
    return floor(log2(had_s) * AGES_PER_OCTAVE + ROUNDING) if had_s > 1.0 else -1


class _Rest(NamedTuple):
    """What is left at most, and on average, of lengths that so many jobs had."""

    most_s: float
    mean_s: float
    jobs: float

    @classmethod
    def of(cls, bounds_s: tuple[float, float], jobs: float, had_s: float) -> _Rest:
        """Of the lengths within these bounds that are longer, all of them as likely."""
        lower_s, upper_s = bounds_s
        from_s = max(lower_s, had_s)
        part = (upper_s - from_s) / (upper_s - lower_s)
        return cls(upper_s - had_s, (from_s + upper_s) / 2 - had_s, part * jobs)


def _quotient_s(rests: list[_Rest]) -> float:
    """The least time that an end takes on average, of all slices; by rests in order of the most that is left."""
    left, ended, spent_s, best_s = sum([rest.jobs for rest in rests], 0.0), 0.0, 0.0, inf
    for most_s, mean_s, jobs in rests:
        ended, spent_s, left = ended + jobs, spent_s + mean_s * jobs, left - jobs
        best_s = min(best_s, (spent_s + most_s * left) / ended)
    return best_s
