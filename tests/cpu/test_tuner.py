"""Tuners of cores: laws on any saturating curve; golden numbers are in `tests/papers/test_cpu_side.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.cpu.tuner import EPSILON_RATIO, STEPS_MAX, TUNERS, CoreTry, TunerName, found, next_total

MOST = 24


def search(name: TunerName, speeds: list[float], start: int, *, busy: bool = False) -> list[CoreTry]:
    tried: list[CoreTry] = []
    cores: int | None = start
    while cores is not None:
        speed = speeds[cores - 1]
        tried.append(CoreTry(cores, speed, speed / max(speeds) if busy else None))
        assert len(tried) <= 2 * MOST
        cores = TUNERS[name](tried, len(speeds))
    return tried


def saturating(need: float, most: int) -> list[float]:
    """Linear up to what is needed, then flat (paper D, section III)."""
    return [min(1.0, cores / need) for cores in range(1, most + 1)]


curves = st.tuples(st.floats(1, MOST), st.integers(1, MOST)).map(lambda pair: saturating(*pair))


@given(curves, st.data(), st.booleans())
def test_linear_finds_the_fewest_cores_of_a_saturating_curve_in_four_steps(
    speeds: list[float], data: st.DataObject, busy: bool
) -> None:
    start = data.draw(st.integers(1, len(speeds)))
    tried = search(TunerName.LINEAR, speeds, start, busy=busy)
    assert len(tried) - 1 <= STEPS_MAX
    assert found(tried).speed >= max(speeds) * (1 - EPSILON_RATIO)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=MOST), st.sampled_from(TunerName), st.data())
def test_no_number_is_tried_twice_and_the_best_tried_is_kept(
    speeds: list[float], name: TunerName, data: st.DataObject
) -> None:
    tried = search(name, speeds, data.draw(st.integers(1, len(speeds))))
    assert len({one.cores for one in tried}) == len(tried)
    assert all(1 <= one.cores <= len(speeds) for one in tried)
    assert found(tried).speed >= max(one.speed for one in tried) * (1 - EPSILON_RATIO)


def test_step_goes_one_at_a_time_as_in_the_paper() -> None:
    assert [one.cores for one in search(TunerName.STEP, saturating(4, 8), 3)] == [3, 2, 4, 5]
    assert [one.cores for one in search(TunerName.STEP, saturating(4, 8), 6)] == [6, 5, 4, 3]
    assert [one.cores for one in search(TunerName.STEP, saturating(4, 8), 4)] == [4, 3, 5]


def test_linear_jumps_by_utilisation_where_it_is_known() -> None:
    tried = search(TunerName.LINEAR, saturating(8, 24), 2, busy=True)
    assert [one.cores for one in tried][:2] == [2, 8]
    assert found(tried).cores == 8


def test_a_gpu_that_is_never_busy_still_ends_at_the_fewest_cores() -> None:
    """Utilisation that does not rise promises a speed that no number of cores reaches."""
    tried: list[CoreTry] = []
    cores: int | None = 2
    while cores is not None:
        tried.append(CoreTry(cores, 1.0, 0.4))
        cores = TUNERS[TunerName.LINEAR](tried, 24)
    assert len(tried) - 1 <= STEPS_MAX
    assert found(tried).cores == 2


@pytest.mark.parametrize("name", TunerName)
def test_one_core_leaves_nothing_to_try(name: TunerName) -> None:
    assert search(name, [1.0], 1) == [CoreTry(1, 1.0)]


def search_in_all(name: TunerName, need: int, gpus: int, start: int, most: int) -> list[CoreTry]:
    """Cores in all of a job on several GPUs whose speed rises up to a number, which is no multiple of them."""
    tried: list[CoreTry] = []
    cores: int | None = start
    while cores is not None:
        tried.append(CoreTry(cores, 0.6 + 0.4 * min(1.0, cores / need)))
        cores = next_total(TUNERS[name], tried, most, gpus, len(tried) - 1)
    return tried


@pytest.mark.parametrize("name", TunerName)
def test_a_job_on_several_gpus_ends_with_less_than_a_core_for_each_too_much(name: TunerName) -> None:
    """Seven are right for four GPUs: two for each is one too many."""
    tried = [one.cores for one in search_in_all(name, 7, 4, start=8, most=28)]
    assert found(search_in_all(name, 7, 4, start=8, most=28)).cores == 7
    assert len(set(tried)) == len(tried)


def test_the_next_of_its_kind_goes_on_where_the_steps_of_one_did_not_do() -> None:
    known = [CoreTry(cores, 0.6 + 0.4 * min(1.0, cores / 9)) for cores in (10, 8, 16, 24)]
    assert next_total(TUNERS[TunerName.LINEAR], known, 28, 8, STEPS_MAX) is None
    assert next_total(TUNERS[TunerName.LINEAR], known, 28, 8, 0) == 9


def test_a_number_of_cores_that_is_no_multiple_of_its_gpus_is_rounded_first() -> None:
    assert next_total(TUNERS[TunerName.LINEAR], [CoreTry(7, 1.0)], 28, 4, 0) == 4
    assert next_total(TUNERS[TunerName.LINEAR], [CoreTry(1, 1.0)], 28, 2, 0) == 2
    assert next_total(TUNERS[TunerName.LINEAR], [CoreTry(3, 1.0)], 3, 4, 0) is None
