"""Finds the devices of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

from colane.devices.cpu import CpuDevices, CpuSpec, DeviceSpecError, parse_cpu_spec
from colane.devices.gpu import NvmlDevices
from colane.devices.host import read_host
from colane.devices.nvml import Nvml, load_nvml
from colane.devices.types import Devices

GPU_SPEC = "gpu"


def discover(spec: str | None = None, *, load: Callable[[], Nvml | None] = load_nvml) -> Devices:
    """Find the devices of this machine.

    Args:
        spec: `gpu` for what NVML shows, `cpu:N[:MEMORY]` for N cpu devices. None is the GPUs where there are
            any, else all allowed cores as one cpu device.
        load: Opens NVML; None means there is no driver.

    Returns:
        The devices. GPUs that this process's own `CUDA_VISIBLE_DEVICES` hides (as in a Slurm allocation)
        are left out.

    Raises:
        DeviceSpecError: Such devices cannot be had here; says what can.
    """
    if spec is not None and spec != GPU_SPEC:
        return CpuDevices(parse_cpu_spec(spec), read_host())
    nvml = load()
    devices = None if nvml is None else NvmlDevices(nvml, read_host(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if devices is not None and devices.observe():
        return devices
    if spec == GPU_SPEC:
        raise DeviceSpecError("--devices gpu: NVML shows no usable GPU on this machine; use cpu:N instead")
    return CpuDevices(CpuSpec(1), read_host())
