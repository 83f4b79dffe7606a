"""Figures of a study: a metric over load, a line for each policy."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from colane.lab.report import style
from colane.lab.report.simulated import Interval

DODGE_RATIO = 0.006
"""Policies stand so far beside one another, as a part of the axis, that whiskers do not lie on each other."""


@style.styled
def over_load(values: Mapping[str, Mapping[float, Interval | None]], metric: str, called: str) -> Figure:
    """A metric over load: means over seeds, whiskers are 95 % confidence intervals of each mean by itself.

    Args:
        values: By policy, then by load.
        metric: Name of the metric; of those that end in `_s` the axis has the unit that suits them.
        called: What it is called.
    """
    fig = style.new_figure(4.0)
    axes = fig.subplots()
    known = [found.mean for line in values.values() for found in line.values() if found is not None]
    if not known:
        style.say_nothing_to_draw(axes, f"{called}: not known")
        return fig
    unit_s, unit = style.time_unit(max(known)) if metric.endswith("_s") else (1.0, "")
    loads = sorted({load for line in values.values() for load in line})
    step, lines = DODGE_RATIO * (loads[-1] - loads[0]), []
    for position, line in enumerate(values.values()):
        points = [(load, found) for load, found in sorted(line.items()) if found is not None]
        bars = axes.errorbar(
            [load + step * (position - (len(values) - 1) / 2) for load, _ in points],
            [found.mean / unit_s for _, found in points],
            [(found.half_width or 0.0) / unit_s for _, found in points],
            marker=style.group_marker(position), markersize=5, capsize=3, **style.look(position),
        )  # fmt: skip
        lines.append(bars.lines[0])
    axes.set_ylim(0, None)
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.set_xlabel("load, times the trace's own")
    axes.set_ylabel(f"{called} ({unit})" if unit else called)
    style.legend_of(fig, [line for line in lines if line is not None], values)
    return fig
