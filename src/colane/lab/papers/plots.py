"""Figures of paper B, parts of a GPU over time and memory held; figures and tables of paper C's ticked runs (8, 10)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from colane.lab.papers.sharing import SharingEvaluation
from colane.lab.papers.sharing_memory import P100_BYTES
from colane.lab.papers.topology import Scenario
from colane.lab.papers.topology_world import TickedJob
from colane.lab.report import style
from colane.lab.report.simulated import file_word
from colane.lab.report.timeline import Bar, Panel, timeline
from colane.model.words import count


def draw(found: SharingEvaluation, out: Path) -> None:
    """Write both figures."""
    style.save(throughput_over_time(found.images_per_s, unit="images/s"), out / "fair-sharing" / "throughput.png")
    style.save(memory_of_workloads(found.needs_bytes, capacity_bytes=P100_BYTES), out / "memory.png")


GIB = 1 << 30


@style.styled
def throughput_over_time(rates: Mapping[str, Sequence[tuple[float, float]]], *, unit: str) -> Figure:
    """Throughput of each job and of all together (paper B, Fig. 11), of (seconds, rate from then on) by job."""
    fig, axes = style.one_panel(4.0)
    times = sorted({at_s for points in rates.values() for at_s, _ in points})
    columns = {
        # The last rate that was set by then; 0 before the first.
        name: np.array([next((rate for since_s, rate in reversed(points) if since_s <= at_s), 0.0) for at_s in times])
        for name, points in rates.items()
    }
    total = np.sum(list(columns.values()), axis=0) if columns else np.zeros(0)
    lines = [
        style.steps(axes, times, values, **style.look(place, len(columns) + 1))
        for place, values in enumerate([total, *columns.values()])
    ]
    axes.set(title="Throughput over time", xlabel="time (s)", ylabel=unit)
    axes.set_xlim(0, style.axis_end(max(times, default=1.0), 1.02))
    axes.set_ylim(0, style.axis_end(float(total.max(initial=0.0)), 1.12))
    style.legend_above(fig, lines, ["all together", *map(style.shortened, columns)])
    return fig


@style.styled
def memory_of_workloads(needs_bytes: Mapping[str, tuple[float, float]], *, capacity_bytes: float) -> Figure:
    """(P, E) of each workload, in the order to be shown, beside what a GPU has."""
    fig, axes = style.one_panel(1.2 + 0.2 * len(needs_bytes))
    rows = np.arange(len(needs_bytes))
    persistent, ephemeral = np.array(list(needs_bytes.values())).T / GIB
    axes.barh(rows, persistent, 0.7, color=style.group_colour(0))
    axes.barh(rows, ephemeral, 0.7, left=persistent, color=style.group_colour(1))
    line = axes.axvline(capacity_bytes / GIB, color=style.INK, linewidth=1.2, linestyle="--")
    axes.set_yticks(rows, [style.shortened(name) for name in needs_bytes], fontsize=7)
    ends = (0, style.axis_end(capacity_bytes / GIB, 1.05))
    axes.set(ylim=(len(needs_bytes) - 0.4, -0.6), xlim=ends, xlabel="GPU memory (GiB)")
    axes.grid(visible=False, axis="y")
    parts = [Patch(color=style.group_colour(place)) for place in range(2)]
    style.legend_above(fig, [*parts, line], ["P, held between steps", "E, within a step", "capacity"])
    return fig


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


def draw_ticked(scenario: Scenario, out: Path) -> None:
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
