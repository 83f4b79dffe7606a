"""Results of `policies.py`: one line a run in a CSV file, tables with intervals over seeds, and one picture."""

from __future__ import annotations

import csv
import fcntl
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite, nan, sqrt
from pathlib import Path
from typing import NamedTuple

from benchmarks.policy_rows import ROWS


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
    hours = [float(line[name]) for name in Figures._fields]
    return key, Figures._make(hours)


# -- tables

COLUMNS: Mapping[str, tuple[str, str]] = {
    "mean jct h": ("jct_h", ".3g"), "p95": ("p95_h", ".3g"), "p99": ("p99_h", ".3g"),
    "makespan h": ("makespan_h", ".3g"), "worst slowdown": ("worst", ".3g"), "Jain": ("jain", ".3f"),
    "moves": ("moves", ".0f"), "lost h": ("lost_h", ".1f"), "mean wait s": ("wait_s", ".0f"),
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


def draw(found: Found, keys: Iterable[Key], path: Path) -> None:
    """Mean jct and makespan of every policy over those of `fifo`, seed by seed, one panel a row."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    asked = [key for key in keys if key in found]
    rows = list(dict.fromkeys(key.row for key in asked))
    names = list(dict.fromkeys(key.policy for key in asked))
    wide = 4
    tall = -(-len(rows) // wide)
    figure, axes = plt.subplots(
        tall, wide, figsize=(3.6 * wide, 0.6 + (0.19 * len(names) + 0.9) * tall), sharey=True, squeeze=False
    )
    for row, panel in zip(rows, axes.flat, strict=False):
        for name, mark, color, up in (("jct_h", "o", "#1f5a96", -0.15), ("makespan_h", "D", "#c2571a", 0.15)):
            lines = {policy: _ratios(found, asked, row, policy, name) for policy in names}
            places = [place for place, policy in enumerate(names) if lines[policy]]
            means = [statistics.mean(lines[names[place]]) for place in places]
            widths = [interval(lines[names[place]]) for place in places]
            panel.errorbar(
                means, [place + up for place in places], xerr=[w if isfinite(w) else 0.0 for w in widths],
                fmt=mark, color=color, markersize=3.5, elinewidth=1, label={"jct_h": "mean jct"}.get(name, "makespan"),
            )  # fmt: skip
        panel.axvline(1.0, color="#999999", linewidth=0.8)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        panel.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        left, right = max(0.1, panel.get_xlim()[0]), panel.get_xlim()[1]
        panel.set_xlim(left, right)
        panel.set_xticks([x for x in (FINE_TICKS if right < 1.6 * left else TICKS) if left <= x <= right])
        panel.set_title(f"({row}) {ROWS[row].title}"[:60], fontsize=7)
        panel.set_yticks(range(len(names)), names, fontsize=7)
        panel.tick_params(axis="x", labelsize=7)
        panel.grid(axis="y", color="#eeeeee")
    for panel in list(axes.flat)[len(rows) :]:
        panel.axis("off")
    axes[0][0].invert_yaxis()
    axes[0][0].legend(fontsize=7, loc="lower right")
    figure.suptitle("Over fifo on the same jobs (left is better); bars: 95 % over seeds", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _ratios(found: Found, keys: Iterable[Key], row: str, policy: str, name: str) -> list[float]:
    """Over fifo's of the same seed."""
    mine = [key for key in keys if key.row == row and key.policy == policy]
    pairs = [(found[key], found.get(key._replace(policy="fifo"))) for key in mine]
    whole = [(one, base) for one, base in pairs if base is not None and not one.interrupted and not base.interrupted]
    return [float(getattr(one, name)) / float(getattr(base, name)) for one, base in whole]
