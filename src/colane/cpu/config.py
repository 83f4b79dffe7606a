"""Settings of the search for the right number of cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from colane.cpu.tuner import TunerName


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConfig:
    """How the cores of training jobs are tuned (paper D, section IV-B)."""

    tuner: TunerName = TunerName.LINEAR  # says what is tried next
    window_s: float = 90.0  # how long a number of cores is tried, at least; the paper's step
    steps_min: int = 10  # steps it is tried for, at least
    samples_min: int = 9  # samples of utilisation, of a job that reports no steps
    # after a change the job is let run this long before it is looked at: buffers run empty or full
    settle_s: float = 5.0
    warm_up_s: float = 30.0  # the same after the first step of an attempt
    left_min_s: float = 900.0  # a job known to end sooner is not tuned (the paper does not say)
    # whether a job waits for the cores it is to start with, as under CODA others give theirs up for it; otherwise it
    # starts with those there are
    is_need: bool = False

    @classmethod
    def of(cls, tuner: TunerName, window_s: float) -> Self:
        """Settings with windows of this length; the other times keep their proportion to it."""
        return cls(
            tuner=tuner, window_s=window_s, settle_s=window_s / 18, warm_up_s=window_s / 3, left_min_s=10 * window_s
        )
