"""How alike neighbours are in length: lengths that fit together are drawn for all live jobs.

They are drawn from the law by which decisions are made (`perf.lengths`), as jobs of the same owner and class of GPUs
bear it out. A job is often as long as one that its owner submitted just before with as many GPUs, as in a sweep: how
often is learnt by the gap between the two. Draws that ignore it are far too sure of the sum of a sweep.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from math import log, nan
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from colane.foresee.scale import DAY_S, Floats
from colane.foresee.scene import PresentJob
from colane.model.lengths import FamilyLengths, LengthBin, bin_of
from colane.perf.estimates import LengthEstimates
from colane.perf.length_law import EDGES_S as BINS_S

FAR_TIMES: Final = 100.0  # of jobs that outlast the longest length that the law tells apart one in so many does so

EDGES_S: Final[Floats] = np.array([0.0, *BINS_S[1:], FAR_TIMES * BINS_S[-1]])
UNLIKELY: Final = 1e-9  # such a part of a kind outlasts whatever time is asked for

HALF_S: Final = 10 * DAY_S  # a job that ended so long ago counts half

NEIGHBOURS: Final = 5  # so many jobs before one of the same owner and size may tell its length

CLASSES: Final = (1, 2, 4, 8)  # GPUs up to which jobs are of one class; those with more are of one more

GAPS_S: Final = (60.0, 600.0, 3600.0)
SAME_PRIOR: Final = (4.0, 2.5, 2.5, 1.5)
SAME_PRIOR_PAIRS: Final = 5.0
ALIKE: Final = 0.5  # logarithms of lengths that differ by less are those of jobs that are alike

NOISE_MAX: Final = 2000
KINDS_MAX: Final = 1000  # owners beyond are of their class alone

WEIGHT_MAX: Final = 1e6
UNKNOWN_MEAN_S: Final = 3600.0


def class_of(gpus: int) -> int:
    """Return the class of jobs of so many GPUs."""
    return bisect_left(CLASSES, gpus)


class _KnownJob:
    """A live job, or one that ended and may tell the length of others."""

    __slots__ = ("after", "at_s", "gaps", "length_s", "near", "row", "size")

    def __init__(self, row: int, size: int, at_s: float, near: list[_KnownJob]) -> None:
        self.row: Final = row
        self.size: Final = size
        self.at_s: Final = at_s
        self.length_s: float | None = None
        self.near = near
        self.gaps: Final = [bisect_right(GAPS_S, at_s - one.at_s) for one in near]
        self.after: list[tuple[_KnownJob, int]] = []


class LearntLengths:
    """What is learnt of lengths as jobs come and end."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}
        self._ended: list[FamilyLengths] = []
        self._sums = [0.0] * (len(CLASSES) + 1)
        self._jobs = [0.0] * (len(CLASSES) + 1)
        self._same = [0.0] * len(SAME_PRIOR)
        self._pairs = [0.0] * len(SAME_PRIOR)
        self._noise: deque[float] = deque(np.linspace(-0.1, 0.1, 50).tolist(), maxlen=NOISE_MAX)
        self._live: dict[int, _KnownJob] = {}
        self._last: dict[tuple[str, int], deque[_KnownJob]] = {}
        self._from_s: float | None = None

    def submitted(self, job: int, owner: str, gpus: int, now_s: float) -> None:
        """A job came; those that its owner submitted before it with as many GPUs are its neighbours, the last first.

        Args:
            job: Which.
            owner: Its user, and of which family it is, as `ann|train`.
            gpus: It asks for.
            now_s: The time.
        """
        line = self._last.setdefault((owner, gpus), deque(maxlen=NEIGHBOURS))
        known = _KnownJob(self._row(owner, class_of(gpus)), class_of(gpus), now_s, list(reversed(line)))
        for place, one in enumerate(known.near):
            if one.length_s is None:
                one.after.append((known, place))
        line.append(known)
        self._live[job] = known

    def gone(self, job: int) -> None:
        """A job left without having told its length."""
        self._live.pop(job, None)

    def ended(self, job: int, length_s: float, now_s: float) -> None:
        """A job was through after so many seconds of service."""
        known = self._live.pop(job, None)
        if known is None:
            return
        weight, known.length_s = self._weight(now_s), length_s
        self._ended[known.row] = self._ended[known.row].with_job(length_s, now_s)
        self._sums[known.size] += weight * length_s
        self._jobs[known.size] += weight
        for place, one in enumerate(known.near):
            self._compare(one, known, place, weight)
        for one, place in known.after:
            self._compare(known, one, place, weight)
        known.near, known.after = [], []

    def kept(self) -> dict[str, Any]:
        """Return what JSON keeps of it: of neighbours nothing, which those that are live are again."""
        weight, ended = self._last_weight, self._ended
        rows = {kind: row for kind, row in self._rows.items() if ended[row].bins}
        return {
            "kinds": [
                [*kind, list(map(list, ended[row].bins)), list(ended[row].halved_s)] for kind, row in rows.items()
            ],
            "sums": [one / weight for one in self._sums],
            "jobs": [one / weight for one in self._jobs],
            "same": [one / weight for one in self._same],
            "pairs": [one / weight for one in self._pairs],
            "noise": [float(f"{one:.4g}") for one in self._noise],
        }

    def take_back(self, kept: dict[str, Any]) -> None:
        """Go on from what was kept, before anything else is learnt."""
        for owner, size, bins, *halved_s in kept["kinds"]:
            row = self._row(str(owner), int(size))
            known = tuple([LengthBin(int(number), float(jobs)) for number, jobs in bins])
            when_s = tuple([float(at_s) for each in halved_s for at_s in each])
            self._ended[row] = self._ended[row]._replace(bins=known, halved_s=when_s)
        for counts, name in ((self._sums, "sums"), (self._jobs, "jobs"), (self._same, "same"), (self._pairs, "pairs")):
            counts[:] = [float(one) for one in kept[name]]
        self._noise.extend(kept["noise"])

    def mean_s(self, gpus: int) -> float:
        """How long jobs of such a class ran on average."""
        size, weight = class_of(gpus), self._last_weight
        return (self._sums[size] / weight + UNKNOWN_MEAN_S) / (self._jobs[size] / weight + 1.0)

    def draws(self, lived: Sequence[PresentJob], law: LengthEstimates) -> LengthDraws:
        """Return what lengths of these live jobs, in order of submission, are drawn from, by a law of families."""
        ids = {one.job: place for place, one in enumerate(lived)}
        known = [self._live[one.job] for one in lived]
        rows = np.array([one.row for one in known], dtype=np.intp)
        had_s = np.array([one.had_s for one in lived])
        told_s = np.array([nan if one.left_s is None else one.had_s + one.left_s * one.speed for one in lived])
        # Of each kind those that run count beside those that ended as these, had they ended as they came, would now;
        # those that are told as if they had ended.
        unended: dict[int, dict[int, float]] = {row: {} for row in np.unique(rows).tolist()}
        will_end: dict[int, list[tuple[int, float]]] = {row: [] for row in unended}
        for one, job, length_s in zip(known, lived, told_s.tolist(), strict=True):
            age, ages, weight = law.age_of(job.had_s), unended[one.row], self._ended[one.row].part_of(one.at_s)
            if job.left_s is None:
                ages[age] = ages.get(age, 0.0) + weight
            else:
                will_end[one.row].append((bin_of(length_s), weight))
        hazards: dict[int, Floats] = {}
        for row, ages in unended.items():
            left = law.outlasts(self._ended[row].family, [*self._ended[row].bins, *will_end[row]], ages)
            hazards[row] = -np.log([1.0, *np.maximum(left, UNLIKELY), UNLIKELY / FAR_TIMES])
        places = {id(one): ids[job] for job, one in self._live.items() if job in ids}
        weight = self._last_weight
        same = [
            (alike / weight + prior) / (pairs / weight + SAME_PRIOR_PAIRS)
            for alike, pairs, prior in zip(self._same, self._pairs, SAME_PRIOR, strict=True)
        ]
        return LengthDraws(known, places, rows, had_s, told_s, hazards, same, np.array(self._noise))

    # -- counting

    def _row(self, owner: str, size: int) -> int:
        key = (owner, size) if len(self._rows) < KINDS_MAX or (owner, size) in self._rows else ("", size)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._ended)
            self._ended.append(FamilyLengths(owner.partition("|")[2]))
        return row

    def _weight(self, now_s: float) -> float:
        """What a job counts that ends now, where one that ended at first counts 1: newer ones count more."""
        if self._from_s is None:
            self._from_s = now_s
        weight: float = 2.0 ** (max(0.0, now_s - self._from_s) / HALF_S)
        if weight > WEIGHT_MAX:
            for counts in (self._sums, self._jobs, self._same, self._pairs):
                counts[:] = [one / weight for one in counts]
            self._from_s, weight = now_s, 1.0
        self._last_weight = weight
        return weight

    _last_weight = 1.0

    def _compare(self, earlier: _KnownJob, later: _KnownJob, place: int, weight: float) -> None:
        if earlier.length_s is None or later.length_s is None:
            return
        apart, gap = log((later.length_s + 5.0) / (earlier.length_s + 5.0)), later.gaps[place]
        self._pairs[gap] += weight
        if abs(apart) < ALIKE:
            self._same[gap] += weight
            if place == 0:
                self._noise.append(apart)


