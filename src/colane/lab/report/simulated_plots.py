"""Figures of simulated runs: the cluster over time, and policies compared over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from colane.lab.report import style
from colane.lab.report.metrics import mean_of
from colane.lab.report.prose import duration
from colane.lab.report.simulated import ClusterCurves, Floats, Interval, SimulatedMetrics
from colane.lab.report.simulated_compared import COMPARED, Paired, difference_shown
from colane.lab.report.tables import Table, TableColumn, many, p95_of, ratio, seconds, spread, text

NOTE = (
    "All jobs = first submission to last end (makespan). Of a job: took = submission to end (JCT), waited = submission "
    "to first start (queueing), waited in all = without GPUs or for a turn on them, ran = first start to end (run "
    "span; paper A: JCT). GPUs with a job = part of their time; GPUs' use = busy fraction x efficiency; idle beside a "
    "queue = GPUs without a job while a job of their pool waits; SLO missed = jobs to which their trace promises a "
    "time (slo, slo_ratio, minimal_utility) and that took longer or failed."
)


def runs_table(rows: Sequence[tuple[str, SimulatedMetrics]]) -> Table:
    """One row for each run."""
    names = {id(found): name for name, found in rows}
    columns = (
        text("name", "Policy", lambda found: names[id(found)]),
        many("jobs", "Jobs"),
        many("finished", "Finished"),
        seconds("makespan_s", "All jobs"),
        seconds("jct_mean_s", "Took, mean", lambda found: mean_of(found.jct_s)),
        seconds("jct_p50_s", "Took, p50", lambda found: found.jct_s.p50 if found.jct_s else None),
        seconds("jct_p95_s", "Took, p95", lambda found: p95_of(found.jct_s)),
        *spread("queue", "Waited"),
        seconds("wait_mean_s", "Waited in all", lambda found: mean_of(found.wait_s)),
        seconds("run_span_mean_s", "Ran, mean", lambda found: mean_of(found.run_span_s)),
        ratio("gpu_active_ratio", "GPUs with a job", digits=1),
        ratio("gpu_utilization_ratio", "GPUs' use", digits=1),
        ratio("fragmentation_ratio", "Idle beside a queue", digits=1),
        many("restarts", "Restarts"),
        many("slo_violations", "SLO missed"),
    )
    return Table.of("groups", "What each policy achieved", columns, [found for _, found in rows], NOTE)


def compared_table(rows: Sequence[tuple[str, Mapping[str, Interval | None]]]) -> Table:
    """One row for each policy with means over seeds and their 95 % confidence intervals."""
    names = list(rows[0][1])
    cells = tuple((policy, *(_interval(name, values[name]) for name in names)) for policy, values in rows)
    title, note = "Means over seeds", "+- is half of a 95 % confidence interval over seeds."
    if all(v is None or v.half_width is None for v in rows[0][1].values()):
        title, note = "Policies compared", ""
    return Table("comparisons", title, _of_metrics(names), cells, note)


def differences_table(base: str, rows: Sequence[tuple[str, str, Paired]]) -> Table:
    """One row for each policy with its mean differences from the first one, seed by seed."""
    found: dict[str, dict[str, Paired]] = {}
    for policy, metric, one in rows:
        found.setdefault(policy, {})[metric] = one
    names = list(dict.fromkeys(metric for _, metric, _ in rows))
    columns = _of_metrics(names)
    cells = tuple((policy, *(_difference(name, ones.get(name)) for name in names)) for policy, ones in found.items())
    note = f"Policy less {base}, seed by seed; +- is half of a 95 % interval (Student's t), * where that leaves out 0."
    return Table("differences", f"Differences from {base}", columns, cells, note)


def _difference(name: str, found: Paired | None) -> str | None:
    if found is None:
        return None
    width = "" if found.half_width is None else f" +- {difference_shown(name, found.half_width)}"
    return f"{difference_shown(name, found.difference_mean)}{width}{' *' if found.is_significant else ''}"


def refused_table(lines: Sequence[str]) -> Table:
    """Jobs that were not submitted, by reason, the most frequent first."""
    reasons: dict[str, list[str]] = {}
    for line in lines:
        job, _, reason = line.partition(": ")
        reasons.setdefault(reason, []).append(job)
    columns = (many("jobs", "Jobs"), text("reason", "Reason"), text("example", "Such as"))
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = tuple((len(jobs), reason, jobs[0]) for reason, jobs in ordered)
    return Table("refused", "Jobs refused before the start", columns, rows, "With --out, refused.csv names every one.")


def _of_metrics(names: Sequence[str]) -> tuple[TableColumn, ...]:
    heads = (text(name, COMPARED[name].title)._replace(is_number=True) for name in names)
    return (text("policy", "Policy"), *heads)


def _interval(name: str, value: Interval | None) -> str | None:
    if value is None:
        return None
    show = (lambda one: f"{one * 100:.1f} %") if name.endswith("_ratio") else duration
    return show(value.mean) + ("" if value.half_width is None else f" +- {show(value.half_width)}")


CURVE_POINTS_MAX = 1200
"""A curve of more rows is drawn by its means over so many stretches of time; the eye sees no more."""


@style.styled
def gpus_over_time(curves: Mapping[str, ClusterCurves], gpus: int) -> Figure:
    """Active GPUs above, utilised GPUs below, a line for each policy."""
    fig = style.new_figure(5.2)
    above, below = fig.subplots(2, 1, sharex=True, sharey=True)
    panels = ((above, "GPUs with a job", "active_gpus"), (below, "GPUs' worth of use", "utilized_gpus"))
    for axes, title, column in panels:
        lines = _lines(axes, curves, column)
        axes.set(title=title, ylabel="GPUs", ylim=(0, style.axis_end(gpus, 1.06)))
        style.whole_numbers(axes)
        axes.axhline(gpus, color=style.GRID, linewidth=1.2, zorder=1)
    above.label_outer()
    style.legend_of(fig, lines, curves)
    return fig


@style.styled
def queue_over_time(curves: Mapping[str, ClusterCurves]) -> Figure:
    """Jobs waiting, a line for each policy."""
    fig, axes = style.one_panel(3.6)
    lines = _lines(axes, curves, "waiting")
    axes.set(title="Jobs waiting", ylabel="jobs", ylim=(0, max(1.05, axes.get_ylim()[1])))
    style.whole_numbers(axes)
    style.legend_of(fig, lines, curves)
    return fig


@style.styled
def comparison(metrics: Mapping[str, Mapping[str, Interval | None]], seeds: int) -> Figure:
    """A panel for each metric with a bar for each policy; whiskers are 95 % confidence intervals over seeds.

    Names of metrics that end in `_ratio` are shown in percent.
    """
    columns = 1 if style.is_column() else 3
    rows = -(-len(metrics) // columns)
    policies = list(next(iter(metrics.values()), {}))
    fig = style.new_figure(0.9 + rows * (0.75 + 0.3 * max(len(policies), 1)), is_wide=True)
    every = fig.subplots(rows, columns, squeeze=False)
    for axes, (name, values) in zip(every.flat, metrics.items(), strict=False):
        _bars(axes, name, values)
    for axes in list(every.flat)[len(metrics) :]:
        axes.set_axis_off()
    note = "" if seeds == 1 else f": mean of {seeds} seeds, whiskers are 95 % confidence intervals"
    note = f": mean of {seeds}, 95 % intervals" if note and style.is_column() else note
    fig.suptitle(f"Policies compared{note}", x=0.01, ha="left", fontsize=style.points(11), fontweight="bold")
    return fig


def _lines(axes: Axes, curves: Mapping[str, ClusterCurves], column: str) -> list[Line2D]:
    """A line for each policy, of one of the curves."""
    ends = [float(found.at_s[-1] - found.at_s[0]) for found in curves.values() if found.at_s.size]
    unit_s, lines = style.time_axis(axes, max(ends, default=0.0)), []
    for place, found in enumerate(curves.values()):
        times, values = thinned(found.at_s, getattr(found, column))
        start_s = float(found.at_s[0]) if found.at_s.size else 0.0
        looks = style.look(place, len(curves))
        looks["linewidth"] *= 0.6 if times.size > CURVE_POINTS_MAX / 4 else 1.0
        lines.append(style.steps(axes, (times - start_s) / unit_s, values, **looks))
    return lines


def thinned(at_s: Floats, column: Floats) -> tuple[Floats, Floats]:
    """A curve, or its means over equal stretches of time where it has too many rows."""
    if at_s.size <= CURVE_POINTS_MAX:
        return at_s, column
    edges = np.linspace(at_s[0], at_s[-1], CURVE_POINTS_MAX + 1)
    integral = np.concatenate(([0.0], np.cumsum(column[:-1] * np.diff(at_s))))
    means = np.diff(np.interp(edges, at_s, integral)) / np.diff(edges)
    return edges, np.append(means, means[-1])


def _bars(axes: Axes, name: str, values: Mapping[str, Interval | None]) -> None:
    is_ratio = name.endswith("ratio")
    scale, unit = (100.0, "%") if is_ratio else (1.0, "")
    known = [value.mean + (value.half_width or 0.0) for value in values.values() if value is not None]
    if not is_ratio:
        unit_s, unit = style.time_unit(max(known, default=0.0))
        scale = 1 / unit_s
    for place, value in enumerate(values.values()):
        if value is not None:
            length, width = value.mean * scale, (value.half_width or 0.0) * scale
            whisker = None if value.half_width is None else width
            axes.barh(place, length, 0.62, xerr=whisker, color=style.group_colour(place), ecolor=style.INK)
            said = f"{value.mean * 100:.1f} %" if is_ratio else duration(value.mean)
            style.say_beside(axes, said, (length + width, place), fontsize=style.points(8))
    style.name_rows(axes, values, 18)
    axes.set_xlim(0, style.axis_end(max(known, default=0.0) * scale, 1.35))
    axes.set_title(f"{COMPARED[name].title} ({unit})", fontsize=style.points(10))


def gantt_is_readable(gpus: Sequence[str], stays: int, *, gpus_max: int = 64, stays_max: int = 1500) -> bool:
    """Whether a run is small enough for a Gantt chart."""
    return 0 < stays <= stays_max and len(gpus) <= gpus_max
