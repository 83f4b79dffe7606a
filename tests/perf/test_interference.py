"""Laws of what is expected of pairs, given those that were measured."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colane.perf.encounters import CoRunnerTraits, Encounter, Estimate, Sighting, log_bound
from colane.perf.interference import Interference, Scale

LIGHT, HEAVY = CoRunnerTraits("light", 4.0, log(0.1), 0.2), CoRunnerTraits("heavy", 8.0, log(0.4), 0.9)
LARGER = LIGHT._replace(batch=5.0, step=log(0.15), demand=0.3)
STRANGE = CoRunnerTraits("strange")
VARIANCE = 1e-4


def beside(me: CoRunnerTraits, other: CoRunnerTraits, *, gpu_type: str = "A", sharing: str = "mps") -> Encounter:
    return Encounter(gpu_type, sharing, me, other)


def seen(me: CoRunnerTraits, other: CoRunnerTraits, slowdown: float) -> Sighting:
    return Sighting(beside(me, other), log(slowdown), VARIANCE)


def expected(sightings: list[Sighting], encounter: Encounter) -> Estimate:
    return Interference(sightings, Scale()).of(encounter)


def test_a_measured_pair_is_believed_and_those_alike_follow_the_less_the_more_they_differ() -> None:
    sightings = [seen(LIGHT, HEAVY, 3.0)]
    asked = [beside(LIGHT, HEAVY), beside(LARGER, HEAVY), beside(LIGHT, STRANGE), beside(STRANGE, STRANGE)]
    beyond = [expected(sightings, m).log_slowdown - log_bound(m.me, m.other) for m in asked]
    assert beyond == sorted(beyond, reverse=True)
    assert exp(expected(sightings, asked[0]).log_slowdown) == pytest.approx(3.0, rel=0.05)
    left = [expected(sightings, m).variance for m in asked]
    assert left == sorted(left)
    assert all(0.0 <= expected(sightings, m).evidence <= 1.0 for m in asked)


def test_another_gpu_type_and_way_of_sharing_are_told_half_as_much_each() -> None:
    sightings = [seen(LIGHT, HEAVY, 3.0)]
    places = [("A", "mps"), ("B", "mps"), ("A", "cpu"), ("B", "cpu")]
    found = [expected(sightings, beside(LIGHT, HEAVY, gpu_type=g, sharing=s)).log_slowdown for g, s in places]
    bound = log_bound(LIGHT, HEAVY)
    beyond = [log_slowdown - bound for log_slowdown in found]
    assert beyond == pytest.approx([beyond[0], beyond[0] / 2, beyond[0] / 2, beyond[0] / 4])


def test_where_nothing_alike_was_measured_the_bound_by_work_is_expected_and_nothing_is_certain() -> None:
    one = CoRunnerTraits("one", 4.0, log(1e-9), 0.0)
    far = Interference([seen(one, one, 1.0)], Scale()).of(beside(HEAVY, HEAVY))
    assert exp(far.log_slowdown) == pytest.approx(1.8, rel=0.1)
    assert far.evidence < 0.2


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(1.0, 20.0)), min_size=1, max_size=12))
def test_the_order_of_measurements_is_of_no_matter_and_each_more_makes_it_more_certain(
    drawn: list[tuple[int, int, float]],
) -> None:
    kinds = (LIGHT, LARGER, HEAVY, STRANGE)
    sightings = [seen(kinds[me], kinds[other], slowdown) for me, other, slowdown in drawn]
    turned, fewer = sightings[::-1], sightings[:-1]
    for me in kinds:
        found = expected(sightings, beside(me, HEAVY))
        assert found.log_slowdown == pytest.approx(expected(turned, beside(me, HEAVY)).log_slowdown, abs=1e-6)
        if fewer:
            assert found.variance <= expected(fewer, beside(me, HEAVY)).variance + 1e-9


def test_scattered_measurements_of_alike_pairs_leave_more_to_the_single_pair() -> None:
    kinds = [LIGHT._replace(batch=float(power)) for power in range(8)]
    smooth = [seen(kind, HEAVY, 2.0 + 0.1 * place) for place, kind in enumerate(kinds)]
    scattered = [seen(kind, HEAVY, 2.0 if place % 2 else 6.0) for place, kind in enumerate(kinds)]
    assert Interference(scattered).scale.noise > 10 * Interference(smooth).scale.noise
    spread = [Interference(seen).of(beside(LIGHT, HEAVY)).variance for seen in (smooth, scattered)]
    assert spread[1] > 10 * spread[0]
