"""A study's figures: distributions of JCT at each load, and each metric over load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from colane.lab.report import plots, style
from colane.lab.report.foreseen import foreseen_plot
from colane.lab.report.simulated import Interval, confidence
from colane.lab.report.windowed import METRICS, Value, jct_s_of
from colane.lab.studies.cells import read_cell, whole
from colane.lab.studies.file import CellKey, Extra, StudyPlan

DODGE_RATIO = 0.006
"""Policies stand so far beside one another, as a part of the axis, that whiskers do not lie on each other."""


@style.styled
def over_load(values: Mapping[str, Mapping[float, Interval | None]], metric: str, called: str) -> Figure:
    """A metric over load: means over seeds, whiskers are 95 % confidence intervals of each mean by itself.

    By policy, then by load. The axis of a metric that ends in `_s` has the unit that suits it.
    """
    fig, axes = style.one_panel(4.0)
    known = [found.mean for line in values.values() for found in line.values() if found is not None]
    if not known:
        return style.nothing_to_draw(fig, axes, f"{called}: not known")
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
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.set(ylim=(0, None), xlabel="load, times the trace's own", ylabel=f"{called} ({unit})" if unit else called)
    style.legend_of(fig, [line for line in lines if line is not None], values)
    return fig


FORMS: Final = ("svg", "pdf", "png")
FIGURES: Final = "figures"  # folder of the figures
Cells = Mapping[CellKey, Mapping[str, Value]]


def write_figures(plan: StudyPlan, out: Path, cells: Cells) -> list[Path]:
    """Write each figure as SVG, PDF and PNG. Raises OSError: one cannot be written."""
    with style.as_wide_as(plan.figure_inch):
        paths = [path for load in plan.loads for path in _write_cdf(plan, out, cells, load)]
        if len(plan.loads) > 1:
            paths += [path for metric in plan.metrics for path in _write_over_load(plan, out, cells, metric)]
        if Extra.FORESEEN in plan.extras:
            paths += [path for load in plan.loads for path in _write_foreseen(plan, out, cells, load)]
    return paths


def _write_cdf(plan: StudyPlan, out: Path, cells: Cells, load: float) -> list[Path]:
    """JCT of the measured jobs of all seeds that succeeded, on a logarithmic axis."""
    found = dict[str, NDArray[np.float64]]()
    for policy in plan.policies:
        keys = [key for seed in plan.seeds if (key := CellKey(policy, load, seed)) in cells]
        parts = [jct_s_of(read_cell(out, key).measured, plan.window) for key in keys]
        found[policy] = np.concatenate(parts) if parts else np.empty(0)
    figure = plots.cdf(found, title=f"How long jobs took at load {load:g}", quantity="JCT", is_log=True)
    return _write(figure, out / FIGURES / f"jct_cdf_load{load:.12g}")


def _write_foreseen(plan: StudyPlan, out: Path, cells: Cells, load: float) -> list[Path]:
    """Coverage and error by horizon, of the first seed of each policy in which anything was foreseen."""
    found = dict[str, Sequence[Mapping[str, Any]]]()
    for key in [CellKey(policy, load, seed) for policy in plan.policies for seed in plan.seeds]:
        rows = read_cell(out, key).foreseen if key in cells and key.policy not in found else ()
        found.update({key.policy: rows} if rows else {})
    return _write(foreseen_plot(found), out / FIGURES / f"foreseen_load{load:.12g}") if found else []


def _write_over_load(plan: StudyPlan, out: Path, cells: Cells, metric: str) -> list[Path]:
    def mean(policy: str, load: float) -> Interval | None:
        keys = [CellKey(policy, load, seed) for seed in plan.seeds]
        return confidence([cells[key][metric] for key in keys if key in cells])

    values = {policy: {load: mean(policy, load) for load in plan.loads} for policy in plan.policies}
    return _write(over_load(values, metric, METRICS[metric]), out / FIGURES / f"{metric}_over_load")


def _write(figure: Figure, path: Path) -> list[Path]:
    paths = [path.with_name(f"{path.name}.{form}") for form in FORMS]
    for each, form in zip(paths, FORMS, strict=True):
        with whole(each) as draft:
            draft.write_bytes(style.written(figure, form, path.name))
    return paths
