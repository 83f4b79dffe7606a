"""Devices on a machine without GPUs: a set of cores each, with a declared memory size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from colane.devices.makers import NVIDIA
from colane.devices.others import OthersOnCores, Smoothed
from colane.devices.types import NOTHING_OWN, HostFacts, MemoryUse, OwnProcesses, Utilization
from colane.model.device_use import DeviceUsage
from colane.model.hardware import CPU_DEVICE_TYPE, Gpu, Topology, flat_topology
from colane.model.quantities import parse_size_bytes

SPEC_HELP = "use cpu:N or cpu:N:MEMORY, for example cpu:2 or cpu:2:4GB"


class DeviceSpecError(ValueError):
    """The devices asked for cannot be had; the message is for the person who asked."""


@dataclass(frozen=True, slots=True)
class CpuSpec:
    """`cpu:N[:MEMORY]`: how many devices, and the memory of each (None: an equal part of the host's)."""

    count: int
    memory_bytes: int | None = None


def parse_cpu_spec(spec: str) -> CpuSpec:
    """Read `cpu:N[:MEMORY]`. Raises DeviceSpecError: it is not of this form."""
    kind, _, rest = spec.partition(":")
    count, _, memory = rest.partition(":")
    if kind != CPU_DEVICE_TYPE:
        raise DeviceSpecError(f"--devices {spec}: unknown kind of device {kind!r}; {SPEC_HELP}")
    if not (count.isascii() and count.isdigit() and int(count) > 0):
        raise DeviceSpecError(f"--devices {spec}: the number of devices must be at least 1; {SPEC_HELP}")
    if rest.endswith(":"):
        raise DeviceSpecError(f"--devices {spec}: the memory size after the last colon is missing; {SPEC_HELP}")
    return CpuSpec(int(count), _parse_size_bytes(spec, memory) if memory else None)


def _parse_size_bytes(spec: str, text: str) -> int:
    try:
        size = parse_size_bytes(text)
    except ValueError as error:
        raise DeviceSpecError(f"--devices {spec}: the memory {error}") from error
    if size == 0:
        raise DeviceSpecError(f"--devices {spec}: the memory must be more than 0; {SPEC_HELP}")
    return size


class CpuDevices:
    """The allowed cores in equal parts, neighbours together.

    Args:
        spec: How many.
        host: The machine.
        topology: The machine they stand for; then each socket has cores of its own as far as there are enough, and
            devices may outnumber the cores and share them. None connects them through the host.
        others: Watches what others use of the cores.

    Raises:
        DeviceSpecError: More devices than cores are asked for.
    """

    utilization_by = ""
    maker = NVIDIA  # a job on cpu devices is shown no GPU

    def __init__(
        self, spec: CpuSpec, host: HostFacts, topology: Topology | None = None, others: OthersOnCores | None = None
    ) -> None:
        if topology is None and spec.count > len(host.cores):
            raise DeviceSpecError(
                f"--devices cpu:{spec.count}: this machine lets us use {len(host.cores)} core(s), "
                f"so at most cpu:{len(host.cores)} is possible"
            )
        self.host = host
        memory_bytes = spec.memory_bytes or host.memory_bytes // spec.count
        parts = _partition(host, spec.count)
        sockets = tuple(host.sockets.get(part[0], 0) for part in parts) if topology is None else topology.sockets
        by_device = dict(zip(sorted(range(spec.count), key=sockets.__getitem__), parts, strict=True))
        self._gpus = tuple(_cpu_device(i, by_device[i], memory_bytes, sockets[i]) for i in range(spec.count))
        self.topology = topology or flat_topology(sockets)
        self._watch = others or OthersOnCores()
        self._others = [Smoothed() for _ in self._gpus]

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        """Give the devices and what others use of them; cores do not fall ill, and their memory is a declaration."""
        seen = self._watch.sample(own.pids, own.changes)
        if seen is not None:
            window_s, by_core = seen
            for gpu, others in zip(self._gpus, self._others, strict=True):
                others.see(sum(by_core.get(core, 0.0) for core in gpu.cores) / len(gpu.cores), window_s)
        return tuple(
            replace(gpu, others_ratio=others.told) if others.told else gpu
            for gpu, others in zip(self._gpus, self._others, strict=True)
        )

    def utilization(self) -> dict[int, Utilization]:
        """Nothing: the agent measures the CPU time of each job itself."""
        return {}

    def uses(self) -> tuple[DeviceUsage, ...]:
        """How busy the cores of each were when last observed; memory is what jobs hold, which the agent knows."""
        return tuple(DeviceUsage(gpu.index, busy_ratio=self._busy(gpu)) for gpu in self._gpus)

    def busy_by_pid(self) -> dict[int, Mapping[int, float]]:
        """Nothing, as for `utilization`."""
        return {}

    def others(self) -> dict[int, float]:
        """What others used of the cores of each, as of the last `observe`."""
        return {gpu.index: others.latest for gpu, others in zip(self._gpus, self._others, strict=True)}

    def _busy(self, gpu: Gpu) -> float | None:
        used = [self._watch.used_by_core[core] for core in gpu.cores if core in self._watch.used_by_core]
        return sum(used) / len(used) if used else None

    def memory(self, index: int) -> MemoryUse | None:  # noqa: ARG002 - the Protocol's
        """Nothing: their memory is a declaration."""
        return None


def _partition(host: HostFacts, count: int) -> list[tuple[int, ...]]:
    """Cut the cores, ordered by NUMA node, into parts whose sizes differ by at most one and are at least one."""
    cores = sorted(host.cores, key=lambda core: (host.sockets.get(core, 0), core))
    cuts = [len(cores) * i // count for i in range(count + 1)]
    return [tuple(sorted(cores[a : max(a + 1, b)])) for a, b in pairwise(cuts)]


def _cpu_device(index: int, cores: tuple[int, ...], memory_bytes: int, socket: int) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"cpu-{index}",
        type=CPU_DEVICE_TYPE,
        sharing="cpu",
        memory_bytes=memory_bytes,
        socket=socket,
        cores=cores,
    )
