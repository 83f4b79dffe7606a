"""What a running job achieves: steps from its steps file, CPU time from its processes, occupancy of its device."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from colane.adaptor import wire
from colane.agent.files.jobdir import RANKS_MAX, LaunchFacts, asked, directory_of
from colane.agent.measuring import device_memory
from colane.agent.measuring.affinity import rank_of
from colane.agent.measuring.device_memory import DeviceMemory, HeldByPid, OverheadSeen
from colane.agent.measuring.job_use import UseMeter
from colane.agent.processes import ProcessId, Tree, identify, read_tree, resident_bytes
from colane.devices import Utilization
from colane.model.device_use import JobUsage
from colane.model.progress import MAY_REST, Progress

COUNT_MAX = 2**44
"""No process counts as far, be it steps or bytes; sums over all ranks of a job stay below 2^53, up to which integers
are the same to every JSON reader."""

TIME_MAX_S = 1e12  # some thirty thousand years

BY_CPU_TIME = "cpu-time"

ERRORS_MAX = 4096  # error numbers of Linux are below this one (MAX_ERRNO)


WINDOW_MIN_S = 0.2  # the kernel counts CPU time in ticks of 10 ms: a window of twenty tells within 5 %


class Ratios(NamedTuple):
    """Occupancy and bandwidth use of a job's devices, and what measured them."""

    occupancy: float | None = None
    bandwidth: float | None = None
    by: str = ""


UNKNOWN = Ratios()


