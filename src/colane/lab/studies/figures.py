"""A study's figures, as vectors: distributions of JCT at each load, and each metric over load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from colane.lab.report import plots, study_plots, style
from colane.lab.report.simulated import Interval, confidence
from colane.lab.report.windowed import METRICS, Value, jct_s_of
from colane.lab.studies.cells import read_cell, whole
from colane.lab.studies.file import CellKey, StudyPlan

FIGURES: Final = "figures"
"""Folder of the figures."""

Cells = Mapping[CellKey, Mapping[str, Value]]


def write_figures(plan: StudyPlan, out: Path, cells: Cells) -> list[Path]:
    """Write an SVG file for each figure.

    Raises:
        OSError: One cannot be written.
    """
    paths = [_write_cdf(plan, out, cells, load) for load in plan.loads]
    if len(plan.loads) > 1:
        paths += [_write_over_load(plan, out, cells, metric) for metric in plan.metrics]
    return paths


def _write_cdf(plan: StudyPlan, out: Path, cells: Cells, load: float) -> Path:
    """JCT of the measured jobs of all seeds that succeeded, on a logarithmic axis."""
    found = dict[str, NDArray[np.float64]]()
    for policy in plan.policies:
        keys = [key for seed in plan.seeds if (key := CellKey(policy, load, seed)) in cells]
        parts = [jct_s_of(read_cell(out, key).measured, plan.window) for key in keys]
        found[policy] = np.concatenate(parts) if parts else np.empty(0)
    figure = plots.cdf(found, title=f"How long jobs took at load {load:g}", quantity="JCT", is_log=True)
    return _write(figure, out / FIGURES / f"jct_cdf_load{load:.12g}.svg")


def _write_over_load(plan: StudyPlan, out: Path, cells: Cells, metric: str) -> Path:
    def mean(policy: str, load: float) -> Interval | None:
        keys = [CellKey(policy, load, seed) for seed in plan.seeds]
        return confidence([cells[key][metric] for key in keys if key in cells])

    values = {policy: {load: mean(policy, load) for load in plan.loads} for policy in plan.policies}
    return _write(study_plots.over_load(values, metric, METRICS[metric]), out / FIGURES / f"{metric}_over_load.svg")


def _write(figure: Figure, path: Path) -> Path:
    with whole(path) as draft:
        draft.write_text(style.svg_text(figure, path.stem), encoding="utf-8")
    return path
