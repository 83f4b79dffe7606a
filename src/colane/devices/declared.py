"""Devices of which their owner says how they are connected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from colane.devices.host import cores_of_socket
from colane.devices.makers import Maker
from colane.devices.types import NOTHING_OWN, Devices, HostFacts, MemoryUse, OwnProcesses, Utilization
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu, Topology


class DeclaredDevices:
    """Devices whose sockets are those of a topology; a GPU that is moved to a known socket is near that one's cores.

    Args:
        found: The devices.
        topology: Of as many.
    """

    def __init__(self, found: Devices, topology: Topology) -> None:
        self._found = found
        self.topology = topology

    @property
    def host(self) -> HostFacts:
        """As found."""
        return self._found.host

    @property
    def maker(self) -> Maker:
        """As found."""
        return self._found.maker

    @property
    def utilization_by(self) -> str:
        """As found."""
        return self._found.utilization_by

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        """As found, on the sockets that were declared."""
        found = zip(self._found.observe(own), self.topology.sockets, strict=True)
        return tuple(gpu if gpu.socket == socket else self._moved(gpu, socket) for gpu, socket in found)

    def utilization(self) -> dict[int, Utilization]:
        """As found."""
        return self._found.utilization()

    def uses(self) -> tuple[DeviceUsage, ...]:
        """As found."""
        return self._found.uses()

    def busy_by_pid(self) -> dict[int, Mapping[int, float]]:
        """As found."""
        return self._found.busy_by_pid()

    def memory(self, index: int) -> MemoryUse | None:
        """As found."""
        return self._found.memory(index)

    def _moved(self, gpu: Gpu, socket: int) -> Gpu:
        return replace(gpu, socket=socket, cores=cores_of_socket(self.host, socket) or gpu.cores)
