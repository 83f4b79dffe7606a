"""How the GPUs of one machine are connected: a value, equal for machines with the same wiring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class LinkKind(StrEnum):
    """The best way between two GPUs, in the words of `nvidia-smi topo -m`, nearest first."""

    SELF = "X"
    NVLINK = "NV"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


class Link(NamedTuple):
    """The best way from one GPU to another.

    Attributes:
        kind: What it crosses.
        lanes: NVLinks bonded between the two; 0 for every other kind.
        bandwidth_bytes_per_s: In one direction; 0 when unknown.
    """

    kind: LinkKind
    lanes: int = 0
    bandwidth_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Topology:
    """The GPUs of one machine and the ways between them.

    Attributes:
        links: `links[a][b]` is the way from GPU a to GPU b; square, symmetric in kind and lanes, SELF on the diagonal.
        sockets: Socket (NUMA node) of each GPU.
        switches: PCIe switch of each GPU, -1 where it hangs on the socket itself.
        nvswitch: Whether NVLinks go through a switch, so that every pair is connected in the same way.
    """

    links: tuple[tuple[Link, ...], ...]
    sockets: tuple[int, ...]
    switches: tuple[int, ...] = ()
    nvswitch: bool = False

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.sockets)


def flat_topology(sockets: Sequence[int]) -> Topology:
    """Connect devices through nothing but the host: every pair within a socket in the same way."""
    links = tuple(
        [
            tuple([_through_host(is_self=a == b, same_socket=one == two) for b, two in enumerate(sockets)])
            for a, one in enumerate(sockets)
        ]
    )
    return Topology(links, tuple(sockets), (-1,) * len(sockets))


def _through_host(*, is_self: bool, same_socket: bool) -> Link:
    if is_self:
        return Link(LinkKind.SELF)
    return Link(LinkKind.NODE if same_socket else LinkKind.SYS)