class LengthDraws:
    """Lengths of live jobs: each draw tells all of them, in order of submission, as one world that may be."""

    def __init__(
        self,
        known: Sequence[_KnownJob],
        places: dict[int, int],
        rows: NDArray[np.intp],
        had_s: Floats,
        told_s: Floats,
        hazards: Mapping[int, Floats],
        same: list[float],
        noise: Floats,
    ) -> None:
        count = len(known)
        self._had_s, self._known_s, self._hazards, self._noise = had_s, told_s, hazards, noise
        self._place = np.full((count, NEIGHBOURS), -1, dtype=np.intp)
        self._told_s = np.zeros((count, NEIGHBOURS))
        chance = np.zeros((count, NEIGHBOURS))
        for number, one in enumerate(known):
            for at, (other, gap) in enumerate(zip(one.near, one.gaps, strict=True)):
                place = places.get(id(other), -1)
                if place >= 0 or other.length_s is not None:
                    self._place[number, at], chance[number, at] = place, same[gap]
                    self._told_s[number, at] = 0.0 if other.length_s is None or place >= 0 else other.length_s
        self._at = np.zeros(count)
        self._of_kind = [(row, np.flatnonzero(rows == row)) for row in np.unique(rows)]
        for row, who in self._of_kind:
            self._at[who] = np.interp(had_s[who], EDGES_S, hazards[row])
        # That it has run so long already speaks for being as long as one that is longer.
        self._chance = np.where(
            (had_s > 0)[:, None] & (chance > 0), chance / (chance + (1 - chance) * np.exp(-self._at)[:, None]), chance
        )
        self._chance[~np.isnan(told_s)] = 0.0

    def draw(self, random: np.random.Generator) -> list[float]:
        """Return the lengths of one world, each at least what the job has had."""
        count = len(self._had_s)
        numbers = np.arange(count)
        aims, afresh = self._at + random.exponential(size=count), np.empty(count)
        for row, who in self._of_kind:
            afresh[who] = np.interp(aims[who], self._hazards[row], EDGES_S)
        which = random.integers(0, NEIGHBOURS, count)
        ratio = np.exp(self._noise[random.integers(0, len(self._noise), count)])
        copies = random.random(count) < self._chance[numbers, which]
        # A neighbour that has ended, or is told, tells its length at once; those of others in order of submission.
        # The level is handed on without its noise, else errors of a long sweep would add up to a drift.
        length: list[float] = np.where(np.isnan(self._known_s), np.maximum(afresh, self._had_s), self._known_s).tolist()
        level = list(length)
        place, told_s = self._place[numbers, which], self._told_s[numbers, which]
        had_s = self._had_s.tolist()
        steps = np.flatnonzero(copies)
        for number, other, told, times in zip(
            steps.tolist(), place[steps].tolist(), told_s[steps].tolist(), ratio[steps].tolist(), strict=True
        ):
            base = level[other] if other >= 0 else told
            if base * times > had_s[number]:
                length[number], level[number] = base * times, base
        return length