class OthersSeen:
    """Which part of a job's devices others use, over the time the job has them."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._seen_s = 0.0
        self.used_s = 0.0

    @property
    def mean_ratio(self) -> float | None:
        """The mean so far; None before anything was seen."""
        return self.used_s / self._seen_s if self._seen_s > 0 else None

    def see(self, now_s: float, ratios: Sequence[float]) -> None:
        """Take what is used of each of its devices since the last time."""
        window_s = 0.0 if self._since_s is None else max(0.0, now_s - self._since_s)
        self._since_s = now_s
        if ratios:
            self._seen_s += window_s
            self.used_s += window_s * statistics.fmean(ratios)


class AttemptMeter:
    """Measures one attempt from report to report."""

    def __init__(
        self, steps_path: Path, facts: LaunchFacts, *, gpu_source: str = "", overhead: OverheadSeen | None = None
    ) -> None:
        """Begin.

        Args:
            steps_path: The job's steps file.
            facts: How it was placed.
            gpu_source: What measures GPU use here; empty when nothing does.
            overhead: What a process takes of a GPU beside its allocator's blocks here.
        """
        self.tree = Tree()
        self._steps_path = steps_path
        self._facts = facts
        self._gpu_source = gpu_source
        self._cpu_s_max = 0.0
        self._base: tuple[float, float] | None = None
        self._stepping = False
        self._used = [0.0, 0.0, 0.0]
        self._ratio = UNKNOWN
        self._others = OthersSeen()
        self._overhead = overhead or OverheadSeen()
        self._memory: DeviceMemory | None = None
        self._adopted: tuple[ProcessId, ...] = ()
        self._use = UseMeter()

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """The job's processes as of the last sample, its supervisor first, those that were adopted last."""
        return (*self.tree.processes, *self._adopted)

    def adopt(self, process: ProcessId) -> None:
        """A process that is not below the job's supervisor is one of it."""
        self._adopted = (*self._adopted, process)

    def place(self, facts: LaunchFacts) -> None:
        """Its devices or cores are others now: how it uses them is measured from here on."""
        self._facts, self._base = facts, None

    def sample(
        self,
        now_s: float,
        supervisor_pid: int,
        used: Mapping[int, Utilization],
        held: Mapping[int, HeldByPid | None] | None = None,
        others: Mapping[int, float] | None = None,
    ) -> Progress:
        """Take a sample of a running job.

        Args:
            now_s: Unix time.
            supervisor_pid: Its supervisor's.
            used: How its devices were used since the last sample.
            held: What each process holds of each device now, where the driver tells.
            others: Which part of each device work that is not ours used of late.
        """
        # When the supervisor has just died, the processes below it are needed to clean up.
        self.tree = read_tree(supervisor_pid) or self.tree
        self._adopted = tuple(one for one in self._adopted if identify(one.pid) == one)
        # Time of a child that was not waited for is gone with it; what was seen once was used all the same.
        self._cpu_s_max = max(self._cpu_s_max, self.tree.cpu_s)
        self._add(used)
        self._others.see(now_s, [(others or {}).get(gpu, 0.0) for gpu in self._facts.gpus])
        return self._progress(now_s, self._cpu_s_max, held)

    def use(
        self, progress: Progress, busy: Mapping[int, Mapping[int, float]], held: Mapping[int, HeldByPid | None]
    ) -> JobUsage:
        """Return what its own processes take of this node, as of the sample just taken."""
        adopted_bytes = sum(resident_bytes(one.pid) for one in self._adopted)
        pids = frozenset(one.pid for one in self.processes)
        return self._use.see(progress, self._facts, self.tree.resident_bytes + adopted_bytes, pids, busy, held)

    def last(self, end_s: float, start_s: float, cpu_s: float) -> Progress:
        """Give the sample of a job that has ended, with the CPU time its supervisor counted."""
        if self._base is None:
            self._base = (start_s, 0.0)
        self._cpu_s_max = max(cpu_s, self._cpu_s_max)
        return self._progress(end_s, self._cpu_s_max, is_last=True)

    def _progress(
        self, now_s: float, cpu_s: float, held: Mapping[int, HeldByPid | None] | None = None, *, is_last: bool = False
    ) -> Progress:
        steps, note = read_noted(self._steps_path)
        if self.tree.is_stopped and not is_last:
            pids = " ".join(str(process.pid) for process in self.tree.processes[1:9])
            note = f"a signal (SIGSTOP) has stopped its processes: kill -CONT {pids} lets them go on"
        number, problem = save_problem(self._steps_path, steps) if steps else (0, "")
        memory, later = self._see_memory(steps, held), later_steps(steps) if steps else ()
        self._rebase(steps, now_s, cpu_s)
        occupancy, bandwidth, source = self._ratios(now_s, cpu_s, is_last=is_last)
        return Progress(
            at_s=now_s,
            steps=steps.steps + steps.steps_restored if steps and steps.steps else 0,
            steps_total=steps.steps_total if steps else None,
            first_step_s=steps.first_step_s if steps else None,
            last_step_s=steps.last_step_s if steps else None,
            step_mean_s=mean_s(later),
            step_median_s=median_s(later),
            step_max_s=max(later, default=None),
            loss=steps.loss if steps and steps.loss is not None and math.isfinite(steps.loss) else None,
            persistent_bytes=memory.persistent_bytes if memory else None,
            peak_bytes=memory.peak_bytes if memory else None,
            memory_by=memory.by if memory else "",
            overhead_bytes=memory.overhead_bytes if memory else None,
            cpu_s=cpu_s,
            occupancy_ratio=occupancy,
            bandwidth_ratio=bandwidth,
            others_ratio=self._others.mean_ratio,
            others_s=None if self._others.mean_ratio is None else self._others.used_s,
            occupancy_by=source,
            note=note,
            rest=MAY_REST if steps and steps.may_rest else "",
            saves=bool(steps and steps.saves),
            saved_s=steps.saved_s if steps else None,
            steps_saved=steps.steps_saved if steps else None,
            save_problem=problem,
            noise_scale=steps.noise_scale if steps else None,
            saves_asked=number,
            reforms=bool(steps and steps.reforms),
            ranks=self._ranks_left(steps),
            answers=(steps.answers or None) if steps else None,
            idle_s=steps.idle_s if steps and steps.answers else None,
            latency_p50_s=percentile_s(steps.latencies_s, 50) if steps else None,
            latency_p95_s=percentile_s(steps.latencies_s, 95) if steps else None,
            latency_p99_s=percentile_s(steps.latencies_s, 99) if steps else None,
        )

    def _ranks_left(self, steps: wire.Steps | None) -> int:
        """As how many ranks it goes on: as it says, once no process of the others is left."""
        ranks = steps.ranks if steps is not None else 0
        if not 0 < ranks < RANKS_MAX or any((rank_of(one.pid) or 0) >= ranks for one in self.processes):
            return 0
        return ranks

    def memory_now(self, held: Mapping[int, HeldByPid | None]) -> DeviceMemory | None:
        """What it holds of its devices at this moment, given what each process holds; None of nothing."""
        return self._memory_of(read_steps(self._steps_path), held)

    def _see_memory(self, steps: wire.Steps | None, held: Mapping[int, HeldByPid | None] | None) -> DeviceMemory | None:
        """What it holds of its devices; of one that has ended, what was seen last."""
        if held is None and self._memory is not None and not self._facts.cpu_devices:
            return self._memory
        seen = self._memory_of(steps, held or {})
        self._overhead.see(seen.overhead_bytes if seen else None)
        self._memory = seen or self._memory
        return seen if self._facts.cpu_devices else self._memory

    def _memory_of(self, steps: wire.Steps | None, held: Mapping[int, HeldByPid | None]) -> DeviceMemory | None:
        ranks = [] if steps is None else [steps, *_other_ranks(self._steps_path, steps.ranks or RANKS_MAX)]
        if self._facts.cpu_devices:
            return device_memory.on_host(ranks, len(self._facts.gpus))
        pids = {process.pid for process in self.processes}
        return device_memory.on_gpus(self._facts.gpus, ranks, pids, held, self._overhead.usual_bytes)

    def _rebase(self, steps: wire.Steps | None, now_s: float, cpu_s: float) -> None:
        """Imports and data loading before the first step say nothing of how the job uses a device: start anew."""
        stepping = steps is not None and steps.steps > 0
        if self._base is None or (stepping and not self._stepping):
            self._base, self._used, self._ratio = (now_s, cpu_s), [0.0, 0.0, 0.0], UNKNOWN
        self._stepping = stepping

    def _ratios(self, now_s: float, cpu_s: float, *, is_last: bool) -> Ratios:
        """Use of its devices in the window since the last answer, whose co-runners may have been others.

        A window too short to tell is added to the next one, and the last answer is given again; a job that has
        ended has no next one.
        """
        ratios, window_s = self._of_gpus() if not self._facts.cpu_devices else self._of_cores(now_s, cpu_s)
        if window_s >= WINDOW_MIN_S or (is_last and self._ratio is UNKNOWN):
            self._base, self._used, self._ratio = (now_s, cpu_s), [0.0, 0.0, 0.0], ratios
        return self._ratio

    def _of_gpus(self) -> tuple[Ratios, float]:
        window_s, occupancy_s, bandwidth_s = self._used
        if window_s <= 0:
            return UNKNOWN, 0.0
        return Ratios(occupancy_s / window_s, bandwidth_s / window_s, self._gpu_source), window_s

    def _of_cores(self, now_s: float, cpu_s: float) -> tuple[Ratios, float]:
        base_s, base_cpu_s = self._base or (now_s, cpu_s)
        window_s = now_s - base_s
        if window_s <= 0:
            return UNKNOWN, 0.0
        core_s = window_s * max(len(self._facts.cores), 1)
        return Ratios(min((cpu_s - base_cpu_s) / core_s, 1.0), None, BY_CPU_TIME), window_s

    def _add(self, used: Mapping[int, Utilization]) -> None:
        """Add a window of GPU use, the mean over the job's GPUs."""
        mine = [used[gpu] for gpu in self._facts.gpus if gpu in used]
        whole = [u for u in mine if u.occupancy_ratio is not None and u.bandwidth_ratio is not None]
        for one in whole:
            share_s = one.window_s / len(whole)
            self._used[0] += share_s
            self._used[1] += share_s * (one.occupancy_ratio or 0.0)
            self._used[2] += share_s * (one.bandwidth_ratio or 0.0)


