"""When CPU jobs are held back for training jobs beside them, and when they are let go (CODA, paper D, section V-D).

A node whose memory bandwidth is used over a threshold is not at fault by itself: only when a training job on it goes
slower than it did is the job without GPUs that uses most of the bandwidth held back, one step in each interval. It is
let go step by step once the node has been well below the threshold for a while, at once when no training job is there.
A job that has to be held back again soon after is let go later each time, so that the two do not take turns for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

STEP_FACTOR = 2
"""A step halves what a job has, or doubles it (section V-D halves the cores)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionConfig:
    """Thresholds of the contention eliminator."""

    threshold_ratio: float = 0.75  # part of a node's bandwidth above which a job may be held back (the paper's 75 %)
    release_ratio: float = 0.60  # part below which a job may be let go
    drop_ratio: float = 0.05  # a training job is slowed when it is slower by more than this than it was
    interval_s: float = 10.0  # one step an interval; also how often the bandwidth is measured
    release_s: float = 60.0  # for so long the node is below `release_ratio` before the first step back
    release_factor_max: int = 16  # the wait doubles each time a job is held back anew, up to so many times `release_s`
    bandwidth_min_ratio: float = 0.1  # least part of the bandwidth that a job is left, where the machine can bound it
    used_min_ratio: float = 0.02  # a job that uses less of the bandwidth is not held back for it
    steps_min: int = 3  # steps over which the speed of a training job is taken, at least

    @classmethod
    def of(cls, interval_s: float) -> Self:
        """Thresholds with intervals of this length; waits keep their proportion to it."""
        return cls(interval_s=interval_s, release_s=6 * interval_s)


class Consumer(NamedTuple):
    """A job without GPUs on a node."""

    job: int  # its number
    used_ratio: float  # part of the node's bandwidth it uses
    cores: int  # cores it may use now
    cores_whole: int  # cores it may use when it is not held back
    bandwidth_ratio: float = 1.0  # part of the bandwidth it may use now

    @property
    def is_held_back(self) -> bool:
        """Whether it has less than it would have."""
        return self.cores < self.cores_whole or self.bandwidth_ratio < 1


class Look(NamedTuple):
    """One interval of a node."""

    at_s: float  # its end
    used_ratio: float  # part of its bandwidth that was used
    trains: bool  # whether a training job makes steps there
    is_slowed: bool  # whether one of those was slowed
    can_limit: bool = False  # whether bandwidth can be bounded there; else cores are taken


class Change(NamedTuple):
    """What a job may use from now on."""

    job: int
    cores: int
    bandwidth_ratio: float


class NodeWatch:
    """What is remembered of one node between intervals.

    Args:
        config: Thresholds.
    """

    def __init__(self, config: ContentionConfig) -> None:
        self._config = config
        self._acted_s = float("-inf")
        self._calm_since_s: float | None = None
        self._held_back: dict[int, int] = {}

    def judge(self, look: Look, consumers: Sequence[Consumer]) -> list[Change]:
        """What changes now; at most one job is held back further or let go a step, all when no job trains."""
        config = self._config
        held = [one for one in consumers if one.is_held_back]
        if not look.trains:
            self._calm_since_s = None
            return [Change(one.job, one.cores_whole, 1.0) for one in held]
        is_calm = look.used_ratio < config.release_ratio
        self._calm_since_s = (look.at_s if self._calm_since_s is None else self._calm_since_s) if is_calm else None
        if look.at_s < self._acted_s + config.interval_s:
            return []
        if look.used_ratio >= config.threshold_ratio and look.is_slowed:
            return self._hold_back(look, consumers)
        return self._let_go(look.at_s, held)

    def _hold_back(self, look: Look, consumers: Sequence[Consumer]) -> list[Change]:
        config = self._config
        for one in sorted(consumers, key=lambda one: (-one.used_ratio, one.job)):
            less = _less(one, config, can_limit=look.can_limit)
            if less is not None and one.used_ratio >= config.used_min_ratio:
                if not one.is_held_back:
                    self._held_back[one.job] = self._held_back.get(one.job, 0) + 1
                self._acted_s = look.at_s
                return [less]
        return []

    def _let_go(self, at_s: float, held: Sequence[Consumer]) -> list[Change]:
        """One step back for the job that uses least."""
        if not held or self._calm_since_s is None:
            return []
        one = min(held, key=lambda one: (one.used_ratio, one.job))
        if at_s < self._calm_since_s + self._release_s(one.job):
            return []
        self._acted_s = self._calm_since_s = at_s
        cores = min(one.cores_whole, one.cores * STEP_FACTOR)
        return [Change(one.job, cores, min(1.0, one.bandwidth_ratio * STEP_FACTOR))]

    def _release_s(self, job: int) -> float:
        times = self._held_back.get(job, 1)
        return self._config.release_s * min(1 << (times - 1), self._config.release_factor_max)


def _less(one: Consumer, config: ContentionConfig, *, can_limit: bool) -> Change | None:
    """A step less: of the bandwidth where that can be bounded, else of the cores; None where nothing is left."""
    if can_limit:
        ratio = max(config.bandwidth_min_ratio, one.bandwidth_ratio / STEP_FACTOR)
        return Change(one.job, one.cores, ratio) if ratio < one.bandwidth_ratio else None
    cores = max(1, one.cores // STEP_FACTOR)
    return Change(one.job, cores, one.bandwidth_ratio) if cores < one.cores else None
