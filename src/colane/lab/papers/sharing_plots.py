"""Figures of paper B: which part of a GPU each job has over time, and what its workloads hold of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from colane.lab.papers.sharing import SharingEvaluation
from colane.lab.papers.sharing_memory import P100_BYTES
from colane.lab.report import style


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
