"""Figures of what devices were used for over time."""

from __future__ import annotations

import numpy as np
import pytest

from colane.lab.report.records import Device, RunGroup
from colane.lab.report.time_plots import has_several, is_known, use_by_device, use_over_time
from tests.report.batches import record

DEVICES = (Device("n/0"), Device("n/1"))


def used(*, others_ratio: float | None = None) -> RunGroup:
    known = {"occupancy_ratio": 0.5, "peak_bytes": 3 * 10**9, "others_ratio": others_ratio}
    both = record(2, 0, 10, 20, gpus=("n/0", "n/1"), **known)
    return RunGroup("fifo", (record(1, 0, 0, 10, **known), both), DEVICES)


def test_use_is_that_of_all_devices_and_memory_adds_up() -> None:
    use, memory = use_over_time([used()]).axes
    assert np.array(use.get_lines()[0].get_data()).tolist() == [[0, 10, 20], [25, 50, 0]]
    assert memory.get_lines()[0].get_ydata() == pytest.approx([3, 6, 0])


def test_others_have_a_panel_where_they_were_seen() -> None:
    *_, others = use_over_time([used(others_ratio=0.4)]).axes
    assert others.get_title(loc="left") == "Used by others (%)"
    assert np.asarray(others.get_lines()[0].get_ydata()).tolist() == pytest.approx([40, 40, 0])


def test_a_parked_job_neither_uses_its_device_nor_holds_memory_there() -> None:
    known = {"occupancy_ratio": 0.5, "peak_bytes": 3 * 10**9, "pauses_s": ((4.0, 8.0),)}
    parked = RunGroup("colane", (record(1, 0, 0, 10, **known),), DEVICES[:1])
    use, memory = use_over_time([parked]).axes
    assert np.array(use.get_lines()[0].get_data()).tolist() == [[0, 4, 8, 10], [50, 0, 50, 0]]
    assert memory.get_lines()[0].get_ydata() == pytest.approx([3, 0, 3, 0])
    image = use_by_device([parked]).axes[0].get_images()[0].get_array()
    assert np.asarray(image)[0, [0, 90, 120, 200]] == pytest.approx([50, 50, 0, 50])


def test_each_device_has_a_row() -> None:
    image = use_by_device([used()]).axes[0].get_images()[0].get_array()
    assert image is not None
    first, second = np.asarray(image)
    assert first == pytest.approx(50)
    assert second[:119] == pytest.approx(0)
    assert second[121:] == pytest.approx(50)


def test_without_any_measurement_there_is_no_figure() -> None:
    assert not is_known([RunGroup("fifo", (record(1, 0, 0, 10),), DEVICES)])
    assert is_known([used()])
    assert not has_several([RunGroup("fifo", (record(1, 0, 0, 10),), DEVICES[:1])])
