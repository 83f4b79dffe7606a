"""Finds the devices of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

from colane.devices.cpu import CpuDevices, CpuSpec, DeviceSpecError, parse_cpu_spec
from colane.devices.declared import DeclaredDevices
from colane.devices.gpu import NvmlDevices
from colane.devices.host import read_host
from colane.devices.nvml import Nvml, load_nvml
from colane.devices.types import Devices
from colane.model.topology import Topology
from colane.model.words import count

GPU_SPEC = "gpu"


def discover(
    spec: str | None = None, topology: Topology | None = None, *, load: Callable[[], Nvml | None] = load_nvml
) -> Devices:
    """Find the devices of this machine.

    Args:
        spec: `gpu` for what NVML shows, `cpu:N[:MEMORY]` for N cpu devices. None is the GPUs where there are
            any, else all allowed cores as one cpu device.
        topology: How they are connected; None takes what is found.
        load: Opens NVML; None means there is no driver.

    Returns:
        The devices. GPUs that this process's own `CUDA_VISIBLE_DEVICES` hides (as in a Slurm allocation)
        are left out.

    Raises:
        DeviceSpecError: Such devices cannot be had here, or the topology connects another number; says what can.
    """
    if spec is not None and spec != GPU_SPEC:
        return _cpu_devices(parse_cpu_spec(spec), topology)
    nvml = load()
    devices = None if nvml is None else NvmlDevices(nvml, read_host(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if devices is not None and devices.observe():
        _judge(topology, len(devices.observe()))
        return devices if topology is None else DeclaredDevices(devices, topology)
    if spec == GPU_SPEC:
        raise DeviceSpecError("--devices gpu: NVML shows no usable GPU on this machine; use cpu:N instead")
    return _cpu_devices(CpuSpec(1), topology)


def _cpu_devices(spec: CpuSpec, topology: Topology | None) -> CpuDevices:
    _judge(topology, spec.count)
    return CpuDevices(spec, read_host(), topology)


def _judge(topology: Topology | None, devices: int) -> None:
    if topology is not None and topology.gpus != devices:
        raise DeviceSpecError(
            f"--topology: connects {count(topology.gpus, 'GPU')}, but this agent has {count(devices, 'device')}"
        )
