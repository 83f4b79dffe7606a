"""Claims judged from results that are made up, so that each verdict is reached."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from gpu.claims import COLOCATION, FIFO, WITH_MPS, all_measurements, all_profiles, claims

from colane.client.knowledge import encode_measurement, encode_profile
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource

MODELS = ("resnet18", "resnet50", "se_resnet18", "vgg11", "vgg19")
WEIGHTS = {"vgg11": 1, "resnet18": 2, "vgg19": 3, "se_resnet18": 4, "resnet50": 8}


def key(family: str, batch: int) -> ProfileKey:
    return ProfileKey(family, batch, 1, "H200")


def measured(families: tuple[str, ...], batch: int, delta: float, sharing: str = "time-slice") -> dict[str, Any]:
    count = len(families)
    return encode_measurement(
        SetMeasurement(
            keys=tuple(key(family, batch) for family in families),
            sharing=sharing,
            step_alone_s=(0.1,) * count,
            step_together_s=(0.1 * count / delta,) * count,
            steps=(30,) * count,
            delta=delta,
            delta_general=delta,
            at_s=1.0,
        )
    )


def profile(family: str, batch: int, load: float, at_s: float = 1.0) -> dict[str, Any]:
    value = Value(load, ValueSource.MEASURED, 3, "nvml-gpm")
    return encode_profile(Profile(key=key(family, batch), occupancy=value, bandwidth=value, updated_s=at_s))


def group(makespan_s: float, run_span_s: float, queue_s: float = 0.0) -> dict[str, Any]:
    return {"jobs": 3, "makespan_s": makespan_s, "run_span_mean_s": run_span_s, "queue_mean_s": queue_s}


def case(makespan: float, run_span: float) -> dict[str, Any]:
    changes = {COLOCATION: {"makespan_percent": makespan, "run_span_percent": run_span}}
    return {"iters": 1000, "changes": changes, "groups": {}}


def judged(results: dict[str, dict[str, Any]]) -> dict[str, tuple[str | None, str]]:
    return {claim["id"]: (claim["ours"], claim["verdict"]) for claim in claims(results)}


def paper_like() -> dict[str, dict[str, Any]]:
    """Sets and profiles as the paper found them."""

    def delta(families: tuple[str, ...], batch: int) -> float:
        return 2.0 - sum(WEIGHTS[family] for family in families) * batch / 1000 + 0.6 * (len(families) - 2)

    sets = [
        measured(families, batch, max(delta(families, batch), 0.2), sharing)
        for size in (2, 3)
        for families in combinations(MODELS, size)
        for batch in (64, 128, 256)
        for sharing in ("time-slice", "mps")
        if (families, batch) != (("resnet18", "se_resnet18"), 256)
    ]
    sets.append(measured(("resnet18", "se_resnet18"), 256, 1.02))
    profiles = [profile(family, batch, WEIGHTS[family] * batch) for family in MODELS for batch in (64, 128, 256)]
    return {"sets": {"measurements": sets}, "alone": {"profiles": profiles}}


def test_nothing_measured_is_said_for_every_claim() -> None:
    found = judged({})
    assert {verdict for _, verdict in found.values()} == {"not measured"}
    assert {name.split(" ", maxsplit=1)[0] for name in found} == {
        "A-a", "A-b", "A-c", "A-d", "A-e", "A-f", "A-g1", "A-g2", "A-g3", "A-h", "A-i",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("makespan", "verdict"),
    [(-52.0, "same"), (-45.0, "same"), (-20.0, "ordering holds"), (5.0, "differs: co-location does not shorten")],
)
def test_best_case(makespan: float, verdict: str) -> None:
    ours, said = judged({"best-2": case(makespan, 20.0)})["A-a"]
    assert said.startswith(verdict)
    assert ours == f"makespan {makespan:+.0f} %, JCT +20 %"


def test_worst_case() -> None:
    groups = {FIFO: group(100, 50, 25), COLOCATION: group(98, 97, 1), WITH_MPS: group(90, 99, 1)}
    few = {"iters": 500, "groups": {FIFO: group(62.5, 30)}}
    found = judged({"worst-10": {"iters": 1000, "groups": groups}, "worst-2": few})
    assert found["A-d"] == ("makespan per step +25 %", "same")
    assert found["A-e"] == ("1.0 s, 1% of the makespan", "same")
    assert found["A-f"] == ("makespan -8 %, JCT +2 %", "ordering holds")
    groups[WITH_MPS] = group(99, 90)
    found = judged({"worst-10": {"iters": 1000, "groups": groups}})
    assert found["A-f"][1] == "differs: makespan is not lower, JCT is not larger"
    groups[COLOCATION] = group(98, 97, 40)
    assert judged({"worst-10": {"iters": 1, "groups": groups}})["A-e"][1].startswith("differs")


def test_sets_as_in_the_paper_hold_its_claims() -> None:
    found = judged(paper_like())
    assert found["A-c"] == ("1.02 (time-slice)", "same")
    assert found["A-g1"][1] == "ordering holds"
    assert found["A-g2"] == ("in 10 of 10", "ordering holds")
    assert found["A-g3"][1] == "ordering holds"
    assert found["A-i (C)"] == ("rises for 5 of 5 models; most resnet50, least vgg11", "ordering holds")


def test_separability_is_judged_by_the_best_line() -> None:
    pairs = list(combinations(MODELS, 2))
    loads = {pair: sum(WEIGHTS[family] for family in pair) for pair in pairs}
    profiles = [profile(family, 64, WEIGHTS[family]) for family in MODELS]
    middle = sorted(loads.values())[len(pairs) // 2]
    apart = [measured(pair, 64, 1.5 if loads[pair] < middle else 0.5, "mps") for pair in pairs]
    mixed = [measured(pair, 64, 1.5 if loads[pair] % 2 else 0.5) for pair in pairs]
    found = judged({"x": {"measurements": [*apart, *mixed], "profiles": profiles}})
    assert found["A-h (mps)"] == ("the best line puts 10 of 10 sets on the right side", "ordering holds")
    assert found["A-h (time-slice)"][1] == "ordering holds"
    good = [measured(pair, 64, 1.5, "mps") for pair in pairs]
    found = judged({"x": {"measurements": good, "profiles": profiles}})
    assert found["A-h (mps)"] == ("10 of 10 sets gain", "cannot be judged: one side is empty")


def test_sets_that_contradict_the_paper_are_said_to_differ() -> None:
    sets = [measured(pair, 64, 1.0 + 0.1 * WEIGHTS[pair[0]]) for pair in combinations(MODELS, 2)]
    sets += [measured(pair, 256, 3.0) for pair in combinations(MODELS, 2)]
    sets += [measured(triple, 64, 0.5) for triple in combinations(MODELS, 3)]
    profiles = [profile(family, batch, 1000 - batch) for family in MODELS for batch in (64, 128)]
    found = judged({"x": {"measurements": sets, "profiles": profiles}})
    for claim in ("A-c", "A-g1", "A-g2", "A-g3", "A-i (C)", "A-i (M)"):
        assert found[claim][1].startswith("differs"), claim


def test_the_newest_profile_and_each_measurement_once() -> None:
    old, new = profile("vgg11", 64, 1.0, at_s=1.0), profile("vgg11", 64, 2.0, at_s=2.0)
    same = measured(("vgg11", "vgg19"), 64, 1.1)
    results = {"a": {"profiles": [new], "measurements": [same]}, "b": {"profiles": [old], "measurements": [same]}}
    (kept,) = all_profiles(results)
    assert kept.occupancy is not None
    assert kept.occupancy.value == 2.0
    assert len(all_measurements(results)) == 1
