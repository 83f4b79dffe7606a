"""Spreads of what was measured come from how far measurements of a machine were off, whatever its noise."""

from __future__ import annotations

from math import exp, log
from random import Random

import pytest

from colane.model.profile import ProfileKey, SetMeasurement
from colane.perf.beliefs import Beliefs
from colane.perf.calibration import BOTH_SIDES
from colane.perf.scatter import Scatter

KINDS = [ProfileKey(f"kind-{number}", None, 1, "v100") for number in range(6)]
SHARING = "mps"


def measurement(one: ProfileKey, other: ProfileKey, slowdowns: tuple[float, float], at_s: float) -> SetMeasurement:
    """Of two jobs with steps of a second alone."""
    delta = 2.0 / max(slowdowns)
    return SetMeasurement(
        keys=(one, other), sharing=SHARING, step_alone_s=(1.0, 1.0), step_together_s=slowdowns, steps=(100, 100),
        delta=delta, delta_general=delta, at_s=at_s,
    )  # fmt: skip


def held_ratio(noise: float, seed: int) -> float:
    """Every pair measured up to eight times: how often the interval of what was believed holds what is seen next."""
    random, beliefs, held = Random(seed), Beliefs(), list[bool]()
    truth = {(one, other): random.uniform(1.3, 2.5) for one in KINDS for other in KINDS}
    pairs = [(one, other) for at, one in enumerate(KINDS) for other in KINDS[at + 1 :]]
    for times in range(8):
        for one, other in pairs:
            found = beliefs.predict([one, other], SHARING) if times else None
            seen = {a: truth[a, b] * exp(random.gauss(0.0, noise)) for a, b in ((one, other), (other, one))}
            for job in () if found is None or times < 2 else found.jobs:
                off = abs(log(seen[job.key] / job.slowdown))
                held.append(off <= BOTH_SIDES * (job.spread_ratio or 0.0))
            beliefs.learn_set(measurement(one, other, (seen[one], seen[other]), 100.0 * times))
    return sum(held) / len(held)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.15])
def test_80_percent_intervals_hold_about_that_whatever_the_noise(noise: float) -> None:
    held = [held_ratio(noise, seed) for seed in range(2)]
    assert 0.75 <= sum(held) / len(held) <= 0.88, held


def test_a_noisy_family_is_told_from_a_quiet_one_and_forgotten() -> None:
    random, usual = Random(1), 0.05**2
    scatter, world = Scatter(usual), ("v100", SHARING)
    for _ in range(100):
        scatter.seen(world, "noisy", random.gauss(0.0, 0.2), 50)
        scatter.seen(world, "quiet", random.gauss(0.0, 0.01), 50)
    assert scatter.of(world, "noisy") > 100 * scatter.of(world, "quiet") / 10 > usual / 10
    between = scatter.of(world, "new")
    assert scatter.of(world, "quiet") < between < scatter.of(world, "noisy")
    assert scatter.of(("p100", SHARING), "noisy") == usual
    scatter.drop("noisy")
    assert scatter.of(world, "new") < between / 10


def test_what_is_seen_once_is_as_usual() -> None:
    scatter = Scatter(0.05**2)
    assert scatter.of(("v100", SHARING), "any") == 0.05**2
