from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import wire
from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring.telemetry import AttemptMeter, is_plausible, later_steps, median_s
from colane.agent.processes import ProcessId, Tree
from colane.devices import Utilization

GPU_JOB = LaunchFacts("boot", 0.0, (0, 1), (0, 1))
CPU_JOB = LaunchFacts("boot", 0.0, (0,), (0, 1), cpu_devices=True)
NONE_CAME = 2**22 - 1
"""A pid that is never given out."""


@pytest.fixture
def steps_path(tmp_path: Path) -> Path:
    path = tmp_path / "steps"
    wire.create(path)
    return path


def step(path: Path, *durations_s: float, loss: float | None = None) -> None:
    writer = wire.Writer(str(path), 100)
    for number, duration_s in enumerate(durations_s, start=1):
        writer.step(1000.0 + number, duration_s, loss)
    writer.close()


def test_the_median() -> None:
    assert median_s(()) is None
    assert median_s((1.0, 9.0, 2.0)) == 2.0


def test_the_first_step_does_not_count(steps_path: Path) -> None:
    step(steps_path, 50.0, 1.0, 3.0, loss=0.5)
    steps = wire.read(steps_path)
    assert steps is not None
    assert later_steps(steps) == (1.0, 3.0)
    progress = AttemptMeter(steps_path, CPU_JOB).last(2000.0, 900.0, 10.0)
    assert (progress.steps, progress.steps_total, progress.step_mean_s, progress.loss) == (3, 100, 2.0, 0.5)
    assert (progress.first_step_s, progress.last_step_s) == (1001.0, 1003.0)


def test_a_job_without_steps(steps_path: Path) -> None:
    progress = AttemptMeter(steps_path, CPU_JOB).last(20.0, 10.0, 5.0)
    assert (progress.steps, progress.step_mean_s, progress.loss) == (0, None, None)
    assert (progress.occupancy_ratio, progress.occupancy_by) == (0.25, "cpu-time"), "5 s of 10 s on 2 cores"


def test_memory_is_that_of_the_busiest_device_and_steps_are_those_of_the_first_rank(steps_path: Path) -> None:
    for rank, (count, persistent, peak) in enumerate([(5, 100, 300), (4, 200, 900), (6, 250, 800)]):
        own = wire.rank_path(steps_path, rank)
        if rank:
            wire.create(own)
        writer = wire.Writer(str(own))
        writer.set_memory(persistent, peak)
        for number in range(count):
            writer.step(1000.0 + number, 1.0)
        writer.close()
    wire.create(wire.rank_path(steps_path, 3))
    wire.rank_path(steps_path, 4).write_bytes(b"spoilt")
    for devices, expected in ((1, (550, 2000)), (2, (350, 1100)), (3, (200, 900))):
        facts = replace(CPU_JOB, gpus=tuple(range(devices)))
        progress = AttemptMeter(steps_path, facts).last(2000.0, 900.0, 10.0)
        assert (progress.persistent_bytes, progress.peak_bytes) == expected, "ranks of one device add up"
        assert (progress.steps, progress.note, progress.memory_by) == (5, "", "resident-set")


def test_an_adaptor_of_another_version_is_said(steps_path: Path) -> None:
    with steps_path.open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(8, sys.byteorder))
    progress = AttemptMeter(steps_path, CPU_JOB).last(20.0, 10.0, 5.0)
    assert progress.steps == 0
    assert progress.note.startswith("steps are not followed")
    assert "has version 99" in progress.note


def test_a_job_that_spoilt_its_steps_file(steps_path: Path) -> None:
    steps_path.write_bytes(b"\0" * 100)
    assert AttemptMeter(steps_path, CPU_JOB).last(20.0, 10.0, 5.0).steps == 0


