"""What is said of how a job uses its node: by its own processes, and None where it is not known."""

from __future__ import annotations

from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring.job_use import UseMeter, with_jobs_memory
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.progress import Progress

ON_GPUS = LaunchFacts("boot", 0.0, (0, 1), (0, 1, 2, 3))
ON_CPU = LaunchFacts("boot", 0.0, (0,), (0, 1), cpu_devices=True)
OURS, MATE = 50, 60
BUSY = {0: {OURS: 0.5, MATE: 0.4}, 1: {OURS: 0.25}}
HELD = {0: {OURS: 1000, MATE: 7000}, 1: {OURS: 200}}


def at(second: float, steps: int = 0, cpu_s: float | None = 0.0) -> Progress:
    return Progress(at_s=second, steps=steps, cpu_s=cpu_s)


def test_a_job_is_told_from_those_that_share_its_gpus() -> None:
    use = UseMeter().see(at(1.0), ON_GPUS, 5000, {OURS}, BUSY, HELD)
    assert use == JobUsage(busy_ratio=0.375, device_bytes=1200, host_bytes=5000)


def test_what_the_driver_hides_is_unknown() -> None:
    meter = UseMeter()
    assert meter.see(at(1.0), ON_GPUS, 5000, {OURS}, {0: BUSY[0]}, HELD).busy_ratio is None
    assert meter.see(at(1.0), ON_GPUS, 5000, {OURS}, BUSY, {0: HELD[0], 1: {OURS: None}}).device_bytes is None
    assert meter.see(at(1.0), ON_GPUS, 5000, {OURS}, BUSY, {0: HELD[0], 1: None}).device_bytes is None
    assert meter.see(at(1.0), ON_GPUS, 5000, {OURS}, BUSY, {0: HELD[0]}).device_bytes is None


def test_one_that_runs_no_kernel_is_at_rest_where_the_driver_tells() -> None:
    assert UseMeter().see(at(1.0), ON_GPUS, 5000, {OURS}, {0: {MATE: 1.0}, 1: {}}, HELD).busy_ratio == 0.0


def test_rates_are_of_the_time_between_two_reports() -> None:
    meter = UseMeter()
    first = meter.see(at(10.0, 4, 3.0), ON_CPU, 900, {OURS}, {}, {})
    assert (first.cpu_cores, first.steps_per_s, first.busy_ratio) == (None, None, None)
    second = meter.see(at(12.0, 10, 6.0), ON_CPU, 900, {OURS}, {}, {})
    assert (second.cpu_cores, second.steps_per_s, second.busy_ratio) == (1.5, 3.0, 0.75)
    assert second.device_bytes == 900
    soon = meter.see(at(12.5, 90, 7.0), ON_CPU, 900, {OURS}, {}, {})
    assert (soon.cpu_cores, soon.steps_per_s) == (1.5, 3.0), "too soon: the last answer holds"
    third = meter.see(at(14.0, 10, 6.0), ON_CPU, 900, {OURS}, {}, {})
    assert (third.cpu_cores, third.steps_per_s) == (0.0, 0.0)


def test_steps_that_earlier_attempts_made_are_no_speed() -> None:
    meter = UseMeter()
    meter.see(at(10.0, 0), ON_CPU, 900, {OURS}, {}, {})
    assert meter.see(at(12.0, 5000), ON_CPU, 900, {OURS}, {}, {}).steps_per_s is None
    assert meter.see(at(14.0, 5002), ON_CPU, 900, {OURS}, {}, {}).steps_per_s == 1.0


def test_a_clock_that_is_put_back_begins_anew() -> None:
    meter = UseMeter()
    meter.see(at(1000.0, 5, 5.0), ON_CPU, 900, {OURS}, {}, {})
    assert meter.see(at(10.0, 6, 6.0), ON_CPU, 900, {OURS}, {}, {}).cpu_cores is None
    assert meter.see(at(12.0, 8, 7.0), ON_CPU, 900, {OURS}, {}, {}).steps_per_s == 1.0


def test_memory_of_cpu_devices_is_that_of_jobs() -> None:
    uses = [DeviceUsage(0), DeviceUsage(1), DeviceUsage(2, used_bytes=5)]
    both = LaunchFacts("boot", 0.0, (0, 1), (0,), cpu_devices=True)
    found = with_jobs_memory(uses, [both, ON_CPU, ON_GPUS], [100, 30, 999])
    assert [use.used_bytes for use in found] == [80, 50, 5]
    assert with_jobs_memory(uses, [both, ON_CPU], [None, 30])[0].used_bytes is None