def save_problem(path: Path, steps: wire.Steps) -> tuple[int, str]:
    """Which asking a job could not answer by saving its state, and what kept it; 0 where there is none."""
    if steps.save_failed_s is None or not 0 < steps.save_error < ERRORS_MAX:
        return 0, ""
    number, asked_s = asked(directory_of(path))
    since_s = max(asked_s, steps.saved_s or 0.0)
    return (number, os.strerror(steps.save_error)) if number and steps.save_failed_s >= since_s else (0, "")


def read_steps(path: Path) -> wire.Steps | None:
    """Read a steps file; None before the job has attached, and when it has spoilt its file."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[wire.Steps | None, str]:
    """Read a job's steps, and why it may not be followed."""
    try:
        return _read_plausible(path), ""
    except wire.VersionError as error:
        return None, f"steps are not followed: {error}"
    except wire.WireError:
        return None, ""


def _read_plausible(path: Path) -> wire.Steps | None:
    steps = wire.read(path)
    return steps if steps is not None and is_plausible(steps) else None


def _other_ranks(path: Path, count: int) -> Iterator[wire.Steps]:
    for rank in range(1, min(count, RANKS_MAX)):
        own = wire.rank_path(path, rank)
        if not own.exists():
            return
        with suppress(wire.WireError):
            seen = _read_plausible(own)
            if seen is not None:
                yield seen


