"""Listing 1 of paper E: GPUs for each job from throughput functions, fair by the variance of speeds.

Every job that fits gets its smallest size, in order; what is left goes, step by step, to the job whose throughput it
raises most among those that keep the variance of speeds below its bound, or to the one that leaves it lowest where
none does. A job's *speed* here is paper E's S: its throughput at a size over what it reaches with every GPU there is,
so 1 is as fast as alone. The printed listing hands out GPUs that slow a job down; here a size counts only if it is
faster than all smaller ones (the monotone envelope), and a step leads from one such size to the next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeVar

import numpy as np

Who = TypeVar("Who", bound=Hashable)


class Throughput(NamedTuple):
    """What a job reaches at each size that is worth having."""

    gpus: tuple[int, ...]  # numbers of GPUs, ascending
    steps_per_s: tuple[float, ...]  # throughput with each, ascending; the last is what it reaches with all there is
    # what a step per second of it counts; 1 as in the paper. One over its last throughput makes jobs with quick steps
    # count no more than others
    weight: float = 1.0


def envelope(points: Iterable[tuple[int, float]], most_gpus: int) -> Throughput | None:
    """Sizes worth having: each faster than all smaller ones; None where no size runs.

    Args:
        points: (GPUs, steps per second); 0 where a size cannot run.
        most_gpus: Larger sizes are left out.
    """
    gpus: list[int] = []
    speeds: list[float] = []
    for size, speed in sorted(points):
        if size <= most_gpus and speed > (speeds[-1] if speeds else 0.0):
            gpus.append(size)
            speeds.append(speed)
    return Throughput(tuple(gpus), tuple(speeds)) if gpus else None


def variance(speeds: Sequence[float]) -> float:
    """Population variance of speeds; 0 of none."""
    return float(np.var(speeds)) if len(speeds) else 0.0


def share_out(
    jobs: Mapping[Who, Throughput], gpus: int, variance_max: float, fixed_speeds: Sequence[float] = ()
) -> dict[Who, int]:
    """GPUs for each job; jobs that get none are left out.

    Args:
        jobs: In the order in which they are given their smallest size: one that does not fit is passed over.
        gpus: How many may be given.
        variance_max: Bound on the variance of speeds; it lies in 0..1, so variance is at most 0.25 and a larger bound
            changes nothing.
        fixed_speeds: Speeds of running jobs whose size may not change now; they count in the variance.
    """
    first: dict[Who, Throughput] = {}
    for job, throughput in jobs.items():
        if throughput.gpus[0] <= gpus:
            first[job] = throughput
            gpus -= throughput.gpus[0]
    if not first:
        return {}
    steps = _Steps(list(first.values()), fixed_speeds)
    while gpus > 0 and (chosen := steps.best(gpus, variance_max)) is not None:
        gpus -= steps.take(chosen)
    return {job: one.gpus[place] for (job, one), place in zip(first.items(), steps.places, strict=True)}


NEVER: Final = float("inf")


class _Steps:
    """Where every job stands, and what its next step would bring; sums are kept.

    Next steps stand in line by gain: where the first may be made, as fairness nearly always lets it, no other is
    looked at; only where it may not, all are.

    Attributes:
        places: Of each job, which of its sizes it has.
    """

    def __init__(self, jobs: Sequence[Throughput], fixed_speeds: Sequence[float]) -> None:
        self._jobs = jobs
        self.places = [0] * len(jobs)
        speeds = [one.steps_per_s[0] / one.steps_per_s[-1] for one in jobs]
        self._speed = np.array(speeds)
        self._count = len(jobs) + len(fixed_speeds)
        self._sum = sum(speeds, 0.0) + sum(fixed_speeds, 0.0)
        self._squares = sum([s * s for s in [*speeds, *fixed_speeds]], 0.0)
        self._cost = np.full(len(jobs), NEVER)
        self._gain = np.zeros(len(jobs))
        self._next = np.zeros(len(jobs))
        self._by_gain: list[tuple[float, int, int]] = []
        for index in range(len(jobs)):
            self._look_ahead(index)

    def best(self, gpus: int, variance_max: float) -> int | None:
        """The job to step next, the first of equals; None where no step can be paid."""
        if not self._drop_dear(gpus):
            return None
        index = self._by_gain[0][1]
        return index if self._spread(index) < variance_max else self._fairest(gpus, variance_max)

    def _drop_dear(self, gpus: int) -> bool:
        """Take off the line's head steps that were made, and that cannot be paid any more; whether one is left."""
        line = self._by_gain
        while line and (line[0][2] != self.places[line[0][1]] or self._cost[line[0][1]] > gpus):
            heappop(line)
        return bool(line)

    def _spread(self, index: int) -> float:
        """The variance of speeds after a step of a job."""
        after, before = float(self._next[index]), float(self._speed[index])
        mean = (self._sum + after - before) / self._count
        return (self._squares + after * after - before * before) / self._count - mean * mean

    def _fairest(self, gpus: int, variance_max: float) -> int | None:
        """The same by a look at every job."""
        can = self._cost <= gpus
        if not can.any():
            return None
        sums = self._sum + self._next - self._speed
        squares = self._squares + self._next**2 - self._speed**2
        spread = squares / self._count - (sums / self._count) ** 2
        fair = can & (spread < variance_max)
        if fair.any():
            return int(np.argmax(np.where(fair, self._gain, -NEVER)))
        return int(np.argmin(np.where(can, spread, NEVER)))

    def take(self, index: int) -> int:
        """Step a job; how many GPUs that took."""
        job, place = self._jobs[index], self.places[index]
        before, after = float(self._speed[index]), float(self._next[index])
        self._sum += after - before
        self._squares += after * after - before * before
        self._speed[index] = after
        self.places[index] = place + 1
        self._look_ahead(index)
        return job.gpus[place + 1] - job.gpus[place]

    def _look_ahead(self, index: int) -> None:
        """Price and gain of the next step, by GPU; a job at its last size has none."""
        job, place = self._jobs[index], self.places[index]
        if place + 1 == len(job.gpus):
            self._cost[index] = NEVER
            return
        cost = job.gpus[place + 1] - job.gpus[place]
        self._cost[index] = cost
        self._gain[index] = job.weight * (job.steps_per_s[place + 1] - job.steps_per_s[place]) / cost
        self._next[index] = job.steps_per_s[place + 1] / job.steps_per_s[-1]
        heappush(self._by_gain, (-float(self._gain[index]), index, place))
