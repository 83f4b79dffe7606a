"""Figures and tables of paper C's ticked runs, as its figures 8 and 10."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from colane.lab.papers.topology import Scenario
from colane.lab.papers.topology_world import TickedJob
from colane.lab.report import style
from colane.lab.report.simulated import file_word
from colane.lab.report.timeline import Bar, Panel, timeline
from colane.model.words import count

Floats = NDArray[np.float64]
AT_BEST = 1.005  # a job that is no slower than this is at its best
CUT_BELOW = 0.6
"""Where fewer of the jobs than this part are slower than at their best, the flat rest of the lines is cut off."""

LOG_FROM = 20.0  # slowdowns are drawn on a logarithmic axis from so large a one on


class Slowdowns(NamedTuple):
    """Of the jobs of one run; 1 is the best there is."""

    execution: Floats  # time from start to end / time alone on one socket
    total: Floats  # time from submission to end / time alone on one socket


@style.styled
def slowdowns(runs: Mapping[str, Slowdowns]) -> Figure:
    """Jobs from worst to best, a line for each policy: by placement alone, and with waiting."""
    fig = style.new_figure(3.8)
    left, right = fig.subplots(1, 2)
    lines = _panel(left, "By placement", [found.execution for found in runs.values()])
    _panel(right, "With waiting", [found.total for found in runs.values()])
    style.legend_of(fig, lines, runs)
    return fig


def _panel(axes: Axes, title: str, values: list[Floats]) -> list[Line2D]:
    lines: list[Line2D] = []
    for place, one in enumerate(values):
        lines += axes.plot(np.arange(1, one.size + 1), np.sort(one)[::-1], **style.look(place, len(values)))
    axes.set(title=title, xlabel=_cut(axes, values), ylabel="time / time at its best")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    largest = max((float(one.max()) for one in values if one.size), default=1.0)
    if largest >= LOG_FROM:
        axes.set_yscale("log")
        axes.set_ylim(0.9, largest * 1.3)
    else:
        axes.set_ylim(min(0.95, *(float(one.min()) for one in values if one.size)), style.axis_end(largest, 1.06))
    axes.axhline(1.0, color=style.GRID, linewidth=1.2, zorder=1)
    return lines


def _cut(axes: Axes, values: list[Floats]) -> str:
    """End the axis where every line has come down to the best; its label, which says what was left out."""
    jobs = max((one.size for one in values), default=0)
    slower = max((int(np.count_nonzero(one > AT_BEST)) for one in values), default=0)
    if not 0 < slower < CUT_BELOW * jobs:
        return "jobs, worst first"
    end = min(jobs, round(1.1 * slower) + 1)
    axes.set_xlim(1 - 0.05 * end, end)
    return f"worst {end:,} of {count(f'{jobs:,}', 'job')}"


TIMELINE_JOBS_MAX = 40  # more jobs than that make no readable timeline
COLUMNS = ("id", "family", "batch_size", "gpus", "submit_s", "start_s", "end_s", "ideal_s", "placement", "utility_min")


def draw(scenario: Scenario, out: Path) -> None:
    """Write a table for each policy, the slowdowns, and the timelines of a short run."""
    folder = out / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    slower: dict[str, Slowdowns] = {}
    for policy, rows in scenario.rows.items():
        slower[policy] = Slowdowns(
            np.array([row.exec_s / row.ideal_s for row in rows]),
            np.array([(row.end_s - row.submit_s) / row.ideal_s for row in rows]),
        )
        with (folder / f"jobs-{file_word(policy)}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *map(_row, rows)])
    style.save(slowdowns(slower), folder / "slowdowns.png")
    if all(len(rows) <= TIMELINE_JOBS_MAX for rows in scenario.rows.values()):
        panels = [_timeline(policy, rows) for policy, rows in scenario.rows.items()]
        style.save(timeline(panels), folder / "timelines.png")


def _row(row: TickedJob) -> tuple[object, ...]:
    spec, gpus = row.spec, " ".join(map(str, row.gpus))
    kind = (spec.name, spec.family, spec.batch_size, spec.gpus)
    return *kind, row.submit_s, row.start_s, row.end_s, row.ideal_s, gpus, spec.utility_min


def _timeline(policy: str, rows: Sequence[TickedJob]) -> Panel:
    bars = tuple(
        Bar(
            device=str(gpu), start_s=row.start_s, end_s=row.end_s, label=row.spec.name,
            family=f"{row.spec.family} b{row.spec.batch_size}",
        )
        for row in rows for gpu in row.gpus
    )  # fmt: skip
    return Panel(policy, tuple(sorted({bar.device for bar in bars})), bars)
