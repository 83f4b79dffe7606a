"""Figures of profiles and of sets measured together (paper A, chapters 3 and 4). Plain data in, `Figure` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from colane.lab.report import style
from colane.lab.report.measured import DELTA_PAYS, SetPoint
from colane.model.words import count

PAYS_COLOUR, COSTS_COLOUR = style.GROUP_COLOURS[0], style.GROUP_COLOURS[1]

SETS_MAX = 60  # bars of more sets would be thinner than their names; the best and worst are kept

HISTOGRAM_BINS = 20  # bins of 5 percent, as fine as the kernels' occupancies usefully are

GAIN_BINS = 14


class Boundary(NamedTuple):
    """Fitted speed-up = intercept + per_occupancy * sum of C + per_bandwidth * sum of M; drawn where it is 1."""

    intercept: float
    per_occupancy: float
    per_bandwidth: float = 0.0


@style.styled
def throughput(points: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Samples per second against batch size, one line for each family (paper A, Fig. 3.1)."""
    fig = style.new_figure(4.2)
    axes = fig.subplots()
    if not any(points.values()):
        style.say_nothing_to_draw(axes, "Throughput: nothing was profiled")
        return fig
    lines = [_throughput_line(axes, found, position) for position, found in enumerate(points.values())]
    sizes = sorted({size for found in points.values() for size, _ in found})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_xlabel("batch size (samples per step and GPU)")
    axes.set_ylabel("throughput (samples/s)")
    axes.set_title("Throughput against batch size, alone on the device")
    style.legend_of(fig, lines, points)
    return fig


@style.styled
def speedup_bars(deltas: Mapping[str, Mapping[str, float]], *, title: str) -> Figure:
    """Speed-up of each set, one bar for each series (paper A, Figs 4.3 to 4.6).

    Args:
        deltas: Delta by series (a batch size, with and without MPS, pairs and triples) and name of the set.
        title: Above the figure.
    """
    names = _best_and_worst(deltas.values())
    fig = style.new_figure(1.5 + (0.14 + 0.17 * max(len(deltas), 1)) * max(len(names), 2))
    axes = fig.subplots()
    if not names:
        style.say_nothing_to_draw(axes, "Speed-up: no set was measured together")
        return fig
    for position, found in enumerate(deltas.values()):
        _speedup_series(axes, [found.get(name) for name in names], position, len(deltas))
    _speedup_axes(axes, names, title)
    handles = [Patch(facecolor=style.group_colour(position)) for position in range(len(deltas))]
    style.legend_of(fig, handles, deltas)
    return fig


@style.styled
def mps_gain_histogram(gains: Sequence[float]) -> Figure:
    """How much MPS adds to the speed-up, over the sets measured both ways (paper A, Fig. 4.14)."""
    fig = style.new_figure(3.6)
    axes = fig.subplots()
    if not gains:
        style.say_nothing_to_draw(axes, "MPS: no set was measured both with and without it")
        return fig
    low, high = min(*gains, 0.0), max(*gains, 0.0)
    width = (high - low) / GAIN_BINS or 0.01
    # Edges at multiples of the width: one is at 0 and parts gains from losses.
    edges = np.arange(np.floor(low / width), np.ceil(high / width) + 1) * width
    _, _, bars = axes.hist(list(gains), bins=list(edges), edgecolor=style.PAGE)
    for bar, left in zip(bars.patches, edges, strict=False):  # type: ignore[union-attr]
        bar.set_facecolor(PAYS_COLOUR if left >= -1e-12 else COSTS_COLOUR)
    axes.axvline(0, color=style.INK, linewidth=1.2)
    axes.set_xlabel("speed-up with MPS - speed-up without")
    axes.set_ylabel("sets")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    better = sum(gain > 0 for gain in gains)
    axes.set_title(f"MPS raised the speed-up of {better} of {count(len(gains), 'set')}")
    return fig


@style.styled
def speedup_plane(
    points: Sequence[SetPoint], *, boundary: Boundary | None = None, exact: bool = False, title: str
) -> Figure:
    """Each set at its sums of M and C, told apart by whether sharing pays (paper A, Figs 4.11 to 4.13).

    Where the bandwidth M of a set was not measured, the speed-up itself is drawn against the sum of C.

    Args:
        points: Measured sets.
        boundary: Where the fitted speed-up is 1.
        exact: Colour by the speed-up itself (Fig. 4.13) rather than by whether it reaches 1.
        title: Above the figure.
    """
    fig = style.new_figure(4.4)
    axes = fig.subplots()
    if not points:
        style.say_nothing_to_draw(axes, "Speed-up against C and M: no measured set is profiled")
        return fig
    flat = any(point.bandwidth_sum is None for point in points)
    if flat:
        _against_occupancy(axes, points)
    elif exact:
        _by_colour_scale(fig, axes, points)
    else:
        _by_verdict(axes, points)
    line = _boundary_line(axes, boundary, flat=flat) if boundary else None
    axes.set_title(title)
    _plane_legend(fig, line, exact=exact and not flat)
    return fig


