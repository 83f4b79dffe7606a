"""What others use of the cores, told from what our processes use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from subprocess import PIPE

import pytest

from colane.devices import CpuDevices
from colane.devices.cpu import CpuSpec
from colane.devices.others import CpuTimes, OthersOnCores, Smoothed, read_cpu_times
from colane.devices.types import HostFacts, OwnProcesses

BOTH, FIRST = frozenset({0, 1}), frozenset({0})
SPINS = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print("bound", flush=True)
while time.process_time() < 0.4:
    pass
print("spun", flush=True)
sys.stdin.read()
"""


class ClockOfCores:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class CountingKernel:
    """CPU times as a test has them."""

    def __init__(self) -> None:
        self.clock = ClockOfCores()
        self.by_core = {0: 50.0, 1: 70.0}
        self.by_pid: dict[int, tuple[float, frozenset[int]]] = {}
        self.watch = OthersOnCores(lambda _: CpuTimes(dict(self.by_core), dict(self.by_pid)), self.clock)

    def passes(self, seconds: float, *, busy: tuple[float, float], used: dict[int, float] | None = None) -> None:
        """Time passes in which the cores are so busy, and our processes use so many seconds."""
        self.clock.now_s += seconds
        for core in (0, 1):
            self.by_core[core] += busy[core] * seconds
        for pid, used_s in (used or {}).items():
            self.by_pid[pid] = (self.by_pid[pid][0] + used_s, self.by_pid[pid][1])

    def sees(self) -> dict[int, float] | None:
        seen = self.watch.sample(frozenset(self.by_pid))
        return None if seen is None else {core: round(ratio, 6) for core, ratio in seen[1].items()}


def test_what_our_processes_used_is_not_that_of_others() -> None:
    kernel = CountingKernel()
    kernel.by_pid = {7: (10.0, FIRST), 8: (3.0, BOTH)}
    assert kernel.sees() is None, "nothing to compare with"
    kernel.passes(10.0, busy=(0.9, 0.5), used={7: 6.0, 8: 4.0})
    assert kernel.sees() == {0: 0.1, 1: 0.3}
    kernel.passes(10.0, busy=(0.2, 0.0), used={7: 6.0, 8: 4.0})
    assert kernel.sees() == {0: 0.0, 1: 0.0}, "ticks and clocks differ a little: never below nothing"


def test_a_window_in_which_one_of_ours_ended_tells_nothing() -> None:
    kernel = CountingKernel()
    kernel.by_pid = {7: (10.0, FIRST), 8: (3.0, BOTH)}
    kernel.sees()
    kernel.passes(2.0, busy=(1.0, 1.0), used={8: 2.0})
    del kernel.by_pid[7]
    assert kernel.sees() is None, "it may have used all of it"
    kernel.passes(2.0, busy=(1.0, 1.0), used={8: 2.0})
    assert kernel.sees() == {0: 0.5, 1: 0.5}


def test_a_window_in_which_a_job_of_ours_came_and_went_unseen_tells_nothing() -> None:
    kernel = CountingKernel()
    assert kernel.watch.sample(frozenset(), 4) is None
    kernel.passes(2.0, busy=(0.9, 0.9))
    assert kernel.watch.sample(frozenset(), 6) is None, "it used the cores"
    kernel.passes(2.0, busy=(0.5, 0.0))
    assert kernel.watch.sample(frozenset(), 6) == (2.0, {0: 0.5, 1: 0.0})


def test_windows_are_not_too_short() -> None:
    kernel = CountingKernel()
    kernel.sees()
    kernel.passes(0.5, busy=(1.0, 0.0))
    assert kernel.sees() is None
    kernel.passes(0.5, busy=(1.0, 0.0))
    assert kernel.sees() == {0: 1.0, 1: 0.0}


def test_small_changes_are_not_told_and_bursts_are_no_load() -> None:
    others = Smoothed()
    told = []
    for ratio in [0.02] * 5 + [1.0] + [0.0] * 10 + [0.8] * 30 + [0.85] * 10 + [0.0] * 60:
        others.see(ratio, 1.0)
        told.append(others.told)
    assert set(told[:5]) == {0.0}
    assert max(told[5:15]) < 0.25, "one second of ten"
    assert told[45] == pytest.approx(0.8, abs=0.1)
    assert len(set(told[40:55])) <= 2, "each change has the scheduler look anew"
    assert told[-1] == 0.0


def test_a_device_says_what_others_use_of_its_cores() -> None:
    kernel = CountingKernel()
    devices = CpuDevices(CpuSpec(2), HostFacts(cores=(0, 1), memory_bytes=2**30), others=kernel.watch)
    kernel.by_pid = {7: (0.0, FIRST)}
    own = OwnProcesses(frozenset({7}))
    for _ in range(30):
        assert not any(gpu.is_disturbed for gpu in devices.observe(own))
        kernel.passes(2.0, busy=(1.0, 0.1), used={7: 1.9})
    for _ in range(30):
        first, second = devices.observe(own)
        kernel.passes(2.0, busy=(1.0, 0.9), used={7: 0.5})
    assert first.others_ratio == pytest.approx(0.75, abs=0.1)
    assert second.others_ratio == pytest.approx(0.9, abs=0.1)
    assert first.is_disturbed
    assert second.is_disturbed


def test_this_kernel_counts_what_a_process_used_and_where_it_may_run() -> None:
    core = min(os.sched_getaffinity(0))
    spinning = subprocess.Popen([sys.executable, "-c", SPINS, str(core)], stdin=PIPE, stdout=PIPE)
    try:
        assert spinning.stdout is not None
        spinning.stdout.readline()
        before_s, before = time.monotonic(), read_cpu_times({spinning.pid})
        spinning.stdout.readline()
        after, after_s = read_cpu_times({spinning.pid}), time.monotonic()
        used_s = after.by_pid[spinning.pid][0] - before.by_pid[spinning.pid][0]
        assert after.by_pid[spinning.pid][1] == {core}
        assert used_s > 0.2
        assert used_s - 0.1 <= after.by_core[core] - before.by_core[core] <= after_s - before_s + 0.1
    finally:
        spinning.communicate()
    assert spinning.pid not in read_cpu_times({spinning.pid}).by_pid


def test_a_cpu_device_is_as_busy_as_its_cores() -> None:
    kernel = CountingKernel()
    host = HostFacts(cores=(0, 1), memory_bytes=10**9)
    devices = CpuDevices(CpuSpec(2), host, others=kernel.watch)
    devices.observe()
    assert [use.busy_ratio for use in devices.uses()] == [None, None], "one look is no window"
    kernel.passes(2.0, busy=(0.25, 1.0))
    devices.observe()
    assert [use.busy_ratio for use in devices.uses()] == [pytest.approx(0.25), pytest.approx(1.0)]
    assert all((use.used_bytes, use.power_w, use.temperature_c) == (None, None, None) for use in devices.uses())
    assert devices.busy_by_pid() == {}
