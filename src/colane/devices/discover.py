"""Finds the devices of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from colane.devices.amd import AmdDevices, AmdSmi, AmdUnavailableError, load_amd, visible_here
from colane.devices.cpu import CpuDevices, CpuSpec, DeviceSpecError, parse_cpu_spec
from colane.devices.gpu import NvmlDevices
from colane.devices.host import cores_of_socket, read_host
from colane.devices.known import read as read_known
from colane.devices.makers import Maker
from colane.devices.nvml import Nvml, NvmlUnavailableError, load_nvml
from colane.devices.types import NOTHING_OWN, Devices, HostFacts, MemoryUse, OwnProcesses, Utilization
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu, Topology
from colane.model.words import count

# -- Devices of which their owner says how they are connected.


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

    def others(self) -> dict[int, float]:
        """As found."""
        return self._found.others()

    def memory(self, index: int) -> MemoryUse | None:
        """As found."""
        return self._found.memory(index)

    def _moved(self, gpu: Gpu, socket: int) -> Gpu:
        return replace(gpu, socket=socket, cores=cores_of_socket(self.host, socket) or gpu.cores)


GPU_SPEC, AMD_SPEC = "gpu", "amd"


def discover(
    spec: str | None = None,
    topology: Topology | None = None,
    *,
    load: Callable[[], Nvml] = load_nvml,
    load_amd: Callable[[], AmdSmi] = load_amd,
    root: Path | None = None,
) -> Devices:
    """Find the devices of this machine.

    Args:
        spec: `gpu` for what NVML shows, `amd` for what AMD SMI shows, `cpu:N[:MEMORY]` for N cpu devices. None is
            the GPUs that NVML shows where there are any, else all allowed cores as one cpu device.
        topology: How they are connected; None takes what is found.
        load: Opens NVML.
        load_amd: Opens AMD SMI.
        root: The agent's state, where GPUs that were found here before are known, and errors of theirs.

    Returns:
        The devices. GPUs that this process's own `CUDA_VISIBLE_DEVICES` hides (as in a Slurm allocation)
        are left out.

    Raises:
        DeviceSpecError: Such devices cannot be had here, or the topology connects another number; says what can.
    """
    known = () if root is None else read_known(root)
    if spec == AMD_SPEC:
        return _declared(_amd_devices(load_amd, known), topology)
    if spec is not None and spec != GPU_SPEC:
        return _cpu_devices(parse_cpu_spec(spec), topology)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml = load()
    except NvmlUnavailableError as error:
        if spec == GPU_SPEC or error.has_driver:
            raise DeviceSpecError(f"{_where(spec)}: NVML cannot be opened: {error}; {_way_out(error)}") from error
        return _cpu_devices(CpuSpec(1), topology)
    devices = NvmlDevices(nvml, read_host(), visible, known, root)
    if devices.observe():
        return _declared(devices, topology)
    if spec == GPU_SPEC or (nvml.count() and visible is None):
        raise DeviceSpecError(f"{_where(spec)}: {_why_none(nvml, visible)}; use --devices cpu:N instead")
    return _cpu_devices(CpuSpec(1), topology)


def _where(spec: str | None) -> str:
    return "this machine has an NVIDIA driver" if spec is None else f"--devices {spec}"


def _way_out(error: NvmlUnavailableError) -> str:
    repair = "load the driver that fits (a restart of the machine does), or " if error.has_driver else ""
    return f"{repair}use --devices cpu:N instead"


def _why_none(nvml: Nvml, visible: str | None) -> str:
    """Say why no GPU was found by a driver that answers."""
    count_of_gpus = nvml.count()
    if not count_of_gpus:
        return "NVML is there and shows no GPU"
    if not nvml.handles():
        return f"NVML shows {count(count_of_gpus, 'GPU')}, and none of them answers"
    return f"CUDA_VISIBLE_DEVICES={visible!r} names none of the {count(count_of_gpus, 'GPU')} here"


def _amd_devices(load: Callable[[], AmdSmi], known: Sequence[Gpu]) -> AmdDevices:
    try:
        devices = AmdDevices(load(), read_host(), visible_here(), known)
    except AmdUnavailableError as error:
        raise DeviceSpecError(f"--devices amd: {error}; use --devices cpu:N instead") from error
    if not devices.observe():
        raise DeviceSpecError("--devices amd: AMD SMI shows no GPU here; use --devices cpu:N instead")
    return devices


def _declared(devices: Devices, topology: Topology | None) -> Devices:
    _judge(topology, len(devices.observe()))
    return devices if topology is None else DeclaredDevices(devices, topology)


def _cpu_devices(spec: CpuSpec, topology: Topology | None) -> CpuDevices:
    _judge(topology, spec.count)
    return CpuDevices(spec, read_host(), topology)


def _judge(topology: Topology | None, devices: int) -> None:
    if topology is not None and topology.gpus != devices:
        raise DeviceSpecError(
            f"--topology: connects {count(topology.gpus, 'GPU')}, but this agent has {count(devices, 'device')}"
        )
