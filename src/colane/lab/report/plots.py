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

    Args:
        values_s: Seconds of each job, by group.
        title: Above the figure.
        quantity: Name of the horizontal axis, without unit.
        is_log: Draw that axis logarithmic in any case, not only where a few jobs take far longer than most.
    """
    fig = style.new_figure(4.0)
    axes = fig.subplots()
    every_s = np.concatenate([np.asarray(found, dtype=float) for found in values_s.values()] or [np.empty(0)])
    if every_s.size == 0:
        style.say_nothing_to_draw(axes, f"{quantity}: no job succeeded")
        return fig
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
    fig = style.new_figure(1.3 + 0.42 * max(len(makespans_s), 1))
    axes = fig.subplots()
    known = [value for value in makespans_s.values() if value]
    first = next((i for i, value in enumerate(makespans_s.values()) if value), 0)
    if not known:
        style.say_nothing_to_draw(axes, "Whole batch: no job ran")
        return fig
    unit_s, unit = style.time_unit(max(known))
    texts = [_makespan_text(value, known[0], is_first=i == first) for i, value in enumerate(makespans_s.values())]
    lengths = [(value or 0.0) / unit_s for value in makespans_s.values()]
    for position, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        axes.barh(position, length, 0.62, color=style.group_colour(position))
        axes.annotate(text, (length, position), (5, 0), textcoords="offset points", va="center")
    style.name_rows(axes, makespans_s)
    axes.set_xlim(0, _end_beyond_texts(lengths, texts, names=list(makespans_s)))
    axes.set_xlabel(f"first submission to last end ({unit})")
    axes.set_title(title)
    return fig


class Life(NamedTuple):
    """When a job was in the queue, and when it ran, parked and suspended times left out."""

    waits_s: Interval
    runs_s: tuple[Interval, ...]


@style.styled
def jobs_over_time(lives_s: Mapping[str, Sequence[Life]]) -> Figure:
    """Jobs that wait and that run, over the time since the first submission; one line for each group.

    Args:
        lives_s: When each job waited and ran, by group.
    """
    fig = style.new_figure(4.2)
    above, below = fig.subplots(2, 1, sharex=True)
    end_s = max(
        (end - _first(lives) for lives in lives_s.values() for _, runs_s in lives for _, end in runs_s), default=0.0
    )
    unit_s, unit = style.time_unit(end_s)
    lines: list[Line2D] = []
    for position, lives in enumerate(lives_s.values()):
        first_s = _first(lives)
        runs_s = [span_s for life in lives for span_s in life.runs_s]
        for axes, spans in ((above, [life.waits_s for life in lives]), (below, runs_s)):
            times, counts = _counted([(a - first_s, b - first_s) for a, b in spans], end_s)
            drawn = style.steps(axes, times / unit_s, counts, **style.look(position, len(lives_s)))
        lines.append(drawn)
    for axes, what in ((above, "waiting"), (below, "running")):
        axes.set_ylabel(f"jobs {what}")
        axes.set_ylim(bottom=0)
        axes.yaxis.get_major_locator().set_params(integer=True)
    below.set_xlim(0, style.axis_end(end_s / unit_s, 1.02))
    below.set_xlabel(f"time since the first submission ({unit})")
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

    Args:
        points_s: (mean run span, makespan) by group; None where no job succeeded.
    """
    fig = style.new_figure(4.2)
    axes = fig.subplots()
    known = [point for point in points_s.values() if point is not None]
    if not known:
        style.say_nothing_to_draw(axes, "Trade-off: no job succeeded")
        return fig
    (x_s, x_unit), (y_s, y_unit) = (style.time_unit(max(p[i] for p in known)) for i in (0, 1))
    drawn = [
        _trade_off_point(axes, point, (position, len(points_s)), (x_s, y_s))
        for position, point in enumerate(points_s.values())
    ]
    axes.set_xlim(0, style.axis_end(max(p[0] for p in known) / x_s, 1.15))
    axes.set_ylim(0, style.axis_end(max(p[1] for p in known) / y_s, 1.15))
    axes.set_xlabel(f"mean time from start to end of a job ({x_unit})")
    axes.set_ylabel(f"time for the whole batch ({y_unit})")
    axes.set_title("Whole batch against single job: better is to the left and below")
    style.legend_of(fig, drawn, points_s)
    return fig