@pytest.mark.parametrize(
    "changes",
    [{"steps": 2**60}, {"steps_total": 2**60}, {"first_step_s": -1.0}, {"last_step_s": 1e300}, {"peak_bytes": 2**63}],
)
def test_what_no_job_can_have_done_is_not_passed_on(
    steps_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    step(steps_path, 1.0)
    steps = wire.read(steps_path)
    assert steps is not None
    assert is_plausible(steps)
    monkeypatch.setattr(wire, "read", lambda _: replace(steps, **changes))
    assert AttemptMeter(steps_path, CPU_JOB).last(20.0, 10.0, 5.0).steps == 0


def test_a_loss_that_is_no_number_is_not_passed_on(steps_path: Path) -> None:
    step(steps_path, 1.0, loss=float("nan"))
    assert AttemptMeter(steps_path, CPU_JOB).last(20.0, 10.0, 5.0).loss is None


def test_no_use_is_below_nothing_where_a_job_has_ended_and_is_looked_at_once_more(steps_path: Path) -> None:
    """A scheduler refuses a whole report for that."""
    meter = AttemptMeter(steps_path, CPU_JOB)
    step(steps_path, 1.0)
    meter.sample(100.0, NONE_CAME, {})
    assert meter.last(110.0, 90.0, 10.0).cpu_s == 10.0
    after = meter.sample(120.0, NONE_CAME, {})
    assert (after.cpu_s, after.occupancy_ratio) == (10.0, 0.0)


def test_cpu_time_before_the_first_step_does_not_count_as_occupancy(steps_path: Path) -> None:
    meter = AttemptMeter(steps_path, CPU_JOB)
    assert meter.sample(100.0, NONE_CAME, {}).occupancy_ratio is None
    step(steps_path, 1.0)
    assert meter.sample(110.0, NONE_CAME, {}).occupancy_ratio is None, "from here on it counts"
    assert meter.last(120.0, 90.0, 10.0).occupancy_ratio == 0.5, "10 s of 10 s on 2 cores"


def test_cpu_time_never_runs_backwards(steps_path: Path) -> None:
    meter = AttemptMeter(steps_path, CPU_JOB)
    assert meter.last(20.0, 10.0, 5.0).cpu_s == 5.0
    meter.sample(21.0, 1, {})
    first = meter.sample(22.0, 1, {}).cpu_s
    second = meter.sample(23.0, NONE_CAME, {}).cpu_s
    assert first is not None
    assert second == first


def test_gpu_use_is_the_mean_over_its_gpus_in_each_window(steps_path: Path) -> None:
    meter = AttemptMeter(steps_path, GPU_JOB, gpu_source="nvml-gpm")
    assert meter.sample(100.0, NONE_CAME, {}).occupancy_by == ""
    meter.sample(102.0, NONE_CAME, {0: Utilization(2.0, 0.2, 0.1), 1: Utilization(2.0, 0.4, 0.3)})
    step(steps_path, 1.0)
    meter.sample(103.0, NONE_CAME, {0: Utilization(1.0, 1.0, 1.0), 1: Utilization(1.0, 1.0, 1.0)})
    meter.sample(105.0, NONE_CAME, {0: Utilization(2.0, 0.2, 0.1), 1: Utilization(2.0, 0.4, 0.3)})
    progress = meter.sample(106.0, NONE_CAME, {0: Utilization(1.0, 0.6, 0.5), 7: Utilization(1.0, 0.9, 0.9)})
    assert progress.occupancy_by == "nvml-gpm"
    assert (progress.occupancy_ratio, progress.bandwidth_ratio) == pytest.approx((0.6, 0.5)), "not the windows before"
    again = meter.sample(106.1, NONE_CAME, {})
    assert again.occupancy_ratio == pytest.approx(0.6), "a window that tells nothing repeats the last one"


def test_occupancy_with_co_runners_is_not_carried_over_to_time_alone(
    steps_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_s = iter((0.0, 1.0, 9.0))
    monkeypatch.setattr(
        "colane.agent.measuring.telemetry.read_tree", lambda pid: Tree((ProcessId(pid, 1, "boot"),), next(cpu_s))
    )
    meter = AttemptMeter(steps_path, CPU_JOB)
    step(steps_path, 1.0)
    meter.sample(100.0, NONE_CAME, {})
    assert meter.sample(110.0, NONE_CAME, {}).occupancy_ratio == pytest.approx(0.05), "1 s of 10 s on 2 cores"
    assert meter.sample(120.0, NONE_CAME, {}).occupancy_ratio == pytest.approx(0.4), "8 s of 10 s on 2 cores"


def test_a_gpu_that_tells_only_one_ratio_is_left_out(steps_path: Path) -> None:
    meter = AttemptMeter(steps_path, GPU_JOB, gpu_source="nvml-gpm")
    meter.sample(100.0, NONE_CAME, {})
    assert meter.sample(101.0, NONE_CAME, {0: Utilization(1.0, 0.6, None)}).occupancy_ratio is None


def test_a_run_too_short_for_a_window_is_told_by_what_there_is(steps_path: Path) -> None:
    step(steps_path, 0.01)
    meter = AttemptMeter(steps_path, CPU_JOB)
    assert meter.sample(100.0, NONE_CAME, {}).occupancy_ratio is None
    assert meter.last(100.1, 90.0, 0.1).occupancy_ratio == pytest.approx(0.5), "0.1 s of 0.1 s on 2 cores"


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_job_that_a_signal_has_stopped_says_so(
    steps_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    below = tuple(ProcessId(pid, 1, "boot") for pid in (7, 8, 9))
    monkeypatch.setattr("colane.agent.measuring.telemetry.read_tree", lambda _: Tree(below, 0.0, 0, is_stopped))
    meter = AttemptMeter(steps_path, CPU_JOB)
    told = "a signal (SIGSTOP) has stopped its processes: kill -CONT 8 9 lets them go on" if is_stopped else ""
    assert meter.sample(100.0, 7, {}).note == told
    assert meter.last(101.0, 90.0, 0.1).note == ""
