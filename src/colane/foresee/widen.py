"""From a point to an interval that holds: widened by what came of earlier quotes, near in horizon, the recent first.

The score of a quote is log((wait + 60 s) / (point + 60 s)). One whose job waits still is a score censored at what it
has waited (Kaplan and Meier, 1958). Quotes within one wait of each other share their fate: a burst counts little more
than one score. How much each tail holds is moved by what crosses its bound, which is known as soon as it is crossed or
the job has started, so that no start need be waited for (adaptive conformal inference: Gibbs and Candes, 2021).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import exp
from typing import Any, Final

import numpy as np

from colane.foresee.said import QuoteBounds
from colane.foresee.scale import DAY_S, FELT_S, HORIZONS_S, Floats, all_scaled, horizon_of, scaled, unscaled

KEPT: Final = 600
WIDTH: Final = 1.2  # of the kernel over the logarithm of what was quoted

HALF_S: Final = 4 * DAY_S
HALF_TIMES: Final = 3.0
"""A quote counts half after that time, or after so many times the quoted one where that is longer."""

BURST_S: Final = 1800.0
THIN: Final = 0.8
PRIOR_QUOTES: Final = 8.0
STEP: Final = 0.1
NEXT_PART: Final = 0.2  # tails of the horizons next to one move by this part of it

LEVEL: Final = 0.08
LEVEL_MIN: Final = 0.004
LEVEL_MAX: Final = 0.3
TABLED: Final = 40

NEAR: Final = 1.5 * WIDTH
GUESSES: Final[Floats] = np.linspace(-1.6, 1.6, 9)
GUESS_SHAPE: Final[Floats] = np.exp(-0.5 * (GUESSES / 0.9) ** 2)
GUESS_WEIGHTS: Final[Floats] = PRIOR_QUOTES * GUESS_SHAPE / GUESS_SHAPE.sum()
LOW, HIGH = 0, 1


class _Quoted:
    __slots__ = ("at_s", "bounds", "is_censored", "point_s", "settled", "waited_s")

    def __init__(self, at_s: float, point_s: float, bounds: QuoteBounds) -> None:
        self.at_s: Final = at_s
        self.point_s: Final = point_s
        self.bounds: Final = bounds
        self.waited_s: float | None = None
        self.is_censored = False
        self.settled = [False, False]


class Mix:
    """Several points into one: their geometric mean, each weighed by how wrong it was lately."""

    def __init__(self, points: int, errors: Sequence[float] = ()) -> None:
        self.errors = list(errors) or [0.5] * points

    def _weights(self) -> list[float]:
        """How far behind the best each is counts by 0.1, or by that one's own error where it is almost exact."""
        least = min(self.errors)
        return [exp((least - error) / min(0.1, max(least, 0.01))) for error in self.errors]

    def point_s(self, points_s: Sequence[float]) -> float:
        all_of = sum(weight * scaled(one) for weight, one in zip(self._weights(), points_s, strict=True))
        return unscaled(all_of / sum(self._weights()))

    def points_s(self, points_s: Sequence[Floats]) -> Floats:
        """The same of many jobs."""
        weights = np.array(self._weights())
        found: Floats = np.exp(weights @ all_scaled(np.array(points_s)) / weights.sum()) - FELT_S
        return np.maximum(0.0, found)

    def learn(self, points_s: Sequence[float], waited_s: float) -> None:
        """What was quoted as these took so long."""
        self.errors = [
            error + 0.02 * (abs(scaled(one) - scaled(waited_s)) - error)
            for error, one in zip(self.errors, points_s, strict=True)
        ]


