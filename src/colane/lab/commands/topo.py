"""`colane topo`: how the GPUs of a machine are connected, and which of them are free."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.completing import complete_nodes
from colane.cli.errors import MisuseError, writing
from colane.cli.formatting import Format, print_formatted
from colane.cli.jobs import objects as jobs
from colane.facts.node import lanes_of
from colane.model.hardware import Link, LinkKind, Topology
from colane.model.topo_text import distinct_links, word
from colane.model.words import count, plural

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    from colane.api.nodes import NodeObject


STATE_STYLES: Final = {"free": "green", "used": "yellow", "unhealthy": "red"}
LINKS: Final[Mapping[LinkKind, tuple[str, str]]] = {
    LinkKind.SELF: ("dim", ""),
    LinkKind.NVLINK: ("bold green", ""),
    LinkKind.PIX: ("green", "one PCIe bridge"),
    LinkKind.PXB: ("cyan", "several PCIe bridges"),
    LinkKind.PHB: ("yellow", "the host's PCIe bridge"),
    LinkKind.NODE: ("yellow", "the host, within one NUMA node"),
    LinkKind.SYS: ("red", "the link between sockets"),
}
"""How each kind of link is shown, and what it crosses."""

PIPE_COLUMNS: Final = 240  # a pipe has no width: nothing is folded there


@dataclass(frozen=True, slots=True)
class Machine:
    """What is shown."""

    name: str  # for people
    topology: Topology  # its graph
    types: tuple[str, ...] = ()  # product name of each GPU, as far as known
    # `free`, `used` or `unhealthy` by GPU; empty of a machine that is not here
    states: Mapping[int, str] = field(default_factory=dict)
    jobs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # ids of the jobs on each GPU
    notes: tuple[str, ...] = ()  # what its reader should know


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
        table.add_row(str(gpu), *(Text(word(link), style=LINKS[link.kind][0]) for link in row))
    return table


def legend(topology: Topology) -> list[str]:
    """Return what each kind of link is and can do, best first; of equal ones the slowest."""
    links = distinct_links(topology)
    return [f"{said(link)}: {LINKS[link.kind][1] or count(link.lanes, 'NVLink')}" for link in links]


def said(link: Link) -> str:
    """Return a link with its bandwidth in one direction, where that is known: `NV2 50 GB/s`."""
    bandwidth = link.bandwidth_bytes_per_s
    return f"{word(link)} {bandwidth / 1e9:.3g} GB/s" if bandwidth else word(link)


PICTURES: Final = (".png", ".svg")
DOCUMENTS: Final = (".json", ".yaml", ".yml")
EPILOG: Final = """Examples: [bold]colane topo[/bold]; [bold]colane topo node-1 --out node-1.png[/bold];
[bold]colane topo --import matrix.txt --out machine.yaml[/bold]"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("topo", epilog=EPILOG)(topo)


def topo(
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]", autocompletion=complete_nodes, show_default=False, help="A machine; without it, all."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--import",
            metavar="FILE|PRESET",
            show_default=False,
            help="Show the output of nvidia-smi topo -m (- reads it from a pipe), a topology file, or a preset.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            show_default=False,
            help="Draw it as .png or .svg, or write it as .yaml or .json for --cluster files.",
        ),
    ] = None,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """Show how the GPUs of a machine are connected: sockets, switches, links and their bandwidth, and which are free.

    --import shows a machine that is not here; its file can stand as `topology` in a cluster file for colane simulate.
    """
    if source is not None and node is not None:
        raise MisuseError("topo: give a node of the scheduler's or --import, not both")
    if out is not None and out.suffix not in PICTURES + DOCUMENTS:
        raise MisuseError(f"--out {out}: must end in one of {', '.join(PICTURES + DOCUMENTS)}")
    machines = _live(node) if source is None else [_imported(source)]
    if out is not None:
        _write(out, machines)
    objects = [_object(machine, live=source is None) for machine in machines]
    if template is not None:
        print_formatted(template, objects)
        return
    if as_json:
        output.print_json(objects if node is None and source is None else objects[0])
        return
    for machine in machines:
        render(machine)
    for note in (f"{machine.name}: {note}" for machine in machines for note in machine.notes):
        output.note(note)
    if not machines:
        output.note("no node has registered; start one with 'colane agent', or give --import")


