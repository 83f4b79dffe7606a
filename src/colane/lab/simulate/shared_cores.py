"""Cores of jobs that have booked none, in virtual time: what the others of their node leave them, as a kernel does it.

Each gets as much as it has use for, and where there is less, all get alike by the GPUs they have: what one leaves goes
to the others. Booked cores belong to the jobs that they are booked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, runtime_checkable

from colane.core.cluster.state import ClusterState
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId

UNKNOWN_PER_GPU: Final = 3.0
"""Cores that a job has use for whose speed by cores nothing is known of: what durations were recorded with."""

NONE_LEFT: Final = 0.01  # what a job has where the others have booked all


@runtime_checkable
class CoreNeeds(Protocol):
    """The truth about how many cores jobs have use for."""

    def cores_of_use(self, job: TraceJob) -> float | None:
        """With how many a job goes as fast as with any, in all; None where its cores do not change its speed."""


class Sharer(NamedTuple):
    """One that shares cores."""

    gpus: int  # GPUs it has there
    most: float  # cores it has use for


def divide(sharers: Iterable[Sharer], cores: float) -> list[float]:
    """Cores that each gets, in their order."""
    all_of_them = list(sharers)
    found, left, gpus = [0.0] * len(all_of_them), cores, sum([one.gpus for one in all_of_them])
    for place in sorted(range(len(all_of_them)), key=lambda each: all_of_them[each].most / all_of_them[each].gpus):
        one = all_of_them[place]
        found[place] = min(one.most, max(0.0, left) * one.gpus / gpus)
        left, gpus = left - found[place], gpus - one.gpus
    return found


@dataclass(slots=True, eq=False)
class SharedCores:
    """Keeps which processes are on each node, and what those without cores of their own get."""

    _truth: CoreNeeds  # says what they have use for
    _state: ClusterState  # knows the nodes and what is booked there
    _sharing: dict[str, dict[JobId, Process]] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)

    def enter(self, process: Process) -> None:
        """A process is on its node, or has other cores there."""
        running = process.running
        for node in running.nodes or (running.host,):
            self._changed[node] = None
            if running.gpus and not running.cores:
                self._sharing.setdefault(node, {})[process.id] = process
            else:
                self._sharing.get(node, {}).pop(process.id, None)

    def leave(self, process: Process) -> None:
        """A process is gone."""
        for node in process.running.nodes or (process.running.host,):
            self._changed[node] = None
            self._sharing.get(node, {}).pop(process.id, None)

    def change(self, now_s: float, pace: Callable[[Process], None]) -> dict[GpuUse, None]:
        """Settle those that get other cores than before, have their speed found anew, and return their GPUs.

        One over several nodes goes as before, as it waits for the network.
        """
        touched: dict[GpuUse, None] = {}
        for name in self._changed:
            node, here = self._state.nodes.get(name), list(self._sharing.get(name, {}).values())
            if node is None or not here or not node.node.cores:
                continue
            sharers = [self._sharer(process, name) for process in here]
            left = float(len(node.node.cores) - len(node.cores_booked))
            for process, share in zip(here, divide(sharers, left), strict=True):
                cores = max(NONE_LEFT, share)
                if process.running.parts or process.running.shared_cores == cores:
                    continue
                process.settle(now_s)
                process.running = replace(process.running, shared_cores=cores)
                pace(process)
                touched.update(dict.fromkeys(process.uses))
        self._changed.clear()
        return touched

    def _sharer(self, process: Process, node: str) -> Sharer:
        gpus = len([gpu for gpu in process.running.gpus if gpu.node == node])
        most = None if process.running.parts else self._truth.cores_of_use(process.running.job)
        return Sharer(gpus, UNKNOWN_PER_GPU * gpus if most is None else most)
