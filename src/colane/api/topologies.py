"""How GPUs are connected as a JSON document and back; apart from the others, as commands that draw it need no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from colane.api.forms import choice, record, row, several
from colane.api.nodes import TopologyObject
from colane.model.hardware import Link, LinkKind, Topology

TOPOLOGY: Final = record(
    Topology,
    links=several(several(row(Link, kind=choice(LinkKind, LinkKind.SYS)))),
    sockets=several(),
    switches=several(),
)


def encode_topology(topology: Topology) -> TopologyObject:
    """Return a topology; a link is `[kind, lanes, bandwidth_bytes_per_s]`."""
    body: TopologyObject = TOPOLOGY.write(topology)
    return body


def decode_topology(body: Mapping[str, Any]) -> Topology:
    """Return the topology of `encode_topology`."""
    return TOPOLOGY.read(body)
