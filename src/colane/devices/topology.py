"""How the GPUs of this machine are connected, as NVML and the kernel tell.

Every answer may be missing: a pair that NVML cannot tell is taken to be connected through the host. NVLinks are asked
of each GPU, link by link: another GPU at the far end is a bond of the two, a switch connects all that hang on one.
What stays unknown (virtual machines hide the far ends) is settled by whether NVML would copy between the two over
NVLink.
Reference: NVML API guide, `nvmlGpuTopologyLevel_t`, NvLink methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

import pynvml

from colane.devices.nvml import GpuLostError, Handle, Nvml
from colane.devices.types import HostFacts
from colane.model.hardware import Link, LinkKind, Topology
from colane.model.topo_text import is_switched

PCI_ROOT = Path("/sys/bus/pci/devices")
NUMA_NODES_PER_WORD = 64

ANCESTORS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: LinkKind.PIX,
    pynvml.NVML_TOPOLOGY_SINGLE: LinkKind.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: LinkKind.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkKind.PHB,
    pynvml.NVML_TOPOLOGY_NODE: LinkKind.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: LinkKind.SYS,
}

PCIE_LANE_BYTES_PER_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""By generation, in one direction, behind the line code (PCI-SIG base specifications)."""

NVLINK_BYTES_PER_S: Final = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
"""One NVLink by version, in one direction (NVIDIA's data sheets); for drivers that do not tell its speed."""

_MEGABYTE = 1e6


@dataclass(slots=True)
class _End:
    """One GPU as an end of links."""

    handle: Handle  # asked with
    bus: str = ""  # its PCI address
    peers: Counter[str] = field(default_factory=Counter)  # NVLinks to each other GPU, by PCI address
    switched: int = 0  # NVLinks to a switch
    unplaced: int = 0  # NVLinks whose far end NVML does not name, or is a device that is not ours
    nvlink_bytes_per_s: float = 0.0  # of one NVLink; 0 where unknown
    pcie_bytes_per_s: float = 0.0  # of its PCIe connection; 0 where unknown


def read_topology(nvml: Nvml, handles: Sequence[Handle], sockets: Sequence[int]) -> Topology:
    """Ask how these GPUs are connected; never raises.

    Args:
        nvml: The gate.
        handles: The GPUs in the order of the answer; the instances of a GPU in MIG mode are given as that GPU.
        sockets: NUMA node of each.
    """
    ends = [_read_end(nvml, handle) for handle in handles]
    _know_peers(ends)
    size = range(len(ends))
    links = [[Link(LinkKind.SELF)] * len(ends) for _ in size]
    bridges = {(a, a): LinkKind.SELF for a in size}
    for a, b in combinations(size, 2):
        bridges[a, b] = bridges[b, a] = _bridge(nvml, ends[a], ends[b], same_socket=sockets[a] == sockets[b])
        links[a][b] = links[b][a] = _link(nvml, ends[a], ends[b], bridges[a, b])
    switched = bool(ends) and all(end.switched for end in ends)
    return Topology(
        tuple(map(tuple, links)), tuple(sockets), _switches(bridges, len(ends)), switched or is_switched(links)
    )


def read_socket(
    nvml: Nvml, handle: Handle, host: HostFacts, near_cores: Iterable[int], pci_root: Path = PCI_ROOT
) -> int:
    """Give the NUMA node a GPU hangs on: as NVML says, else the kernel, else as its near cores do, else the first.

    `nvmlDeviceGetNumaNodeId` is another thing: the node that the GPU's own memory is, where it is one. Raises
    GpuLostError: the GPU does not answer any more.
    """
    words = max(host.sockets.values(), default=0) // NUMA_NODES_PER_WORD + 1
    told = nvml.call("nvmlDeviceGetMemoryAffinity", handle, words, pynvml.NVML_AFFINITY_SCOPE_NODE) or ()
    nodes = [
        word * NUMA_NODES_PER_WORD + bit
        for word, mask in enumerate(told)
        for bit in range(NUMA_NODES_PER_WORD)
        if int(mask) >> bit & 1
    ]
    if nodes:
        return nodes[0]
    kernel = _read_numa_node(pci_root, _bus(nvml.call("nvmlDeviceGetPciInfo", handle)))
    if kernel is not None:
        return kernel
    counts = Counter(host.sockets[core] for core in near_cores if core in host.sockets)
    return counts.most_common(1)[0][0] if counts else 0


def _read_numa_node(pci_root: Path, bus: str) -> int | None:
    try:
        node = int((pci_root / bus / "numa_node").read_text()) if bus else -1
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _bus(info: Handle) -> str:
    """Give a PCI address as the kernel writes it: `0000:07:00.0`; empty when NVML does not tell."""
    text = getattr(info, "busId", "")
    text = (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}" if colon else ""


