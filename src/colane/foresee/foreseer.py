"""When the jobs of one pool start and end: points by roll-outs and by the work ahead, mixed, widened and scored.

Pure: it is told what happens and when, and draws by a seed. Another policy or another size of the pool needs another
one, as its scores hold for that alone; what is learnt of lengths is common to all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from statistics import fmean, median
from typing import Any, Final, NamedTuple

import numpy as np

from colane.foresee.lengths import CLASSES, LearntLengths, class_of
from colane.foresee.rollout import middles_s, point_said_s, starts_in_s
from colane.foresee.said import AHEAD, METHODS, MIXED, ROLLED, Shown, StartQuote, unforeseen
from colane.foresee.scale import Floats
from colane.foresee.scene import PoolScene, PresentJob, Rank
from colane.foresee.widen import Mix, Widened
from colane.model.words import count

ROLLOUTS: Final = 16
PLAYED_MAX: Final = 64_000  # jobs of a line, in all of them: of a longer one there are fewer, as its sums vary less
RECENT: Final = 20
ARRIVALS_KEPT: Final = 5000
RANKED_KEPT: Final = 500  # so many of them over a restart

PAST_S: Final = [3600.0 * 336.0 ** (part / 8) for part in range(9)]  # of the last hour up to the last fortnight

SLOWER_ASKED: Final = 16  # of a line, at so many places it is worked out what passes

HELD_KEPT: Final = 300
HELD_MIN: Final = 10

LOAD_MAX: Final = 0.9  # of the jobs that come later and pass: they take no more than this part of what there is


class StartPoints(NamedTuple):
    """What is said of one start before it is widened, by method, and of its end."""

    starts_s: tuple[float, ...]  # by method, in `METHODS`' order
    lengths_s: list[float]  # how long it runs, one for each roll-out
    is_told: bool  # whether its length is told
    is_cleared: bool  # whether others leave their GPUs for it just now


class SaidQuote(NamedTuple):
    """A quote that is yet to be kept, with the points it was made of."""

    quote: StartQuote
    points: StartPoints
    end_point_s: float


class _Played(NamedTuple):
    """Of the jobs that were asked for, in order: the work ahead, starts by mean lengths and as drawn, what is left.

    Of all that are present the median of what is left.
    """

    asked: list[PresentJob]
    slots: int
    ahead_s: Floats
    by_means_s: Floats
    rolled_s: Floats
    left_s: Floats
    middle_left_s: Floats


class _CameJob(NamedTuple):
    at_s: float
    rank: Rank
    work_gpu_s: float


class Foreseer:
    """Foresees the starts and ends of one pool under one policy.

    Args:
        lengths: What is learnt of lengths; shared by all pools.
        seed: Of its draws.
        rollouts: So many worlds are drawn for one quote at most.
    """

    def __init__(self, lengths: LearntLengths | None = None, seed: int = 1, rollouts: int = ROLLOUTS) -> None:
        self.lengths = lengths or LearntLengths()
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._rollouts = rollouts
        self.mix = Mix(2)
        self.scored = [Widened() for _ in METHODS]
        self.cleared = Widened()  # of those for which others leave their GPUs
        self.ends = Widened()
        self.lefts = Widened()
        self._recent = [deque[float](maxlen=RECENT) for _ in range(len(CLASSES) + 1)]
        self._held = deque[int](maxlen=HELD_KEPT)
        self._arrivals: deque[_CameJob] = deque(maxlen=ARRIVALS_KEPT)
        self._came: dict[int, tuple[float, int]] = {}
        self._open: dict[int, list[tuple[float, StartPoints]]] = {}

    # -- what happens

    def submitted(self, job: int, owner: str, gpus: int, now_s: float) -> None:
        """A job came."""
        self.lengths.submitted(job, owner, gpus, now_s)
        self._came[job] = now_s, gpus

    def ranked(self, job: PresentJob, now_s: float) -> None:
        """A job that came has this place in the order: later ones like it may pass."""
        left_s = self.lengths.mean_s(job.gpus) if job.left_s is None else job.left_s
        self._arrivals.append(_CameJob(now_s, job.rank, left_s * job.gpus))

    def started(self, job: int, now_s: float) -> None:
        """A job has started, for the first time."""
        came_s, gpus = self._came.pop(job, (now_s, 1))
        if now_s > came_s:
            self._recent[class_of(gpus)].append(now_s - came_s)
        for scored in (*self.scored, self.cleared):
            scored.happened(job, now_s)
        for at_s, points in self._open.pop(job, ()):
            self.mix.learn((points.starts_s[AHEAD], points.starts_s[ROLLED]), now_s - at_s)

    def ended(self, job: int, length_s: float | None, now_s: float) -> None:
        """A job has ended, after so much service, or without having told its length."""
        if job in self._came:
            del self._came[job]
            self._open.pop(job, None)
            for scored in (*self.scored, self.cleared):
                scored.never(job, now_s)
        if length_s is None:
            self.lengths.gone(job)
            self.ends.never(job, now_s)
            self.lefts.never(job, now_s)
        else:
            self.lengths.ended(job, length_s, now_s)
            self.ends.happened(job, now_s)
            self.lefts.happened(job, now_s)

    # -- what is kept over a restart

    def kept(self) -> dict[str, Any]:
        """Return what JSON keeps of it, but for lengths."""
        return {
            "errors": self.mix.errors,
            "scored": [one.kept() for one in (*self.scored, self.ends, self.lefts)],
            "cleared": self.cleared.kept(),
            "recent": [list(one) for one in self._recent],
            "held": list(self._held),
            "arrivals": [[one.at_s, list(one.rank), one.work_gpu_s] for one in list(self._arrivals)[-RANKED_KEPT:]],
        }

    def take_back(self, kept: dict[str, Any]) -> None:
        """Go on from what was kept."""
        self.mix = Mix(2, [float(one) for one in kept["errors"]])
        for scored, one in zip((*self.scored, self.ends, self.lefts), kept["scored"], strict=True):
            scored.take_back(one)
        if "cleared" in kept:
            self.cleared.take_back(kept["cleared"])
        for recent, waits_s in zip(self._recent, kept["recent"], strict=True):
            recent.extend(waits_s)
        self._held.extend(kept["held"])
        self._arrivals.extend([_CameJob(at_s, tuple(rank), work) for at_s, rank, work in kept["arrivals"]])

    def forget(self, live: Collection[int], now_s: float) -> None:
        """What was quoted of jobs that are live no more will not come."""
        for scored in (*self.scored, self.cleared, self.ends, self.lefts):
            for job in scored.waits_for():
                if job not in live:
                    scored.never(job, now_s)

    # -- what is said

    def say(self, scene: PoolScene, asked: Collection[int]) -> list[SaidQuote]:
        """Return what is told of jobs that wait, by every method; it is to be kept, and judged by what comes of it."""
        found: list[SaidQuote] = []
        for job, points in self.points(scene, asked).items():
            scored = zip(self._scored(points), points.starts_s, strict=True)
            starts = tuple([one.quote(scene.now_s, point_s) for one, point_s in scored])
            end_s = starts[MIXED].p50_s + median(points.lengths_s)
            quote = StartQuote(job, scene.now_s, starts, self.ends.quote(scene.now_s, end_s), points.is_told)
            found.append(SaidQuote(quote, points, end_s))
        return found

    def keep(self, said: SaidQuote) -> None:
        """Keep a quote, to be judged by what comes of it."""
        quote, points = said.quote, said.points
        for scored, point_s, bounds in zip(self._scored(points), points.starts_s, quote.starts, strict=True):
            scored.issue(quote.job, quote.at_s, point_s, bounds)
        self.ends.issue(quote.job, quote.at_s, said.end_point_s, quote.end)
        if not points.is_cleared:
            self._open.setdefault(quote.job, []).append((quote.at_s, points))

    def keep_end(self, job: int, shown: Shown) -> None:
        """Keep what was said of the end of a job that runs."""
        self.lefts.issue(job, shown.at_s, shown.end_point_s, shown.end)

    def turn(self, number: int) -> None:
        """Draw anew, for the so-manieth time: copies of a process would else all draw the same."""
        self._random = np.random.default_rng((self._seed, number))

    def points(self, scene: PoolScene, asked: Collection[int]) -> dict[int, StartPoints]:
        """Return what the methods say of jobs that wait, before it is widened."""
        played = self._play(scene, asked)
        found: dict[int, StartPoints] = {}
        for number, one in enumerate(played.asked):
            ahead_s, rolled_s = float(played.ahead_s[number]), float(played.rolled_s[number])
            rolled_s *= self._slower(scene, one, played.slots)
            is_cleared = one.job in scene.cleared
            mixed_s = 0.0 if is_cleared else self.mix.point_s((ahead_s, rolled_s))
            recent = self._recent[class_of(one.gpus)]
            recent_s = fmean(recent) if recent else 0.0
            points_s = ahead_s, recent_s, float(played.by_means_s[number]), rolled_s, mixed_s
            lengths_s, is_told = played.left_s[:, number].tolist(), one.left_s is not None
            found[one.job] = StartPoints(points_s, lengths_s, is_told, is_cleared)
        return found

    def board(self, scene: PoolScene) -> dict[int, Shown]:
        """Return what is shown of every job: all from one play of the order, widened by tables."""
        played, now_s = self._play(scene, {one.job for one in scene.present if not one.runs}), scene.now_s
        found = self._ends_of_running(scene, played)
        for one in scene.present:
            if scene.is_beyond(one):
                problem = f"it asks for {count(one.gpus, 'GPU')} of {scene.gpus} to be had"
                found[one.job] = unforeseen(now_s, problem, waits=True)
        asked = played.asked
        if not asked:
            return found
        places = np.unique(np.linspace(0, len(asked) - 1, SLOWER_ASKED).astype(int))
        passed = [self._slower(scene, asked[place], played.slots) for place in places]
        slower = np.interp(np.arange(len(asked)), places, passed)
        starts = self.scored[MIXED].table(now_s, self.mix.points_s((played.ahead_s, played.rolled_s * slower)))
        if scene.cleared:
            cleared = self.cleared.quote(now_s, 0.0)
            starts = [cleared if one.job in scene.cleared else it for one, it in zip(asked, starts, strict=True)]
        points_s = np.array([one.p50_s for one in starts]) + np.median(played.left_s, axis=0)
        ends, middles = self.ends.table(now_s, points_s), middles_s(scene)
        for one, start, end, point_s in zip(asked, starts, ends, points_s.tolist(), strict=True):
            first = found.get(one.job)  # of an array the first element starts it, and the last ends it
            begins = start if first is None else first.start
            middle_s = point_said_s(middles[one.job][0])
            found[one.job] = Shown(now_s, begins, end, point_s, one.left_s is not None, start_point_s=middle_s)
        return found

    def _scored(self, points: StartPoints) -> list[Widened]:
        """By whose scores each method is widened."""
        return [*self.scored[:MIXED], self.cleared] if points.is_cleared else self.scored

    def _ends_of_running(self, scene: PoolScene, played: _Played) -> dict[int, Shown]:
        running = [place for place, one in enumerate(scene.present) if one.runs]
        if not running:
            return {}
        points_s = played.middle_left_s[running]
        ends = self.lefts.table(scene.now_s, points_s)
        ran = [scene.present[place] for place in running]
        return {
            one.job: Shown(scene.now_s, None, end, point_s, one.left_s is not None)
            for one, end, point_s in zip(ran, ends, points_s.tolist(), strict=True)
        }

    def _play(self, scene: PoolScene, asked: Collection[int]) -> _Played:
        """Play the order on in as many worlds as are drawn, as far as the last job that is asked for."""
        present, slots = scene.present, self._slots(scene)
        line = [place for place, one in enumerate(present) if not one.stays and not scene.is_beyond(one)]
        line.sort(key=lambda place: (present[place].rank, not present[place].runs, present[place].job))
        wanted = [at for at, place in enumerate(line) if present[place].job in asked]
        levels = [present[place].job if (level := present[place].level) is None else level for place in line]
        line = line[: len(line) - levels[::-1].index(levels[wanted[-1]])] if wanted else []
        stays = [place for place, one in enumerate(present) if one.stays]
        held = [present[place].gpus for place in stays]
        asks = [min(present[place].gpus, slots) for place in line]

        def roll(left_s: Sequence[float]) -> list[float]:
            running = list(zip([left_s[place] for place in stays], held, strict=True))
            lengths_s = [present[place].in_place_s(left_s[place]) for place in line]
            return starts_in_s(slots - sum(held), running, asks, lengths_s, levels)

        means_s = [one.rest_s(self.lengths.mean_s(one.gpus)) for one in present]
        draws = self.lengths.draws(present, scene.law)
        worlds = [
            [one.rest_s(drawn) for one, drawn in zip(present, draws.draw(self._random), strict=True)]
            for _ in range(min(self._rollouts, max(ROLLOUTS // 4, PLAYED_MAX // max(1, len(line)))))
        ]
        in_place_s = [present[place].in_place_s(means_s[place]) for place in line]
        work = np.cumsum([0.0, *[gpus * one for gpus, one in zip(asks, in_place_s, strict=True)]])
        lefts_s, rolls = np.array(worlds), [roll(left_s) for left_s in worlds] if wanted else []
        return _Played(
            [present[line[at]] for at in wanted],
            slots,
            work[wanted] / max(1, slots),
            np.array(roll(means_s) if wanted else [])[wanted],
            np.median(np.array(rolls)[:, wanted], axis=0) if wanted else np.zeros(0),
            lefts_s[:, [line[at] for at in wanted]],
            np.median(lefts_s, axis=0),
        )

    def _slots(self, scene: PoolScene) -> int:
        """As many GPUs as jobs had while others waited, which are more than there are where these share."""
        held = sum([one.gpus for one in scene.present if one.runs])
        if any(not one.runs for one in scene.present):
            self._held.append(held)
        return max(scene.gpus, int(np.quantile(self._held, 0.8)) if len(self._held) > HELD_MIN else 0)

    def _slower(self, scene: PoolScene, one: PresentJob, slots: int) -> float:
        """How much longer it takes as later ones pass it: as many as in times of the past."""
        passing = [(arrival.at_s, arrival.work_gpu_s) for arrival in self._arrivals if arrival.rank < one.rank]
        if not passing:
            return 1.0
        at_s, work_gpu_s = np.array(passing).T
        found: list[float] = []
        for back_s in PAST_S:
            work = float(work_gpu_s[at_s + back_s >= scene.now_s].sum())
            found.append(1.0 / (1.0 - min(LOAD_MAX, work / max(1, slots) / back_s)))
        return median(found)
