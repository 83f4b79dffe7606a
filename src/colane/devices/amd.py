"""AMD's GPUs as AMD SMI shows them, behind the interface of NVIDIA's: `--devices amd`.

Written after the records of `amdsmi` 7.0 and tried on made-up ones alone, so that the interface is known to fit;
nothing of it has run on a GPU, and it is not claimed to work. Values that a GPU does not tell are `"N/A"`, or the call
raises. Whether uncorrectable memory errors spoil results is not judged, nor is how full compute units are told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, TypeAlias

from colane.devices.host import cores_of_socket
from colane.devices.makers import Amd
from colane.devices.pids import is_first_namespace, is_translated
from colane.devices.types import NOTHING_OWN, HostFacts, MemoryUse, OwnProcesses, Utilization
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu, Link, LinkKind, Topology, flat_topology

Module: TypeAlias = Any
Handle: TypeAlias = Any
Answer: TypeAlias = Any  # of a package without types, which is not installed where there are no such GPUs

XGMI: Final = 2  # `AMDSMI_LINK_TYPE_XGMI`: a direct bond of two GPUs, as NVLink is, and said by that word
UNKNOWN_TYPE: Final = "unknown"


class AmdUnavailableError(Exception):
    """AMD SMI cannot be opened; says why."""


class AmdSmi:
    """Asks AMD SMI; what it does not tell, or raises, is None."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def call(self, name: str, *arguments: Answer) -> Answer:
        """Give the answer of a function."""
        try:
            answer = getattr(self._module, name)(*arguments)
        except (AttributeError, self._module.AmdSmiException):
            return None
        return None if answer == "N/A" else answer

    def field(self, name: str, field: str, *arguments: Answer) -> Answer:
        """Give one field of a record."""
        record = self.call(name, *arguments)
        value = record.get(field) if isinstance(record, dict) else None
        return None if value in {"N/A", ""} else value

    def vram(self, name: str, handle: Handle) -> int | None:
        """Give bytes of memory on the GPU, its total or what is used."""
        found = self.call(name, handle, self._module.AmdSmiMemoryType.VRAM)
        return None if found is None else int(found)

    def temperature_c(self, handle: Handle) -> float | None:
        """Give the temperature of the hottest spot."""
        kind, metric = self._module.AmdSmiTemperatureType.HOTSPOT, self._module.AmdSmiTemperatureMetric.CURRENT
        found = self.call("amdsmi_get_temp_metric", handle, kind, metric)
        return None if found is None else float(found)


def load_amd() -> AmdSmi:
    """Open AMD SMI. Raises AmdUnavailableError: it is not there, or finds no driver."""
    try:
        module = import_module("amdsmi")
    except (ImportError, OSError, KeyError) as error:  # the package looks for its library while it is imported
        raise AmdUnavailableError(f"the package amdsmi is not installed ({error})") from error
    try:
        module.amdsmi_init()
    except module.AmdSmiException as error:
        raise AmdUnavailableError(str(error)) from error
    return AmdSmi(module)


@dataclass(frozen=True, slots=True)
class _AmdGpu:
    """A handle to ask, None of a GPU that is lost; what never changes, and the numbers of its files."""

    handle: Handle
    facts: Gpu
    nodes: tuple[int | None, int | None] = (None, None)


