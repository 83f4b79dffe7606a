"""How good quotes of starts and ends were: a table, a figure, rows for programs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from colane.api.seeing import SharedDayObject
from colane.foresee.judged import HORIZONS, Foretold
from colane.foresee.said import METHODS
from colane.lab.report import style
from colane.lab.report.tables import Table, TableColumn, many, ratio, text

ASKED: Final = 0.8

NOTE: Final = (
    "Quotes of submissions that waited, those of the later half, when something had been seen. Held = the start, or "
    "the end, came within the 80 % interval, by what its median said. Score = Winkler's of logarithms: the width, and "
    "10 times what a miss is off; less is better. The first three methods are what others would say, widened likewise. "
    "Known = quotes near which at least 10 separate bursts had been seen."
)


def foreseen_table(judged_runs: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each run and method, of those that `judged_rows` tells."""
    columns = (
        text("run", "Policy"),
        text("method", "Method"),
        many("quotes", "Quotes"),
        ratio("holds", "Held"),
        *(ratio(f"holds_{at}", f"Held, {name}") for at, name in enumerate(HORIZONS)),
        TableColumn("score", "Score", lambda cell: f"{cell:.2f}"),
        ratio("error", "Error, median"),
        TableColumn("width", "p90 / p10", lambda cell: f"{cell:.1f}"),
        many("known", "Known"),
        ratio("known_holds", "Held, known"),
    )
    rows = [
        (
            row["policy"], row["method"], row["quotes"], row["holds"], *[one["holds"] for one in row["horizons"]],
            row["score"], row["median_error"], row["p90_over_p10"], row["known"]["quotes"], row["known"]["holds"],
        )
        for row in judged_runs
    ]  # fmt: skip
    return Table("foreseen", "What was foreseen, and what came of it", columns, tuple(rows), NOTE)


def shared_table(days: Sequence[SharedDayObject]) -> Table:
    """What sharing did for users on the last day that was worked out."""
    hours = partial(TableColumn, show=lambda cell: f"{cell:.1f}")
    columns = (
        text("user", "User"), many("jobs", "Jobs"), hours("gpu_h", "GPU hours"), hours("took_h", "Took, h"),
        hours("alone_h", "Alone in FIFO, h"), hours("alone_least_h", "at least"), hours("alone_most_h", "at most"),
        many("slowed", "Slowed"), TableColumn("slowed_ratio", "at most, times", lambda cell: f"{cell:.2f}"),
    )  # fmt: skip
    rows = [
        (
            one["user"], one["jobs"], one["gpu_h"], one["took_h"], *one["alone_h"], one["slowed"], one["slowed_ratio"]
        )
        for one in (days[0]["users"] if days else ())
    ]  # fmt: skip
    note = (
        "Jobs that came and ended on the last day, as they were, and simulated with each alone on its GPUs in FIFO. "
        "Slowed = the run took over 5 % longer than alone. The users' sums are those of all."
    )
    return Table("shared", "What sharing did", columns, tuple(rows), note)


@style.styled
def foreseen_plot(judged_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Coverage above, median error below, by horizon; a bar for each policy, of the rows that `judged_rows` tells."""
    fig = style.new_figure(7.0 if style.is_column() else 4.8, is_wide=True)
    above, below = fig.subplots(*((2, 1) if style.is_column() else (1, 2)))
    width, bars = 0.8 / len(judged_runs), []
    for position, rows in enumerate(judged_runs.values()):
        found = [part for row in rows if row["method"] == METHODS[-1] for part in row["horizons"]]
        if not found:
            continue
        at = np.arange(len(HORIZONS)) + width * (position - (len(judged_runs) - 1) / 2)
        held = [100 * (part["holds"] or 0.0) for part in found]
        wrong = [100 * (part["error"] or 0.0) for part in found]
        hatch = style.GROUP_HATCHES[position % len(style.GROUP_HATCHES)]
        looks = {"color": style.group_colour(position), "hatch": hatch, "edgecolor": style.PAGE, "linewidth": 0.0}
        bars.append(above.bar(at, held, width, **looks))
        below.bar(at, wrong, width, **looks)
    above.axhline(100 * ASKED, color=style.INK, linewidth=1.0)
    above.axhspan(70, 90, color=style.GRID, zorder=0)
    above.set_ylim(0, 100)
    for axes, title in ((above, "Quotes that held (%), of 80 asked for"), (below, "Median error of p50 (%)")):
        axes.set_title(title)
        axes.set_xticks(range(len(HORIZONS)), HORIZONS, fontsize=style.points(8))
        axes.set_xlabel("what was said")
    style.legend_of(fig, bars, judged_runs)
    return fig


COLUMNS: Final = (
    "job", "at_s", "method", "p10_s", "p50_s", "p90_s", "bursts", "at_once", "is_told", "start_s", "end_s",
)  # fmt: skip


def write_quotes(foretold: Sequence[Foretold], path: Path) -> None:
    """Write one row for each quote and method, with what came of it. Raises OSError: the file cannot be written."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for one in foretold:
            quote = one.quote
            came = [f"{value:.6g}" if isfinite(value) else "" for value in (one.start_s, one.end_s)]
            for method, bounds in [*zip(METHODS, quote.starts, strict=True), ("end", quote.end)]:
                said = [method, *(f"{value:.6g}" for value in bounds[:3]), bounds.bursts, f"{bounds.at_once:.3f}"]
                rows.writerow([quote.job, f"{quote.at_s:.6g}", *said, int(quote.is_told), *came])