@style.styled
def kernel_histograms(percents: Mapping[str, Sequence[float]], *, quantity: str) -> Figure:
    """Kernels by the percentage they reach, one small plot for each family (paper A, Figs 4.7, 4.9).

    Args:
        percents: Value of each kernel launch over two steps, by family, 0 to 100.
        quantity: `achieved occupancy` or `memory bandwidth use`.
    """
    shown = {name: found for name, found in percents.items() if len(found)}
    columns = min(max(len(shown), 1), 2)
    rows = -(-max(len(shown), 1) // columns)
    fig = style.new_figure(0.9 + 2.0 * rows)
    every = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    if not shown:
        style.say_nothing_to_draw(every[0], f"Kernels: {quantity} was not measured")
        return fig
    colours = style.family_colours(shown)
    for axes, (name, found) in zip(every, shown.items(), strict=False):
        _kernel_histogram(axes, name, found, colours[name])
    every[0].set_yscale("log", nonpositive="clip")
    every[0].set_ylim(0.5, None)  # from half a launch, so that a bin with a single launch is still seen
    every[0].set_xlim(0, 100)
    for axes in every[max(len(shown) - columns, 0) : len(shown)]:
        axes.tick_params(labelbottom=True)
    for axes in every[len(shown) :]:
        axes.set_axis_off()
    fig.supxlabel(f"{quantity} of a kernel (%)")
    fig.supylabel("kernel launches in two steps")
    return fig


def _throughput_line(axes: Axes, found: Sequence[tuple[int, float]], position: int) -> Line2D:
    sizes, rates = [size for size, _ in found], [rate for _, rate in found]
    (line,) = axes.plot(sizes, rates, marker=style.group_marker(position), linewidth=2.0, **style.look(position))
    return line


def _best_and_worst(series: Iterable[Mapping[str, float]]) -> list[str]:
    """Names of the sets by the best of their deltas, at most `SETS_MAX` of them."""
    best: dict[str, float] = {}
    for found in series:
        for name, delta in found.items():
            best[name] = max(delta, best.get(name, delta))
    ordered = sorted(best, key=lambda name: (-best[name], name))
    half = SETS_MAX // 2
    return ordered if len(ordered) <= SETS_MAX else [*ordered[:half], *ordered[-half:]]


def _speedup_series(axes: Axes, deltas: Sequence[float | None], position: int, series: int) -> None:
    height = 0.8 / series
    for row, delta in enumerate(deltas):
        if delta is not None:
            place = row - 0.4 + (position + 0.5) * height
            axes.barh(place, delta, height * 0.92, color=style.group_colour(position))
            _value_beside(axes, delta, place)


def _value_beside(axes: Axes, delta: float, place: float) -> None:
    """The value right of its bar, on a patch of page that keeps the line at 1 from running through it."""
    axes.annotate(
        f"{delta:.2f}",
        (delta, place),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        bbox={"facecolor": style.PAGE, "edgecolor": "none", "pad": 0.6},
    )


def _speedup_axes(axes: Axes, names: Sequence[str], title: str) -> None:
    axes.axvline(DELTA_PAYS, color=style.INK, linewidth=1.4)
    style.name_rows(axes, names, 44)
    axes.set_xlim(0, max(axes.get_xlim()[1], DELTA_PAYS) * 1.08)
    axes.set_xlabel("speed-up delta (from 1 on, at the line, sharing pays)")
    axes.set_title(title)


def _verdicts(axes: Axes, points: Sequence[SetPoint], place: Callable[[SetPoint], tuple[float, float]]) -> None:
    for pays, shape, colour in ((True, "o", PAYS_COLOUR), (False, "X", COSTS_COLOUR)):
        places = [place(point) for point in points if (point.delta >= DELTA_PAYS) is pays]
        across, up = [x for x, _ in places], [y for _, y in places]
        axes.plot(across, up, shape, color=colour, markersize=8, alpha=0.8, linestyle="none")


def _by_verdict(axes: Axes, points: Sequence[SetPoint]) -> None:
    _verdicts(axes, points, lambda point: (point.bandwidth_sum or 0.0, point.occupancy_sum))
    _plane_axes(axes)


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
    _plane_axes(axes)


def _plane_axes(axes: Axes) -> None:
    axes.set_xlim(0, axes.get_xlim()[1])
    axes.set_ylim(0, axes.get_ylim()[1])
    axes.set_xlabel("sum of M: bandwidth use x kernel time (% µs)")
    axes.set_ylabel("sum of C: occupancy x kernel time (% µs)")


def _against_occupancy(axes: Axes, points: Sequence[SetPoint]) -> None:
    _verdicts(axes, points, lambda point: (point.occupancy_sum, point.delta))
    axes.axhline(DELTA_PAYS, color=style.INK, linewidth=1.2)
    axes.set_xlim(0, axes.get_xlim()[1])
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.1))
    axes.set_xlabel("sum of C: occupancy x kernel time (% µs)")
    axes.set_ylabel("speed-up delta")


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


def _plane_legend(fig: Figure, line: Line2D | None, *, exact: bool) -> None:
    handles: list[Line2D] = []
    labels: list[str] = []
    if not exact:
        handles = [style.marker(PAYS_COLOUR, "o"), style.marker(COSTS_COLOUR, "X")]
        labels = ["sharing pays (delta >= 1)", "does not pay"]
    if line is not None:
        handles.append(line)
        labels.append("fitted boundary")
    style.legend_above(fig, handles, labels)


def _kernel_histogram(axes: Axes, name: str, found: Sequence[float], colour: str) -> None:
    edges = np.linspace(0, 100, HISTOGRAM_BINS + 1)
    axes.hist(np.clip(found, 0, 100), bins=list(edges), color=colour, edgecolor=style.INK, linewidth=0.4)
    axes.set_title(f"{style.shortened(name)} ({len(found):,} launches)")
