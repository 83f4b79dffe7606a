"""A double of pynvml: GPUs that can be lost, lack functions, be cut by MIG or be used by strangers."""

# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GB = 10**9


@dataclass(eq=False)
class FakeGpu:
    """One GPU, or one MIG instance of a GPU."""

    uuid: str
    name: str = "NVIDIA H200"
    total_bytes: int = 140 * GB
    reserved_bytes: int = 1 * GB
    numa: int | None = 0
    affinity: tuple[int, ...] = (0b11,)
    processes: dict[int, int | None] = field(default_factory=dict)
    mps_clients: dict[int, int | None] = field(default_factory=dict)
    fields: dict[int, int] = field(default_factory=dict)
    instances: list[FakeGpu] = field(default_factory=list)
    gpm: bool = True
    rates: bool = True
    busy_percent: int = 80
    occupancy_percent: float = 40.0
    bandwidth_percent: float = 25.0
    lost: bool = False
    bus: str = ""
    pcie: tuple[int, int] = (4, 16)
    nvlinks: list[NvLink] = field(default_factory=list)
    nvlink_version: int = 3
    nvlink_mb_per_s: int | None = None
    xids: list[int] = field(default_factory=list)
    sm_percents: dict[int, int] = field(default_factory=dict)
    power_mw: int | None = 312_500
    temperature_c: int | None = 61
    clock_events: int = 0
    compute_mode: int | None = 0
    energy_mj: int = 90_000_000
    is_persistent: bool = True

    def reset(self) -> None:
        """As `nvidia-smi --gpu-reset` does."""
        self.energy_mj = 1000


@dataclass(frozen=True)
class NvLink:
    """The far end of one NVLink, as NVML tells it; an empty address is not told."""

    kind: int | None
    bus: str = ""
    is_active: bool = True