def _imported(source: str) -> Machine:
    from colane.settings.input_file import InputFileError  # noqa: PLC0415 - imported late
    from colane.settings.topology_file import named_topology  # noqa: PLC0415

    try:
        read = named_topology(source)
    except InputFileError as error:
        raise MisuseError(f"--import: {error}") from error
    name = "machine" if source == "-" else source if not read.names else Path(source).stem
    return Machine(name, read.topology, notes=read.notes)


def _live(node: str | None) -> list[Machine]:
    with jobs.client() as scheduler:
        nodes = scheduler.nodes()
    named = [each for each in nodes if node in {None, each["name"]}]
    if node is not None and not named:
        known = ", ".join(each["name"] for each in nodes) or "there is none"
        raise MisuseError(f"{node}: no such node; registered are {known}")
    return [_machine(each) for each in named]


def _machine(node: NodeObject) -> Machine:
    from colane.api.topologies import decode_topology  # noqa: PLC0415
    from colane.model.hardware import flat_topology  # noqa: PLC0415 - as above

    known, gpus = node.get("topology"), node["gpus"]
    flat = flat_topology([gpu["socket"] for gpu in gpus])
    notes = () if known else ("how its GPUs are connected is not known; their sockets alone are shown",)
    topology = decode_topology(known) if known else flat
    lanes = lanes_of(node)
    on = {
        gpu["index"]: tuple(job["id"] for jobs in lanes.get(gpu["index"], {}).values() for job in jobs) for gpu in gpus
    }
    lost = {gpu["index"] for gpu in gpus if node["lost"] or not gpu["healthy"]}
    states = {gpu: "unhealthy" if gpu in lost else "used" if ids else "free" for gpu, ids in on.items()}
    return Machine(node["name"], topology, tuple(gpu["type"] for gpu in gpus), states, on, notes)


def _object(machine: Machine, *, live: bool) -> dict[str, Any]:
    """Return a machine for programs; of one that is not of the scheduler's, how it is wired alone."""
    from colane.api.topologies import encode_topology  # noqa: PLC0415 - as above

    topology = dict(encode_topology(machine.topology))
    if not live:
        return topology
    gpus = [
        {"index": gpu, "type": kind, "state": machine.states[gpu], "jobs": list(machine.jobs[gpu])}
        for gpu, kind in zip(machine.states, machine.types, strict=True)
    ]
    return {"name": machine.name, "gpus": gpus, "topology": topology}


def _write(out: Path, machines: list[Machine]) -> None:
    if len(machines) != 1:
        raise MisuseError(f"--out {out}: holds one machine, but there are {len(machines)}; name a node")
    machine = machines[0]
    with writing(f"--out {out}:"):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix in PICTURES:
            _draw(out, machine)
        else:
            out.write_text(_document(machine), encoding="utf-8")
    output.note(f"wrote {out}")


def _draw(out: Path, machine: Machine) -> None:
    from colane.lab.report import style, topology_plot  # noqa: PLC0415 - matplotlib takes half a second

    texts = {gpu: ", ".join(map(str, on)) for gpu, on in machine.jobs.items() if on}
    style.save(
        topology_plot.draw_topology(machine.topology, machine.name, topology_plot.Marks(machine.states, texts)), out
    )


def _document(machine: Machine) -> str:
    """Return JSON, which is YAML too, with a line for each GPU's links."""
    from colane.api.topologies import encode_topology  # noqa: PLC0415 - as above

    known = encode_topology(machine.topology)
    rows = ",\n  ".join(json.dumps(row) for row in known["links"])
    rest = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in known.items() if key != "links")
    return f'{{"links": [\n  {rows}],\n{rest}}}\n'