@style.styled
def step_time_pairs(times: Sequence[StepTimes]) -> Figure:
    """Step time alone and together, joined by a line, for each kind of job that has both."""
    both = [found for found in times if found.slowdown is not None][:STEP_ROWS_MAX]
    fig = style.new_figure(1.6 + 0.36 * max(len(both), 2))
    axes = fig.subplots()
    if not both:
        style.say_nothing_to_draw(axes, "Step times: no kind of job ran both alone and together")
        return fig
    unit_s, unit = style.time_unit(max(max(f.alone_s or 0, f.together_s or 0) for f in both))
    for row, found in enumerate(both):
        _step_row(axes, row, found, unit_s)
    _step_axes(axes, both, unit_s, unit)
    handles = [style.marker(style.GROUP_COLOURS[0], "o"), style.marker(style.GROUP_COLOURS[1], "s")]
    style.legend_above(fig, handles, ["alone", "together (slowdown)"])
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
    axes.set_xlabel(label)
    axes.set_ylim(0, 1.0)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel("part of the jobs")


def _log_axis(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]], low: float) -> None:
    """Logarithmic from the shortest hundredth on; a linear stretch before it has a place for waits of 0."""
    if float(values.min()) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=low, linscale=0.5)
        axes.set_xlim(0, None)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())  # eight more between two of a decade take most of the drawing's time


def _end_beyond_texts(lengths: Sequence[float], texts: Sequence[str], names: Sequence[str]) -> float:
    """End of the axis that leaves room for the text behind each bar."""
    width_inch = style.FIGURE_WIDTH_INCH - CHARACTER_INCH * max(len(style.shortened(name)) for name in names)
    parts = [min((len(text) + 2) * CHARACTER_INCH / width_inch, 0.7) for text in texts]
    return max(length / (1 - part) for length, part in zip(lengths, parts, strict=True))


def _makespan_text(value_s: float | None, base_s: float, *, is_first: bool) -> str:
    if value_s is None:
        return "no job ran"
    change = "" if is_first else f"  ({percent(percent_change(base_s, value_s))})"
    return duration(value_s) + change


def _trade_off_point(
    axes: Axes, point: tuple[float, float] | None, place: tuple[int, int], units_s: tuple[float, float]
) -> Line2D:
    position, groups = place
    (drawn,) = axes.plot(
        [np.nan if point is None else point[0] / units_s[0]],
        [np.nan if point is None else point[1] / units_s[1]],
        style.group_marker(position),
        color=style.group_colour(position),
        markersize=5 + 3 * style.group_width(position, groups),
        linestyle="none",
    )
    return drawn


def _step_row(axes: Axes, row: int, found: StepTimes, unit_s: float) -> None:
    alone, together = (found.alone_s or 0.0) / unit_s, (found.together_s or 0.0) / unit_s
    axes.plot([alone, together], [row, row], color=style.GRID, linewidth=4, solid_capstyle="round", zorder=2)
    axes.plot([alone], [row], "o", color=style.GROUP_COLOURS[0], markersize=8, zorder=3)
    axes.plot([together], [row], "s", color=style.GROUP_COLOURS[1], markersize=8, zorder=3)
    axes.annotate(
        f"x {found.slowdown:.2f}", (max(alone, together), row), (9, 0), textcoords="offset points", va="center"
    )


def _step_axes(axes: Axes, both: Sequence[StepTimes], unit_s: float, unit: str) -> None:
    style.name_rows(axes, [short_name(found.key) for found in both])
    axes.set_xlim(0, max(max(f.alone_s or 0, f.together_s or 0) for f in both) / unit_s * 1.15)
    axes.set_xlabel(f"mean step time ({unit})")
    axes.set_title("Step time alone and together")
