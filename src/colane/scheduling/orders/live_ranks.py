"""How many live jobs come after one: ranks of those that wait are kept, of those on GPUs worked out for a moment.

What waits has as much left from one plan to the next, and what runs less by so much a second, or as much for some time
where its length is learnt, so nothing is asked of each job anew but where its steps are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from operator import attrgetter
from typing import Final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId
from colane.perf.estimates import LengthEstimates
from colane.scheduling.engine.contracts import ClassKey, Rank
from colane.scheduling.engine.live import Kept, LiveJobs
from colane.scheduling.engine.times import Course
from colane.scheduling.engine.walks import priority_of
from colane.scheduling.orders.alike import tells_nothing

EACH_MAX: Final = 1024
SAMPLE_MAX: Final = 256  # of more jobs on GPUs than the one, no more than the other are looked at, for all

SAMPLE_HOLDS_S: Final = 1.0
"""These are ranked once in such a time, and when one of them came or went: of so many jobs some end each second."""

LEVELS: Final = 24  # into so many levels jobs on GPUs are told apart: those of the k-th or a later one are one in 2^k

MIXES: Final = 2654435761
"""Spreads the numbers of jobs, of which every second may be of one kind (Knuth, volume 3, section 6.4)."""

FEW: Final = 16  # where fewer than one in so many is to be ranked anew, each leaves its place by itself

MOMENTS_A_S: Final = 1024  # seconds are added up in whole parts of it, so that a sum does not depend on what came first

RankOf = Callable[[Job], Rank]
LeftOf = Callable[[Job], float]
WaitingOf = Callable[[Job], tuple[Rank, float]]
CourseOf = Callable[[Job], Course | None]


@dataclass(slots=True, eq=False)
class WaitingRank:
    """The rank of a job without GPUs, or of all of a class that tell nothing of how long they are."""

    family: str  # theirs
    key: ClassKey | None  # of which class they are; None of one that is by itself
    jobs: dict[JobId, None] = field(default_factory=dict)  # they
    rank: Rank = ()  # it; empty while it is to be worked out
    moments: int = 0  # what each has left in GPU-moments


@dataclass(slots=True)
class RanksNow:
    """Ranks of all live jobs of a pool at a moment."""

    kept: Mapping[JobId, WaitingRank]  # of those without GPUs
    waiting: list[Rank]  # the same in order
    placed: list[Rank]  # of those on GPUs, or of one in `every` of them, in order
    every: int  # as said
    work_s: float  # what all have left, in GPU-seconds

    def behind(self, rank: Rank) -> int:
        """How many other jobs come after one of this rank, or are its equals: any of them may go first."""
        waiting = len(self.waiting) - bisect_left(self.waiting, rank)
        placed = len(self.placed) - bisect_left(self.placed, rank)
        return max(0, waiting + self.every * placed - 1)


@dataclass(slots=True)
class _PlacedRank:
    """Whence the rank of a job on GPUs follows at any time."""

    job: JobId  # the job
    of: Kept | None = None  # what was believed when the rest was worked out; None where it was not yet
    is_known: bool = False  # whether its course is: else it is asked anew each time
    counts_steps: bool = False  # see `Course`
    is_untold: bool = False  # whether its length is learnt, of that family
    family: str = ""  # likewise
    priority: float = 0.0  # first number of its rank
    before_s: float = 0.0  # its course
    pace: float = 0.0  # likewise
    start_s: float = 0.0  # likewise
    paused_s: float = 0.0  # likewise
    gpus: int = 0  # how many it has
    weight: float = 0.0  # what they count
    from_s: float = inf  # where its length is learnt, what is left is the same from so much that it has had,
    until_s: float = 0.0  # up to so much,
    judged: int = -1  # and up to which version it was looked at what is learnt of its family
    rank: Rank = ()  # its rank when it was looked at last
    left_s: float = 0.0  # what it had left then
    has_left: bool = False  # it is not on these GPUs any more

    def work_out(self, job: Job, kept: Kept, course: Course | None, power: float) -> None:
        """All that holds as long as the job stays as it is, and the same is believed."""
        self.of, self.is_known, self.gpus = kept, course is not None, job.gpu_count
        if course is None:
            return
        self.counts_steps, self.is_untold = course.counts_steps, course.untold_family is not None
        self.family, self.priority = course.untold_family or "", priority_of(job.spec)
        self.before_s, self.pace, self.start_s, self.paused_s = course[:4]
        self.weight, self.from_s = float(job.effective.gpus) ** power, inf

    def look(self, now_s: float, lengths: LengthEstimates, judged: int) -> None:
        """Its rank now."""
        ran_s = now_s - self.start_s - self.paused_s
        left_s = self.before_s - self.pace * ran_s if ran_s > 0 else self.before_s
        if self.is_untold:
            if self.judged != judged and self.judged < lengths.version_of(self.family):
                self.from_s = inf
            self.judged = judged
            if self.from_s <= left_s <= self.until_s:
                return
            self.from_s, self.until_s = left_s, lengths.same_until_s(left_s)
            left_s = lengths.left_s(self.family, left_s)
        elif left_s < 0:
            left_s = 0.0
        self.left_s, self.rank = left_s, (self.priority, left_s * self.weight)


@dataclass(slots=True)
class _OfPool:
    """Live jobs of a pool."""

    kept: Kept | None = None  # what is believed while the ranks of those without GPUs hold,
    judged: int = -1  # and up to which version it was looked at what is learnt of lengths
    ranks: dict[JobId, WaitingRank] = field(default_factory=dict)  # of those without GPUs
    families: dict[str, dict[WaitingRank, None]] = field(default_factory=dict)  # these by family
    alike: dict[ClassKey, WaitingRank] = field(default_factory=dict)  # those of them that are of a class
    again: dict[WaitingRank, None] = field(default_factory=dict)  # those that are to be worked out
    in_order: list[Rank] = field(default_factory=list)  # the ranks of all
    moments: int = 0  # what they have left in sum
    new: dict[JobId, None] = field(default_factory=dict)  # those that were not looked at yet
    placed: list[dict[JobId, _PlacedRank]] = field(default_factory=list)  # those on GPUs, or parked, by level
    count: int = 0  # how many these are
    level: int = -1  # from which on they were looked at last; below 0 before
    # those of this level or a later one in the order they had then, and those that came since
    sample: list[_PlacedRank] = field(default_factory=list)
    has_lost: bool = False  # whether some of the sample are not on these GPUs any more
    # moment at which the sample was ranked last, or where it stands for more jobs than it has, number of that span of
    # `SAMPLE_HOLDS_S`, if that holds for all of it; else below all
    looked: float = -inf
    placed_ranks: list[Rank] = field(default_factory=list)  # its ranks then, in order
    placed_s: float = 0.0  # what they had left in sum, in GPU-seconds

    def enter(self, job: Job) -> None:
        """A job is live, as it is now."""
        if not _is_placed(job):
            self.new[job.id] = None
            return
        while len(self.placed) < LEVELS:
            self.placed.append({})
        level = _level(job.id)
        line = self.placed[level][job.id] = _PlacedRank(job.id)
        self.count += 1
        if 0 <= self.level <= level:
            self.sample.append(line)
            self.looked = -inf

    def leave(self, job: Job) -> None:
        """It is not any more."""
        if _is_placed(job):
            level = _level(job.id)
            self.placed[level].pop(job.id).has_left = True
            self.count -= 1
            if level >= self.level:
                self.has_lost, self.looked = True, -inf
            return
        self.new.pop(job.id, None)
        known = self.ranks.pop(job.id, None)
        if known is not None:
            del known.jobs[job.id]
            if known.rank:
                del self.in_order[bisect_left(self.in_order, known.rank)]
                self.moments -= known.moments
            if not known.jobs:
                self._drop(known)

    def _drop(self, known: WaitingRank) -> None:
        del self.families[known.family][known]
        if not self.families[known.family]:
            del self.families[known.family]
        self.again.pop(known, None)
        if known.key is not None:
            del self.alike[known.key]

    def forget(self, kept: Kept, judged: int) -> None:
        """Something else is believed of them."""
        self.kept, self.judged, self.looked = kept, judged, -inf
        self.new = {**self.new, **dict.fromkeys(self.ranks)}
        self.ranks, self.families, self.alike, self.again, self.in_order, self.moments = {}, {}, {}, {}, [], 0

    def judge(self, lengths: LengthEstimates) -> None:
        """Rank those anew of which the lengths are judged otherwise."""
        families, self.looked = lengths.judged_since(self.judged), -inf
        if families is None:
            found = [family for family in self.families if lengths.version_of(family) > self.judged]
        else:
            found = [family for family in families if family in self.families]
        self.judged, gone = lengths.version, Counter[Rank]()
        for known in [known for family in found for known in self.families[family] if known.rank]:
            gone[known.rank] += len(known.jobs)
            self.moments -= known.moments * len(known.jobs)
            known.rank = ()
            self.again[known] = None
        if len(gone) * FEW < len(self.in_order):
            for rank, jobs in gone.items():
                first = bisect_left(self.in_order, rank)
                del self.in_order[first : first + jobs]
        else:
            self.in_order = sorted([known.rank for known in self.ranks.values() if known.rank])

    def look(self, view: ClusterView, waiting: WaitingOf) -> None:
        """Rank those without GPUs that were not looked at yet."""
        jobs, is_each = view.jobs, view.beliefs.tells_each
        while again := view.portion(self.again):
            for known in again:
                self._work_out(known, jobs[next(iter(known.jobs))], waiting)
            self._put({known: len(known.jobs) for known in again})
        while new := view.portion(self.new):
            come = dict[WaitingRank, int]()
            for number in new:
                job = jobs[number]
                key = None if is_each or not tells_nothing(job) else (job.spec.priority, job.need)
                there = None if key is None else self.alike.get(key)
                known = WaitingRank(job.effective.family, key) if there is None else there
                if there is None:
                    self._work_out(known, job, waiting)
                    self.families.setdefault(known.family, {})[known] = None
                    if key is not None:
                        self.alike[key] = known
                known.jobs[number], self.ranks[number] = None, known
                come[known] = come.get(known, 0) + 1
            self._put(come)

    def _work_out(self, known: WaitingRank, job: Job, waiting: WaitingOf) -> None:
        known.rank, left_s = waiting(job)
        known.moments = int(left_s * job.gpu_count * MOMENTS_A_S)

    def _put(self, come: dict[WaitingRank, int]) -> None:
        """So many of these have come into the order."""
        self.moments += sum([known.moments * jobs for known, jobs in come.items()])
        counts = Counter[Rank]()
        for known, jobs in come.items():
            counts[known.rank] += jobs
        if len(counts) * FEW < len(self.in_order):
            for rank, jobs in counts.items():
                first = bisect_left(self.in_order, rank)
                self.in_order[first:first] = [rank] * jobs
        else:
            self.in_order += [rank for rank in sorted(counts) for _ in range(counts[rank])]
            self.in_order.sort()

    def sampled(self) -> list[_PlacedRank]:
        """Those on GPUs that stand for all: one in 2^`level`, much in the order that they had last."""
        level = 0
        if self.count > EACH_MAX:
            while self.count >> level > SAMPLE_MAX:
                level += 1
        if level != self.level:
            self.level, self.looked = level, -inf
            self.sample = [line for lines in self.placed[level:] for line in lines.values()]
        elif self.has_lost:
            self.sample = [line for line in self.sample if not line.has_left]
        self.has_lost = False
        return self.sample


class LiveRanks(NodesMatterNot):
    """Ranks of live jobs under one objective.

    Args:
        objective: Its name. Under all but `jct` only what is left in sum is told, not the ranks of those on GPUs.
        gpus_power: Jobs go by what they have left times their GPUs to this power.
    """

    def __init__(self, objective: str, gpus_power: float) -> None:
        self.objective = objective
        self._gpus_power = gpus_power
        self._pools: dict[str, _OfPool] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and _counts(old):
            self._pool(old.spec.pool).leave(old)
        if new is not None and _counts(new):
            self._pool(new.spec.pool).enter(new)

    def _pool(self, pool: str) -> _OfPool:
        found = self._pools.get(pool)
        if found is None:
            found = self._pools[pool] = _OfPool()
        return found

    def at(
        self, view: ClusterView, pool: str, waiting: WaitingOf, rank: RankOf, left_s: LeftOf, course: CourseOf
    ) -> RanksNow:
        """Ranks now.

        Args:
            view: When.
            pool: Of which jobs.
            waiting: Rank of a job without GPUs, and seconds left: always the same while the same is believed.
            rank: What the rank of any is.
            left_s: What any has left.
            course: How that falls.
        """
        known, kept = self._pool(pool), view.derived(LiveJobs).kept(view, pool)
        lengths = view.beliefs.lengths
        if known.kept is not kept:
            known.forget(kept, lengths.version)
        elif known.judged != lengths.version:
            known.judge(lengths)
        known.look(view, waiting)
        sample = known.sampled()
        moment = view.now_s if known.level == 0 else view.now_s // SAMPLE_HOLDS_S
        if known.looked != moment:  # a plan after another at one moment is told the same
            is_asked = self._look(view, known, sample, kept, rank, left_s, course)
            known.looked = -inf if is_asked and known.level == 0 else moment
        every = 1 << known.level
        work_s = known.moments / MOMENTS_A_S + known.placed_s * every
        return RanksNow(known.ranks, known.in_order, known.placed_ranks, every, work_s)

    def of_placed(
        self, view: ClusterView, pool: str, rank: RankOf, course: CourseOf, jobs: Iterable[Job]
    ) -> list[Rank]:  # fmt: skip
        """Ranks of jobs on GPUs now: `rank` is asked only where the course of one is not known."""
        kept, placed, lengths = view.derived(LiveJobs).kept(view, pool), self._pool(pool).placed, view.beliefs.lengths
        samples, version, found = view.samples, lengths.version, list[Rank]()
        for job in jobs:
            line = placed[_level(job.id)][job.id]
            if line.of is not kept:
                line.work_out(job, kept, course(job), self._gpus_power)
            if line.is_known and not (line.counts_steps and job.id in samples):
                line.look(view.now_s, lengths, version)
                found.append(line.rank)
            else:
                found.append(rank(job))
        return found

    def _look(
        self, view: ClusterView, known: _OfPool, sample: list[_PlacedRank], kept: Kept,
        rank: RankOf, left_s: LeftOf, course: CourseOf,
    ) -> bool:  # fmt: skip
        """Rank those on GPUs; whether some of them were asked, as they count their steps."""
        jobs, samples, lengths, power = view.jobs, view.samples, view.beliefs.lengths, self._gpus_power
        is_in_order, is_asked, last = True, False, NONE_BEFORE
        for line in sample:  # all in one place: hundreds in every plan
            if line.of is not kept:
                job = jobs[line.job]
                line.work_out(job, kept, course(job), power)
            if line.is_known and not (line.counts_steps and line.job in samples):
                line.look(view.now_s, lengths, known.judged)
            else:
                job = jobs[line.job]
                line.rank, line.left_s = rank(job), left_s(job)
                line.from_s, is_asked = inf, True
            is_in_order = is_in_order and last <= line.rank
            last = line.rank
        if not is_in_order:
            sample.sort(key=RANK)
        known.placed_ranks = [line.rank for line in sample]
        known.placed_s = fsum([line.left_s * line.gpus for line in sample])
        return is_asked


RANK: Final = attrgetter("rank")
NONE_BEFORE: Final[Rank] = (-inf,)


def _level(job: JobId) -> int:
    mixed = (int(job) * MIXES >> 8) & ((1 << (LEVELS - 1)) - 1)
    return (mixed & -mixed).bit_length() - 1 if mixed else LEVELS - 1


def _is_placed(job: Job) -> bool:
    return job.placement is not None or job.home != ""


def _counts(job: Job) -> bool:
    return job.spec.gpus > 0 and (job.placement is not None or job.is_waiting)