class AmdDevices:
    """The AMD GPUs of this machine."""

    utilization_by = ""

    def __init__(self, smi: AmdSmi, host: HostFacts, visible: str | None = None, known: Sequence[Gpu] = ()) -> None:
        """Read what never changes.

        Args:
            smi: The gate.
            host: Cores and memory around the GPUs.
            visible: Offer only the GPUs that this value of `HIP_VISIBLE_DEVICES` names; None offers all.
            known: Those that this machine had before: they keep their numbers, and one that is gone is lost.
        """
        self.host = host
        self._smi = smi
        handles = smi.call("amdsmi_get_processor_handles") or ()
        found = [_read(smi, handle, host, position) for position, handle in enumerate(handles)]
        here = {device.facts.uuid: device for device in _shown(found, visible)}
        lost = {gpu.uuid for gpu in known} - {device.facts.uuid for device in found}
        before = [here.pop(gpu.uuid, _AmdGpu(None, gpu)) for gpu in known if gpu.uuid in here or gpu.uuid in lost]
        self._devices = [
            replace(device, facts=replace(device.facts, index=index))
            for index, device in enumerate([*before, *here.values()])
        ]
        self.maker = Amd({device.facts.uuid: device.nodes for device in self._devices})
        self.topology = self._read_topology()
        self._foreign_bytes: dict[int, int] = {}
        self._was_ill: set[int] = set()
        self._is_translated = False

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        """Every GPU with its health and the memory of processes that are not ours."""
        return tuple(self._observe_one(device, own) for device in self._devices)

    def utilization(self) -> dict[int, Utilization]:
        """Nothing: the part of the time in which any kernel ran says nothing of how full the GPU was."""
        return {}

    def uses(self) -> tuple[DeviceUsage, ...]:
        """How each GPU is used now, as far as it tells."""
        return tuple(self._use_of(device) for device in self._devices)

    def busy_by_pid(self) -> dict[int, Mapping[int, float]]:
        """Nothing, as for `utilization`."""
        return {}

    def others(self) -> dict[int, float]:
        """Nothing, as for `utilization`."""
        return {}

    def memory(self, index: int) -> MemoryUse | None:
        """Free memory of a GPU and what each process holds of it; None of one that cannot tell."""
        device = next((device for device in self._devices if device.facts.index == index), None)
        if device is None or device.handle is None:
            return None
        total, used = (self._smi.vram(f"amdsmi_get_gpu_memory_{what}", device.handle) for what in ("total", "usage"))
        if total is None or used is None:
            return None
        held = self._held(device)
        return MemoryUse(max(0, total - used), held if self._knows(held) else None)

    def _held(self, device: _AmdGpu) -> dict[int, int | None]:
        """What each process holds of a GPU's own memory."""
        found = self._smi.call("amdsmi_get_gpu_process_list", device.handle) or ()
        return {int(one["pid"]): int(one["memory_usage"]["vram_mem"]) for one in found}

    def _knows(self, pids: Iterable[int]) -> bool:
        """Whether its process numbers are those we see; once they were seen to be translated they are."""
        file = self.maker.computing_file
        self._is_translated = self._is_translated or is_first_namespace() or is_translated(pids, file=file)
        return self._is_translated

    def _observe_one(self, device: _AmdGpu, own: OwnProcesses) -> Gpu:
        index = device.facts.index
        answers = device.handle is not None and self._smi.vram("amdsmi_get_gpu_memory_total", device.handle) is not None
        if answers:
            held = self._held(device)
            if self._knows(held) or index not in own.busy:  # else ours cannot be told from strangers: as seen before
                self._foreign_bytes[index] = sum(size or 0 for pid, size in held.items() if pid not in own.pids)
        was_ill = index in self._was_ill
        self._was_ill = self._was_ill - {index} if answers else self._was_ill | {index}
        healthy = answers or (device.handle is not None and not was_ill)  # a healthy one that is busy may fail once
        return replace(device.facts, healthy=healthy, foreign_bytes=self._foreign_bytes.get(index, 0))

    def _use_of(self, device: _AmdGpu) -> DeviceUsage:
        index, smi, handle = device.facts.index, self._smi, device.handle
        if handle is None:
            return DeviceUsage(index)
        busy = smi.field("amdsmi_get_gpu_activity", "gfx_activity", handle)
        powers = (smi.field("amdsmi_get_power_info", f"{what}_socket_power", handle) for what in ("current", "average"))
        power_w = next((power for power in powers if power is not None), None)
        return DeviceUsage(
            index,
            busy_ratio=None if busy is None else busy / 100,
            used_bytes=smi.vram("amdsmi_get_gpu_memory_usage", handle),
            power_w=None if power_w is None else float(power_w),
            temperature_c=smi.temperature_c(handle),
        )

    def _read_topology(self) -> Topology:
        """Bonds where AMD SMI tells them; else through the host."""
        flat = flat_topology([device.facts.socket for device in self._devices])
        rows = [
            tuple(self._link(one, other, flat.links[a][b]) for b, other in enumerate(self._devices))
            for a, one in enumerate(self._devices)
        ]
        return replace(flat, links=tuple(rows))

    def _link(self, one: _AmdGpu, other: _AmdGpu, otherwise: Link) -> Link:
        if one is other or one.handle is None or other.handle is None:
            return otherwise
        kind = self._smi.field("amdsmi_topo_get_link_type", "type", one.handle, other.handle)
        return Link(LinkKind.NVLINK, 1) if kind == XGMI else otherwise


def _read(smi: AmdSmi, handle: Handle, host: HostFacts, position: int) -> _AmdGpu:
    numbers = [smi.field("amdsmi_get_gpu_enumeration_info", f"drm_{what}", handle) for what in ("card", "render")]
    socket = smi.call("amdsmi_topo_get_numa_node_number", handle) or 0
    facts = Gpu(
        index=0,
        uuid=_uuid(smi, handle) or str(position),
        type=smi.field("amdsmi_get_gpu_asic_info", "market_name", handle) or UNKNOWN_TYPE,
        memory_bytes=smi.vram("amdsmi_get_gpu_memory_total", handle) or 0,
        socket=socket,
        cores=cores_of_socket(host, socket) or host.cores,
    )
    return _AmdGpu(handle, facts, (numbers[0], numbers[1]))


def _uuid(smi: AmdSmi, handle: Handle) -> str:
    """Its name to ROCm's runtime: `GPU-` and the chip's number, which older versions tell apart from it."""
    told = smi.field("amdsmi_get_gpu_enumeration_info", "hip_uuid", handle)
    serial = smi.field("amdsmi_get_gpu_asic_info", "asic_serial", handle)
    return str(told or (f"GPU-{str(serial).removeprefix('0x').lower()}" if serial else ""))


def _shown(found: Sequence[_AmdGpu], visible: str | None) -> list[_AmdGpu]:
    """Those that the variable names, by position or UUID, up to the first bad entry."""
    if visible is None:
        return list(found)
    kept: list[_AmdGpu] = []
    for entry in (one.strip() for one in visible.split(",")):
        named = [one for i, one in enumerate(found) if entry in {str(i), one.facts.uuid}]
        if len(named) != 1:
            break
        kept += named
    return kept


def visible_here() -> str | None:
    """Which GPUs this process itself may use, as of its environment."""
    return os.environ.get("HIP_VISIBLE_DEVICES")
