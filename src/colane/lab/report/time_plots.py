"""Where the time of jobs has gone (paper E, Fig. 3), and what devices were used for over time: how busy, how full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from colane.lab.report import style
from colane.lab.report.prose import duration
from colane.lab.report.records import JobTime, RunGroup, RunRecord, mean_parts_s

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


Floats = NDArray[np.float64]
GB = 10**9
DEVICES_MAX = 32  # rows of a figure of single devices; more cannot be read
BINS = 240  # stretches of time that a row of a single device is cut into
PERCENT = 100.0
Measure = Callable[[RunRecord], float | None]


def is_known(groups: Sequence[RunGroup]) -> bool:
    """Whether anything is known of how busy any job kept its devices."""
    return any(record.occupancy_ratio is not None and record.interval_s for group in groups for record in group.records)


@style.styled
def use_over_time(groups: Sequence[RunGroup]) -> Figure:
    """Use and memory of all devices together, and what others used of them, a line for each group."""
    with_others = any(record.others_ratio for group in groups for record in group.records)
    fig = style.new_figure(3.6, is_wide=True)
    every = fig.subplots(1, 2 + with_others, squeeze=False)[0]
    end_s = max((_span_s(group) for group in groups), default=0.0)
    for axes, (title, what, measure) in zip(every, PANELS, strict=False):
        unit_s = style.time_axis(axes, end_s)
        lines = [_line(axes, group, measure, place, len(groups), unit_s) for place, group in enumerate(groups)]
        axes.set(title=f"{title} ({what})", ylim=(0, 105 if what == "%" else None))
    style.legend_of(fig, lines, [group.name for group in groups])
    return fig


@style.styled
def use_by_device(groups: Sequence[RunGroup]) -> Figure:
    """How busy each device was over time: a panel for each group, a row for each device, darker is busier."""
    shown = [[device.name for device in group.all_devices][:DEVICES_MAX] for group in groups]
    fig = style.new_figure(1.1 + sum(0.25 * max(len(names), 1) + 0.5 for names in shown), is_wide=True)
    heights = [max(len(names), 1) for names in shown]
    every = fig.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end_s = max((_span_s(group) for group in groups), default=0.0) or 1.0
    unit_s = style.time_axis(every[-1], end_s, room=None)
    for axes, group, names, place in zip(every, groups, shown, range(len(groups)), strict=True):
        rows = np.array([_binned(group, name, end_s) for name in names]).reshape(len(names), BINS)
        extent = (0, end_s / unit_s, len(names) - 0.5, -0.5)
        drawn = axes.imshow(rows * PERCENT, aspect="auto", extent=extent, cmap="Blues", vmin=0, vmax=PERCENT)
        axes.set_yticks(range(len(names)), [style.shortened(name, 18) for name in names])
        axes.grid(visible=False)
        axes.set_title(style.shortened(group.name), color=style.group_colour(place))
    fig.colorbar(drawn, ax=list(every), label="use of the device (%)", shrink=0.9, pad=0.01)
    return fig


def _occupancy(record: RunRecord) -> float | None:
    return None if record.occupancy_ratio is None else record.occupancy_ratio * PERCENT


def _memory(record: RunRecord) -> float | None:
    return None if record.peak_bytes is None else record.peak_bytes / GB


def _others(record: RunRecord) -> float | None:
    return None if record.others_ratio is None else record.others_ratio * PERCENT


PANELS: Final[Sequence[tuple[str, str, Measure]]] = (
    ("Use of the devices", "%", _occupancy),
    ("Memory held on devices", "GB", _memory),
    ("Used by others", "%", _others),
)
"""Title, unit and what a job has of it; the last only where others used any."""


def _line(axes: Axes, group: RunGroup, measure: Measure, place: int, groups: int, unit_s: float) -> Line2D:
    times, values = _summed(group.records, measure, _first_s(group))
    if measure is _occupancy:
        values = np.minimum(values / max(len(group.all_devices), 1), PERCENT)
    if measure is _others:
        values = _mean(group.records, _first_s(group), times)
    return style.steps(axes, times / unit_s, values, **style.look(place, groups))


def _summed(records: Iterable[RunRecord], measure: Measure, first_s: float) -> tuple[Floats, Floats]:
    """What the jobs that run at a time have together, on all devices they are on; from each change on."""
    changes: dict[float, float] = {0.0: 0.0}
    for record in records:
        value = measure(record)
        for ran_s in () if value is None else record.ran_s:
            for at_s, signed in zip(ran_s, (value or 0.0, -(value or 0.0)), strict=True):
                changes[at_s - first_s] = changes.get(at_s - first_s, 0.0) + signed * max(len(record.gpus), 1)
    times = np.array(sorted(changes))
    return times, np.maximum(np.cumsum([changes[at_s] for at_s in times.tolist()]), 0.0)


def _mean(records: Iterable[RunRecord], first_s: float, times: Floats) -> Floats:
    """Mean over the jobs that run, weighted alike: each was told the same of the same devices."""
    known = [(span_s, r.others_ratio) for r in records if r.others_ratio is not None for span_s in r.ran_s]
    spans = [(start_s - first_s, end_s - first_s, ratio) for (start_s, end_s), ratio in known]
    found = [[ratio for start_s, end_s, ratio in spans if start_s <= at_s < end_s] for at_s in times.tolist()]
    return np.array([PERCENT * sum(ratios) / len(ratios) if ratios else 0.0 for ratios in found])


def _binned(group: RunGroup, device: str, end_s: float) -> Floats:
    """Mean use of a device, 0..1, in each stretch of time."""
    edges = np.linspace(0.0, end_s, BINS + 1)
    busy = np.zeros(BINS)
    for record in group.records:
        for ran_s in record.ran_s if device in record.gpus and record.occupancy_ratio is not None else ():
            start_s, stop_s = (at_s - _first_s(group) for at_s in ran_s)
            covered = np.minimum(edges[1:], stop_s) - np.maximum(edges[:-1], start_s)
            busy += (record.occupancy_ratio or 0.0) * np.maximum(covered, 0.0) / (end_s / BINS)
    return np.minimum(busy, 1.0)


def _first_s(group: RunGroup) -> float:
    return min((record.submit_s for record in group.records), default=0.0)


def _span_s(group: RunGroup) -> float:
    return max((record.end_s for record in group.records), default=0.0) - _first_s(group)


USE_CAPTION = (
    "Each job counts with its own mean, or its most memory, while it ran and was neither parked nor suspended: "
    "what changes within a job does not show."
)


def has_several(groups: Sequence[RunGroup]) -> bool:
    """Whether there are devices to tell apart."""
    return any(len(group.all_devices) > 1 for group in groups)
