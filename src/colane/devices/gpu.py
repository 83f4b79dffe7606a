"""GPUs and MIG instances as NVML shows them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pynvml

from colane.devices.gpm import GpmMeter, RatesMeter
from colane.devices.host import allowed, cores_of_socket
from colane.devices.makers import NVIDIA
from colane.devices.nvml import LOST, GpuLostError, Handle, Nvml
from colane.devices.others import WINDOW_MIN_S, Smoothed
from colane.devices.pids import is_first_namespace, is_translated
from colane.devices.topology import read_socket, read_topology
from colane.devices.types import NOTHING_OWN, HostFacts, MemoryUse, OwnProcesses, Utilization
from colane.devices.xid import Unreset, XidWatch
from colane.model.device_use import THROTTLES, DeviceUsage
from colane.model.hardware import EXCLUSIVE, Gpu, is_instance_type
from colane.model.profile import BY_GPM

NVML_CORES_PER_WORD = 64
_MIG_ENABLED = 1
UNKNOWN_TYPE = "unknown"

_UNCORRECTABLE, _NOT_REMAPPED = pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, pynvml.NVML_FI_DEV_REMAPPED_FAILURE
RECOVERY_ACTION: Final = 230
_RECOVERY: Final = (RECOVERY_ACTION, 226, 227)
"""What must be done before a GPU can be used: 0 nothing; a reset, a restart, ...; of a driver of 2025 and later. Those
shortly before say in two fields whether it must be reset, and whether it should be once its jobs are gone."""
"""Uncorrectable memory errors since the driver was loaded, and rows that could not be replaced any more. A GPU that
remaps rows (Ampere and later) contains most such errors: the program that met one has ended, the page is used no more,
and the others go on; those it could not contain it reports by Xid 95. For older ones, and where a row could not be
replaced, results may be wrong until an operator looks (NVIDIA GPU memory error management)."""


_EXCLUSIVE_MODES = frozenset({pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS})

_THROTTLE_BITS = (
    pynvml.nvmlClocksEventReasonSwPowerCap,
    pynvml.nvmlClocksEventReasonHwSlowdown,
    pynvml.nvmlClocksEventReasonSyncBoost,
    pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
)
"""NVML's bits of `THROTTLES`; the others say that it is idle, or that its clocks were set so."""


@dataclass(frozen=True, slots=True)
class _Device:
    """A handle to ask, the GPU it hangs on (itself unless MIG), and what never changes."""

    handle: Handle
    parent: Handle
    facts: Gpu


