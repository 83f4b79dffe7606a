"""What an agent may ask of the devices of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from colane.devices.makers import Maker
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu, Topology


@dataclass(frozen=True, slots=True)
class OwnProcesses:
    """Processes of ours, so that the others can be told apart."""

    pids: frozenset[int] = frozenset()  # all processes of our jobs and of the services we started for them
    busy: frozenset[int] = frozenset()  # indexes of the devices on which a job of ours runs
    changes: int = 0  # how many times a job of ours has started or ended so far


@dataclass(frozen=True, slots=True)
class Utilization:
    """How a device was used over one window, by everyone on it."""

    window_s: float  # length of the window
    occupancy_ratio: float | None  # warps resident over warps possible, mean over all SMs and all of the window, 0..1
    bandwidth_ratio: float | None  # memory bandwidth used over possible, 0..1


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of one device, now."""

    free_bytes: int  # not held by any process
    # what each process holds; None for a process of which the driver does not tell. None altogether where processes are
    # counted in another pid namespace than ours
    by_pid: Mapping[int, int | None] | None


NOTHING_OWN = OwnProcesses()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine around the devices."""

    cores: tuple[int, ...]  # cores this process may use, which jobs may book
    memory_bytes: int  # host memory jobs may book
    sockets: dict[int, int] = field(default_factory=dict)  # NUMA node of each core


class Devices(Protocol):
    """The devices of one machine; what they are never changes, how they are is read anew on each call."""

    @property
    def host(self) -> HostFacts:
        """Cores and memory of the machine."""
        ...

    @property
    def maker(self) -> Maker:
        """What jobs need to come to its GPUs."""
        ...

    @property
    def topology(self) -> Topology:
        """How the devices are connected, by position in `observe`."""
        ...

    @property
    def utilization_by(self) -> str:
        """What measures `utilization` (`nvml-gpm`), empty when nothing does."""
        ...

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        """Every device with its health and the memory that processes not ours hold; never raises."""
        ...

    def utilization(self) -> dict[int, Utilization]:
        """Use of each device since the last call, by index; devices that cannot tell are left out."""
        ...

    def uses(self) -> tuple[DeviceUsage, ...]:
        """How each device is used now, as far as can be told; never raises."""
        ...

    def busy_by_pid(self) -> dict[int, Mapping[int, float]]:
        """Part of the time in which kernels of each process ran, by device; devices that cannot tell are left out."""
        ...

    def others(self) -> dict[int, float]:
        """Part of each device that work which is not ours used in the latest window, where that can be told."""
        ...

    def memory(self, index: int) -> MemoryUse | None:
        """Processes that hold memory of a device; None of one that cannot tell."""
        ...
