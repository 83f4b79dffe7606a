"""Figures and tables of paper C's ticked runs, as its figures 8 and 10."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from colane.lab.papers.topology import Scenario
from colane.lab.papers.topology_world import TickedJob
from colane.lab.report import style
from colane.lab.report.timeline import Bar, Panel, panel_of, timeline
from colane.lab.report.topology_plots import Slowdowns, slowdowns

TIMELINE_JOBS_MAX = 40
"""More jobs than that make no readable timeline."""

COLUMNS = ("id", "family", "batch_size", "gpus", "submit_s", "start_s", "end_s", "ideal_s", "placement", "utility_min")


def draw(scenario: Scenario, out: Path) -> None:
    """Write a table for each policy, the slowdowns, and the timelines of a short run."""
    folder = out / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    for policy, rows in scenario.rows.items():
        _write_rows(rows, folder / f"jobs-{policy}.csv")
    style.save(slowdowns(_slowdowns(scenario.rows)), folder / "slowdowns.png")
    if all(len(rows) <= TIMELINE_JOBS_MAX for rows in scenario.rows.values()):
        panels = [_panel(policy, rows) for policy, rows in scenario.rows.items()]
        style.save(timeline(panels), folder / "timelines.png")


def _slowdowns(runs: Mapping[str, Sequence[TickedJob]]) -> dict[str, Slowdowns]:
    return {
        policy: Slowdowns(
            np.array([row.exec_s / row.ideal_s for row in rows]),
            np.array([(row.end_s - row.submit_s) / row.ideal_s for row in rows]),
        )
        for policy, rows in runs.items()
    }


def _panel(policy: str, rows: Sequence[TickedJob]) -> Panel:
    devices = sorted({str(gpu) for row in rows for gpu in row.gpus})
    return panel_of(policy, devices, (_bars(row) for row in rows), 0.0)


def _bars(row: TickedJob) -> tuple[Bar, ...]:
    family = f"{row.spec.family} b{row.spec.batch_size}"
    return tuple(
        Bar(device=str(gpu), start_s=row.start_s, end_s=row.end_s, label=row.spec.name, family=family)
        for gpu in row.gpus
    )


def _write_rows(rows: Sequence[TickedJob], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for row in rows:
            spec, gpus = row.spec, " ".join(map(str, row.gpus))
            kind = (spec.name, spec.family, spec.batch_size, spec.gpus)
            table.writerow((*kind, row.submit_s, row.start_s, row.end_s, row.ideal_s, gpus, spec.utility_min))
