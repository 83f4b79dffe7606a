"""Throughput at numbers of GPUs that were not seen: the fit, its use in the one answer about speed, and its error."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from colane.lab.traces.tables import pollux
from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.rate import RateSource, Situation
from colane.perf.scaling import fitted_step_s

STEPS = {1: 4.0, 2: 2.3, 4: 1.6}
SPEC = JobSpec(name="net", family="net", gpus=4, sizes=(1, 2, 3, 4, 8), preemptible=True)


def law(shared: float, same: float, each: float) -> Callable[[int], float]:
    return lambda gpus: shared / gpus + same + each * gpus


@pytest.mark.parametrize(
    "terms", [(3.0, 0.0, 0.0), (3.0, 0.5, 0.0), (3.0, 0.5, 0.05), (0.0, 1.0, 0.0), (0.0, 1.0, 0.2)]
)
def test_what_follows_the_law_is_found_again(terms: tuple[float, float, float]) -> None:
    truth = law(*terms)
    for known in ((1, 2, 4), (2, 3, 8), (1, 4, 16)):
        steps_s = {gpus: truth(gpus) for gpus in known}
        for gpus in (1, 2, 3, 6, 32):
            assert fitted_step_s(steps_s, gpus) == pytest.approx(truth(gpus), rel=1e-6)


def test_no_part_is_negative_so_no_step_ever_takes_less_than_no_time() -> None:
    wild = {1: 1.0, 2: 3.0, 3: 0.2, 4: 5.0}
    assert all(fitted_step_s(wild, gpus) > 0 for gpus in range(1, 200))
    assert fitted_step_s({2: 1.0}, 8) == 0.25


def beliefs(steps_s: Mapping[int, float]) -> Beliefs:
    found = Beliefs()
    for gpus, step_s in steps_s.items():
        step = Value(step_s, ValueSource.MEASURED, 50)
        found.learn_profile(Profile(key=ProfileKey("net", None, gpus, "T4"), step_s=step))
    return found


@pytest.mark.parametrize("known", [(1, 2), (2, 4), (1, 2, 4)])
def test_two_known_sizes_give_all_of_them_in_steps_per_second(known: tuple[int, ...]) -> None:
    believed = beliefs({gpus: STEPS[gpus] for gpus in known})
    rates = {gpus: believed.rate(SPEC, Situation("T4", gpus)) for gpus in SPEC.sizes}
    assert None not in {rate.steps_per_s for rate in rates.values()}
    for gpus in known:
        assert rates[gpus].steps_per_s == pytest.approx(1 / STEPS[gpus])
    assert rates[8].factors.size.source is RateSource.FITTED


def test_the_error_at_sizes_left_out_is_less_than_in_proportion(data: Path) -> None:
    errors = held_out_errors(data / "traces/pollux-profiles/traces", (1, 2, 3, 4))
    assert errors["fitted"] < errors["proportional"]
    assert errors["fitted"] < 0.1


def held_out_errors(folder: Path, sizes: tuple[int, ...]) -> dict[str, float]:
    """Mean relative error of step times of Pollux's applications, each size of one node left out in turn."""
    table = pollux.read(folder)
    found: dict[str, list[float]] = {"fitted": [], "proportional": []}
    for application in table.applications.values():
        for batch in application.iterations:
            truth = {gpus: application.step_s((gpus,), batch) for gpus in sizes if batch >= 4 * gpus}
            for gpus, step_s in truth.items():
                rest = {size: other_s for size, other_s in truth.items() if size != gpus}
                if not rest:
                    continue
                near = min(rest, key=lambda size: abs(size - gpus))
                found["fitted"].append(abs(fitted_step_s(rest, gpus) / step_s - 1))
                found["proportional"].append(abs(rest[near] * near / gpus / step_s - 1))
    return {how: statistics.fmean(values) for how, values in found.items()}
