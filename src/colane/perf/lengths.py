"""What is left of jobs whose owners tell no length, by those of their family that have ended, and those that have not.

The law is `perf.length_law`. A family is judged anew once as much has happened in it as tells something: a job of it
has ended, or one that has not has had more than before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from math import floor, inf, log2
from typing import Final

from colane.model.lengths import BINS_PER_OCTAVE, FamilyLengths
from colane.perf.estimates import Rest, Unended
from colane.perf.knowledge import LengthKnowledge
from colane.perf.length_law import BINS, EDGES_S, FIRST_BIN, Law, common_law, prior, score

AGE_MIN_S: Final = EDGES_S[0]  # jobs that have had less are as new ones

ROUNDING: Final = 1e-9  # by such a part of a time logarithms do not tell one from another for sure

NEWS_PART: Final = 0.1
"""A family is judged anew once so large a part of its jobs has ended, or has had more; of few jobs each time."""

EXPECTED_PART: Final = 0.02  # that a job has had more is no news where no more than so many end so early

JUDGED_MAX: Final = 256
"""Of so many versions it is kept which family each concerns; a reader that missed more takes all."""

PRIOR_PART: Final = 0.2
"""What families have in common is learnt anew once so large a part of all jobs has ended; of few each time."""


class _Family:
    """What is known of one family.

    Attributes:
        ended: Those that have ended.
        unended: Jobs that have not, by the bin of what they have had and by when all had come to count half before.
        news: What has happened since it was judged.
        told: What those that have ended say of each cell of the grid; None where that is to be worked out.
        law: By which it is judged; None before it is.
        version: Since when.
    """

    __slots__ = ("ended", "law", "news", "told", "unended", "version")

    def __init__(self, ended: FamilyLengths) -> None:
        self.ended = ended
        self.unended: dict[Unended, int] = {}
        self.news = 1.0
        self.told: list[float] | None = None
        self.law: Law | None = None
        self.version = 0


class Lengths(LengthKnowledge):
    """How long jobs of each family ran, and have run.

    What is noted is added up once it is asked for: where nothing asks, an end costs no more than to note it.
    """

    def __init__(self, known: Iterable[FamilyLengths] = ()) -> None:
        self._noted: list[tuple[str, float, float]] = []
        self._families = {one.family: _Family(one) for one in known}
        self._fresh: dict[str, None] = dict.fromkeys(self._families)
        self._all: dict[int, float] = {}
        for family in self._families.values():
            self._count(family.ended, 1.0)
        self._version = 1
        self._read: set[str] = set()
        self._news = 0.0
        self._prior: list[float] = []
        self._common: list[float] = []
        self._new: Law | None = None
        self._new_version = 0
        self._judged: deque[str | None] = deque(maxlen=JUDGED_MAX)

    # -- what decisions ask

    @property
    def version(self) -> int:
        self._add_up()
        return self._version

    def version_of(self, family: str) -> int:
        known = self._families.get(family)
        if known is None:
            return self._new_version
        return known.version if known.law is not None else max(known.version, self._new_version)

    def judged_since(self, version: int) -> Collection[str] | None:
        missed = self.version - version
        found = list(self._judged)[-missed:] if 0 < missed <= len(self._judged) else []
        families = dict.fromkeys([family for family in found if family is not None])
        return families if len(found) == missed and None not in found else None

    def left_s(self, family: str, had_s: float) -> float:
        return self._law(family).left_s(age_of(had_s))

    def rest(self, family: str, had_s: float) -> Rest:
        law, age = self._law(family), age_of(had_s)
        return Rest(law.left_s(age), *[law.quantile_s(age, part) for part in (0.1, 0.5, 0.9)])

    def outlasts(self, family: str, ended: Iterable[tuple[int, float]], unended: Mapping[int, float]) -> list[float]:
        return self._law(family).outlasts(ended, unended)

    def age_of(self, had_s: float) -> int:
        return age_of(had_s)

    def same_until_s(self, had_s: float) -> float:
        return age_end_s(age_of(had_s)) * (1.0 - ROUNDING)

    def ends_before(self, family: str, had_s: float, other: str, other_had_s: float, times: float) -> float:
        return self._law(family).ends_before(age_of(had_s), self._law(other), age_of(other_had_s), times)

    def ends_within(self, family: str, had_s: float, rest_s: float) -> float:
        return self._law(family).ends_within(age_of(had_s), rest_s)

    def ended(self, family: str) -> float:
        self._add_up()
        known = self._families.get(family)
        return 0.0 if known is None else known.ended.jobs

    # -- what is learnt

    def of_family(self, family: str) -> FamilyLengths | None:
        self._add_up()
        known = self._families.get(family)
        return known.ended if known is not None and known.ended.bins else None

    def tells(self, family: str) -> bool:
        """Whether any job of a family has ended."""
        return self.of_family(family) is not None

    def note(self, family: str, service_s: float, now_s: float = 0.0) -> None:
        """A job of it has ended now, after so many seconds of service."""
        self._noted.append((family, service_s, now_s))

    def learn(self, family: str, service_s: float, now_s: float = 0.0) -> FamilyLengths:
        """The same; the family's record with it."""
        self._learn_noted()
        return self._learn(family, service_s, now_s)

    def forget(self, family: str) -> None:
        """Know nothing of a family any more but what those of its jobs have had that have not ended."""
        self._add_up()
        known = self._families.get(family)
        if known is not None and known.ended.bins:
            self._count(known.ended, -1.0)
            known.ended, known.told, known.law = FamilyLengths(family), None, None
            self._relearn()
            self._judge(family)

    def halved_before_s(self, family: str, since_s: float) -> float:
        known = self._families.get(family)
        return max([at_s for at_s in known.ended.halved_s if at_s <= since_s] if known else [], default=-inf)

    def see_unended(self, families: Mapping[str, Mapping[Unended, int]], *, are_all: bool = False) -> None:
        self._learn_noted()
        gone = [name for name, one in self._families.items() if one.unended and name not in families] if are_all else []
        for family in gone:
            self._see(family, {})
        for family, counts in families.items():
            self._see(family, dict(sorted(counts.items())))

    def _see(self, family: str, unended: dict[Unended, int]) -> None:
        known = self._family(family)
        more = fewer = 0
        for one in {**known.unended, **unended}:
            change = unended.get(one, 0) - known.unended.get(one, 0)
            if known.law is None or known.law.ends_by(one[0]) > EXPECTED_PART:
                more += max(0, change)
                fewer += max(0, -change)
        known.news += max(more, fewer)
        known.unended = unended
        self._fresh[family] = None

    def _family(self, family: str) -> _Family:
        known = self._families.get(family)
        if known is None:
            known = self._families[family] = _Family(FamilyLengths(family))
        return known

    def _learn(self, family: str, service_s: float, now_s: float) -> FamilyLengths:
        known = self._family(family)
        self._count(known.ended, -1.0)
        known.ended, known.told = known.ended.with_job(service_s, now_s), None
        self._count(known.ended, 1.0)
        known.news += 1.0
        self._news += 1.0
        self._fresh[family] = None
        return known.ended

    def _count(self, record: FamilyLengths, times: float) -> None:
        for number, jobs in record.bins:
            self._all[number] = self._all.get(number, 0.0) + times * jobs

    def _learn_noted(self) -> None:
        if self._noted:
            noted, self._noted = self._noted, []
            for family, service_s, now_s in noted:
                self._learn(family, service_s, now_s)

    # -- judging

    def _add_up(self) -> None:
        """Judge those anew in which enough has happened."""
        self._learn_noted()
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, {}
        is_first = not self._prior
        if is_first or self._news >= max(1.0, PRIOR_PART * sum(self._all.values())):
            self._relearn()
        for name in fresh:
            self._judge_by_news(self._families[name])
        if is_first and len(fresh) > 1:  # what they have in common is known now
            self._relearn()
            for name in fresh:
                self._judge(name)

    def _judge_by_news(self, known: _Family) -> None:
        jobs = known.ended.jobs + sum(known.unended.values())
        if known.law is None or known.news >= max(1.0, NEWS_PART * jobs) or not jobs:
            self._judge(known.ended.family)

    def _relearn(self) -> None:
        """Learn what families have in common; those of which nothing is known are judged by it from now on."""
        known = [one.law.believed for one in self._families.values() if one.law is not None and one.ended.bins]
        self._prior, self._common, self._news = prior(known), common_law(self._all), 0.0
        if self._new is not None:
            self._new, self._new_version = None, self._next_version(None)

    def _judge(self, family: str) -> None:
        known = self._families[family]
        known.news = 0.0
        if family in self._read:  # else nothing that was said of it is otherwise now
            self._read.discard(family)
            known.version = self._next_version(family)
        if not known.ended.bins and not known.unended:
            known.law = None
            return
        if known.told is None:
            known.told = score(known.ended.bins)
        unended: dict[int, float] = {}
        for (number, since_s), jobs in known.unended.items():
            unended[number] = unended.get(number, 0.0) + jobs * known.ended.part_of(since_s)
        known.law = Law.of(self._prior, known.ended.bins, known.told, unended, self._common)

    def _next_version(self, concerned: str | None) -> int:
        """Of one family, or of those of which nothing is known."""
        self._version += 1
        self._judged.append(concerned)
        return self._version

    def _law(self, family: str) -> Law:
        self._add_up()
        self._read.add(family)
        known = self._families.get(family)
        if known is not None and known.law is not None:
            return known.law
        if self._new is None:
            if not self._prior:
                self._relearn()
            self._new = Law.of(self._prior, (), score(()), {}, self._common)
        return self._new


def age_of(had_s: float) -> int:
    """The bin of what a job has had; -1 of one that is as new."""
    if had_s < AGE_MIN_S * (1.0 - ROUNDING):
        return -1
    return min(BINS - 1, floor(log2(had_s) * BINS_PER_OCTAVE + ROUNDING) - FIRST_BIN)


def age_end_s(age: int) -> float:
    """Up to which of what it has had a job is in this bin."""
    return EDGES_S[age + 1]
