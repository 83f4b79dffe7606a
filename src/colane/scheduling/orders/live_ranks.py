"""How many live jobs come after one: ranks of those that wait are kept, of those on GPUs worked out for a moment.

What waits has as much left from one plan to the next, and what runs less by so much a second, so nothing is asked of
each job anew but where its steps are counted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from colane.core.cluster.derived import NodesMatterNot
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import Rank
from colane.scheduling.engine.expected import Course
from colane.scheduling.engine.live import Kept, LiveJobs
from colane.scheduling.engine.walks import priority_of
from colane.scheduling.orders.value import Objective

EACH_MAX: Final = 1024
SAMPLE_MAX: Final = 256
"""Of more jobs on GPUs than the one, no more than the other are looked at, for all."""

LEVELS: Final = 24
"""Into so many levels jobs on GPUs are told apart: those of the k-th or a later one are one in 2^k."""

MIXES: Final = 2654435761
"""Spreads the numbers of jobs, of which every second may be of one kind (Knuth, volume 3, section 6.4)."""

MOMENTS_A_S: Final = 1024
"""Seconds are added up in whole parts of it, so that a sum does not depend on what came first."""

RankOf = Callable[[Job], Rank]
LeftOf = Callable[[Job], float]
CourseOf = Callable[[Job], Course | None]

Line = tuple[float, float, float, float, float, int, float]
"""First number of its rank, its course, its GPUs and their weight: whence the rank of a job on GPUs at any time."""


@dataclass(slots=True)
class RanksNow:
    """Ranks of all live jobs of a pool at a moment.

    Attributes:
        waiting: Of those without GPUs, in order.
        placed: Of those on GPUs, or of one in `every` of them, in order.
        every: As said.
        work_s: What all have left, in GPU-seconds.
    """

    waiting: list[Rank]
    placed: list[Rank]
    every: int
    work_s: float

    def behind(self, rank: Rank) -> int:
        """How many other jobs come after one of this rank, or are its equals: any of them may go first."""
        waiting = len(self.waiting) - bisect_left(self.waiting, rank)
        placed = len(self.placed) - bisect_left(self.placed, rank)
        return max(0, waiting + self.every * placed - 1)


@dataclass(slots=True)
class _Level:
    """Jobs on GPUs, or parked, of one level; looked at only where it is among those that are ranked.

    Attributes:
        kept: What is believed while their lines hold.
        lines: Of each; None also of one that was not looked at yet.
        unseen: Those that were not.
    """

    kept: Kept | None = None
    lines: dict[JobId, Line | None] = field(default_factory=dict)
    unseen: dict[JobId, None] = field(default_factory=dict)

    def look(self, kept: Kept, jobs: Mapping[JobId, Job], course: CourseOf, power: float) -> None:
        """Know the line of each that was not looked at since something else is believed."""
        if self.kept is not kept:
            self.kept, self.unseen = kept, dict.fromkeys(self.lines)
        for number in self.unseen:
            self.lines[number] = _line(jobs[number], course, power)
        self.unseen.clear()


@dataclass(slots=True)
class _OfPool:
    """Live jobs of a pool.

    Attributes:
        kept: What is believed while their ranks hold.
        ranks: Of those without GPUs, and what each has left in GPU-moments.
        in_order: Their ranks.
        moments: What they have left in sum.
        new: Those that were not looked at yet.
        placed: Those on GPUs, or parked, by level.
        count: How many these are.
    """

    kept: Kept | None = None
    ranks: dict[JobId, tuple[Rank, int]] = field(default_factory=dict)
    in_order: list[Rank] = field(default_factory=list)
    moments: int = 0
    new: dict[JobId, None] = field(default_factory=dict)
    placed: list[_Level] = field(default_factory=list)
    count: int = 0

    def enter(self, job: Job) -> None:
        """A job is live, as it is now."""
        if not _is_placed(job):
            self.new[job.id] = None
            return
        while len(self.placed) < LEVELS:
            self.placed.append(_Level())
        level = self.placed[_level(job.id)]
        level.lines[job.id] = None
        level.unseen[job.id] = None
        self.count += 1

    def leave(self, job: Job) -> None:
        """It is not any more."""
        if _is_placed(job):
            level = self.placed[_level(job.id)]
            del level.lines[job.id]
            level.unseen.pop(job.id, None)
            self.count -= 1
            return
        self.new.pop(job.id, None)
        known = self.ranks.pop(job.id, None)
        if known is not None:
            del self.in_order[bisect_left(self.in_order, known[0])]
            self.moments -= known[1]

    def forget(self, kept: Kept) -> None:
        """Something else is believed of those that wait."""
        self.kept = kept
        self.new = {**self.new, **dict.fromkeys(self.ranks)}
        self.ranks, self.in_order, self.moments = {}, [], 0

    def look(self, jobs: Mapping[JobId, Job], rank: RankOf, left_s: LeftOf) -> None:
        """Rank those that wait and were not looked at yet."""
        is_first = len(self.new) > len(self.in_order)
        for number in self.new:
            job = jobs[number]
            entry, moments = rank(job), int(left_s(job) * job.gpu_count * MOMENTS_A_S)
            self.ranks[number] = entry, moments
            self.moments += moments
            if is_first:
                self.in_order.append(entry)
            else:
                insort(self.in_order, entry)
        if is_first:
            self.in_order.sort()
        self.new.clear()


class LiveRanks(NodesMatterNot):
    """See the module; for one objective.

    Args:
        objective: It. Under all but `jct` only what is left in sum is told, not the ranks of those on GPUs.
        gpus_power: Jobs go by what they have left times their GPUs to this power.
    """

    def __init__(self, objective: Objective, gpus_power: float) -> None:
        self.objective = objective
        self._power = gpus_power
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

    def at(self, view: ClusterView, pool: str, rank: RankOf, left_s: LeftOf, course: CourseOf) -> RanksNow:
        """Ranks now.

        Args:
            view: When.
            pool: Of which jobs.
            rank: What the rank of a job is; of one without GPUs always the same while the same is believed.
            left_s: What it has left.
            course: How that falls.
        """
        known, kept = self._pool(pool), view.derived(LiveJobs).kept(view, pool)
        if known.kept is not kept:
            known.forget(kept)
        known.look(view.jobs, rank, left_s)
        level = 0
        if known.count > EACH_MAX:
            while known.count >> level > SAMPLE_MAX:
                level += 1
        found: list[Rank] = []
        work_s: list[float] = []
        for one in known.placed[level:]:
            one.look(kept, view.jobs, course, self._power)
            _add(view, one.lines, rank, left_s, found, work_s)
        found.sort()
        return RanksNow(known.in_order, found, 1 << level, known.moments / MOMENTS_A_S + fsum(work_s) * (1 << level))


def _add(
    view: ClusterView,
    lines: Mapping[JobId, Line | None],
    rank: RankOf,
    left_s: LeftOf,
    found: list[Rank],
    work_s: list[float],
) -> None:
    """Rank some of those on GPUs: without a call for each, of which there would be hundreds in every plan."""
    now_s, samples, jobs = view.now_s, view.samples, view.jobs
    ranks: list[Rank] = [()] * len(lines)
    left: list[float] = [0.0] * len(lines)
    place = -1
    for number, line in lines.items():
        place += 1
        if line is None or number in samples:
            job = jobs[number]
            ranks[place] = rank(job)
            left[place] = left_s(job) * job.gpu_count
            continue
        priority, before_s, pace, start_s, paused_s, gpus, weight = line
        ran_s = now_s - start_s - paused_s
        now_left_s = before_s - pace * ran_s if ran_s > 0 else before_s
        if now_left_s < 0:
            now_left_s = 0.0
        ranks[place] = (priority, now_left_s * weight)
        left[place] = now_left_s * gpus
    found += ranks
    work_s += left


def _line(job: Job, course: CourseOf, power: float) -> Line | None:
    known = course(job)
    if known is None:
        return None
    weight = float(job.effective.gpus) ** power
    return (priority_of(job.spec), known.before_s, known.pace, known.start_s, known.paused_s, job.gpu_count, weight)


def _level(job: JobId) -> int:
    mixed = (int(job) * MIXES >> 8) & ((1 << (LEVELS - 1)) - 1)
    return (mixed & -mixed).bit_length() - 1 if mixed else LEVELS - 1


def _is_placed(job: Job) -> bool:
    return job.placement is not None or job.home != ""


def _counts(job: Job) -> bool:
    return job.spec.gpus > 0 and (job.placement is not None or job.is_waiting)
