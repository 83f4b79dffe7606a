"""Figures of runs: distributions, makespan, the trade-off, step times. Plain data in, `Figure` out.

The order of the groups gives their colours, so every figure of a report is handed all groups, empty ones too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from colane.lab.report import style
from colane.lab.report.measured import short_name
from colane.lab.report.metrics import StepTimes, percent_change
from colane.lab.report.prose import duration, percent
from colane.lab.report.records import Interval

CDF_POINTS_MAX = 1000  # a distribution of more jobs is drawn by as many quantiles; the eye sees no more
CDF_MARKED_MAX = 30  # up to so many jobs each is marked with a dot, so that few jobs are not mistaken for a curve
LOG_FROM_RATIO = 30.0
"""Where the largest value is this many times the median, a linear axis would squeeze most jobs together."""

LOG_FROM_JOBS = 50  # with fewer jobs a linear axis is kept: it shows each of them, and how little 0.3 s is beside 60 s
CHARACTER_INCH = 0.09  # width of a character of ordinary text, on the safe side
STEP_ROWS_MAX = 40  # kinds of job whose step times are drawn; the table has them all


@style.styled
def cdf(
    values_s: Mapping[str, Sequence[float] | NDArray[np.float64]], *, title: str, quantity: str, is_log: bool = False
) -> Figure:
    """Cumulative distribution of a time (paper A, Figs 6.1, 6.2, 6.5, 6.6).

    The axis of the quantity is logarithmic where that is asked for, or where a few jobs take far longer than most.
    """
    fig, axes = style.one_panel(4.0)
    every_s = np.concatenate([np.asarray(found, dtype=float) for found in values_s.values()] or [np.empty(0)])
    if every_s.size == 0:
        return style.nothing_to_draw(fig, axes, f"{quantity}: no job succeeded")
    unit_s, unit = style.time_unit(float(every_s.max()))
    lines = [
        _cdf_line(axes, np.sort(np.asarray(found)) / unit_s, position, len(values_s))
        for position, found in enumerate(values_s.values())
    ]
    _cdf_axes(axes, every_s / unit_s, f"{quantity} ({unit})", is_log=is_log)
    axes.set_title(title)
    labels = [f"{style.shortened(name)} ({len(found)})" for name, found in values_s.items()]
    style.legend_above(fig, lines, labels)
    return fig


@style.styled
def makespan_bars(makespans_s: Mapping[str, float | None], *, title: str = "How long the whole batch took") -> Figure:
    """One bar for each group, with its value and the change from the first (paper A, Figs 6.3, 6.7)."""
    fig, axes = style.one_panel(1.3 + 0.42 * max(len(makespans_s), 1))
    known = [value for value in makespans_s.values() if value]
    first = next((i for i, value in enumerate(makespans_s.values()) if value), 0)
    if not known:
        return style.nothing_to_draw(fig, axes, "Whole batch: no job ran")
    unit_s, unit = style.time_unit(max(known))
    texts = [_makespan_text(value, known[0], is_first=i == first) for i, value in enumerate(makespans_s.values())]
    lengths = [(value or 0.0) / unit_s for value in makespans_s.values()]
    for position, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        axes.barh(position, length, 0.62, color=style.group_colour(position))
        style.say_beside(axes, text, (length, position), 5)
    style.name_rows(axes, makespans_s)
    # The axis leaves room for the text behind each bar.
    width_inch = style.FIGURE_WIDTH_INCH - CHARACTER_INCH * max(len(style.shortened(name)) for name in makespans_s)
    parts = [min((len(text) + 2) * CHARACTER_INCH / width_inch, 0.7) for text in texts]
    end = max(length / (1 - part) for length, part in zip(lengths, parts, strict=True))
    axes.set(xlim=(0, end), xlabel=f"first submission to last end ({unit})", title=title)
    return fig


class Life(NamedTuple):
    """When a job was in the queue, and when it ran, parked and suspended times left out."""

    waits_s: Interval
    runs_s: tuple[Interval, ...]


@style.styled
def jobs_over_time(lives_s: Mapping[str, Sequence[Life]]) -> Figure:
    """Jobs that wait and that run, over the time since the first submission; one line for each group."""
    fig = style.new_figure(4.2)
    above, below = fig.subplots(2, 1, sharex=True)
    end_s = max(
        (end - _first(lives) for lives in lives_s.values() for _, runs_s in lives for _, end in runs_s), default=0.0
    )
    unit_s = style.time_axis(below, end_s)
    lines: list[Line2D] = []
    for position, lives in enumerate(lives_s.values()):
        first_s = _first(lives)
        runs_s = [span_s for life in lives for span_s in life.runs_s]
        for axes, spans in ((above, [life.waits_s for life in lives]), (below, runs_s)):
            times, counts = _counted([(a - first_s, b - first_s) for a, b in spans], end_s)
            drawn = style.steps(axes, times / unit_s, counts, **style.look(position, len(lives_s)))
        lines.append(drawn)
    for axes, what in ((above, "waiting"), (below, "running")):
        axes.set(ylabel=f"jobs {what}", ylim=(0, None))
        style.whole_numbers(axes)
    above.set_title("Jobs that wait and that run")
    style.legend_of(fig, lines, lives_s)
    return fig


def _first(lives: Sequence[Life]) -> float:
    return min((submit for (submit, _), _ in lives), default=0.0)


def _counted(spans: Sequence[tuple[float, float]], end_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many spans are open from each time on at which one opens or closes, from 0 to `end_s`."""
    starts, ends = (np.sort(np.array([span[side] for span in spans])) for side in (0, 1))
    times = np.unique(np.concatenate(([0.0], starts, ends, [end_s])))
    open_now = np.searchsorted(starts, times, side="right") - np.searchsorted(ends, times, side="right")
    return times, open_now.astype(float)


