"""Speed-ups: the paper's formula on published measurements, and the predictor."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.predict import work_bound_speedup
from hypothesis import given
from hypothesis import strategies as st

from colane.model.profile import ProfileKey, SetMeasurement
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta, delta_general, fit_line, threshold_speedup
from tests.core.worlds import GIB, make_profile

V100 = "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [
        (("ResNet-18", 64), ("ResNet-18", 64), 2.00),
        (("ResNet-18", 128), ("ResNet-18", 128), 1.56),
        (("ResNet-18", 256), ("ResNet-18", 256), 1.27),
        (("ResNet-18", 64), ("ResNet-50", 64), 0.96),
        (("ResNet-50", 64), ("ResNet-50", 64), 0.996),
    ],
)
def test_delta_of_measured_v100_pairs(
    data: Path, first: tuple[str, int], second: tuple[str, int], published: float
) -> None:
    with gzip.open(data / "A" / "gavel_v100_throughputs.json.gz") as file:
        table = json.load(file)["v100"]
    names = [f"('{model} (batch size {batch})', 1)" for model, batch in (first, second)]
    alone = [1 / table[name]["null"] for name in names]
    together = [1 / rate for rate in table[names[0]][names[1]]]
    assert delta(alone, together) == pytest.approx(published, abs=0.005)


def test_the_general_form_agrees_where_step_counts_are_equal() -> None:
    alone, together = (0.1, 0.3), (0.2, 0.4)
    steps = 50
    assert delta_general((steps, steps), alone, steps * max(together)) == pytest.approx(delta(alone, together))


def test_the_threshold_is_where_sharing_stops_to_pay() -> None:
    assert threshold_speedup(2, 4e7, 4e7) == 1
    assert threshold_speedup(3, 0, 4e7) == 3
    assert threshold_speedup(2, 5e7, 4e7) < 1


@given(st.floats(0.5, 3), st.floats(-1e-8, 0), st.floats(-1e-8, 0))
def test_a_line_is_found_again(w0: float, w1: float, w2: float) -> None:
    points = [(c, m, w0 + w1 * c + w2 * m) for c, m in ((1e7, 2e7), (3e7, 1e7), (5e7, 9e7), (2e7, 2e7), (8e7, 1e6))]
    line = fit_line(points)
    assert line.speedup(4e7, 3e7) == pytest.approx(w0 + w1 * 4e7 + w2 * 3e7, rel=1e-6, abs=1e-6)


def measurement(*families: str, delta_value: float = 1.5) -> SetMeasurement:
    keys = tuple(ProfileKey(family, 64, 1, V100) for family in families)
    n = len(keys)
    return SetMeasurement(
        keys=keys,
        sharing="mps",
        step_alone_s=(0.1,) * n,
        step_together_s=(0.1 * n / delta_value,) * n,
        steps=(9,) * n,
        delta=delta_value,
        delta_general=delta_value,
        at_s=0.0,
    )


def test_the_chain_of_predictions() -> None:
    profiles = [make_profile(f"f{k}", V100, 1e6 * (k + 1), GIB) for k in range(6)]
    beliefs = Beliefs(PerfConfig(sets_min=4), profiles)
    keys = [profile.key for profile in profiles]

    assert beliefs.predict([keys[0], ProfileKey("new", 64, 1, V100)], "mps") is None
    by_threshold = beliefs.predict(keys[:2], "mps")
    assert by_threshold is not None
    assert by_threshold.source == "occupancy threshold"
    assert by_threshold.speedup == pytest.approx(1 + (1 - 3e6 / 4e7))

    for k in range(4):
        beliefs.learn_set(measurement(f"f{k}", f"f{k + 1}", delta_value=2 - 0.1 * k))
    fitted = beliefs.predict([keys[0], keys[3]], "mps")
    assert fitted is not None
    assert fitted.source == "fitted to 4 measured sets"
    assert 1.7 < fitted.speedup < 2.0

    for _ in range(3):
        beliefs.learn_set(measurement("f3", "f0", delta_value=1.2))
    measured = beliefs.predict([keys[0], keys[3]], "mps")
    assert measured is not None
    assert measured.source == "measured 3 time(s)"
    assert measured.speedup == pytest.approx(1.2, rel=0.02)


def test_far_beyond_its_sets_a_prediction_stays_between_standstill_and_no_slowdown() -> None:
    profiles = [make_profile(f"f{k}", V100, 1e6 * (k + 1), GIB) for k in range(5)]
    heavy = make_profile("heavy", V100, 1e9, GIB)
    beliefs = Beliefs(PerfConfig(sets_min=4), [*profiles, heavy])
    for k in range(4):
        beliefs.learn_set(measurement(f"f{k}", f"f{k + 1}", delta_value=2 - 0.1 * k))
    prediction = beliefs.predict([heavy.key, profiles[0].key], "mps")
    assert prediction is not None
    assert 0.0 < prediction.speedup <= 2.0
    assert all(job.slowdown >= 1.0 for job in prediction.jobs)


def test_an_unmeasured_way_of_sharing_is_told_half_of_what_was_measured_in_another() -> None:
    profiles = [make_profile(name, V100, 1.5e7, GIB) for name in ("f0", "f1")]
    beliefs = Beliefs(PerfConfig(occupancy_max={}), profiles)
    keys = [profile.key for profile in profiles]
    bound = beliefs.predict(keys, "mps")
    for _ in range(3):
        beliefs.learn_set(replace(measurement("f0", "f1", delta_value=0.7), sharing="time-slice"))
    measured, elsewhere = beliefs.predict(keys, "time-slice"), beliefs.predict(keys, "mps")
    assert bound is not None
    assert measured is not None
    assert elsewhere is not None
    assert measured.speedup == pytest.approx(0.7, rel=0.02)
    assert (bound.source, elsewhere.source) == ("bound by occupancy", "fitted to sets measured elsewhere")
    assert measured.speedup < elsewhere.speedup < bound.speedup


def test_each_of_a_set_is_slowed_as_it_was_measured_not_all_alike() -> None:
    beliefs = Beliefs(profiles=[make_profile(name, V100, 1e7, GIB) for name in ("a", "b")])
    one = measurement("a", "b")
    beliefs.learn_set(replace(one, step_together_s=(0.1, 0.4), delta=0.5))
    prediction = beliefs.predict(one.keys, "mps")
    assert prediction is not None
    assert [job.slowdown for job in prediction.jobs] == pytest.approx([1.0, 4.0], rel=0.1)
    assert prediction.speedup == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("together_s", [0.0, float("inf"), float("nan"), -1.0])
def test_a_set_whose_times_say_nothing_teaches_nothing(together_s: float) -> None:
    beliefs = Beliefs(profiles=[make_profile(name, V100, 1e7, GIB) for name in ("a", "b")])
    one = measurement("a", "b")
    before = beliefs.predict(one.keys, "time-slice")
    beliefs.learn_set(replace(one, sharing="time-slice", step_together_s=(0.1, together_s)))
    assert beliefs.predict(one.keys, "time-slice") == before


def test_without_a_threshold_the_bound_by_work_is_used() -> None:
    profiles = [make_profile(name, "cpu", 0.05 * 2e8, GIB, step_s=0.1) for name in ("a", "b", "c")]
    prediction = Beliefs(profiles=profiles).predict([profile.key for profile in profiles])
    assert prediction is not None
    assert prediction.source == "bound by occupancy"
    assert prediction.speedup == pytest.approx(0.3 / 0.15)


@pytest.mark.parametrize(
    ("step_s", "parts", "best"),
    [
        ((0.1, 0.1), (1.0, 1.0), 1.0),  # each fills the GPU: nothing is gained
        ((0.1, 0.1), (0.5, 0.5), 2.0),  # both go as fast as alone
        ((0.1, 0.1), (0.75, 0.75), 4 / 3),  # 0.15 s of work
        ((0.1, 0.3), (1.0, 0.5), 4 / 3),  # 0.25 s of work, but the longer step takes 0.3 s
        ((0.1,), (0.2,), 1.0),
    ],
)
def test_a_device_does_no_more_than_a_second_of_work_in_a_second(
    step_s: tuple[float, ...], parts: tuple[float, ...], best: float
) -> None:
    """The bound beside which `benchmarks/predict.py` judges predictors."""
    occupancy = [part * step * OCCUPANCY_UNITS_PER_S for part, step in zip(parts, step_s, strict=True)]
    assert work_bound_speedup(step_s, occupancy) == pytest.approx(best)