class NvmlDevices:
    """The GPUs of this machine; a GPU in MIG mode is its instances."""

    maker = NVIDIA

    def __init__(
        self,
        nvml: Nvml,
        host: HostFacts,
        visible: str | None = None,
        known: Sequence[Gpu] = (),
        root: Path | None = None,
    ) -> None:
        """Read what never changes.

        Args:
            nvml: The gate.
            host: Cores and memory around the GPUs.
            visible: Offer only the GPUs that this value of `CUDA_VISIBLE_DEVICES` names; None offers all.
            known: Those that this machine had when it was looked at before. They keep their numbers, which jobs that
                run there have been given; one that does not answer now is lost.
            root: Directory in which fatal errors are kept for the next agent; None keeps none.
        """
        self.host = host
        self._nvml = nvml
        found = [device for handle in nvml.handles() for device in _devices_of(nvml, handle, host)]
        if known:  # all told their UUIDs then: one that does not now is the one of them that is missing
            found = [device for device in found if device.facts.uuid]
        self._devices = _number(_as_before(_visible(found, visible), known, {device.facts.uuid for device in found}))
        self._meters = {d.facts.index: _meter(nvml, d.handle) for d in self._devices if d.handle is d.parent}
        unreset = Unreset(nvml, root)
        self._xids = {d.facts.index: XidWatch(nvml, d.parent, d.facts.uuid, unreset) for d in self._devices}
        self._foreign_bytes: dict[int, int] = {}
        self._was_ill: set[int] = set()
        self._is_translated = False
        self._others = {device.facts.index: _OthersOnGpu(nvml, device.handle) for device in self._devices}
        sockets = [device.facts.socket for device in self._devices]
        self.topology = read_topology(nvml, [device.parent for device in self._devices], sockets)

    @property
    def utilization_by(self) -> str:
        """`nvml-gpm` where the GPUs have it (Hopper and later), else `nvml-utilization`; empty when nothing tells."""
        meters = [meter for meter in self._meters.values() if meter.supported]
        if not meters:
            return ""
        return BY_GPM if all(isinstance(meter, GpmMeter) for meter in meters) else "nvml-utilization"

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        """Every GPU with its health and the memory of processes that are not ours."""
        return tuple(self._observe_one(device, own) for device in self._devices)

    def utilization(self) -> dict[int, Utilization]:
        """Use of each GPU since the last call, where NVML tells."""
        sampled = ((index, meter.sample()) for index, meter in self._meters.items())
        return {index: utilization for index, utilization in sampled if utilization is not None}

    def uses(self) -> tuple[DeviceUsage, ...]:
        """How each GPU is used now; of a lost one nothing is known but its last error."""
        return tuple(self._use_of(device) for device in self._devices)

    def busy_by_pid(self) -> dict[int, Mapping[int, float]]:
        """Part of the time in which kernels of each process ran, as of the last `observe`."""
        return {index: others.by_pid for index, others in self._others.items() if others.by_pid is not None}

    def others(self) -> dict[int, float]:
        """Part of the time in which kernels of others ran, as of the last `observe`."""
        return {index: others.smoothed.latest for index, others in self._others.items()}

    def _use_of(self, device: _Device) -> DeviceUsage:
        index, xid = device.facts.index, self._xids[device.facts.index].latest
        try:
            return replace(_read_use(self._nvml, device), xid=xid)
        except GpuLostError:
            return DeviceUsage(index, xid=xid)

    def memory(self, index: int) -> MemoryUse | None:
        """Free memory of a GPU and what each process holds of it; None of a MIG instance and of a lost GPU."""
        device = next((device for device in self._devices if device.facts.index == index), None)
        if device is None or device.handle is not device.parent:
            return None
        try:
            info, held = _memory_info(self._nvml, device.handle), _process_memory(self._nvml, device.handle)
        except GpuLostError:
            return None
        return None if info is None else MemoryUse(int(info.free), held if self._knows(held) else None)

    def _knows(self, pids: Iterable[int]) -> bool:
        """Whether NVML's process numbers are those we see; once a driver was seen to translate them it does."""
        self._is_translated = self._is_translated or is_first_namespace() or is_translated(pids)
        return self._is_translated

    def _observe_one(self, device: _Device, own: OwnProcesses) -> Gpu:
        index = device.facts.index
        try:
            healthy = self._is_healthy(device) and not self._is_ill(device)
            self._foreign_bytes[index] = self._read_foreign_bytes(device, own)
            if self._knows(()):
                self._others[index].look(own.pids)
        except GpuLostError:
            healthy = False
        mode = self._mode(device)
        return replace(
            device.facts,
            healthy=healthy and mode != pynvml.NVML_COMPUTEMODE_PROHIBITED,
            sharing=EXCLUSIVE if mode in _EXCLUSIVE_MODES else device.facts.sharing,
            foreign_bytes=self._foreign_bytes.get(index, 0),
            others_ratio=self._others[index].smoothed.told,
        )

    def _mode(self, device: _Device) -> int | None:
        """Its compute mode now, which an administrator may change; None where it is not told."""
        try:
            told = self._nvml.call("nvmlDeviceGetComputeMode", device.parent)
        except GpuLostError:
            return None
        return None if told is None else int(told)

    def _is_healthy(self, device: _Device) -> bool:
        errors = self._nvml.fields(device.parent, (_UNCORRECTABLE, _NOT_REMAPPED, *_RECOVERY))
        contains, told = _NOT_REMAPPED in errors, [errors[field] for field in _RECOVERY if field in errors]
        must_recover = any(told[:1] if RECOVERY_ACTION in errors else told)  # the others are deprecated beside it
        fatal = self._xids[device.facts.index].fatal(contains=contains, grades=bool(told))
        return fatal is None and not (errors.get(_NOT_REMAPPED if contains else _UNCORRECTABLE) or must_recover)

    def _is_ill(self, device: _Device) -> bool:
        """Whether it has failed to answer twice in a row: once a healthy one may, which is busy."""
        index = device.facts.index
        was_ill = index in self._was_ill
        if not self._nvml.is_ill(device.parent):
            self._was_ill.discard(index)
            return False
        self._was_ill.add(index)
        return was_ill

    def _read_foreign_bytes(self, device: _Device, own: OwnProcesses) -> int:
        """Memory of others: their processes' own, or what ours leave unexplained where NVML hides theirs."""
        index = device.facts.index
        memory_of = _process_memory(self._nvml, device.handle)
        foreign = {pid: size for pid, size in memory_of.items() if pid not in own.pids}
        if not self._knows(memory_of) and index in own.busy:
            # Here NVML may count pids of another namespace: our jobs cannot be told from strangers, so what was
            # seen before the first of them came stays the answer.
            return self._foreign_bytes.get(index, 0)
        if None not in foreign.values():
            return sum(size or 0 for size in foreign.values())
        ours = sum(size or 0 for pid, size in memory_of.items() if pid in own.pids)
        return max(_used_bytes(self._nvml, device.handle) - ours, 0)


