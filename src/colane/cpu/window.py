"""How fast a job goes with one number of cores, from the samples of one try."""

from __future__ import annotations

from collections.abc import Hashable

from colane.cpu.config import TuningConfig
from colane.cpu.tuner import CoreTry
from colane.model.progress import Progress

CPU_TIME = "cpu-time"
"""What measures the use of a cpu device: its own CPU time, which says nothing of how well a GPU is fed."""


class TryWindow:
    """One number of cores on trial.

    Speed is steps per second, by the job's own counter, which says the same alone and in company. Of a job that reports
    no steps it is the utilisation of its GPU while it has that alone (speed and utilisation peak at the same number of
    cores: paper D, section III).

    Args:
        cores: How many, of all its GPUs together.
        begins_s: What it does before is not counted.
        co_runners: The other jobs on its GPUs; with others a try begins anew.
    """

    def __init__(self, cores: int, begins_s: float, co_runners: Hashable) -> None:
        self.cores = cores
        self.co_runners = co_runners
        self._begins_s = begins_s
        self._first: tuple[int, float] | None = None
        self._used: list[float] = []

    def add(self, progress: Progress, config: TuningConfig, *, is_alone: bool) -> CoreTry | None:
        """Take a sample; the try, once there is enough of it."""
        if progress.steps:
            return self._by_steps(progress, config)
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
