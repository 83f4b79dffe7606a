"""When the jobs of one pool start and end: points by roll-outs and by the work ahead, mixed, widened and scored.

Pure: it is told what happens and when, and draws by a seed. Another policy or another size of the pool needs another
one, as its scores hold for that alone; what is learnt of lengths is common to all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

import numpy as np

from colane.foresee.lengths import CLASSES, LearntLengths, Lived, class_of
from colane.foresee.rollout import starts_in_s
from colane.foresee.scale import Floats
from colane.foresee.scene import LEFT_MIN_S, PoolScene, PresentJob, Rank
from colane.foresee.widen import Mix, QuoteBounds, Widened

ROLLOUTS: Final = 16
RECENT: Final = 20
ARRIVALS_KEPT: Final = 5000
PAST_S: Final = [3600.0 * 336.0 ** (part / 8) for part in range(9)]
"""Of the last hour up to the last fortnight."""

SLOWER_ASKED: Final = 16
"""Of a line, at so many places it is worked out what passes."""

HELD_KEPT: Final = 300
HELD_MIN: Final = 10

LOAD_MAX: Final = 0.9
"""Of the jobs that come later and pass: they take no more than this part of what there is."""

AHEAD, RECENTLY, BY_MEANS, ROLLED, MIXED = range(5)
METHODS: Final = ("work ahead", "recent waits", "plan by mean lengths", "roll-outs", "foreseen")
"""Points that are scored; the three first are what others would say, by which the last is judged."""


class StartPoints(NamedTuple):
    """What is said of one start before it is widened, by method, and of its end.

    Attributes:
        starts_s: By method, in `METHODS`' order.
        lengths_s: How long it runs, one for each roll-out.
        is_told: Whether its length is told.
    """

    starts_s: tuple[float, ...]
    lengths_s: list[float]
    is_told: bool


class StartQuote(NamedTuple):
    """What is told of one job.

    Attributes:
        job: Which.
        at_s: When it was said.
        starts: By method.
        end: When it ends.
        is_told: Whether its own length is told.
    """

    job: int
    at_s: float
    starts: tuple[QuoteBounds, ...]
    end: QuoteBounds
    is_told: bool

    @property
    def start(self) -> QuoteBounds:
        """What is shown."""
        return self.starts[MIXED]


class Shown(NamedTuple):
    """What is shown of a job that waits.

    Attributes:
        at_s: When it was worked out.
        start: When it starts.
        end: When it ends.
        is_told: Whether its own length is told.
    """

    at_s: float
    start: QuoteBounds
    end: QuoteBounds
    is_told: bool


class _Played(NamedTuple):
    """Of the jobs that were asked for, in order: the work ahead, starts by mean lengths and as drawn, what is left."""

    asked: list[PresentJob]
    slots: int
    ahead_s: Floats
    by_means_s: Floats
    rolled_s: Floats
    left_s: Floats


class _CameJob(NamedTuple):
    at_s: float
    rank: Rank
    work_gpu_s: float


class Foreseer:
    """Foresees the starts and ends of one pool under one policy.

    Args:
        lengths: What is learnt of lengths; shared by all pools.
        seed: Of its draws.
        rollouts: So many worlds are drawn for one quote.
    """

    def __init__(self, lengths: LearntLengths | None = None, seed: int = 1, rollouts: int = ROLLOUTS) -> None:
        self.lengths = lengths or LearntLengths()
        self._random = np.random.default_rng(seed)
        self._rollouts = rollouts
        self.mix = Mix(2)
        self.scored = [Widened() for _ in METHODS]
        self.ends = Widened()
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
        for scored in self.scored:
            scored.happened(job, now_s)
        for at_s, points in self._open.pop(job, ()):
            self.mix.learn((points.starts_s[AHEAD], points.starts_s[ROLLED]), now_s - at_s)

    def ended(self, job: int, length_s: float | None, now_s: float) -> None:
        """A job has ended, after so much service, or without having told its length."""
        if job in self._came:
            del self._came[job]
            self._open.pop(job, None)
            for scored in self.scored:
                scored.never(job, now_s)
        if length_s is None:
            self.lengths.gone(job)
            self.ends.never(job, now_s)
        else:
            self.lengths.ended(job, length_s, now_s)
            self.ends.happened(job, now_s)

    # -- what is said

    def quotes(self, scene: PoolScene, asked: Collection[int]) -> list[StartQuote]:
        """Return what is told of jobs that wait, by every method; it is kept, and judged by what comes of it."""
        found: list[StartQuote] = []
        for job, points in self.points(scene, asked).items():
            starts = tuple(
                [scored.quote(scene.now_s, point) for scored, point in zip(self.scored, points.starts_s, strict=True)]
            )
            end_s = starts[MIXED].p50_s + median(points.lengths_s)
            end = self.ends.quote(scene.now_s, end_s)
            for scored, point_s, bounds in zip(self.scored, points.starts_s, starts, strict=True):
                scored.issue(job, scene.now_s, point_s, bounds)
            self.ends.issue(job, scene.now_s, end_s, end)
            self._open.setdefault(job, []).append((scene.now_s, points))
            found.append(StartQuote(job, scene.now_s, starts, end, points.is_told))
        return found

    def points(self, scene: PoolScene, asked: Collection[int]) -> dict[int, StartPoints]:
        """Return what the methods say of jobs that wait, before it is widened."""
        played = self._play(scene, asked)
        found: dict[int, StartPoints] = {}
        for number, one in enumerate(played.asked):
            ahead_s, rolled_s = float(played.ahead_s[number]), float(played.rolled_s[number])
            rolled_s *= self._slower(scene, one, played.slots)
            mixed_s = self.mix.point_s((ahead_s, rolled_s))
            recent = self._recent[class_of(one.gpus)]
            recent_s = fmean(recent) if recent else 0.0
            points_s = ahead_s, recent_s, float(played.by_means_s[number]), rolled_s, mixed_s
            found[one.job] = StartPoints(points_s, played.left_s[:, number].tolist(), one.left_s is not None)
        return found

    def board(self, scene: PoolScene) -> dict[int, Shown]:
        """Return what is shown of every job that waits: all from one play of the order, widened by tables."""
        waiting = [one.job for one in scene.present if not one.runs]
        if not waiting:
            return {}
        played = self._play(scene, set(waiting))
        places = np.unique(np.linspace(0, len(played.asked) - 1, SLOWER_ASKED).astype(int))
        slower = np.interp(
            np.arange(len(played.asked)),
            places,
            [self._slower(scene, played.asked[place], played.slots) for place in places],
        )
        starts_s = self.mix.points_s((played.ahead_s, played.rolled_s * slower))
        starts = self.scored[MIXED].table(scene.now_s, starts_s)
        middle_s = np.array([one.p50_s for one in starts])
        ends = self.ends.table(scene.now_s, middle_s + np.median(played.left_s, axis=0))
        return {
            one.job: Shown(scene.now_s, start, end, one.left_s is not None)
            for one, start, end in zip(played.asked, starts, ends, strict=True)
        }

    def _play(self, scene: PoolScene, asked: Collection[int]) -> _Played:
        """Play the order on in as many worlds as are drawn, as far as the last job that is asked for."""
        present, slots = scene.present, self._slots(scene)
        line = [place for place, one in enumerate(present) if not one.stays]
        line.sort(key=lambda place: (present[place].rank, present[place].job))
        wanted = [at for at, place in enumerate(line) if present[place].job in asked]
        line = line[: wanted[-1] + 1] if wanted else []
        stays = [place for place, one in enumerate(present) if one.stays]
        held = [present[place].gpus for place in stays]
        asks = [min(present[place].gpus, slots) for place in line]
        slices_s = [present[place].slice_s for place in line]

        def roll(left_s: Sequence[float]) -> list[float]:
            running = list(zip([left_s[place] for place in stays], held, strict=True))
            lengths_s = [_in_place_s(left_s[place], most_s) for place, most_s in zip(line, slices_s, strict=True)]
            return starts_in_s(slots - sum(held), running, asks, lengths_s)

        means_s = [self._mean_left_s(one) for one in present]
        draws = self.lengths.draws([Lived(one.job, one.had_s) for one in present])
        worlds = [
            [_left_s(one, drawn) for one, drawn in zip(present, draws.draw(self._random), strict=True)]
            for _ in range(self._rollouts)
        ]
        in_place_s = [_in_place_s(means_s[place], most_s) for place, most_s in zip(line, slices_s, strict=True)]
        work = np.cumsum([0.0, *[gpus * one for gpus, one in zip(asks, in_place_s, strict=True)]])
        return _Played(
            [present[line[at]] for at in wanted],
            slots,
            work[wanted] / max(1, slots),
            np.array(roll(means_s))[wanted],
            np.median(np.array([roll(left_s) for left_s in worlds])[:, wanted], axis=0),
            np.array(worlds)[:, [line[at] for at in wanted]],
        )

    def _slots(self, scene: PoolScene) -> int:
        """As many GPUs as jobs had while others waited, which are more than there are where these share."""
        held = sum([one.gpus for one in scene.present if one.runs])
        if any(not one.runs for one in scene.present):
            self._held.append(held)
        return max(scene.gpus, int(np.quantile(self._held, 0.8)) if len(self._held) > HELD_MIN else 0)

    def _mean_left_s(self, one: PresentJob) -> float:
        if one.left_s is not None:
            return max(LEFT_MIN_S, one.left_s)
        left_s = max(LEFT_MIN_S, self.lengths.mean_s(one.gpus) - one.had_s)
        return left_s if one.most_s is None else min(left_s, one.most_s)

    def _slower(self, scene: PoolScene, one: PresentJob, slots: int) -> float:
        """How much longer it takes as later ones pass it: as many as in times of the past."""
        passing = [(arrival.at_s, arrival.work_gpu_s) for arrival in self._arrivals if arrival.rank < one.rank]
        if not passing:
            return 1.0
        at_s, work_gpu_s = np.array(passing).T
        found: list[float] = []
        for back_s in PAST_S:
            work = float(work_gpu_s[at_s >= scene.now_s - back_s].sum())
            found.append(1.0 / (1.0 - min(LOAD_MAX, work / max(1, slots) / back_s)))
        return median(found)


def _left_s(one: PresentJob, drawn_s: float) -> float:
    left_s = max(LEFT_MIN_S, drawn_s - one.had_s if one.left_s is None else one.left_s)
    return left_s if one.most_s is None else min(left_s, one.most_s)


def _in_place_s(left_s: float, slice_s: float | None) -> float:
    """How long a job keeps its place in the order."""
    return left_s if slice_s is None else min(left_s, max(LEFT_MIN_S, slice_s))
