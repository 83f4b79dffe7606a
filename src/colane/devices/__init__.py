"""What this machine offers: GPUs through NVML, or cpu devices, and the host's cores and memory."""

from colane.devices.cpu import CpuDevices, DeviceSpecError
from colane.devices.discover import discover
from colane.devices.gpu import NvmlDevices
from colane.devices.types import Devices, MemoryUse, OwnProcesses, Utilization

__all__ = [
    "CpuDevices",
    "DeviceSpecError",
    "Devices",
    "MemoryUse",
    "NvmlDevices",
    "OwnProcesses",
    "Utilization",
    "discover",
]
