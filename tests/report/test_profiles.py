from __future__ import annotations

import json
from pathlib import Path

from colane.lab.report.measured import Boundary, ThroughputCurve, summarise_sets
from colane.lab.report.profiles import (
    Findings,
    drawings,
    profiles_table,
    scaling_table,
    speedups_by_batch,
    summary_object,
    write,
)
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource


def key(family: str, batch: int | None = 64) -> ProfileKey:
    return ProfileKey(family, batch, 1, "H200")


def profile(family: str, batch: int | None = 64, *, bandwidth: bool = True) -> Profile:
    return Profile(
        key=key(family, batch),
        step_s=Value(0.1, ValueSource.MEASURED, 30, "steps"),
        step_median_s=Value(0.09, ValueSource.MEASURED, 30, "steps"),
        persistent_bytes=Value(2e9, ValueSource.MEASURED),
        ephemeral_bytes=Value(5e8, ValueSource.MEASURED),
        occupancy=Value(1.5e7, ValueSource.MEASURED, 4, "nvml-gpm"),
        bandwidth=Value(2e6, ValueSource.DECLARED, 1, "ncu") if bandwidth else None,
    )


def measured(*keys: ProfileKey, delta: float = 1.2, sharing: str = "time-slice") -> SetMeasurement:
    alone = tuple(0.1 for _ in keys)
    return SetMeasurement(
        keys=tuple(keys),
        sharing=sharing,
        step_alone_s=alone,
        step_together_s=tuple(sum(alone) / delta for _ in keys),
        steps=tuple(30 for _ in keys),
        delta=delta,
        delta_general=delta,
        at_s=1.0,
    )


FINDINGS = Findings(
    profiles=[profile("a"), profile("b"), profile("a", 128)],
    measurements=[
        measured(key("a"), key("b")),
        measured(key("a"), key("b"), delta=1.5, sharing="mps"),
        measured(key("a"), key("a"), key("b"), delta=0.9),
    ],
    sampled_step_s={key("a"): 0.101},
    boundaries={"mps": Boundary(2.0, -1e-8, -1e-8)},
    kernels={"occupancy": {"a": [50.0, 60.0]}, "bandwidth": {}},
    notes=["one note"],
)


def test_table_names_the_source_of_every_value() -> None:
    row = profiles_table(FINDINGS.profiles, FINDINGS.sampled_step_s).texts()[0]
    assert row == [
        "a b64", "H200", "100 ms", "101 ms", "90 ms", "measured by steps, 30 samples", "2 GB", "2.5 GB",
        "measured, 1 sample", "1.5e+07", "measured by nvml-gpm, 4 samples", "2e+06", "declared by ncu, 1 sample",
    ]  # fmt: skip
    empty = profiles_table([Profile(key=key("z", None))], {}).texts()[0]
    assert empty == ["z", "H200", *["-"] * 11]


def test_speedups_by_size_sharing_and_batch() -> None:
    sets = summarise_sets([*FINDINGS.measurements, measured(key("a"), key("b", 128), delta=1.1)])
    assert speedups_by_batch(sets) == {
        (2, "mps"): {"batch 64": {"a + b": 1.5}},
        (2, "time-slice"): {"batch 64": {"a + b": 1.2}, "other": {"a b64 + b b128": 1.1}},
        (3, "time-slice"): {"batch 64": {"2x a + b": 0.9}},
    }


def test_figures_of_the_paper_are_drawn_where_there_is_something_to_draw() -> None:
    assert [drawing.key for drawing in drawings(FINDINGS)] == [
        "throughput", "speedup_2_mps", "speedup_2_time-slice", "speedup_3_time-slice", "mps_gain", "plane_mps",
        "plane_mps_exact", "plane_time-slice", "plane_time-slice_exact", "kernels_occupancy", "kernels_bandwidth",
    ]  # fmt: skip
    flat = Findings(profiles=[profile("a", bandwidth=False)], measurements=[measured(key("a"), key("a"))])
    assert [drawing.key for drawing in drawings(flat)] == ["speedup_2_time-slice", "plane_time-slice"]
    assert list(drawings(Findings(profiles=[profile("a")]))) == []
    scaled = Findings(profiles=[profile("a")], scaling={"a": CURVE})
    assert [drawing.key for drawing in drawings(scaled)] == ["throughput_by_gpus"]


CURVE = ThroughputCurve({1: 2.0, 4: 6.0}, {1: 2.0, 2: 3.6, 3: 4.9, 4: 6.0})


def test_throughputs_between_measured_sizes_say_that_they_are_fitted() -> None:
    assert scaling_table({"a": CURVE}).texts() == [
        ["a", "1", "2", "x 1.00", "profile"], ["a", "2", "3.6", "x 1.80", "fitted"],
        ["a", "3", "4.9", "x 2.45", "fitted"], ["a", "4", "6", "x 3.00", "profile"],
    ]  # fmt: skip


def test_files(tmp_path: Path) -> None:
    page, numbers, *figures = write(FINDINGS, tmp_path / "out", title="P")
    text = page.read_text()
    assert "a b64 + b b64 (1.50, mps)" in text
    assert "one note" in text
    assert json.loads(numbers.read_text()) == json.loads(json.dumps(summary_object(FINDINGS)))
    assert summary_object(FINDINGS)["mps_gains"] == [{"set": "a b64 + b b64", "gain": 0.30000000000000004}]
    assert len(figures) == 11
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    page, *_ = write(Findings(profiles=[profile("a")]), tmp_path, title="P")
    assert "1 profile; no set was measured together." in page.read_text()