class _OthersOnGpu:
    """Which part of the time kernels of processes that are not ours run on a GPU, as the driver samples it."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self.smoothed = Smoothed()
        self._nvml = nvml
        self._handle = handle
        self._at_s = time.monotonic()
        self._seen_us = 0
        self._tells = False
        self.by_pid: Mapping[int, float] | None = None
        """Part of the time in which kernels of each process ran, over the last window; None where that is not told."""

    def look(self, pids: frozenset[int]) -> None:
        """Take the samples since the last look, which is some time ago; a driver without them says nothing.

        Raises GpuLostError: the GPU does not answer any more.
        """
        window_s = time.monotonic() - self._at_s
        if window_s < WINDOW_MIN_S:
            return
        self._at_s += window_s
        told = self._nvml.call("nvmlDeviceGetProcessUtilization", self._handle, self._seen_us)
        samples = told or ()
        # Once it has told, a driver without an answer has seen no kernel since.
        self._tells = self._tells or told is not None
        self._seen_us = max([self._seen_us, *(sample.timeStamp for sample in samples)])
        latest = {sample.pid: sample for sample in sorted(samples, key=lambda sample: sample.timeStamp)}
        percent = sum(sample.smUtil for pid, sample in latest.items() if pid not in pids)
        self.smoothed.see(percent / 100, window_s)
        self.by_pid = {pid: sample.smUtil / 100 for pid, sample in latest.items()} if self._tells else None


def _read_use(nvml: Nvml, device: _Device) -> DeviceUsage:
    """Read how a GPU is used; of a MIG instance the driver tells its memory, and the chip's clocks and temperature.

    Raises GpuLostError: the GPU does not answer any more.
    """
    is_whole = device.handle is device.parent
    rates = nvml.call("nvmlDeviceGetUtilizationRates", device.handle) if is_whole else None
    info = _memory_info(nvml, device.handle)
    power_mw = nvml.call("nvmlDeviceGetPowerUsage", device.handle) if is_whole else None
    temperature = nvml.call("nvmlDeviceGetTemperature", device.parent, pynvml.NVML_TEMPERATURE_GPU)
    return DeviceUsage(
        device.facts.index,
        busy_ratio=None if rates is None else rates.gpu / 100,
        used_bytes=None if info is None else int(info.used),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature is None else float(temperature),
        throttle=_throttles(nvml, device.parent),
    )


def _throttles(nvml: Nvml, handle: Handle) -> tuple[str, ...] | None:
    """Why its clocks are held down; older drivers call the function by its older name."""
    bits = nvml.call("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return None
    return tuple(word for word, bit in zip(THROTTLES, _THROTTLE_BITS, strict=True) if bits & bit)


def _meter(nvml: Nvml, handle: Handle) -> GpmMeter | RatesMeter:
    """The best there is."""
    gpm = GpmMeter(nvml, handle)
    return gpm if gpm.supported else RatesMeter(nvml, handle)


def _process_memory(nvml: Nvml, handle: Handle) -> dict[int, int | None]:
    """Memory by pid of computing and drawing processes; None where NVML does not tell."""
    memory_of: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for process in nvml.processes(handle, kind):
            memory_of[process.pid] = process.usedGpuMemory
    return memory_of


def _memory_info(nvml: Nvml, handle: Handle) -> Handle:
    """Version 2 tells the driver's reserve apart; older drivers have version 1 only."""
    info = nvml.call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return info if info is not None else nvml.call("nvmlDeviceGetMemoryInfo", handle)


