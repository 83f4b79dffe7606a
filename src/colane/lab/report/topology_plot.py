"""Draws how the GPUs of a machine are connected: sockets, PCIe switches, GPUs and the NVLinks between them.

Sockets lie in one row or two, so that links between them run straight; links within a row bend towards the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path

from colane.lab.report import style
from colane.model.hardware import Link, LinkKind, Topology
from colane.model.topo_text import distinct_links, word
from colane.model.words import count

FREE, USED, UNHEALTHY = "free", "used", "unhealthy"
STATE_COLOURS = {FREE: "#44BB99", USED: "#EE8866", UNHEALTHY: style.OTHER_COLOUR}
NVLINK_COLOUR = style.GROUP_COLOURS[0]
SOCKET_COLOUR, SWITCH_COLOUR = "#eef1f5", "#d5dbe3"
LABELLED_LINKS_MAX = 28  # with more NVLinks than these only the legend tells their number
GPU_RADIUS, SPACING, SOCKET_GAP = 0.4, 1.25, 0.9
GPU_Y, SWITCH_Y, CPU_Y, BOX_TOP = 1.9, 3.05, 3.75, 4.15  # heights in the upper row; the lower one is its mirror image
BOX_FOOT = 0.5
ABOVE = 5


@dataclass(frozen=True, slots=True)
class Marks:
    """What is written on the GPUs."""

    # `free`, `used` or `unhealthy` by GPU; GPUs that are left out are free
    states: Mapping[int, str] = field(default_factory=dict)
    jobs: Mapping[int, str] = field(default_factory=dict)  # jobs on each GPU, as text


@dataclass(frozen=True, slots=True)
class _GpuBox:
    x: float
    row: int  # 1 above the middle, -1 below it

    @property
    def y(self) -> float:
        return self.row * GPU_Y


@style.styled
def draw_topology(topology: Topology, title: str, marks: Marks = Marks()) -> Figure:
    """Draw one machine."""
    places, sockets = _lay_out(topology)
    two_rows = any(place.row < 0 for place in places.values())
    bare = all(link.kind is not LinkKind.NVLINK for row in topology.links for link in row)
    right = max((place.x for place in places.values()), default=0.0) + SPACING
    foot = -BOX_TOP - 0.2 if two_rows else BOX_FOOT - 0.2 if bare else -0.3
    height_inch = 1.2 + 0.72 * (BOX_TOP + 0.2 - foot)
    fig = Figure(figsize=(max(style.FIGURE_WIDTH_INCH, right + 1.2), height_inch), layout="constrained")
    axes = fig.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_title(f"{title}: {count(topology.gpus, 'GPU')}")
    for socket, gpus in sockets.items():
        _draw_socket(axes, topology, socket, [places[gpu] for gpu in gpus], gpus)
    if len(sockets) == 2:
        _draw_interconnect(axes, topology, sockets)
    _draw_nvlinks(axes, topology, places, two_rows=two_rows)
    for gpu, place in places.items():
        _draw_gpu(axes, gpu, place, marks)
    axes.set_xlim(-SPACING - 0.5, right)
    axes.set_ylim(foot, BOX_TOP + 0.2)
    _explain(fig, topology, marks)
    return fig


def _lay_out(topology: Topology) -> tuple[dict[int, _GpuBox], dict[int, list[int]]]:
    """Give each GPU its place, and each socket its GPUs from left to right."""
    sockets: dict[int, list[int]] = {}
    for gpu, socket in enumerate(topology.sockets):
        sockets.setdefault(socket, []).append(gpu)
    places: dict[int, _GpuBox] = {}
    upper = (len(sockets) + 1) // 2 if len(sockets) > 1 else 1
    x = {1: 0.0, -1: 0.0}
    for number, gpus in enumerate(sockets.values()):
        row = 1 if number < upper else -1
        gpus.sort(key=lambda gpu: (_switch(topology, gpu), gpu))
        for gpu in gpus:
            places[gpu] = _GpuBox(x[row], row)
            x[row] += SPACING
        x[row] += SOCKET_GAP
    return places, sockets


def _switch(topology: Topology, gpu: int) -> int:
    return topology.switches[gpu] if topology.switches else -1


def _draw_socket(axes: Axes, topology: Topology, socket: int, places: Sequence[_GpuBox], gpus: Sequence[int]) -> None:
    row, left, right = places[0].row, places[0].x - 0.55, places[-1].x + 0.55
    foot, top = sorted((row * BOX_FOOT, row * BOX_TOP))
    _box(axes, left - 0.1, foot, right - left + 0.2, top - foot, SOCKET_COLOUR, zorder=0)
    _box(axes, left, row * CPU_Y - 0.22, right - left, 0.44, "#ffffff", zorder=2)
    axes.text((left + right) / 2, row * CPU_Y, f"socket {socket}", ha="center", va="center", zorder=3)
    pairs = zip(gpus, places, strict=True)
    for switch, members in groupby(pairs, key=lambda pair: _switch(topology, pair[0])):
        ways = [place for _, place in members]
        if switch < 0:
            for place in ways:
                _pcie(axes, place.x, row * (CPU_Y - 0.22), place.x, place.y)
            continue
        middle = (ways[0].x + ways[-1].x) / 2
        _pcie(axes, middle, row * (CPU_Y - 0.22), middle, row * SWITCH_Y)
        for place in ways:
            _pcie(axes, place.x, row * SWITCH_Y, place.x, place.y)
        _box(axes, ways[0].x - 0.45, row * SWITCH_Y - 0.17, ways[-1].x - ways[0].x + 0.9, 0.34, SWITCH_COLOUR, zorder=2)
        name = "PCIe switch" if len(ways) > 1 else "switch"
        axes.text(middle, row * SWITCH_Y, name, ha="center", va="center", fontsize=8, zorder=3)


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, *, zorder: int) -> None:
    shape = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor=colour, edgecolor=style.GRID, zorder=zorder)
    )


def _pcie(axes: Axes, x: float, y: float, to_x: float, to_y: float) -> None:
    axes.plot([x, to_x], [y, to_y], color=style.INK, linewidth=1.0, alpha=0.55, zorder=1)


def _draw_interconnect(axes: Axes, topology: Topology, sockets: Mapping[int, Sequence[int]]) -> None:
    """Join the two sockets at the left, with what PCIe between them can do."""
    one, two = sockets.values()
    across = [topology.links[a][b] for a in one for b in two]
    known = [link.bandwidth_bytes_per_s for link in across if link.kind is LinkKind.SYS and link.bandwidth_bytes_per_s]
    x = -SPACING
    axes.plot([-0.55, x, x, -0.55], [CPU_Y, CPU_Y, -CPU_Y, -CPU_Y], color=style.INK, linewidth=1.4, zorder=1)
    text = f"between sockets{f', {rate(min(known))}' if known else ''}"
    axes.text(x - 0.12, 0, text, rotation=90, ha="right", va="center", fontsize=8)


def _draw_nvlinks(axes: Axes, topology: Topology, places: Mapping[int, _GpuBox], *, two_rows: bool) -> None:
    pairs = [
        (a, b, topology.links[a][b])
        for a, b in combinations(sorted(places), 2)
        if topology.links[a][b].kind is LinkKind.NVLINK
    ]
    if topology.nvswitch and pairs:
        _draw_nvswitch(axes, places, pairs[0][2], two_rows=two_rows)
        return
    for a, b, link in pairs:
        _draw_nvlink(axes, places[a], places[b], link, labelled=len(pairs) <= LABELLED_LINKS_MAX)


def _draw_nvswitch(axes: Axes, places: Mapping[int, _GpuBox], link: Link, *, two_rows: bool) -> None:
    y = 0.0 if two_rows else 0.35
    left, right = min(place.x for place in places.values()) - 0.5, max(place.x for place in places.values()) + 0.5
    for place in places.values():
        axes.plot([place.x, place.x], [place.y, y], color=NVLINK_COLOUR, linewidth=_width(link), zorder=1)
    _box(axes, left, y - 0.3, right - left, 0.6, "#cfe3f1", zorder=2)
    text = f"NVSwitch: {word(link)} from each GPU{_at(link)}"
    axes.text((left + right) / 2, y, text, ha="center", va="center", zorder=3)


def _draw_nvlink(axes: Axes, one: _GpuBox, two: _GpuBox, link: Link, *, labelled: bool) -> None:
    """Straight between the rows; within a row a bow towards the middle, the deeper the farther apart the two are."""
    start, end = (one.x, one.y), (two.x, two.y)
    bow = 0.0 if one.row != two.row else -one.row * (0.55 + 0.62 * abs(two.x - one.x) / SPACING)
    middle = ((one.x + two.x) / 2, (one.y + two.y) / 2 + bow)
    path = Path([start, middle, end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    axes.add_patch(PathPatch(path, fill=False, edgecolor=NVLINK_COLOUR, linewidth=_width(link), alpha=0.85, zorder=1))
    if labelled:
        at = (middle[0], (one.y + two.y) / 4 + middle[1] / 2)
        box = {"facecolor": style.PAGE, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
        axes.text(*at, word(link), ha="center", va="center", fontsize=7, color=NVLINK_COLOUR, bbox=box, zorder=4)


def _width(link: Link) -> float:
    return min(1.1 + 1.1 * link.lanes, 5.0)


def _draw_gpu(axes: Axes, gpu: int, place: _GpuBox, marks: Marks) -> None:
    state = marks.states.get(gpu, FREE)
    circle = Circle((place.x, place.y), GPU_RADIUS, facecolor=STATE_COLOURS[state], edgecolor=style.INK, zorder=ABOVE)
    if state == UNHEALTHY:
        circle.set_hatch("////")
    axes.add_patch(circle)
    jobs = marks.jobs.get(gpu, "")
    plain = {"boxstyle": "circle,pad=0.15", "facecolor": STATE_COLOURS[state], "edgecolor": "none"}
    number = axes.text(place.x, place.y + (0.1 if jobs else 0), str(gpu), weight="bold", bbox=plain)
    below = axes.text(place.x, place.y - 0.17, style.shortened(jobs, 9), fontsize=6.5)
    for text in (number, below):
        text.set(ha="center", va="center", zorder=ABOVE + 1)


def _explain(fig: Figure, topology: Topology, marks: Marks) -> None:
    """Say what the colours mean, and how fast each kind of link is."""
    states = [state for state in STATE_COLOURS if state == FREE or state in marks.states.values()]
    handles: list[Line2D | Patch] = [
        Patch(facecolor=STATE_COLOURS[state], edgecolor=style.INK, hatch="////" if state == UNHEALTHY else None)
        for state in states
    ]
    labels = [f"GPU, {state}" for state in states]
    for link in distinct_links(topology):
        nvlink = link.kind is LinkKind.NVLINK
        colour, width = (NVLINK_COLOUR, _width(link)) if nvlink else (style.INK, 1.0)
        handles.append(Line2D([], [], color=colour, linewidth=width))
        labels.append(f"{word(link)}{_at(link)}")
    fig.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=9)


def rate(bytes_per_s: float) -> str:
    """Say a bandwidth: `25 GB/s`."""
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def _at(link: Link) -> str:
    return f", {rate(link.bandwidth_bytes_per_s)}" if link.bandwidth_bytes_per_s else ""