def is_plausible(steps: wire.Steps) -> bool:
    """Whether a job can have reported this: it may write anything, and one job must not spoil the node's report."""
    sizes_bytes = (steps.persistent_bytes, steps.peak_bytes, steps.reserved_bytes, steps.stays_bytes)
    counts = (steps.steps, steps.steps_total, steps.steps_restored, steps.steps_saved, steps.answers, *sizes_bytes)
    said_s = (steps.first_step_s, steps.last_step_s, steps.saved_s, steps.save_failed_s, steps.idle_s)
    times_s = (*said_s, *steps.durations_s, *steps.latencies_s)
    countable = all(0 <= (count or 0) <= COUNT_MAX for count in counts)
    return countable and all(0 <= (time_s or 0) <= TIME_MAX_S for time_s in times_s)


WARM_UP_RATIO = 4.0
"""Steps at the very beginning that take more medians than this, as none does later, warm up: they compile, say."""


def later_steps(steps: wire.Steps) -> tuple[float, ...]:
    """Durations of the recent steps without the job's very first and those right after it that warm up, too."""
    if len(steps.durations_s) + steps.untimed != steps.steps:
        return steps.durations_s
    later = steps.durations_s[1:]
    slow_s = WARM_UP_RATIO * (median_s(later) or 0.0)
    warm = later[next((place for place, step_s in enumerate(later) if step_s <= slow_s), 0) :]
    return warm if max(warm, default=0.0) <= slow_s else later


def mean_s(durations_s: Sequence[float]) -> float | None:
    """Mean step time, by which a job makes its steps with all it does between them; None without steps.

    Paper A, 4.2 takes the mean of ten sampled steps, which tells nothing of what comes at one step in a hundred:
    saving, an evaluation, playing a game for the next hundred steps.
    """
    return statistics.fmean(durations_s) if durations_s else None


def median_s(durations_s: Sequence[float]) -> float | None:
    """Median step time; None without steps."""
    return statistics.median(durations_s) if durations_s else None


def percentile_s(durations_s: Sequence[float], percent: int) -> float | None:
    """The least of these that so many percent of them do not exceed; None of none."""
    if not durations_s:
        return None
    return sorted(durations_s)[-(-percent * len(durations_s) // 100) - 1]