class FakeNvml:
    """Functions over `FakeGpu`s; those in `missing` do not exist, those in `failing` are not supported."""

    def __init__(self, gpus: list[FakeGpu]) -> None:
        self.gpus = gpus
        self.missing: set[str] = set()
        self.failing: set[str] = set()
        self.calls: list[str] = []
        self.samples_held = 0
        self.ancestors: dict[frozenset[str], int] = {}
        self.nvlink_copies: set[frozenset[str]] = set()
        self.driver = "580.95.05"

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return object.__getattribute__(self, name)
        if name in self.missing:
            raise AttributeError(name)
        self.calls.append(name)
        if name in self.failing:
            return _not_supported
        return object.__getattribute__(self, name)

    def _alive(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self._alive(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return self._alive(gpu)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return self._alive(gpu).uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return self._alive(gpu).name

    def nvmlDeviceGetMemoryAffinity(self, gpu: FakeGpu, words: int, scope: int) -> list[int]:
        assert scope == pynvml.NVML_AFFINITY_SCOPE_NODE
        if self._alive(gpu).numa is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert gpu.numa is not None
        return [(1 << gpu.numa) >> 64 * word & 2**64 - 1 for word in range(words)]

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return _pci(self._alive(gpu).bus)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return self._alive(gpu).pcie[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return self._alive(gpu).pcie[1]

    def nvmlDeviceGetTopologyCommonAncestor(self, one: FakeGpu, two: FakeGpu) -> int:
        pair = frozenset({self._alive(one).uuid, self._alive(two).uuid})
        if pair not in self.ancestors:
            _not_supported()
        return self.ancestors[pair]

    def nvmlDeviceGetP2PStatus(self, one: FakeGpu, two: FakeGpu, capability: int) -> int:
        assert capability == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        together = frozenset({self._alive(one).uuid, self._alive(two).uuid}) in self.nvlink_copies
        return int(pynvml.NVML_P2P_STATUS_OK if together else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)

    def _nvlink(self, gpu: FakeGpu, number: int) -> NvLink:
        if number >= len(self._alive(gpu).nvlinks):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return gpu.nvlinks[number]

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, number: int) -> int:
        return int(self._nvlink(gpu, number).is_active)

    def nvmlDeviceGetNvLinkVersion(self, gpu: FakeGpu, number: int) -> int:
        self._nvlink(gpu, number)
        return gpu.nvlink_version

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: FakeGpu, number: int) -> int:
        kind = self._nvlink(gpu, number).kind
        return pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN if kind is None else kind

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: FakeGpu, number: int) -> SimpleNamespace:
        return _pci(self._nvlink(gpu, number).bus)

    def nvmlDeviceGetCpuAffinity(self, gpu: FakeGpu, words: int) -> tuple[int, ...]:
        return self._alive(gpu).affinity[:words]

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> SimpleNamespace:
        self._alive(gpu)
        users = gpu.processes | gpu.mps_clients
        used = sum(size or 3 * GB for size in users.values())
        free = gpu.total_bytes - gpu.reserved_bytes - used
        if version is None:
            return SimpleNamespace(total=gpu.total_bytes, used=used + gpu.reserved_bytes, free=free)
        assert version == pynvml.nvmlMemory_v2
        return SimpleNamespace(total=gpu.total_bytes, used=used, free=free, reserved=gpu.reserved_bytes)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        return _processes(self._alive(gpu).processes)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        return _processes(self._alive(gpu).processes)

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        self._alive(gpu)
        return []

    def nvmlDeviceGetComputeMode(self, gpu: FakeGpu) -> int:
        if self._alive(gpu).compute_mode is None:
            _not_supported()
        assert gpu.compute_mode is not None
        return gpu.compute_mode

    def nvmlDeviceGetProcessUtilization(self, gpu: FakeGpu, seen_us: int) -> list[SimpleNamespace]:
        if not self._alive(gpu).sm_percents:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        used = gpu.sm_percents.items()
        return [SimpleNamespace(pid=pid, timeStamp=seen_us + 10**6, smUtil=percent) for pid, percent in used]

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        return _processes(self._alive(gpu).mps_clients)

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: list[int]) -> list[SimpleNamespace]:
        self._alive(gpu)
        known = gpu.fields | {pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: len(gpu.nvlinks)}
        if gpu.nvlink_mb_per_s is not None:
            known[pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON] = gpu.nvlink_mb_per_s
        return [_field(number, known.get(number)) for number in ids]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        enabled = int(bool(self._alive(gpu).instances))
        return [enabled, enabled]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return len(self._alive(gpu).instances) + 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        if index >= len(gpu.instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.instances[index]

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        if not self._alive(gpu).rates:
            _not_supported()
        return SimpleNamespace(gpu=gpu.busy_percent, memory=30)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        if self._alive(gpu).power_mw is None:
            _not_supported()
        assert gpu.power_mw is not None
        return gpu.power_mw

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return self._alive(gpu).energy_mj

    def nvmlDeviceGetPersistenceMode(self, gpu: FakeGpu) -> int:
        return int(self._alive(gpu).is_persistent)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        if self._alive(gpu).temperature_c is None:
            _not_supported()
        assert gpu.temperature_c is not None
        return gpu.temperature_c

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        return self._alive(gpu).clock_events

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return self._alive(gpu).clock_events

    def nvmlEventSetCreate(self) -> list[FakeGpu]:
        return []

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kinds: int, events: list[FakeGpu]) -> None:
        assert kinds == pynvml.nvmlEventTypeXidCriticalError
        events.append(self._alive(gpu))

    def nvmlEventSetWait_v2(self, events: list[FakeGpu], wait_ms: int) -> SimpleNamespace:
        assert wait_ms == 0, "an agent does not stand still"
        xids = next((gpu.xids for gpu in events if gpu.xids), None)
        if xids is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(eventData=xids.pop(0))

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(self._alive(gpu).gpm))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples_held += 1
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        assert sample is not None
        self.samples_held -= 1

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: Any) -> Any:
        self._alive(gpu)
        return sample

    def nvmlGpmMetricsGet(self, query: Any) -> Any:
        gpu = self.gpus[0]
        value_of = {
            pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: gpu.occupancy_percent,
            pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: gpu.bandwidth_percent,
        }
        assert query.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for slot in query.metrics[: query.numMetrics]:
            slot.value = value_of[slot.metricId]
        return query


def _not_supported(*_: Any) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _pci(bus: str) -> SimpleNamespace:
    if not bus:
        _not_supported()
    return SimpleNamespace(busId=f"0000{bus}".upper())


def _processes(memory_of: dict[int, int | None]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in memory_of.items()]


def _field(number: int, value: int | None) -> SimpleNamespace:
    known = value is not None
    return SimpleNamespace(
        fieldId=number,
        nvmlReturn=pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED,
        valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        value=SimpleNamespace(ullVal=value),
    )