def _used_bytes(nvml: Nvml, handle: Handle) -> int:
    info = _memory_info(nvml, handle)
    return 0 if info is None else int(info.used)


def _usable_bytes(nvml: Nvml, handle: Handle) -> int:
    info = nvml.call_surely("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2) or _memory_info(nvml, handle)
    return 0 if info is None else int(info.total) - int(getattr(info, "reserved", 0))


def _devices_of(nvml: Nvml, handle: Handle, host: HostFacts) -> Iterator[_Device]:
    """Give the GPU, or its instances when it is in MIG mode; nothing when it is lost."""
    try:
        for part in _instances(nvml, handle):
            yield _Device(part, handle, _read_facts(nvml, part, handle, host))
    except GpuLostError:
        return


def _instances(nvml: Nvml, handle: Handle) -> list[Handle]:
    modes = nvml.call("nvmlDeviceGetMigMode", handle)
    if modes is None or modes[0] != _MIG_ENABLED:
        return [handle]
    count = nvml.call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = (nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(count))
    return [part for part in parts if part is not None]


def _read_facts(nvml: Nvml, handle: Handle, parent: Handle, host: HostFacts) -> Gpu:
    words = max(host.cores, default=0) // NVML_CORES_PER_WORD + 1
    masks = nvml.call("nvmlDeviceGetCpuAffinity", parent, words) or ()
    near = allowed(host, _set_bits(masks))
    socket = read_socket(nvml, parent, host, near)
    return Gpu(
        index=0,
        uuid=nvml.call_surely("nvmlDeviceGetUUID", handle) or "",
        type=_type(nvml, handle, parent),
        memory_bytes=_usable_bytes(nvml, handle),
        socket=socket,
        cores=near or cores_of_socket(host, socket) or host.cores,
    )


def _type(nvml: Nvml, handle: Handle, parent: Handle) -> str:
    """Its name; that of an instance is told from the whole GPU's, whatever the driver says."""
    name = nvml.call_surely("nvmlDeviceGetName", handle) or UNKNOWN_TYPE
    return name if handle is parent or name == UNKNOWN_TYPE or is_instance_type(name) else f"{name} MIG instance"


def _set_bits(masks: Iterable[int]) -> Iterator[int]:
    for word, mask in enumerate(masks):
        for bit in range(NVML_CORES_PER_WORD):
            if int(mask) >> bit & 1:
                yield word * NVML_CORES_PER_WORD + bit


def _visible(devices: list[_Device], visible: str | None) -> list[_Device]:
    """Keep what CUDA would show: positions or beginnings of UUIDs, up to the first bad entry."""
    if visible is None:
        return devices
    kept: list[_Device] = []
    for entry in visible.split(","):
        named = [d for i, d in enumerate(devices) if _names(entry.strip(), i, d.facts.uuid)]
        if len(named) != 1:
            break
        kept += [d for d in named if d not in kept]
    return sorted(kept, key=devices.index)


def _names(entry: str, index: int, uuid: str) -> bool:
    if entry.isdigit():
        return int(entry) == index
    return bool(entry) and uuid.startswith(entry)


def _as_before(devices: list[_Device], known: Sequence[Gpu], answering: set[str]) -> list[_Device]:
    """Put those that were known in front, in their order, lost ones among them; nothing is known of hidden UUIDs."""
    if "" in answering:
        return devices
    now = {device.facts.uuid: device for device in devices}
    lost = [facts for facts in known if facts.uuid not in answering]
    order = [
        _completed(now.pop(facts.uuid, _Device(LOST, LOST, facts)), facts)
        for facts in known
        if facts in lost or facts.uuid in now
    ]
    return [*order, *now.values()]


def _completed(device: _Device, known: Gpu) -> _Device:
    """What it has not told now it was when it was known."""
    is_told = device.facts.type != UNKNOWN_TYPE and device.facts.memory_bytes > 0
    return device if is_told else replace(device, facts=known)


def _number(devices: Iterable[_Device]) -> tuple[_Device, ...]:
    """Number them; where a driver hides a UUID, CUDA is given the number."""
    return tuple(
        replace(d, facts=replace(d.facts, index=i, uuid=d.facts.uuid or str(i))) for i, d in enumerate(devices)
    )
