"""Figures as in paper C (Amaral et al., SC 2017, figures 8, 10, 11): how much slower than at its best each job went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from colane.lab.report import style
from colane.model.words import count

Floats = NDArray[np.float64]

AT_BEST = 1.005
"""A job that is no slower than this is at its best."""

CUT_BELOW = 0.6
"""Where fewer of the jobs than this part are slower than at their best, the flat rest of the lines is cut off."""

LOG_FROM = 20.0
"""Slowdowns are drawn on a logarithmic axis from so large a one on."""


class Slowdowns(NamedTuple):
    """Of the jobs of one run; 1 is the best there is.

    Attributes:
        execution: Time from start to end / time alone on one socket.
        total: Time from submission to end / time alone on one socket.
    """

    execution: Floats
    total: Floats


@style.styled
def slowdowns(runs: Mapping[str, Slowdowns]) -> Figure:
    """Jobs from worst to best, a line for each policy: by placement alone, and with waiting."""
    fig = style.new_figure(3.8)
    left, right = fig.subplots(1, 2)
    lines = [_line(left, found.execution, place, len(runs)) for place, found in enumerate(runs.values())]
    for place, found in enumerate(runs.values()):
        _line(right, found.total, place, len(runs))
    _axes(left, "Slowdown by placement", [found.execution for found in runs.values()])
    _axes(right, "Slowdown with waiting", [found.total for found in runs.values()])
    style.legend_of(fig, lines, runs)
    return fig


def _line(axes: Axes, values: Floats, place: int, groups: int) -> Line2D:
    worst_first = np.sort(values)[::-1]
    (line,) = axes.plot(np.arange(1, worst_first.size + 1), worst_first, **style.look(place, groups))
    return line


def _axes(axes: Axes, title: str, values: list[Floats]) -> None:
    axes.set_title(title)
    axes.set_xlabel(_cut(axes, values))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("time / time at its best")
    largest = max((float(one.max()) for one in values if one.size), default=1.0)
    if largest >= LOG_FROM:
        axes.set_yscale("log")
        axes.set_ylim(0.9, largest * 1.3)
    else:
        axes.set_ylim(min(0.95, *(float(one.min()) for one in values if one.size)), style.axis_end(largest, 1.06))
    axes.axhline(1.0, color=style.GRID, linewidth=1.2, zorder=1)


def _cut(axes: Axes, values: list[Floats]) -> str:
    """End the axis where every line has come down to the best; its label, which says what was left out."""
    jobs = max((one.size for one in values), default=0)
    slower = max((int(np.count_nonzero(one > AT_BEST)) for one in values), default=0)
    if not 0 < slower < CUT_BELOW * jobs:
        return "jobs, worst first"
    end = min(jobs, round(1.1 * slower) + 1)
    axes.set_xlim(1 - 0.05 * end, end)
    return f"worst {end:,} of {count(f'{jobs:,}', 'job')}; the rest is at its best"
