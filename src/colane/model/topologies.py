"""How the GPUs of well-known machines are connected, by name. Bandwidths are those of data sheets, in one direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType

from colane.model.hardware import Link, LinkKind, Topology
from colane.model.words import count

PCIE3_X16 = 15.75e9
NVLINK1 = 20e9
NVLINK2 = 25e9  # one NVLink of the first (P100) and second or third (V100, A100) generation

CUBE_MESH = (
    {1: 1, 2: 1, 3: 2, 4: 2},
    {2: 2, 3: 1, 5: 2},
    {3: 2, 6: 1},
    {7: 1},
    {5: 1, 6: 1, 7: 2},
    {6: 2, 7: 1},
    {7: 2},
)
"""NVLinks of a DGX-1 with V100, of each GPU to those after it: two squares with diagonals, joined."""

Way = Callable[[int, int], Link]  # the link between two different GPUs, smaller number first


class UnknownTopologyError(ValueError):
    """There is none of that name, or it is no machine of so many GPUs."""


def _nvlink(lanes: int, each: float) -> Link:
    return Link(LinkKind.NVLINK, lanes, lanes * each)


def _build(gpus: int, sockets: int, way: Way, switch_gpus: int = 0, *, nvswitch: bool = False) -> Topology:
    """All GPUs dealt out to the sockets evenly, in order, and to PCIe switches of that many."""
    links = tuple(
        tuple(Link(LinkKind.SELF) if a == b else way(min(a, b), max(a, b)) for b in range(gpus)) for a in range(gpus)
    )
    on = tuple(gpu * sockets // gpus for gpu in range(gpus))
    switches = tuple(gpu // switch_gpus if switch_gpus else -1 for gpu in range(gpus))
    return Topology(links, on, switches, nvswitch)


def _minsky(a: int, b: int) -> Link:
    return _nvlink(2, NVLINK1) if a // 2 == b // 2 else Link(LinkKind.SYS, 0, PCIE3_X16)


def _dgx1(a: int, b: int) -> Link:
    lanes = CUBE_MESH[a].get(b, 0)
    return _nvlink(lanes, NVLINK2) if lanes else Link(LinkKind.SYS, 0, PCIE3_X16)


def _switched(lanes: int, _a: int, _b: int) -> Link:
    return _nvlink(lanes, NVLINK2)


def _pcie(gpus: int, sockets: int, a: int, b: int) -> Link:
    """Pairs behind one switch; the rest of a socket through its host bridge."""
    if a * sockets // gpus != b * sockets // gpus:
        return Link(LinkKind.SYS, 0, PCIE3_X16)
    return Link(LinkKind.PIX if a // 2 == b // 2 else LinkKind.PHB, 0, PCIE3_X16)


@cache
def pcie(gpus: int, sockets: int) -> Topology:
    """PCIe only, two GPUs behind each switch, any number of GPUs."""
    return _build(gpus, sockets, partial(_pcie, gpus, sockets), 2)


@cache
def minsky() -> Topology:
    """IBM S822LC (paper C, section 3): four P100 on two sockets, two NVLinks within each socket."""
    return _build(4, 2, _minsky)


@cache
def dgx1() -> Topology:
    """NVIDIA DGX-1: eight V100 in a hybrid cube mesh, pairs behind PCIe switches."""
    return _build(8, 2, _dgx1, 2)


@cache
def dgx2() -> Topology:
    """NVIDIA DGX-2: sixteen V100 behind NVSwitch, six NVLinks each."""
    return _build(16, 2, partial(_switched, 6), 4, nvswitch=True)


@cache
def dgx_a100() -> Topology:
    """NVIDIA DGX A100: eight A100 behind NVSwitch, twelve NVLinks each."""
    return _build(8, 2, partial(_switched, 12), 2, nvswitch=True)


PRESETS: Mapping[str, Callable[[], Topology]] = MappingProxyType(
    {"minsky": minsky, "dgx1": dgx1, "dgx2": dgx2, "dgx-a100": dgx_a100, "pcie-8x2socket": partial(pcie, 8, 2)}
)
"""Machines by name."""

PCIE = "pcie"  # PCIe only, for any number of GPUs and sockets

NAMES = frozenset({*PRESETS, PCIE})


def make(name: str, gpus: int, sockets: int) -> Topology:
    """A preset for nodes of so many GPUs.

    Raises UnknownTopologyError: there is none of that name, or it is a machine of another number of GPUs.
    """
    if name == PCIE:
        return pcie(gpus, sockets)
    if name not in PRESETS:
        raise UnknownTopologyError(f"unknown topology {name!r}; known: {', '.join(sorted(NAMES))}")
    topology = PRESETS[name]()
    if topology.gpus != gpus:
        raise UnknownTopologyError(f"{name} is a machine of {count(topology.gpus, 'GPU')}, the nodes have {gpus}")
    return topology
