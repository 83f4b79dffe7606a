"""Intervals about points: how many hold, when they are known, and what moves their tails."""

from __future__ import annotations

import numpy as np
import pytest

from colane.facts.job import sentence
from colane.foresee.said import QuoteBounds
from colane.foresee.scale import horizon_of
from colane.foresee.widen import HIGH, LEVEL, LOW, Mix, Widened
from colane.model.words import about

HOUR_S = 3600.0


def quoted(
    errors: list[float], *, every_s: float = 4 * HOUR_S, point_s: float = HOUR_S
) -> list[tuple[QuoteBounds, float]]:
    """Quotes of one point whose truths are as many times as long."""
    widened, found = Widened(), list[tuple[QuoteBounds, float]]()
    for number, error in enumerate(errors):
        now_s, took_s = number * every_s, point_s * error
        bounds = widened.quote(now_s, point_s)
        widened.issue(number, now_s, point_s, bounds)
        found.append((bounds, took_s))
        if took_s < every_s:
            widened.happened(number, now_s + took_s)
    return found


@pytest.mark.parametrize("sigma", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("bias", [0.3, 1.0, 3.0])
def test_eighty_in_a_hundred_hold_whatever_the_errors(sigma: float, bias: float) -> None:
    errors = (bias * np.random.default_rng(5).lognormal(0, sigma, 800)).tolist()
    late = quoted(errors, point_s=900.0)[300:]
    holds = np.mean([bounds.p10_s <= took_s <= bounds.p90_s for bounds, took_s in late])
    assert 0.74 < holds < 0.87
    assert np.median([bounds.p50_s for bounds, _ in late]) == pytest.approx(bias * 900, rel=0.25)


def test_a_quote_is_known_after_ten_bursts_and_one_burst_is_not_many() -> None:
    apart = [bounds.is_known for bounds, _ in quoted([1.0] * 45)]
    assert apart == [False] * 10 + [True] * 35
    at_once = [bounds.is_known for bounds, _ in quoted([1.0] * 60, every_s=10.0)]
    assert not any(at_once)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 1.0])
def test_how_many_start_within_a_minute_is_said_as_often_as_they_do(part: float) -> None:
    """Of one quote in two parts: so likely at once, else later; a table says the same."""
    random, widened = np.random.default_rng(3), Widened()
    for number in range(300):
        at_s, took_s = number * 4 * HOUR_S, 10.0 if random.random() < part else HOUR_S
        widened.issue(number, at_s, 600.0, widened.quote(at_s, 600.0))
        widened.happened(number, at_s + took_s)
    found = widened.quote(1200 * HOUR_S, 600.0)
    assert found.at_once == pytest.approx(part, abs=0.1)
    tabled = widened.table(1200 * HOUR_S, np.linspace(500.0, 700.0, 100))[50]
    assert tabled.at_once == pytest.approx(found.at_once, abs=0.02)
    if 0.2 < part < 0.8:
        assert (
            sentence(*found[:3], found.at_once)
            == f"{round(100 * found.at_once)} %: at once; else within {about(found.p90_s)}"
        )


def test_those_that_wait_still_tell_that_waits_are_longer() -> None:
    widened = Widened()
    for number in range(40):
        widened.issue(number, number * HOUR_S, 600.0, widened.quote(number * HOUR_S, 600.0))
        if number % 2:
            widened.happened(number, number * HOUR_S + 600)
    assert widened.quote(41 * HOUR_S, 600.0).p90_s > 20 * HOUR_S


def test_a_bound_that_is_crossed_moves_its_tail_before_the_job_has_started() -> None:
    widened = Widened()
    bounds = widened.quote(0.0, 600.0)
    widened.issue(1, 0.0, 600.0, bounds)
    horizon = horizon_of(bounds.p50_s)
    widened.quote(bounds.p10_s + 1, 600.0)
    assert widened.levels[LOW][horizon] > LEVEL
    widened.quote(bounds.p90_s + 1, 600.0)
    assert widened.levels[HIGH][horizon] < LEVEL


@pytest.mark.parametrize("part", [0.5, 1.0, 2.0])
def test_a_start_settles_both_tails_once(part: float) -> None:
    widened = Widened()
    bounds = widened.quote(0.0, 600.0)
    widened.issue(1, 0.0, 600.0, bounds)
    at_s = {0.5: bounds.p10_s / 2, 1.0: bounds.p50_s, 2.0: bounds.p90_s * 2}[part]
    widened.happened(1, at_s)
    levels = [list(one) for one in widened.levels]
    horizon = horizon_of(bounds.p50_s)
    assert (levels[LOW][horizon] < LEVEL) == (part == 0.5)
    assert (levels[HIGH][horizon] < LEVEL) == (part == 2.0)
    widened.happened(1, at_s)
    widened.quote(1e6, 600.0)
    assert widened.levels == levels


def test_a_job_that_was_cancelled_moves_no_tail() -> None:
    widened = Widened()
    widened.issue(1, 0.0, 600.0, widened.quote(0.0, 600.0))
    widened.never(1, 5.0)
    widened.quote(1e6, 600.0)
    assert widened.levels == Widened().levels


def test_the_point_that_errs_less_weighs_more() -> None:
    mix = Mix(2)
    for _ in range(200):
        mix.learn((1000.0, 100.0), 1000.0)
    assert mix.point_s((5000.0, 50.0)) == pytest.approx(5000.0, rel=0.02)


def test_the_point_that_is_almost_exact_is_told_as_it_is() -> None:
    """By as much as the other errs more it counts for nothing beside one that errs by 2 %, for some beside 50 %."""
    near, far = Mix(2, [0.02, 0.2]), Mix(2, [0.5, 0.68])
    assert near.point_s((1000.0, 2000.0)) == pytest.approx(1000.0, rel=0.001)
    assert far.point_s((1000.0, 2000.0)) > 1050.0
    assert near.points_s([np.array([1000.0]), np.array([2000.0])]) == pytest.approx([1000.0], rel=0.001)
    assert Mix(2, [0.0, 0.0]).point_s((1000.0, 1000.0)) == pytest.approx(1000.0)
