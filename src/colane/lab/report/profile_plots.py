"""Figures of profiles and of sets measured together (paper A, chapters 3 and 4). Plain data in, `Figure` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from colane.lab.report import style
from colane.lab.report.measured import DELTA_PAYS, Boundary, SetPoint
from colane.model.words import count

PAYS_COLOUR, COSTS_COLOUR = style.GROUP_COLOURS[0], style.GROUP_COLOURS[1]
SETS_MAX = 60  # bars of more sets would be thinner than their names; the best and worst are kept
HISTOGRAM_BINS = 20  # bins of 5 percent, as fine as the kernels' occupancies usefully are
GAIN_BINS = 14


ON_PAGE: Final[Mapping[str, Any]] = {"facecolor": style.PAGE, "edgecolor": "none", "pad": 0.6}
"""A patch of page behind a value keeps the line at 1 from running through it."""


@style.styled
def throughput(points: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Samples per second against batch size, one line for each family (paper A, Fig. 3.1)."""
    fig, axes = style.one_panel(4.2)
    if not any(points.values()):
        return style.nothing_to_draw(fig, axes, "Throughput: nothing was profiled")
    lines: list[Line2D] = []
    for position, found in enumerate(points.values()):
        looks = {"marker": style.group_marker(position), "linewidth": 2.0, **style.look(position)}
        lines += axes.plot([size for size, _ in found], [rate for _, rate in found], **looks)
    sizes = sorted({size for found in points.values() for size, _ in found})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(
        ylim=(0, None), xlabel="batch size (samples per step and GPU)", ylabel="throughput (samples/s)",
        title="Throughput against batch size, alone on the device",
    )  # fmt: skip
    style.legend_of(fig, lines, points)
    return fig


@style.styled
def speedup_bars(deltas: Mapping[str, Mapping[str, float]], *, title: str) -> Figure:
    """Speed-up of each set, one bar for each series (paper A, Figs 4.3 to 4.6).

    Deltas by series (a batch size, with and without MPS, pairs and triples), then by name of the set.
    """
    names = _best_and_worst(deltas.values())
    fig, axes = style.one_panel(1.5 + (0.14 + 0.17 * max(len(deltas), 1)) * max(len(names), 2))
    if not names:
        return style.nothing_to_draw(fig, axes, "Speed-up: no set was measured together")
    height = 0.8 / len(deltas)
    for position, found in enumerate(deltas.values()):
        for row, name in enumerate(names):
            if name in found:
                place = row - 0.4 + (position + 0.5) * height
                axes.barh(place, found[name], height * 0.92, color=style.group_colour(position))
                style.say_beside(axes, f"{found[name]:.2f}", (found[name], place), fontsize=8, bbox=ON_PAGE)
    axes.axvline(DELTA_PAYS, color=style.INK, linewidth=1.4)
    style.name_rows(axes, names, 44)
    axes.set(
        xlim=(0, max(axes.get_xlim()[1], DELTA_PAYS) * 1.08), title=title,
        xlabel="speed-up delta (from 1 on, at the line, sharing pays)",
    )  # fmt: skip
    handles = [Patch(facecolor=style.group_colour(position)) for position in range(len(deltas))]
    style.legend_of(fig, handles, deltas)
    return fig


@style.styled
def mps_gain_histogram(gains: Sequence[float]) -> Figure:
    """How much MPS adds to the speed-up, over the sets measured both ways (paper A, Fig. 4.14)."""
    fig, axes = style.one_panel(3.6)
    if not gains:
        return style.nothing_to_draw(fig, axes, "MPS: no set was measured both with and without it")
    low, high = min(*gains, 0.0), max(*gains, 0.0)
    width = (high - low) / GAIN_BINS or 0.01
    # Edges at multiples of the width: one is at 0 and parts gains from losses.
    edges = np.arange(np.floor(low / width), np.ceil(high / width) + 1) * width
    _, _, bars = axes.hist(list(gains), bins=list(edges), edgecolor=style.PAGE)
    for bar, left in zip(bars.patches, edges, strict=False):  # type: ignore[union-attr]
        bar.set_facecolor(PAYS_COLOUR if left >= -1e-12 else COSTS_COLOUR)
    axes.axvline(0, color=style.INK, linewidth=1.2)
    style.whole_numbers(axes)
    said = f"MPS raised the speed-up of {sum(gain > 0 for gain in gains)} of {count(len(gains), 'set')}"
    axes.set(xlabel="speed-up with MPS - speed-up without", ylabel="sets", title=said)
    return fig


