"""How one job uses its node: what its own processes take, never what a device shows of all that share it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring.device_memory import HeldByPid
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.progress import Progress

WINDOW_MIN_S: Final = 1.0
"""Over less, ticks of CPU time and single steps make rates jump; the last ones are given again."""


class UseMeter:
    """Follows one attempt from report to report."""

    def __init__(self) -> None:
        self._before: Progress | None = None
        self._cpu_cores: float | None = None
        self._steps_per_s: float | None = None

    def see(
        self,
        progress: Progress,
        facts: LaunchFacts,
        resident_bytes: int | None,
        pids: Collection[int],
        busy: Mapping[int, Mapping[int, float]],
        held: Mapping[int, HeldByPid | None],
    ) -> JobUsage:
        """Return how it used its node since the last time.

        Args:
            progress: Its sample of now.
            facts: How it is placed.
            resident_bytes: Host memory of its processes.
            pids: Its processes.
            busy: By device, the part of the time in which kernels of each process ran.
            held: By device, what each process holds of it.
        """
        self._follow(progress)
        if facts.cpu_devices or not facts.gpus:
            busy_ratio = None if self._cpu_cores is None or not facts.cores else self._cpu_cores / len(facts.cores)
            device_bytes = resident_bytes if facts.cpu_devices else None
        else:
            busy_ratio = _kernels(facts.gpus, pids, busy)
            device_bytes = _held(facts.gpus, pids, held)
        return JobUsage(
            busy_ratio=None if busy_ratio is None else round(min(busy_ratio, 1.0), 4),
            device_bytes=device_bytes,
            cpu_cores=self._cpu_cores,
            host_bytes=resident_bytes,
            steps_per_s=self._steps_per_s,
        )

    def _follow(self, now: Progress) -> None:
        before = self._before
        window_s = WINDOW_MIN_S if before is None else now.at_s - before.at_s
        if window_s < WINDOW_MIN_S and window_s >= 0:
            return
        self._before = now
        self._cpu_cores = self._steps_per_s = None
        if before is None or window_s < 0:  # the machine's clock was put back
            return
        if now.cpu_s is not None and before.cpu_s is not None:
            self._cpu_cores = round(max(0.0, now.cpu_s - before.cpu_s) / window_s, 3)
        if before.steps:  # with its first step it tells of all those that its earlier attempts have left it
            self._steps_per_s = round(max(0, now.steps - before.steps) / window_s, 5)


def _kernels(gpus: Sequence[int], pids: Collection[int], busy: Mapping[int, Mapping[int, float]]) -> float | None:
    """Mean over its GPUs of the time in which its kernels ran; None where the driver does not tell of one of them."""
    if any(gpu not in busy for gpu in gpus):
        return None
    return statistics.fmean(min(sum(busy[gpu].get(pid, 0.0) for pid in pids), 1.0) for gpu in gpus)


def _held(gpus: Sequence[int], pids: Collection[int], held: Mapping[int, HeldByPid | None]) -> int | None:
    """What it holds of its GPUs together; None where the driver does not tell of one of its processes."""
    sizes = [by_pid.get(pid, 0) for gpu in gpus if (by_pid := held.get(gpu)) is not None for pid in pids]
    if any(held.get(gpu) is None for gpu in gpus) or None in sizes:
        return None
    return sum(size or 0 for size in sizes)


def with_jobs_memory(
    uses: Sequence[DeviceUsage], placed: Sequence[LaunchFacts], held_bytes: Sequence[int | None]
) -> list[DeviceUsage]:
    """Return how devices are used, with the memory that jobs hold of the cpu devices, which have no driver to tell.

    Args:
        uses: As the devices say.
        placed: How jobs are placed.
        held_bytes: What each of these holds of its devices, all together; None where that is not known.
    """
    on_cpu: dict[int, int | None] = {}
    for facts, size in zip(placed, held_bytes, strict=True):
        for gpu in facts.gpus if facts.cpu_devices else ():
            before = on_cpu.get(gpu, 0)
            on_cpu[gpu] = None if size is None or before is None else before + size // len(facts.gpus)
    return [replace(use, used_bytes=on_cpu[use.index]) if use.index in on_cpu else use for use in uses]
