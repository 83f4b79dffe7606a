"""One number of cores on trial: how long it is tried."""

from __future__ import annotations

import pytest

from colane.cpu.config import TuningConfig
from colane.cpu.tuner import CoreTry
from colane.cpu.window import TryWindow
from colane.model.progress import Progress

CONFIG = TuningConfig()


def tried(step_s: float, best: float | None, until_s: float = 1000.0) -> tuple[CoreTry, float]:
    """A try of one core from second 0 on, and when it was over, by samples of every second."""
    window = TryWindow(1, 0.0, ())
    for at_s in range(1, int(until_s)):
        steps = int(at_s // step_s)
        progress = Progress(at_s=float(at_s), steps=1 + steps, first_step_s=0.0, last_step_s=steps * step_s)
        if (found := window.add(progress, CONFIG, is_alone=True, best=best)) is not None:
            return found, at_s
    raise AssertionError("the try has no end")


@pytest.mark.parametrize("best", [None, 1.0, 1.2])
def test_a_try_lasts_its_time_and_its_steps(best: float | None) -> None:
    found, over_s = tried(1.0, best)
    assert found.cores == 1
    assert found.speed == pytest.approx(1.0)
    assert CONFIG.window_s <= over_s <= CONFIG.window_s + 1
    assert tried(20.0, None)[1] >= 20.0 * CONFIG.steps_min


def test_a_job_whose_threads_wait_for_each_other_is_not_held_to_ten_steps() -> None:
    """At a tenth of its speed they took 100 s; a try tells no more than that it is slow."""
    found, over_s = tried(10.0, best=1.0)
    assert over_s <= 30
    assert 0.1 <= found.speed < 0.6


def test_a_job_that_stands_still_is_given_up_without_a_step() -> None:
    found, over_s = tried(10_000.0, best=1.0)
    assert over_s <= CONFIG.window_s / 9 + 1
    assert found.speed < 0.6


@pytest.mark.parametrize("step_s", [0.9, 1.0, 1.3, 1.6])
def test_what_may_be_nearly_as_good_is_tried_to_the_end(step_s: float) -> None:
    assert tried(step_s, best=1.0)[1] >= CONFIG.window_s
