"""How much of this machine others use: work that is not Colane's slows jobs and spoils what is measured of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import psutil

WINDOW_MIN_S = 1.0  # the kernel counts CPU time in ticks of 10 ms: a hundred of them tell within a percent or two

MEMORY_S = 5.0  # what was seen so long ago counts a third of what is seen now: a short burst is no load

STEP_RATIO = 0.1  # smaller changes are not told: each would have the scheduler look at the device anew


class Smoothed:
    """A ratio that follows what is seen slowly, and tells only of changes that matter."""

    def __init__(self) -> None:
        self.told, self.latest = 0.0, 0.0
        self._mean = 0.0

    def see(self, ratio: float, window_s: float) -> None:
        """Take what was seen over a window, the `latest`; `told` is what to say from now on, in hundredths."""
        self.latest = min(max(ratio, 0.0), 1.0)
        self._mean += (self.latest - self._mean) * window_s / (window_s + MEMORY_S)
        if abs(self._mean - self.told) >= STEP_RATIO:
            self.told = round(self._mean, 2)
        elif self._mean < STEP_RATIO / 2:
            self.told = 0.0


class CpuTimes(NamedTuple):
    """CPU time so far, in seconds."""

    by_core: Mapping[int, float]  # of each core, by all processes; time that a hypervisor gave to other guests counts
    by_pid: Mapping[int, tuple[float, frozenset[int]]]  # of each of our processes, with the cores it may run on


class OthersOnCores:
    """Watches cores: what is used of them is ours as far as our processes, which are bound to cores, used it.

    Args:
        read: Reads the CPU times; given our processes.
        clock: Monotonic seconds.
    """

    def __init__(
        self, read: Callable[[frozenset[int]], CpuTimes] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read or read_cpu_times
        self._clock = clock
        self._before: tuple[float, CpuTimes] | None = None
        self._changes = 0
        self.used_by_core: Mapping[int, float] = {}
        """Which part of each core was used by all processes in the last window; empty before there was one."""

    def sample(self, pids: frozenset[int], changes: int = 0) -> tuple[float, dict[int, float]] | None:
        """Give the window since the last answer in seconds, and which part of each core others used in it.

        None at first, too soon after the last answer, and where a process of ours has ended, or a job of ours has
        started or ended, in it: what they used unseen is not known, and would be taken for use by others.
        """
        now_s = self._clock()
        if self._before is not None and now_s < self._before[0] + WINDOW_MIN_S:
            return None
        before, times = self._before, self._read(pids)
        is_same, self._changes = changes == self._changes, changes
        self._before = (now_s, times)
        if before is not None:
            self.used_by_core = _used(before[1], times, now_s - before[0])
        if before is None or not is_same or not before[1].by_pid.keys() <= times.by_pid.keys():
            return None
        window_s = now_s - before[0]
        return window_s, _parts(before[1], times, window_s)


def _parts(before: CpuTimes, now: CpuTimes, window_s: float) -> dict[int, float]:
    ours = dict.fromkeys(now.by_core, 0.0)
    for pid, (cpu_s, cores) in now.by_pid.items():
        used_s = cpu_s - before.by_pid.get(pid, (0.0, cores))[0]
        for core in cores & ours.keys():
            ours[core] += used_s / len(cores)
    used = {core: now.by_core[core] - before.by_core.get(core, now.by_core[core]) for core in ours}
    return {core: min(max((used[core] - ours[core]) / window_s, 0.0), 1.0) for core in ours}


def _used(before: CpuTimes, now: CpuTimes, window_s: float) -> dict[int, float]:
    known = now.by_core.keys() & before.by_core.keys()
    return {core: min(max((now.by_core[core] - before.by_core[core]) / window_s, 0.0), 1.0) for core in known}


def read_cpu_times(pids: Iterable[int]) -> CpuTimes:
    """Read what the kernel counts; processes that are gone are left out."""
    busy = {core: _busy_s(times) for core, times in enumerate(psutil.cpu_times(percpu=True))}
    return CpuTimes(busy, {pid: read for pid in {*pids, os.getpid()} if (read := _of_process(pid)) is not None})


def _busy_s(times: Any) -> float:  # noqa: ANN401 - its fields differ between systems
    """Linux counts time of guests as the host's own, too."""
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _of_process(pid: int) -> tuple[float, frozenset[int]] | None:
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return times.user + times.system, frozenset(process.cpu_affinity())
    except psutil.Error:
        return None