@style.styled
def speedup_plane(
    points: Sequence[SetPoint], *, boundary: Boundary | None = None, exact: bool = False, title: str
) -> Figure:
    """Each set at its sums of M and C, told apart by whether sharing pays (paper A, Figs 4.11 to 4.13).

    Where the bandwidth M of a set was not measured, the speed-up itself is drawn against the sum of C. An exact one is
    coloured by the speed-up itself (Fig. 4.13) rather than by whether it reaches 1.
    """
    fig, axes = style.one_panel(4.4)
    if not points:
        return style.nothing_to_draw(fig, axes, "Speed-up against C and M: no measured set is profiled")
    flat = any(point.bandwidth_sum is None for point in points)
    if flat:
        _verdicts(axes, points, lambda point: (point.occupancy_sum, point.delta))
        axes.axhline(DELTA_PAYS, color=style.INK, linewidth=1.2)
    elif exact:
        _by_colour_scale(fig, axes, points)
    else:
        _verdicts(axes, points, lambda point: (point.bandwidth_sum or 0.0, point.occupancy_sum))
    occupancy, bandwidth = ("sum of C: occupancy x kernel time (% µs)", "sum of M: bandwidth use x kernel time (% µs)")
    top, names = axes.get_ylim()[1], (occupancy, "speed-up delta") if flat else (bandwidth, occupancy)
    axes.set(xlim=(0, axes.get_xlim()[1]), ylim=(0, max(top, 1.1) if flat else top), xlabel=names[0], ylabel=names[1])
    line = _boundary_line(axes, boundary, flat=flat) if boundary else None
    axes.set_title(title)
    told = {} if exact and not flat else {
        "sharing pays (delta >= 1)": style.marker(PAYS_COLOUR, "o"), "does not pay": style.marker(COSTS_COLOUR, "X"),
    }  # fmt: skip
    told |= {} if line is None else {"fitted boundary": line}
    style.legend_above(fig, list(told.values()), list(told))
    return fig


@style.styled
def kernel_histograms(percents: Mapping[str, Sequence[float]], *, quantity: str) -> Figure:
    """Kernels by the percentage they reach, one small plot for each family (paper A, Figs 4.7, 4.9).

    By family, the value of each kernel launch over two steps, 0 to 100.
    """
    shown = {name: found for name, found in percents.items() if len(found)}
    columns = min(max(len(shown), 1), 2)
    rows = -(-max(len(shown), 1) // columns)
    fig = style.new_figure(0.9 + 2.0 * rows)
    every = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    if not shown:
        return style.nothing_to_draw(fig, every[0], f"Kernels: {quantity} was not measured")
    edges, bars = list(np.linspace(0, 100, HISTOGRAM_BINS + 1)), {"edgecolor": style.INK, "linewidth": 0.4}
    colours = style.family_colours(shown)
    for axes, (name, found) in zip(every, shown.items(), strict=False):
        axes.hist(np.clip(found, 0, 100), bins=edges, color=colours[name], **bars)
        axes.set_title(f"{style.shortened(name)} ({len(found):,} launches)")
    every[0].set_yscale("log", nonpositive="clip")
    every[0].set(xlim=(0, 100), ylim=(0.5, None))  # half a launch: so is a bin with a single one still seen
    for axes in every[max(len(shown) - columns, 0) : len(shown)]:
        axes.tick_params(labelbottom=True)
    for axes in every[len(shown) :]:
        axes.set_axis_off()
    fig.supxlabel(f"{quantity} of a kernel (%)")
    fig.supylabel("kernel launches in two steps")
    return fig


def _best_and_worst(series: Iterable[Mapping[str, float]]) -> list[str]:
    """Names of the sets by the best of their deltas, at most `SETS_MAX` of them."""
    best: dict[str, float] = {}
    for found in series:
        for name, delta in found.items():
            best[name] = max(delta, best.get(name, delta))
    ordered = sorted(best, key=lambda name: (-best[name], name))
    half = SETS_MAX // 2
    return ordered if len(ordered) <= SETS_MAX else [*ordered[:half], *ordered[-half:]]


def _verdicts(axes: Axes, points: Sequence[SetPoint], place: Callable[[SetPoint], tuple[float, float]]) -> None:
    for pays, shape, colour in ((True, "o", PAYS_COLOUR), (False, "X", COSTS_COLOUR)):
        places = [place(point) for point in points if (point.delta >= DELTA_PAYS) is pays]
        across, up = [x for x, _ in places], [y for _, y in places]
        axes.plot(across, up, shape, color=colour, markersize=8, alpha=0.8, linestyle="none")


def _by_colour_scale(fig: Figure, axes: Axes, points: Sequence[SetPoint]) -> None:
    deltas = [point.delta for point in points]
    reach = max(abs(delta - DELTA_PAYS) for delta in deltas) or 0.1
    drawn = axes.scatter(
        [point.bandwidth_sum or 0.0 for point in points],
        [point.occupancy_sum for point in points],
        c=deltas,
        cmap="RdYlBu",
        norm=TwoSlopeNorm(DELTA_PAYS, DELTA_PAYS - reach, DELTA_PAYS + reach),
        edgecolors=style.INK,
        linewidths=0.6,
        s=60,
    )
    fig.colorbar(drawn, ax=axes, label="speed-up delta")


def _boundary_line(axes: Axes, boundary: Boundary, *, flat: bool) -> Line2D | None:
    """The line on which the fitted speed-up is 1; against C alone, the fitted speed-up itself."""
    width, height = axes.get_xlim()[1], axes.get_ylim()[1]
    if flat:
        across = np.linspace(0, width, 2)
        up = boundary.intercept + boundary.per_occupancy * across
    elif boundary.per_occupancy:
        across = np.linspace(0, width, 2)
        up = (DELTA_PAYS - boundary.intercept - boundary.per_bandwidth * across) / boundary.per_occupancy
    elif boundary.per_bandwidth:
        across = np.full(2, (DELTA_PAYS - boundary.intercept) / boundary.per_bandwidth)
        up = np.array((0.0, height))
    else:
        return None
    (line,) = axes.plot(across, up, color=style.GROUP_COLOURS[3], linewidth=2.0, scalex=False, scaley=False)
    return line