def _read_end(nvml: Nvml, handle: Handle) -> _End:
    """Read one GPU; of one that is lost, what it told before."""
    end = _End(handle)
    try:
        end.bus = _bus(nvml.call("nvmlDeviceGetPciInfo", handle))
        end.pcie_bytes_per_s = _pcie_bytes_per_s(nvml, handle)
        _read_nvlinks(nvml, end)
    except GpuLostError:
        return end
    return end


def _know_peers(ends: Sequence[_End]) -> None:
    """Keep those far ends that are GPUs of ours: some drivers name a switch's address without saying that it is one."""
    ours = {end.bus for end in ends}
    for end in ends:
        strange = [bus for bus in end.peers if bus not in ours]
        end.unplaced += sum(end.peers.pop(bus) for bus in strange)


def _pcie_bytes_per_s(nvml: Nvml, handle: Handle) -> float:
    """Give what the slot can do: an idle GPU lowers its generation to save power."""
    generation = nvml.call("nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = nvml.call("nvmlDeviceGetMaxPcieLinkWidth", handle)
    newest = max(PCIE_LANE_BYTES_PER_S)
    return PCIE_LANE_BYTES_PER_S[min(generation, newest)] * width if generation and width else 0.0


def _read_nvlinks(nvml: Nvml, end: _End) -> None:
    count = nvml.fields(end.handle, (pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,)).get(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
    for number in range(int(count) if count is not None else pynvml.NVML_NVLINK_MAX_LINKS):
        if not nvml.call("nvmlDeviceGetNvLinkState", end.handle, number):
            continue
        end.nvlink_bytes_per_s = end.nvlink_bytes_per_s or _nvlink_bytes_per_s(nvml, end.handle, number)
        far = nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", end.handle, number)
        bus = _bus(nvml.call("nvmlDeviceGetNvLinkRemotePciInfo", end.handle, number))
        if far == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            end.switched += 1
        elif far == pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
            continue  # to the processor of a Power machine: no other GPU is at its end
        elif bus:
            end.peers[bus] += 1
        else:
            end.unplaced += 1


def _nvlink_bytes_per_s(nvml: Nvml, handle: Handle, number: int) -> float:
    speed = pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
    told = nvml.fields(handle, (speed,)).get(speed)
    if told:
        return told * _MEGABYTE
    version = nvml.call("nvmlDeviceGetNvLinkVersion", handle, number)
    return NVLINK_BYTES_PER_S[min(version, max(NVLINK_BYTES_PER_S))] if version else 0.0


def _bridge(nvml: Nvml, a: _End, b: _End, *, same_socket: bool) -> LinkKind:
    """Give what PCIe crosses between the two, whatever NVLinks there are beside it."""
    try:
        level = nvml.call("nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle)
    except GpuLostError:
        level = None
    if level is None and a.handle is b.handle:
        return LinkKind.PIX
    return ANCESTORS.get(level, LinkKind.NODE if same_socket else LinkKind.SYS)


def _link(nvml: Nvml, a: _End, b: _End, bridge: LinkKind) -> Link:
    lanes = _nvlinks(nvml, a, b)
    if lanes:
        return Link(LinkKind.NVLINK, lanes, lanes * min(a.nvlink_bytes_per_s, b.nvlink_bytes_per_s))
    return Link(bridge, 0, min(a.pcie_bytes_per_s, b.pcie_bytes_per_s))


def _nvlinks(nvml: Nvml, a: _End, b: _End) -> int:
    if a.handle is b.handle:
        return 0  # two instances of one GPU have no link between them
    direct = max(a.peers[b.bus], b.peers[a.bus]) if a.bus and b.bus else 0
    through = min(a.switched, b.switched)
    unplaced = min(a.unplaced + a.switched, b.unplaced + b.switched)
    return direct or through or (unplaced if unplaced and _copies_over_nvlink(nvml, a, b) else 0)


def _copies_over_nvlink(nvml: Nvml, a: _End, b: _End) -> bool:
    try:
        status = nvml.call("nvmlDeviceGetP2PStatus", a.handle, b.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except GpuLostError:
        return False
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _switches(bridges: dict[tuple[int, int], LinkKind], size: int) -> tuple[int, ...]:
    """Number the PCIe switches: of GPUs that one bridge joins, else of those that several join; -1 for none."""
    leaders: list[tuple[LinkKind, int] | None] = [None] * size
    for kind in (LinkKind.PIX, LinkKind.PXB):
        free = [place for place in range(size) if leaders[place] is None]
        for a in free:
            group = [b for b in free if a == b or bridges[a, b] is kind]
            if len(group) > 1:
                leaders[a] = (kind, group[0])
    numbers = {leader: number for number, leader in enumerate(dict.fromkeys(filter(None, leaders)))}
    return tuple(-1 if leader is None else numbers[leader] for leader in leaders)
