"""How fast a job goes with one number of cores, from the samples of one try."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from colane.cpu.config import TuningConfig
from colane.cpu.tuner import CoreTry
from colane.model.progress import Progress

CPU_TIME = "cpu-time"
"""What measures the use of a cpu device: its own CPU time, which says nothing of how well a GPU is fed."""


GIVE_UP_RATIO: Final = 1 / 9
"""Of the length of a try; after it a job may be seen to be slow beyond doubt (ours)."""
FAR_RATIO: Final = 0.6
"""Of the best speed; what is slower is not asked how slow."""


class TryWindow:
    """One number of cores on trial.

    Speed is steps per second, by the job's own counter, which says the same alone and with co-runners. Of a job that
    reports no steps it is the utilisation of its GPU while it has that alone (speed and utilisation peak at the same
    number of cores: paper D, section III).

    Args:
        cores: How many, of all its GPUs together.
        begins_s: What it does before is not counted.
        conditions: Under which its speed is that of its cores, such as the other jobs on its GPUs.
    """

    def __init__(self, cores: int, begins_s: float, conditions: Hashable) -> None:
        self.cores = cores
        self.conditions = conditions
        self._begins_s = begins_s
        self._first: tuple[int, float] | None = None
        self._used: list[float] = []

    def add(
        self, progress: Progress, config: TuningConfig, *, is_alone: bool, best: float | None = None
    ) -> CoreTry | None:
        """Take a sample; the try, once there is enough of it.

        Args:
            progress: The sample.
            config: How long a try is.
            is_alone: Whether it has its GPU alone.
            best: Steps per second at the best of the other numbers tried: where it is far from that, as a job is whose
                threads wait for each other, a try is given up at once.
        """
        if progress.steps:
            return self._by_steps(progress, config) or self._given_up(progress, config, best)
        ratio = progress.occupancy_ratio
        if not is_alone or ratio is None or progress.occupancy_by == CPU_TIME or progress.at_s < self._begins_s:
            return None
        self._used.append(ratio)
        is_over = progress.at_s >= self._begins_s + config.window_s and len(self._used) >= config.samples_min
        return CoreTry(self.cores, sum(self._used) / len(self._used)) if is_over else None

    def _by_steps(self, progress: Progress, config: TuningConfig) -> CoreTry | None:
        last_s = progress.last_step_s
        if last_s is None or last_s < self._begins_s:
            return None
        if self._first is None or progress.steps < self._first[0]:
            self._first = (progress.steps, last_s)
            return None
        steps, span_s = progress.steps - self._first[0], last_s - self._first[1]
        if steps < config.steps_min or span_s < config.window_s or span_s <= 0:
            return None
        return CoreTry(self.cores, steps / span_s)

    def _given_up(self, progress: Progress, config: TuningConfig, best: float | None) -> CoreTry | None:
        """The try of a job that is slow beyond doubt, at the most that its speed can be by now."""
        steps, since_s = (
            (0, self._begins_s) if self._first is None else (progress.steps - self._first[0], self._first[1])
        )
        span_s = progress.at_s - since_s
        if best is None or span_s < config.window_s * GIVE_UP_RATIO:
            return None
        most = (steps + 1) / span_s
        return CoreTry(self.cores, most) if most < best * FAR_RATIO else None
