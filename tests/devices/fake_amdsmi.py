"""A double of AMD SMI's Python package, with the records of its version 7.0."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class AmdSmiException(Exception):  # noqa: N818 - the package's name
    """Of the package: its errors."""


@dataclass
class FakeAmd:
    """One GPU; `None` of what it does not tell, for which the package has `"N/A"`."""

    serial: str
    card: int
    hip_uuid: str = ""
    name: str = "AMD Instinct MI300X"
    total_bytes: int = 192 * GIB
    used_bytes: int = GIB
    socket: int = 0
    gfx_activity: int | None = 40
    power_w: int | None = 300
    processes: dict[int, int] = field(default_factory=dict)
    lost: bool = False


class FakeAmdSmi:
    """Takes the place of the module `amdsmi`."""

    AmdSmiException = AmdSmiException
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def __init__(self, gpus: list[FakeAmd], *, driver: bool = True, bonds: bool = True) -> None:
        self.gpus, self.driver, self.bonds = gpus, driver, bonds

    def amdsmi_init(self) -> None:
        if not self.driver:
            raise AmdSmiException("AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")

    def amdsmi_get_processor_handles(self) -> list[FakeAmd]:
        return [gpu for gpu in self.gpus if not gpu.lost]

    def amdsmi_get_gpu_enumeration_info(self, gpu: FakeAmd) -> dict[str, Any]:
        numbers = {"drm_card": gpu.card, "drm_render": 128 + gpu.card}
        return {**numbers, "hsa_id": gpu.card + 2, "hip_id": gpu.card, "hip_uuid": gpu.hip_uuid}

    def amdsmi_get_gpu_asic_info(self, gpu: FakeAmd) -> dict[str, Any]:
        return {"market_name": gpu.name, "asic_serial": gpu.serial, "num_compute_units": 304}

    def amdsmi_get_gpu_memory_total(self, gpu: FakeAmd, _type: int) -> int:
        return self._of(gpu).total_bytes

    def amdsmi_get_gpu_memory_usage(self, gpu: FakeAmd, _type: int) -> int:
        return self._of(gpu).used_bytes

    def amdsmi_topo_get_numa_node_number(self, gpu: FakeAmd) -> int:
        return gpu.socket

    def amdsmi_get_gpu_activity(self, gpu: FakeAmd) -> dict[str, Any]:
        return {"gfx_activity": _told(self._of(gpu).gfx_activity), "umc_activity": "N/A", "mm_activity": "N/A"}

    def amdsmi_get_power_info(self, gpu: FakeAmd) -> dict[str, Any]:
        return {"current_socket_power": "N/A", "average_socket_power": _told(self._of(gpu).power_w)}

    def amdsmi_get_temp_metric(self, gpu: FakeAmd, _kind: int, _metric: int) -> int:
        self._of(gpu)
        return 45

    def amdsmi_get_gpu_process_list(self, gpu: FakeAmd) -> list[dict[str, Any]]:
        held = self._of(gpu).processes
        return [{"name": "python", "pid": pid, "memory_usage": {"vram_mem": size}} for pid, size in held.items()]

    def amdsmi_topo_get_link_type(self, _gpu: FakeAmd, _other: FakeAmd) -> dict[str, int]:
        return {"hops": 1, "type": 2 if self.bonds else 1}

    @staticmethod
    def _of(gpu: FakeAmd) -> FakeAmd:
        if gpu.lost:
            raise AmdSmiException("AMDSMI_STATUS_IO - I/O Error")
        return gpu


def _told(value: int | None) -> int | str:
    return "N/A" if value is None else value
