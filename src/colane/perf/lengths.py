"""What is left of jobs whose owners tell no length, by how long those ran that have ended: the Gittins quotient.

A job that has run for some time ends within the next slice with some probability, and takes so much of it on average.
Of all slices that with the best chance for its time is counted: what it takes for one end, E[min(rest, slice)] /
P(rest <= slice), is what the job is expected to have left. Ranking by it gives the least mean time to the end where
lengths are drawn from a known distribution (Gittins, Glazebrook and Weber, Multi-armed Bandit Allocation Indices, 2011,
section 3; Aalto, Ayesta and Righter, On the Gittins index in the M/G/1 queue, 2009).

The distribution is known only as well as the jobs that have ended tell it. Where a job seems to have more left than a
new one of its family, which would cost it its place, that is believed as far as is all but certain: else jobs that end
as likely whatever they have had would be stopped for others that are no better.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, floor, inf, log2
from typing import Final, NamedTuple

from colane.model.lengths import FamilyLengths, bounds_s
from colane.perf.knowledge import LengthKnowledge

OTHERS_JOBS: Final = 4.0
"""What is known of all families together counts as so many jobs of each."""

MADE_UP: Final = (1.0, 2.0)
"""A job may be longer than any before: so many times the next made-up length, the less likely the more ran on."""

MADE_UP_JOBS: Final = 0.5
"""Each of them counts as so many jobs where none ran on."""

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

DOUBT: Final = 1.5
"""By so many standard errors less than it seems a job is believed to have left, where that is more than a new one has.

The logarithm of a rate that n ends tell has a standard error of 1 / sqrt(n); that of the ratio of two follows.
"""

OUTLIVED_PART: Final = 1 / 3
"""This part of the made-up length that it has outlived a job is believed to have left, if it seems to.

What has not happened within a time takes a third of it or more on average, with 95 % certainty (rule of three: Hanley
and Lippman-Hand, If nothing goes wrong, is everything all right?, JAMA 249, 1983). It does not grow from one made-up
length to the next, as what is left of one that is longer than any before.
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
        self._mixed: dict[str, list[_Bin]] = {}
        self._new: dict[str, tuple[_Slice, float]] = {}
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

    def tells(self, family: str) -> bool:
        """Whether any job of a family has ended."""
        return self.of_family(family) is not None

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
            left_s = known[age] = self._believed_s(family, 2.0 ** (age / AGES_PER_OCTAVE) if age >= 0 else 0.0)
        return left_s

    def same_until_s(self, had_s: float) -> float:
        """Up to how many seconds of service as much is left as after so many, while jobs are judged as they are."""
        return float(2.0 ** ((_age(had_s) + 1) / AGES_PER_OCTAVE)) * (1.0 - ROUNDING)

    def _believed_s(self, family: str, had_s: float) -> float:
        """The quotient; where it is above that of a new job as much of it as the ends behind both tell for sure."""
        if family not in self._new:
            self._new[family] = self._best_slice(family, 0.0), _mean_s(self._mixed[family])
        new, mean_s = self._new[family]
        seems = self._best_slice(family, had_s) if had_s > 0.0 else new
        if seems.per_end_s <= new.per_end_s:
            return seems.per_end_s
        sure_s = seems.per_end_s * exp(-DOUBT * (1.0 / seems.ends + 1.0 / new.ends) ** 0.5)
        outlived_s = OUTLIVED_PART * _made_up_after(had_s) / MADE_UP_RATIO
        if outlived_s > mean_s:
            sure_s = max(sure_s, min(seems.per_end_s, outlived_s))
        return max(new.per_end_s, sure_s)

    def _best_slice(self, family: str, had_s: float) -> _Slice:
        mixed = self._mixed.get(family)
        if mixed is None:
            mixed = self._mixed[family] = self._mix(family)
        rests = [_Rest.of(one, had_s) for one in mixed if one.upper_s > had_s]
        made_up: float = MADE_UP_JOBS * (1.0 + sum([rest.jobs for rest in rests], 0.0)) ** -0.5
        longest_s = mixed[-1].lower_s if mixed else 0.0
        next_s = _made_up_after(max(had_s, longest_s))
        for times in MADE_UP:
            rest_s = next_s * times - had_s
            rests.append(_Rest(rest_s, rest_s, made_up, made_up))
        return _best_slice(sorted(rests))

    def _look_at_all(self) -> None:
        self._version += 1
        self._news = 0
        self._mixed.clear()
        self._new.clear()
        self._known.clear()
        self._all.clear()
        for family in self._judged.values():
            for number, jobs in family.bins:
                self._all[number] = self._all.get(number, 0.0) + jobs
        self._jobs = sum(self._all.values(), 0.0)

    def _mix(self, family: str) -> list[_Bin]:
        """Lengths of this family and, as so many jobs, of all together."""
        part = min(1.0, OTHERS_JOBS / self._jobs) if self._all else 0.0
        weights = {number: part * jobs for number, jobs in self._all.items()}
        for number, jobs in self._judged.get(family, FamilyLengths(family)).bins:
            weights[number] += jobs
        return [_Bin(*bounds_s(number), weights[number], self._all[number]) for number in sorted(weights)]


def _age(had_s: float) -> int:
    """By which jobs are told apart that have had so many seconds; below 0 up to the first."""
    return floor(log2(had_s) * AGES_PER_OCTAVE + ROUNDING) if had_s > 1.0 else -1


def _mean_s(mixed: list[_Bin]) -> float:
    """Mean length; 0 where none is known."""
    jobs = sum([one.weight for one in mixed], 0.0)
    return sum([(one.lower_s + one.upper_s) / 2 * one.weight for one in mixed], 0.0) / jobs if jobs else 0.0


def _made_up_after(time_s: float) -> float:
    """The least made-up length above a time."""
    next_s = MADE_UP_MIN_S
    while next_s <= time_s:
        next_s *= MADE_UP_RATIO
    return next_s


class _Bin(NamedTuple):
    """Bounds of lengths, how many jobs these count as for a family, and how many of all have had them."""

    lower_s: float
    upper_s: float
    weight: float
    told: float


class _Rest(NamedTuple):
    """What is left at most, and on average, of lengths that count as so many jobs, and that so many have had."""

    most_s: float
    mean_s: float
    jobs: float
    told: float

    @classmethod
    def of(cls, lengths: _Bin, had_s: float) -> _Rest:
        """Of the lengths within these bounds that are longer, all of them as likely."""
        lower_s, upper_s, jobs, told = lengths
        from_s = max(lower_s, had_s)
        part = (upper_s - from_s) / (upper_s - lower_s)
        return cls(upper_s - had_s, (from_s + upper_s) / 2 - had_s, part * jobs, part * told)


class _Slice(NamedTuple):
    """What an end within a slice of time takes on average, and how many ends say so, those of other families too."""

    per_end_s: float
    ends: float


def _best_slice(rests: list[_Rest]) -> _Slice:
    """Where an end takes least, of all slices; by rests in order of the most that is left."""
    left, ended, spent_s, ends, best = sum([rest.jobs for rest in rests], 0.0), 0.0, 0.0, 0.0, _Slice(inf, 0.0)
    for most_s, mean_s, jobs, told in rests:
        ended, spent_s, left, ends = ended + jobs, spent_s + mean_s * jobs, left - jobs, ends + told
        per_end_s = (spent_s + most_s * left) / ended
        if per_end_s < best.per_end_s:
            best = _Slice(per_end_s, ends)
    return best