def _outlast(scores: Floats, censored: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Scores in order, and the part that outlasts each."""
    order = np.argsort(scores + 1e-9 * censored, kind="stable")
    scores, censored, weights = scores[order], censored[order], weights[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    return scores, np.cumprod(np.maximum(0.0, 1 - np.where(censored, 0.0, weights / np.maximum(at_risk, 1e-12))))


class Widened:
    """Intervals about the points of one method."""

    def __init__(self) -> None:
        self._quotes: deque[_Quoted] = deque(maxlen=KEPT)
        self._open: dict[int, list[_Quoted]] = {}
        self._due: list[tuple[float, int, _Quoted, int]] = []
        self._number = 0
        self.levels = [[LEVEL] * len(HORIZONS_S), [LEVEL] * len(HORIZONS_S)]

    def quote(self, now_s: float, point_s: float) -> QuoteBounds:
        """Return the interval about a point."""
        self._cross(now_s)
        scores, censored, weights, bursts = self._scores(now_s, point_s)
        seen = len(scores) - len(GUESSES)
        own, outlast = _outlast(scores[:seen], censored[:seen], weights[:seen])
        soon = int(np.searchsorted(own, scaled(FELT_S) - scaled(point_s), side="right"))
        at_once = 1.0 - float(outlast[soon - 1]) if soon else 0.0
        scores, outlast = _outlast(scores, censored, weights)

        def at(part: float) -> float:
            number = min(int(np.searchsorted(-outlast, part - 1)), len(scores) - 1)
            return unscaled(scaled(point_s) + float(scores[number]))

        middle_s = at(0.5)
        horizon = horizon_of(middle_s)
        low_s, high_s = at(self.levels[LOW][horizon]), at(1 - self.levels[HIGH][horizon])
        return QuoteBounds(low_s, middle_s, high_s, bursts, at_once)

    def table(self, now_s: float, points_s: Floats) -> list[QuoteBounds]:
        """Return the intervals about many points: worked out for some, and between them interpolated."""
        if len(points_s) <= TABLED:
            return [self.quote(now_s, point_s) for point_s in points_s.tolist()]
        at = all_scaled(points_s)
        grid = np.linspace(at.min(), at.max(), TABLED)
        rows = [self.quote(now_s, unscaled(one)) for one in grid.tolist()]
        bounds = [np.interp(at, grid, all_scaled(np.array([row[side] for row in rows]))) for side in range(3)]
        places = np.rint(np.interp(at, grid, np.arange(TABLED))).astype(int).tolist()
        low, middle, high = (np.maximum(0.0, np.exp(one) - FELT_S).tolist() for one in bounds)
        at_once = np.interp(at, grid, np.array([row.at_once for row in rows])).tolist()
        return [
            QuoteBounds(one, two, three, rows[place].bursts, soon)
            for one, two, three, place, soon in zip(low, middle, high, places, at_once, strict=True)
        ]

    def issue(self, job: int, now_s: float, point_s: float, bounds: QuoteBounds) -> None:
        """Keep a quote, to be judged by what comes of it."""
        quoted = _Quoted(now_s, point_s, bounds)
        self._quotes.append(quoted)
        self._open.setdefault(job, []).append(quoted)
        self._number += 2
        heappush(self._due, (now_s + bounds.p10_s, self._number, quoted, LOW))
        heappush(self._due, (now_s + bounds.p90_s, self._number + 1, quoted, HIGH))

    def happened(self, job: int, now_s: float) -> None:
        """What was quoted of a job has come."""
        self._cross(now_s)
        for quoted in self._open.pop(job, ()):
            quoted.waited_s = waited_s = max(0.0, now_s - quoted.at_s)
            if waited_s < quoted.bounds.p10_s:
                self._settle(quoted, LOW, missed=True)
            if waited_s <= quoted.bounds.p90_s:
                self._settle(quoted, HIGH, missed=False)

    def never(self, job: int, now_s: float) -> None:
        """It will not come, as the job is gone: what it has waited is all that is known."""
        for quoted in self._open.pop(job, ()):
            quoted.waited_s, quoted.is_censored = max(0.0, now_s - quoted.at_s), True
            quoted.settled = [True, True]

    def kept(self) -> dict[str, Any]:
        """Return what JSON keeps of it."""
        open_ = {id(quoted): job for job, quotes in self._open.items() for quoted in quotes}
        said = [[one.at_s, one.point_s, *one.bounds] for one in self._quotes]
        came = [[one.waited_s, one.is_censored, open_.get(id(one))] for one in self._quotes]
        quotes = [[*one, *other] for one, other in zip(said, came, strict=True)]
        return {"levels": self.levels, "quotes": quotes}

    def take_back(self, kept: dict[str, Any]) -> None:
        """Go on from what was kept."""
        self.levels = [[float(level) for level in side] for side in kept["levels"]]
        for at_s, point_s, *said, waited_s, is_censored, job in kept["quotes"]:
            bounds = QuoteBounds(*said)
            if job is not None:
                self.issue(job, at_s, point_s, bounds)
                continue
            quoted = _Quoted(at_s, point_s, bounds)
            quoted.waited_s, quoted.is_censored, quoted.settled = waited_s, is_censored, [True, True]
            self._quotes.append(quoted)

    def waits_for(self) -> list[int]:
        """Jobs of which something was quoted that has not come."""
        return list(self._open)

    def _cross(self, now_s: float) -> None:
        while self._due and self._due[0][0] < now_s:
            _, _, quoted, side = heappop(self._due)
            if not quoted.settled[side]:
                self._settle(quoted, side, missed=side == HIGH)

    def _settle(self, quoted: _Quoted, side: int, *, missed: bool) -> None:
        if quoted.settled[side]:
            return
        quoted.settled[side] = True
        horizon, levels = horizon_of(quoted.bounds.p50_s), self.levels[side]
        for place, part in ((horizon, 1.0), (horizon - 1, NEXT_PART), (horizon + 1, NEXT_PART)):
            if 0 <= place < len(levels):
                moved = levels[place] + part * STEP * (LEVEL - missed)
                levels[place] = min(LEVEL_MAX, max(LEVEL_MIN, moved))

    def _scores(self, now_s: float, point_s: float) -> tuple[Floats, Floats, Floats, int]:
        quotes, at = self._quotes, scaled(point_s)
        bursts, spread = 0, 1.0
        scores, censored, weights = np.zeros(0), np.zeros(0), np.zeros(0)
        if quotes:
            times = np.array([one.at_s for one in quotes])
            points = all_scaled(np.array([one.point_s for one in quotes]))
            past_s = np.maximum(0.0, now_s - times)  # a clock may have been set back
            waits_s = np.array([-1.0 if one.waited_s is None else one.waited_s for one in quotes])
            censored = np.array([one.waited_s is None or one.is_censored for one in quotes], dtype=float)
            waits_s = np.where(waits_s < 0, past_s, waits_s)
            weights = np.exp(-0.5 * ((points - at) / WIDTH) ** 2) * 0.5 ** (past_s / max(HALF_S, HALF_TIMES * point_s))
            burst = np.floor(times / max(BURST_S, point_s))
            _, which, sizes = np.unique(burst, return_inverse=True, return_counts=True)
            weights /= sizes[which] ** THIN
            bursts = len(np.unique(burst[np.abs(points - at) < NEAR]))
            scores = all_scaled(waits_s) - points
            own = np.abs(scores[censored == 0])
            if len(own) >= 30:
                spread = min(1.0, 3 * float(np.median(own)))
        scores = np.concatenate([scores, GUESSES * spread])
        censored = np.concatenate([censored, np.zeros(len(GUESSES))])
        weights = np.concatenate([weights, GUESS_WEIGHTS])
        return scores, censored, weights, bursts
