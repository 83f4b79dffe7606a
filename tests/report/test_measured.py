from __future__ import annotations

import pytest

from colane.lab.report.measured import mps_gains, set_points, summarise_sets, throughput_by_batch, verdict
from colane.model.profile import Profile, ProfileKey, Value, ValueSource

from .batches import key, measurement


def test_repeated_measurements_of_a_set_are_one_row() -> None:
    taken = [measurement(1.2, "a", "b"), measurement(1.0, "a", "b"), measurement(0.9, "a", "a")]
    good, bad = summarise_sets(taken)
    assert good.name == "a b64 + b b64"
    assert (good.times, good.delta_min, good.delta_max) == (2, 1.0, 1.2)
    assert good.delta == pytest.approx(1.1)
    # together 2 / 1.2 and 2 / 1.0 s per step against 1 s alone
    assert good.slowdowns == pytest.approx(((2 / 1.2 + 2) / 2,) * 2)
    assert good.pays
    assert bad.name == "2x a b64"
    assert not bad.pays


def test_a_delta_of_exactly_one_pays() -> None:
    assert summarise_sets([measurement(1.0, "a", "b")])[0].pays


def test_the_verdict_names_both_sides() -> None:
    sets = summarise_sets([measurement(1.31, "a", "b"), measurement(0.8, "a", "a"), measurement(0.7, "b", "b")])
    assert verdict(sets) == (
        "Sharing pays (delta >= 1) for 1 of 3 sets measured: a b64 + b b64 (1.31, cpu). "
        "It does not pay for 2x b b64 (0.70, cpu), 2x a b64 (0.80, cpu)."
    )
    assert verdict(sets[1:]).startswith("Sharing pays (delta >= 1) for 0 of 2 sets measured. It does not pay for ")
    assert verdict(sets[:1]).endswith("(1.31, cpu).")
    assert verdict(()).startswith("No set of jobs was measured together")


def test_a_long_verdict_is_cut_and_counts_the_rest() -> None:
    sets = summarise_sets([measurement(1 + i / 100, "a", f"f{i}") for i in range(8)])
    assert verdict(sets).endswith(" and 3 more.")


def test_mps_gain_needs_both_ways() -> None:
    taken = [
        measurement(1.2, "a", "b", sharing="time-slice"),
        measurement(1.5, "a", "b", sharing="mps"),
        measurement(1.4, "a", "a", sharing="mps"),
    ]
    ((name, gain),) = mps_gains(summarise_sets(taken))
    assert name == "a b64 + b b64"
    assert gain == pytest.approx(0.3)


def profile(of: ProfileKey, occupancy: float | None, bandwidth: float | None, step_s: float = 0.5) -> Profile:
    def value(number: float | None) -> Value | None:
        return None if number is None else Value(number, ValueSource.MEASURED)

    return Profile(key=of, step_s=value(step_s), occupancy=value(occupancy), bandwidth=value(bandwidth))


def test_points_sum_c_and_m_and_need_c_of_every_job() -> None:
    sets = summarise_sets([measurement(1.2, "a", "b"), measurement(1.1, "a", "c"), measurement(0.9, "a", "d")])
    known = [profile(key("a"), 3.0, 1.0), profile(key("b"), 4.0, 2.0), profile(key("c"), None, 2.0)]
    (point,) = set_points(sets, known)
    assert (point.occupancy_sum, point.bandwidth_sum, point.delta) == (7.0, 3.0, 1.2)
    (partly,) = set_points(sets, [profile(key("a"), 3.0, 1.0), profile(key("b"), 4.0, None)])
    assert partly.bandwidth_sum is None


def test_throughput_is_samples_of_all_gpus_per_second() -> None:
    profiles = [
        profile(ProfileKey("a", 128, 2, "V100"), None, None, 0.5),
        profile(ProfileKey("a", 64, 2, "V100"), None, None, 0.25),
        profile(ProfileKey("a", None, 2, "V100"), None, None, 0.25),
    ]
    assert throughput_by_batch(profiles) == {"a x2 on V100": [(64, 512.0), (128, 512.0)]}
