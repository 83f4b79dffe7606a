"""Draws a machine in the terminal: a tree of sockets, switches and GPUs, and the matrix of their links."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from colane.model.hardware import Link, LinkKind, Topology
from colane.model.topo_text import distinct_links, word
from colane.model.words import count, plural

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

STATE_STYLES: Final = {"free": "green", "used": "yellow", "unhealthy": "red"}
LINK_STYLES: Final = {
    LinkKind.SELF: "dim",
    LinkKind.NVLINK: "bold green",
    LinkKind.PIX: "green",
    LinkKind.PXB: "cyan",
    LinkKind.PHB: "yellow",
    LinkKind.NODE: "yellow",
    LinkKind.SYS: "red",
}
CROSSES: Final = {
    LinkKind.PIX: "one PCIe bridge",
    LinkKind.PXB: "several PCIe bridges",
    LinkKind.PHB: "the host's PCIe bridge",
    LinkKind.NODE: "the host, within one NUMA node",
    LinkKind.SYS: "the link between sockets",
}
PIPE_COLUMNS: Final = 240
"""A pipe has no width: nothing is folded there."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is shown.

    Attributes:
        name: For people.
        topology: Its graph.
        types: Product name of each GPU, as far as known.
        states: `free`, `used` or `unhealthy` by GPU; empty of a machine that is not here.
        jobs: Ids of the jobs on each GPU.
        notes: What its reader should know.
    """

    name: str
    topology: Topology
    types: tuple[str, ...] = ()
    states: Mapping[int, str] = field(default_factory=dict)
    jobs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def render(machine: Machine) -> None:
    """Print one machine; with colours on a terminal, plainly in a pipe."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    console.print(tree(machine))
    if machine.topology.gpus > 1:
        console.print(matrix(machine.topology))
        for line in legend(machine.topology):
            console.print(line, markup=False)
    console.print()


def tree(machine: Machine) -> Tree:
    """Return sockets, their PCIe switches and GPUs."""
    from rich.text import Text  # noqa: PLC0415 - as above
    from rich.tree import Tree  # noqa: PLC0415

    topology = machine.topology
    root = Tree(Text(f"{machine.name}: {count(topology.gpus, 'GPU')}", style="bold"))
    for socket in dict.fromkeys(topology.sockets):
        below = root.add(f"socket {socket}")
        switches = {-1: below}
        for gpu in (gpu for gpu, on in enumerate(topology.sockets) if on == socket):
            switch = topology.switches[gpu] if topology.switches else -1
            if switch not in switches:
                switches[switch] = below.add(f"PCIe switch {switch}")
            switches[switch].add(_gpu(machine, gpu))
    if topology.nvswitch and topology.gpus > 1:
        root.add(Text(f"NVSwitch: each GPU to every other, {said(topology.links[0][1])}", style="bold green"))
    return root


def _gpu(machine: Machine, gpu: int) -> Text:
    from rich.text import Text  # noqa: PLC0415 - as above

    text = Text(f"GPU {gpu}")
    if machine.types:
        text.append(f"  {machine.types[gpu]}", style="dim")
    state = machine.states.get(gpu)
    if state is not None:
        on = machine.jobs.get(gpu, ())
        by = f" by {plural(len(on), 'job')} {', '.join(map(str, on))}" if on else ""
        text.append(f"  {state}{by}", style=STATE_STYLES[state])
    return text


def matrix(topology: Topology) -> Table:
    """Return the links as `nvidia-smi topo -m` shows them."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("GPU", justify="right")
    for gpu in range(topology.gpus):
        table.add_column(str(gpu), justify="center", no_wrap=True)
    for gpu, row in enumerate(topology.links):
        table.add_row(str(gpu), *(Text(word(link), style=LINK_STYLES[link.kind]) for link in row))
    return table


def legend(topology: Topology) -> list[str]:
    """Return what each kind of link is and can do, best first; of equal ones the slowest."""
    return [f"{said(link)}: {_crosses(link)}" for link in distinct_links(topology)]


def said(link: Link) -> str:
    """Return a link with its bandwidth in one direction, where that is known: `NV2 50 GB/s`."""
    bandwidth = link.bandwidth_bytes_per_s
    return f"{word(link)} {bandwidth / 1e9:.3g} GB/s" if bandwidth else word(link)


def _crosses(link: Link) -> str:
    return count(link.lanes, "NVLink") if link.kind is LinkKind.NVLINK else CROSSES[link.kind]
