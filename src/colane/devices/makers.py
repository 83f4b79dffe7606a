"""What depends on the maker of GPUs, besides how they are asked: what jobs are shown, and by which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from colane.devices import suspend
from colane.devices.device_filter import DeviceNumber
from colane.model.hardware import Gpu

NVIDIA_MAJOR: Final = 195  # of `/dev/nvidia0` and its like, whose minors number the GPUs
NVIDIA_GPUS: Final = Path("/proc/driver/nvidia/gpus")
DRM_MAJOR: Final = 226  # of `/dev/dri/card0` and `/dev/dri/renderD128` and their like (kernel, devices.txt)

Files = Mapping[str, tuple[DeviceNumber, ...]]
"""The device files of each GPU, by UUID: a process that may not open them cannot use it."""


class Maker(Protocol):
    """GPUs of one maker, as jobs come to them."""

    @property
    def has_mps(self) -> bool:
        """Whether jobs can share a GPU through NVIDIA MPS."""
        ...

    @property
    def computing_file(self) -> str:
        """What a process has open that computes on any of them; one that only asks about them has not."""
        ...

    def visible(self, gpus: Sequence[Gpu]) -> dict[str, str]:
        """Variables that show a job exactly its GPUs."""
        ...

    def files(self) -> Files:
        """The device files of each GPU here; nothing where the driver does not tell."""
        ...

    def suspend_problem(self) -> str:
        """Why memory of processes cannot be moved off the GPUs of this machine; empty when it may be possible."""
        ...


class Nvidia:
    """NVIDIA's: CUDA, by UUID; indexes mean different GPUs to CUDA and NVML."""

    has_mps = True
    computing_file = "/dev/nvidia-uvm"

    def visible(self, gpus: Sequence[Gpu]) -> dict[str, str]:
        """Variables that show a job exactly its GPUs."""
        uuids = [gpu.uuid for gpu in gpus if not gpu.is_cpu_device]
        return {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def files(self) -> Files:
        """The device files of each GPU here, by the numbers the driver gives them."""
        return {uuid: (DeviceNumber(NVIDIA_MAJOR, minor),) for uuid, minor in minors_of().items()}

    def suspend_problem(self) -> str:
        """Why memory cannot be moved off these GPUs; empty when it may be possible."""
        return suspend.problem()


NVIDIA: Final = Nvidia()


class Amd:
    """AMD's: ROCm, whose runtime shows GPUs by UUID, and HIP those it is left with by position.

    Reference: ROCm, GPU isolation techniques; a HIP that is told nothing respects `CUDA_VISIBLE_DEVICES`.
    """

    has_mps = False
    computing_file = "/dev/kfd"

    def __init__(self, nodes: Mapping[str, tuple[int | None, int | None]]) -> None:
        """Know the files.

        Args:
            nodes: Of each GPU, by UUID, the numbers of its files `/dev/dri/card` and `/dev/dri/renderD`.
        """
        self._nodes = dict(nodes)

    def visible(self, gpus: Sequence[Gpu]) -> dict[str, str]:
        """Variables that show a job exactly its GPUs."""
        uuids = [gpu.uuid for gpu in gpus if not gpu.is_cpu_device]
        positions = ",".join(str(position) for position in range(len(uuids)))
        return {
            "ROCR_VISIBLE_DEVICES": ",".join(uuids),
            "HIP_VISIBLE_DEVICES": positions or "-1",  # empty it would be taken as if it was not set
            "CUDA_VISIBLE_DEVICES": positions,
        }

    def files(self) -> Files:
        """The device files of each GPU here, by the numbers the driver gives them."""
        told = {uuid: [minor for minor in minors if minor is not None] for uuid, minors in self._nodes.items()}
        known = {uuid: minors for uuid, minors in told.items() if minors}
        return {uuid: tuple(DeviceNumber(DRM_MAJOR, minor) for minor in minors) for uuid, minors in known.items()}

    def suspend_problem(self) -> str:
        """Why memory cannot be moved off these GPUs; empty when it may be possible."""
        return "processes can be moved off NVIDIA's GPUs only"


def minors_of(gpus: Path = NVIDIA_GPUS) -> dict[str, int]:
    """Return the minor number of each NVIDIA GPU's device file, by UUID, as the driver tells them."""
    found = {}
    for path in sorted(gpus.glob("*/information")):
        pairs = (line.partition(":") for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
        told = {name.strip(): value.strip() for name, _, value in pairs}
        if told.get("Device Minor", "").isdecimal():
            found[told.get("GPU UUID", "")] = int(told["Device Minor"])
    return found
