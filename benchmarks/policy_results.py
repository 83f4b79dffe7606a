"""Results of `policies.py`: one line a run in a CSV file, tables with intervals over seeds, and one picture.

    python -m benchmarks.policy_results benchmarks/results/policies.csv --rows a:1.5,b,c:1,d,f --picture FILE

draws the picture again from the table that is kept.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite, nan, sqrt
from pathlib import Path
from typing import NamedTuple

from benchmarks.policy_rows import ROWS, chosen


class Key(NamedTuple):
    """Which run."""

    row: str
    policy: str
    belief: str
    checkpoints: int
    jobs: int
    seed: int


class Figures(NamedTuple):
    """What came of it.

    Attributes:
        jct_h: Mean from submission to end; `p95_h` and `p99_h` of the same.
        makespan_h: From the first submission to the last end.
        worst: Largest slowdown: jct over the run time alone on the fastest type.
        jain: Jain's index of slowdowns, 1 where all are equal.
        moves: Times on GPUs after a job's first.
        lost_h: Job-hours on GPUs without a step, beyond each job's first launch, and of steps made anew.
        wait_s: Mean from submission to the first start.
        below: Jobs that fell below the least utility they ask for (paper C).
        unfinished: Jobs that did not succeed.
        flaws: Plans that were refused.
        interrupted: Whether the run was stopped at its limit.
        cpu_s: What the run took.
        others: Mean slowdown of jobs of all owners but the one with most; 0 where there is one.
    """

    jct_h: float
    p95_h: float
    p99_h: float
    makespan_h: float
    worst: float
    jain: float
    moves: int = 0
    lost_h: float = 0.0
    wait_s: float = 0.0
    below: int = 0
    unfinished: int = 0
    flaws: int = 0
    interrupted: int = 0
    cpu_s: float = 0.0
    others: float = 0.0


def figures_of(
    submit_s: Sequence[float], start_s: Sequence[float], end_s: Sequence[float], alone_s: Sequence[float]
) -> Figures:
    """Of the jobs that succeeded, in one order."""
    if not end_s:
        return Figures(nan, nan, nan, nan, nan, nan)
    jct_s = sorted(end - submit for submit, end in zip(submit_s, end_s, strict=True))
    slow = [(end - submit) / alone for submit, end, alone in zip(submit_s, end_s, alone_s, strict=True)]
    jain = sum(slow) ** 2 / (len(slow) * sum(x * x for x in slow))
    span_s = max(end_s) - min(submit_s)
    hours = [x / 3600 for x in (statistics.mean(jct_s), _part(jct_s, 0.95), _part(jct_s, 0.99), span_s)]
    wait_s = statistics.mean(start - submit for submit, start in zip(submit_s, start_s, strict=True))
    return Figures(hours[0], hours[1], hours[2], hours[3], max(slow), jain, wait_s=wait_s)


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


Found = Mapping[Key, Figures]


class Results:
    """The file; every line is written at once, so that several runs may add to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[Key, Figures]:
        """All that is there; of two lines of one run the last holds."""
        if not self._path.exists():
            return {}
        with self._path.open(encoding="utf-8", newline="") as file:
            return dict(_parsed(line) for line in csv.DictReader(file))

    def add(self, key: Key, figures: Figures) -> None:
        """Append a run."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            writer = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                writer.writerow((*Key._fields, *Figures._fields))
            writer.writerow((*key, *(f"{value:.6g}" for value in figures)))


def _parsed(line: Mapping[str, str]) -> tuple[Key, Figures]:
    key = Key(line["row"], line["policy"], line["belief"], *(int(line[name]) for name in Key._fields[3:]))
    hours = [float(line.get(name) or 0.0) for name in Figures._fields]
    return key, Figures._make(hours)


# -- tables

COLUMNS: Mapping[str, tuple[str, str]] = {
    "mean jct h": ("jct_h", ".3g"), "p95": ("p95_h", ".3g"), "p99": ("p99_h", ".3g"),
    "makespan h": ("makespan_h", ".3g"), "worst slowdown": ("worst", ".3g"), "Jain": ("jain", ".3f"),
    "moves": ("moves", ".0f"), "lost h": ("lost_h", ".1f"), "mean wait s": ("wait_s", ".0f"),
    "others' slowdown": ("others", ".2f"),
}  # fmt: skip
PAPER_C: Mapping[str, tuple[str, str]] = {"below least utility": ("below", ".1f")}
OVER_FIFO: Mapping[str, str] = {"jct over fifo": "jct_h", "makespan over fifo": "makespan_h"}
"""Seed by seed, with the 95 % interval over the seeds: seeds differ far more from one another than policies do."""

STUDENT = (inf, inf, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Of Student's t, for 95 % on both sides, by number of values."""


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean; infinite of fewer than two."""
    if len(values) < 2:
        return inf
    t = STUDENT[len(values)] if len(values) < len(STUDENT) else 1.96
    return t * statistics.stdev(values) / sqrt(len(values))


def tables(found: Found, keys: Iterable[Key]) -> Iterator[str]:
    """A Markdown table for each row, a line for each policy."""
    by_row: dict[str, dict[str, list[Figures]]] = {}
    asked = [key for key in keys if key in found]
    for key in asked:
        by_row.setdefault(key.row, {}).setdefault(key.policy, []).append(found[key])
    for row, policies in by_row.items():
        columns = {**COLUMNS, **(PAPER_C if row.startswith("c") else {})}
        yield f"\n**({row})** {ROWS[row].title}\n"
        yield "| policy | " + " | ".join([*OVER_FIFO, *columns]) + " |\n|---|" + "---|" * (len(columns) + 2)
        for policy, figures in policies.items():
            ratios = [_ratio(_ratios(found, asked, row, policy, name)) for name in OVER_FIFO.values()]
            yield f"| `{policy}`{_remark(figures)} | " + " | ".join([*ratios, *_cells(figures, columns)]) + " |"


def _remark(figures: Sequence[Figures]) -> str:
    """What a line does not say of itself."""
    unfinished, stopped = sum(one.unfinished for one in figures), sum(one.interrupted for one in figures)
    said = [f"{stopped} of {len(figures)} runs stopped at their limit"] if stopped else []
    said += [f"{unfinished:.0f} jobs did not succeed"] if unfinished else []
    return f" ({'; '.join(said)})" if said else ""


def _cells(figures: Sequence[Figures], columns: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name, form in columns.values():
        yield format(statistics.mean(float(getattr(one, name)) for one in figures), form)


def _ratio(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    width = interval(ratios)
    return f"{statistics.mean(ratios):.3f}" + (f" ± {width:.3f}" if isfinite(width) else "")


# -- the picture


TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)
FINE_TICKS = (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4)


class Ratio(NamedTuple):
    """Over `fifo` on the same jobs: mean over seeds, and half the width of its 95 % interval, infinite of one seed."""

    mean: float
    width: float


Ratios = Mapping[str, Mapping[str, Mapping[str, Ratio]]]
"""By row, by policy, by the column of `OVER_FIFO`; what was not run is not there."""


def ratios_of(found: Found, keys: Iterable[Key]) -> Ratios:
    """Return those of runs."""
    asked = [key for key in keys if key in found]
    ratios: dict[str, dict[str, dict[str, Ratio]]] = {}
    for row, policy in dict.fromkeys((key.row, key.policy) for key in asked):
        values = {column: _ratios(found, asked, row, policy, name) for column, name in OVER_FIFO.items()}
        means = {column: Ratio(statistics.mean(some), interval(some)) for column, some in values.items() if some}
        ratios.setdefault(row, {})[policy] = means
    return ratios


def ratios_in(table: Path, rows: Iterable[str]) -> Ratios:
    """Return those of some rows of a table as `benchmarks/results/policies.csv`."""
    ratios: dict[str, dict[str, dict[str, Ratio]]] = {row: {} for row in rows}
    with table.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["row"] in ratios:
                said = {column: line[column].partition(" ± ") for column in OVER_FIFO if line[column] != "-"}
                means = {column: Ratio(float(mean), float(width or inf)) for column, (mean, _, width) in said.items()}
                ratios[line["row"]][line["policy"]] = means
    return {row: policies for row, policies in ratios.items() if policies}


def draw(ratios: Ratios, path: Path) -> None:
    """Mean jct and makespan of every policy over those of `fifo`, one panel a row, as SVG or PNG."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    names = list(dict.fromkeys(policy for policies in ratios.values() for policy in policies if policy != "fifo"))
    names.sort(key=lambda name: not name.startswith("colane"))
    wide = min(4, len(ratios))
    tall = -(-len(ratios) // wide)
    size = 1.2 + 3.4 * wide, 0.6 + (0.19 * len(names) + 0.9) * tall
    figure, axes = plt.subplots(tall, wide, figsize=size, sharey=True, squeeze=False)
    for (row, policies), panel in zip(ratios.items(), axes.flat, strict=False):
        for column, mark, color, up in zip(OVER_FIFO, "oD", ("#1f5a96", "#c2571a"), (-0.15, 0.15), strict=True):
            shown = [(names.index(name), said[column]) for name, said in policies.items() if name in names and said]
            panel.errorbar(
                [ratio.mean for _, ratio in shown], [place + up for place, _ in shown],
                xerr=[ratio.width if isfinite(ratio.width) else 0.0 for _, ratio in shown],
                fmt=mark, color=color, markersize=3.5, elinewidth=1, label=column.replace("jct over", "mean jct over"),
            )  # fmt: skip
        panel.axvline(1.0, color="#999999", linewidth=0.8)
        panel.axhspan(-0.5, sum(name.startswith("colane") for name in names) - 0.5, color="#f3f3f3", zorder=0)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        panel.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        left, right = max(0.1, panel.get_xlim()[0]), panel.get_xlim()[1]
        panel.set_xlim(left, right)
        panel.set_xticks([x for x in (FINE_TICKS if right < 1.6 * left else TICKS) if left <= x <= right])
        panel.set_title(f"({row})\n{ROWS[row].title}", fontsize=8)
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(axis="y", color="#eeeeee")
    for panel in list(axes.flat)[len(ratios) :]:
        panel.axis("off")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="upper right", ncols=2, frameon=False)
    figure.suptitle("Over fifo on the same jobs (left is better); bars: 95 % over seeds", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)


def _ratios(found: Found, keys: Iterable[Key], row: str, policy: str, name: str) -> list[float]:
    """Over fifo's of the same seed."""
    mine = [key for key in keys if key.row == row and key.policy == policy]
    pairs = [(found[key], found.get(key._replace(policy="fifo"))) for key in mine]
    whole = [(one, base) for one, base in pairs if base is not None and not one.interrupted and not base.interrupted]
    return [float(getattr(one, name)) / float(getattr(base, name)) for one, base in whole]


def main() -> int:
    """Draw the picture of a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--rows", default="all", help="Letters or names, such as a:1.5,c.")
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    try:
        draw(ratios_in(options.table, chosen(options.rows)), options.picture)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
