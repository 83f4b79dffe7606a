"""Where the time of jobs has gone, as stacked bars (paper E, Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from colane.lab.report import style
from colane.lab.report.prose import duration
from colane.lab.report.records import JobTime, mean_parts_s

CAPTION: Final = "Where the time of each job has gone, from its submission to its end; lost running was made again."
BARS_MAX: Final = 40  # with more jobs there is a bar for each group, the mean of its jobs; more cannot be read

COLOURS: Final[Mapping[str, str]] = {
    "queueing": "#CFD4DA",
    "launching": "#E69F00",
    "running": "#009E73",
    "lost": "#D55E00",
    "paused": "#56B4E9",
    "checkpointing": "#CC79A7",
    "untold": "#F4F5F6",
}
HATCHES: Final[Mapping[str, str]] = {"lost": "////", "checkpointing": "....", "untold": "xx"}
"""So that colour is not the only difference from what stands beside it."""

NAMES: Final[Mapping[str, str]] = {"lost": "running, lost", "untold": "not told any more"}
ROW_INCH: Final = 0.3


@style.styled
def time_bars(groups: Mapping[str, Sequence[JobTime]]) -> Figure:
    """A bar for each job in the order given, or for each group where there are many jobs; a panel for each group."""
    known = {name: times for name, times in groups.items() if times}
    if sum(map(len, known.values())) <= BARS_MAX:
        return _drawn({name: [(time.label, time.parts_s) for time in times] for name, times in known.items()})
    return _drawn({"Mean of the jobs": [(name, mean_parts_s(times)) for name, times in known.items()]})


@style.styled
def mean_bars(panels: Mapping[str, Mapping[str, Sequence[JobTime]]]) -> Figure:
    """A bar for each group of each panel, the mean of its jobs."""
    return _drawn({
        title: [(name, mean_parts_s(times)) for name, times in groups.items()] for title, groups in panels.items()
    })  # fmt: skip


def _drawn(panels: Mapping[str, Sequence[tuple[str, dict[str, float]]]]) -> Figure:
    rows = [len(bars) for bars in panels.values()]
    fig = style.new_figure(1.0 + ROW_INCH * sum(rows) + 0.35 * len(rows), is_wide=True)
    every = fig.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    most_s = max((sum(parts.values()) for bars in panels.values() for _, parts in bars), default=0.0)
    unit_s = style.time_axis(every[-1], most_s, "time from submission to end", 1.4 if style.is_column() else 1.1)
    for axes, (name, bars) in zip(every, panels.items(), strict=True):
        _panel(axes, name, bars, unit_s)
    shown = [part for part in COLOURS if any(parts.get(part) for bars in panels.values() for _, parts in bars)]
    handles = [Patch(facecolor=COLOURS[part], edgecolor=style.INK, hatch=HATCHES.get(part), lw=0.4) for part in shown]
    style.legend_above(fig, handles, [NAMES.get(part, part) for part in shown])
    return fig


def _panel(axes: Axes, name: str, bars: Sequence[tuple[str, dict[str, float]]], unit_s: float) -> None:
    for row, (_, parts) in enumerate(bars):
        end = 0.0
        for part, colour in COLOURS.items():
            length = parts.get(part, 0.0) / unit_s
            if length > 0:
                hatch = HATCHES.get(part)
                axes.barh(row, length, 0.68, left=end, color=colour, hatch=hatch, edgecolor=style.INK, lw=0.4)
                end += length
        text = duration(sum(parts.values()))
        style.say_beside(axes, text, (end, row), fontsize=style.points(8))
    style.name_rows(axes, [label for label, _ in bars], 18 if style.is_column() else 30)
    axes.set_title(style.shortened(name, 40 if style.is_column() else 80))
