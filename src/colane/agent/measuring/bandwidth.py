"""How much of this node's memory bandwidth each job uses, and its bound: measured by the best means there is.

First resctrl, which counts and bounds by job; else cache misses, counted by core; else an estimate by CPU time. What
cannot be had is said once, with what is used instead. Nothing is measured while the scheduler does not ask for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from colane.agent.processes import ProcessId
from colane.agent.reconcile import Desired, DesiredJob, Key
from colane.api.reports import BandwidthObject
from colane.devices.cache_misses import CacheMisses, CountersError
from colane.devices.resctrl import Resctrl, ResctrlError
from colane.model.progress import BY_CPU_TIME, BY_MISSES, BY_RESCTRL

STAT = Path("/proc/stat")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (4, 5)  # of a line `cpuN` of /proc/stat: idle, and waiting for disks

WINDOW_MIN_S = 0.2


class Used(NamedTuple):
    """Counters so far, in units of their source."""

    total: float  # of all processes
    by_job: Mapping[Key, float]  # of each job


class Counting(Protocol):
    """A source of counters."""

    name: str
    limit_problem: str

    def read(self, jobs: Mapping[Key, RunningJob]) -> Used:
        """Give the counters."""

    def whole(self, bytes_per_s: int) -> float:
        """Give what the node has of them in a second; 0 where that is not known."""

    def close(self) -> None:
        """Count no more."""


class RunningJob(NamedTuple):
    """A job of this node."""

    processes: Sequence[ProcessId]  # without its supervisor
    cores: Sequence[int]  # it may use
    cpu_s: float  # CPU time so far
    limit: float  # part of the bandwidth it may use


class ByResctrl:
    """Bytes by job, as the processor counts them."""

    name = BY_RESCTRL

    def __init__(self, resctrl: Resctrl) -> None:
        self._resctrl = resctrl
        self.limit_problem = resctrl.limit_problem
        self.problems: list[str] = []

    def read(self, jobs: Mapping[Key, RunningJob]) -> Used:
        """The groups follow the jobs."""
        names = {str(key): key for key in jobs}
        pids = {str(key): [process.pid for process in job.processes] for key, job in jobs.items()}
        limits = {str(key): job.limit for key, job in jobs.items()}
        self.problems = self._resctrl.follow(pids, limits)
        total, own = self._resctrl.read()
        return Used(total, {names[name]: count for name, count in own.items()})

    def whole(self, bytes_per_s: int) -> float:
        return bytes_per_s

    def close(self) -> None:
        self._resctrl.close()


class ByMisses:
    """Bytes by core; of a core that several jobs may use, by their CPU time."""

    name = BY_MISSES
    limit_problem = "bandwidth cannot be bounded without resctrl"

    def __init__(self, counters: CacheMisses) -> None:
        self._counters = counters
        self._last: dict[int, int] = {}
        self._cpu_s: dict[Key, float] = {}
        self._own: dict[Key, float] = {}

    def read(self, jobs: Mapping[Key, RunningJob]) -> Used:
        now = self._counters.read()
        spent_s = {key: max(0.0, job.cpu_s - self._cpu_s.get(key, job.cpu_s)) for key, job in jobs.items()}
        self._own = {key: self._own.get(key, 0.0) for key in jobs}
        for core, count in now.items():
            there = [key for key, job in jobs.items() if core in job.cores]
            whole_s = sum(spent_s[key] for key in there)
            for key in there if whole_s > 0 else ():
                self._own[key] += (count - self._last.get(core, count)) * spent_s[key] / whole_s
        self._last, self._cpu_s = now, {key: job.cpu_s for key, job in jobs.items()}
        return Used(sum(now.values()), dict(self._own))

    def whole(self, bytes_per_s: int) -> float:
        return bytes_per_s

    def close(self) -> None:
        self._counters.close()


class ByCpuTime:
    """An estimate: every busy core is taken to use an equal part of the bandwidth.

    Args:
        cores: Of the node.
        stat: The kernel's counters of CPU time.
    """

    name = BY_CPU_TIME
    limit_problem = ByMisses.limit_problem

    def __init__(self, cores: Sequence[int], stat: Path = STAT) -> None:
        self._cores = frozenset(cores)
        self._stat = stat

    def read(self, jobs: Mapping[Key, RunningJob]) -> Used:
        """Seconds in which cores were busy."""
        lines = (line.split() for line in self._stat.read_text().splitlines() if line.startswith("cpu"))
        busy = sum(_busy_ticks(line) for line in lines if line[0][3:].isdigit() and int(line[0][3:]) in self._cores)
        return Used(busy / _TICKS_PER_S, {key: job.cpu_s for key, job in jobs.items()})

    def whole(self, bytes_per_s: int) -> float:
        del bytes_per_s
        return len(self._cores)

    def close(self) -> None:
        """Nothing to do."""


def _busy_ticks(line: Sequence[str]) -> int:
    ticks = [int(word) for word in line[1:9]]
    return sum(ticks) - sum(ticks[field - 1] for field in _IDLE_FIELDS)


class BandwidthMeter:
    """Measures while it is asked to.

    Args:
        cores: Of the node.
        bytes_per_s: The bandwidth it has, as its owner says; 0 where that is not known.
        open_counting: Finds what counts here, and why nothing better does.
    """

    def __init__(
        self,
        cores: Sequence[int],
        bytes_per_s: int,
        open_counting: Callable[[Sequence[int], int], tuple[Counting, list[str]]] | None = None,
    ) -> None:
        self._cores = tuple(cores)
        self._bytes_per_s = bytes_per_s
        self._open = open_counting or best_counting
        self._counting: Counting | None = None
        self._said: list[str] = []
        self._interval_s: float | None = None
        self._jobs: dict[Key, DesiredJob] = {}
        self._last: tuple[float, Used] | None = None

    def follow(self, desired: Desired) -> None:
        """Measure from now on, or no more, and bound these jobs."""
        self._jobs = {job.key: job for job in desired.jobs if job.run}
        if desired.bandwidth_interval_s is None:
            self.close()
        elif self._counting is None:
            self._counting, self._said = self._open(self._cores, self._bytes_per_s)
        self._interval_s = desired.bandwidth_interval_s

    def sample(
        self, now_s: float, below: Callable[[Key], Sequence[ProcessId]], cpu_s: Mapping[Key, float]
    ) -> BandwidthObject | None:
        """Give what the report says of the interval that has ended; None while it goes on.

        Args:
            now_s: Any clock that runs evenly.
            below: Gives a job's processes.
            cpu_s: CPU time of each job so far.
        """
        counting, interval_s = self._counting, self._interval_s
        if counting is None or interval_s is None:
            return None
        if self._last is not None and now_s < self._last[0] + max(WINDOW_MIN_S, interval_s):
            return None
        jobs = {
            key: RunningJob(below(key), job.cores or self._cores, cpu_s[key], job.bandwidth_ratio)
            for key, job in self._jobs.items()
            if key in cpu_s
        }
        before, used = self._last, counting.read(jobs)
        self._last = (now_s, used)
        return None if before is None else self._told(counting, before, now_s, used)

    def _told(self, counting: Counting, before: tuple[float, Used], now_s: float, used: Used) -> BandwidthObject:
        span_s, whole = now_s - before[0], counting.whole(self._bytes_per_s)
        had = before[1].by_job
        spent = {key.job: max(0.0, count - had[key]) for key, count in used.by_job.items() if key in had}
        total = max(0.0, used.total - before[1].total)
        return {
            "used_ratio": total / (whole * span_s) if whole else None,
            "by_job": {job: one / (whole * span_s) for job, one in spent.items()} if whole else {},
            "by": counting.name,
            "can_limit": not counting.limit_problem,
        }

    def messages(self) -> list[str]:
        """Say what measures and bounds here, once for each time it begins to."""
        problems = self._counting.problems if isinstance(self._counting, ByResctrl) else []
        return [*self._said, *(f"memory bandwidth of job {problem}" for problem in problems)]

    def close(self) -> None:
        """Measure no more."""
        if self._counting is not None:
            self._counting.close()
        self._counting, self._last = None, None


def best_counting(
    cores: Sequence[int],
    bytes_per_s: int,
    *,
    open_resctrl: Callable[[], Resctrl] = Resctrl,
    open_misses: Callable[[Iterable[int]], CacheMisses] = CacheMisses,
) -> tuple[Counting, list[str]]:
    """Find what counts best here, and what is to be said of it."""
    problems: list[str] = []
    try:
        counting: Counting = ByResctrl(open_resctrl())
        return _known(counting, cores, bytes_per_s, problems)
    except ResctrlError as error:
        problems.append(str(error))
    try:
        counting = ByMisses(open_misses(cores))
        return _known(counting, cores, bytes_per_s, problems)
    except CountersError as error:
        problems.append(str(error))
    return ByCpuTime(cores), [_said(BY_CPU_TIME, problems)]


def _known(
    counting: Counting, cores: Sequence[int], bytes_per_s: int, problems: list[str]
) -> tuple[Counting, list[str]]:
    """The counters, if it is known what they are a part of; else an estimate."""
    if not bytes_per_s:
        counting.close()
        problems.append("this agent was not told what bandwidth the node has (--host-bandwidth)")
        return ByCpuTime(cores), [_said(BY_CPU_TIME, problems)]
    said = [_said(counting.name, problems)] if problems else []
    if counting.name == BY_RESCTRL and counting.limit_problem:
        said.append(f"{counting.limit_problem}: jobs that use too much have fewer cores instead")
    return counting, said


_WORDS = {
    BY_MISSES: "measured as cache misses by core",
    BY_CPU_TIME: "estimated by CPU time, as if every busy core used an equal part of it",
}


def _said(name: str, problems: Sequence[str]) -> str:
    return f"memory bandwidth of jobs is {_WORDS[name]}: {'; '.join(problems)}"