@style.styled
def trade_off(points_s: Mapping[str, tuple[float, float] | None]) -> Figure:
    """Makespan against mean run span, one point for each group (paper A, Figs 6.4, 6.8).

    By group, (mean run span, makespan); None where no job succeeded.
    """
    fig, axes = style.one_panel(4.2)
    known = [point for point in points_s.values() if point is not None]
    if not known:
        return style.nothing_to_draw(fig, axes, "Trade-off: no job succeeded")
    (x_s, x_unit), (y_s, y_unit) = (style.time_unit(max(p[i] for p in known)) for i in (0, 1))
    drawn = []
    for position, point in enumerate(points_s.values()):
        x, y = (np.nan, np.nan) if point is None else (point[0] / x_s, point[1] / y_s)
        size = 5 + 3 * style.group_width(position, len(points_s))
        shape, colour = style.group_marker(position), style.group_colour(position)
        drawn += axes.plot([x], [y], shape, color=colour, markersize=size, linestyle="none")
    axes.set(
        xlim=(0, style.axis_end(max(p[0] for p in known) / x_s, 1.15)),
        ylim=(0, style.axis_end(max(p[1] for p in known) / y_s, 1.15)),
        xlabel=f"mean time from start to end of a job ({x_unit})",
        ylabel=f"time for the whole batch ({y_unit})",
        title="Whole batch against single job: better is to the left and below",
    )
    style.legend_of(fig, drawn, points_s)
    return fig


@style.styled
def step_time_pairs(times: Sequence[StepTimes]) -> Figure:
    """Step time alone and together, joined by a line, for each kind of job that has both."""
    both = [found for found in times if found.slowdown is not None][:STEP_ROWS_MAX]
    fig, axes = style.one_panel(1.6 + 0.36 * max(len(both), 2))
    if not both:
        return style.nothing_to_draw(fig, axes, "Step times: no kind of job ran both alone and together")
    most_s = max(max(f.alone_s or 0, f.together_s or 0) for f in both)
    unit_s = style.time_axis(axes, most_s, "mean step time", 1.15)
    ends = tuple(zip(style.GROUP_COLOURS[:2], "os", strict=True))
    for row, found in enumerate(both):
        alone, together = (found.alone_s or 0.0) / unit_s, (found.together_s or 0.0) / unit_s
        axes.plot([alone, together], [row, row], color=style.GRID, linewidth=4, solid_capstyle="round", zorder=2)
        for at, (colour, shape) in zip((alone, together), ends, strict=True):
            axes.plot([at], [row], shape, color=colour, markersize=8, zorder=3)
        style.say_beside(axes, f"x {found.slowdown:.2f}", (max(alone, together), row), 9)
    style.name_rows(axes, [short_name(found.key) for found in both])
    axes.set_title("Step time alone and together")
    style.legend_above(fig, [style.marker(*end) for end in ends], ["alone", "together (slowdown)"])
    return fig


def _cdf_line(axes: Axes, ordered: np.ndarray[tuple[int], np.dtype[np.float64]], position: int, groups: int) -> Line2D:
    parts = np.arange(1, ordered.size + 1) / max(ordered.size, 1)
    if ordered.size > CDF_POINTS_MAX:
        chosen = np.unique(np.linspace(0, ordered.size - 1, CDF_POINTS_MAX).astype(int))
        ordered, parts = ordered[chosen], parts[chosen]
    if ordered.size:
        ordered, parts = np.concatenate((ordered[:1], ordered)), np.concatenate(([0.0], parts))
    marks = {
        "marker": style.group_marker(position) if 1 < ordered.size <= CDF_MARKED_MAX + 1 else None,
        "markersize": 3.0 + style.group_width(position, groups),
        "markevery": slice(1, None),
    }
    return style.steps(axes, ordered, parts, clip_on=False, **marks, **style.look(position, groups))


def _cdf_axes(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]], label: str, *, is_log: bool) -> None:
    positive, largest = values[values > 0], float(values.max())
    heavy = positive.size > 0 and largest > LOG_FROM_RATIO * float(np.median(positive))
    if (is_log and positive.size) or (heavy and values.size >= LOG_FROM_JOBS):
        _log_axis(axes, values, float(np.percentile(positive, 1)))
        label += ", logarithmic"
    else:
        axes.set_xlim(0, style.axis_end(largest, 1.03))
    axes.set(xlabel=label, ylim=(0, 1.0), yticks=np.linspace(0, 1, 6), ylabel="part of the jobs")


def _log_axis(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]], low: float) -> None:
    """Logarithmic from the shortest hundredth on; a linear stretch before it has a place for waits of 0."""
    if float(values.min()) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=low, linscale=0.5)
        axes.set_xlim(0, None)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())  # eight more between two of a decade take most of the drawing's time


def _makespan_text(value_s: float | None, base_s: float, *, is_first: bool) -> str:
    if value_s is None:
        return "no job ran"
    change = "" if is_first else f"  ({percent(percent_change(base_s, value_s))})"
    return duration(value_s) + change
