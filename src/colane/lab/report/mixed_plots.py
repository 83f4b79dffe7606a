"""The timeline of a mixed batch: devices with their lanes, and on each bar the cores and the size a job had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from colane.lab.report import style
from colane.lab.report.mixed import MixedJob, MixedRun, Stretch
from colane.lab.report.prose import duration
from colane.model.words import count

ROW_INCH = 0.42
NO_DEVICE = "no device"
ASIDE = 1 << 30
"""Row of those that wait at a step boundary, below the lanes of the device they will go on with."""

CHARACTER_INCH = 0.085
"""Width of a character of a bar's text, on the safe side."""


@style.styled
def mixed_timeline(runs: Sequence[MixedRun]) -> Figure:
    """A panel for each run over one time axis; a row for each lane of a device that was used, one for no device."""
    rows = [_rows(run) for run in runs]
    fig = style.new_figure(1.3 + sum(ROW_INCH * len(found) + 0.5 for found in rows), is_wide=True)
    every = fig.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=[len(found) for found in rows])[:, 0]
    end_s = max((run.end_s for run in runs), default=1.0)
    names = list(dict.fromkeys(name for run in runs for name in run.jobs))
    colours = dict(zip(names, style.FAMILY_COLOURS * (1 + len(names) // len(style.FAMILY_COLOURS)), strict=False))
    for position, (axes, run, found) in enumerate(zip(every, runs, rows, strict=True)):
        _panel(axes, run, found, colours, end_s)
        axes.set_title(f"{run.name}: all ended after {duration(run.end_s)}", color=style.group_colour(position))
    every[-1].set_xlabel("time since the batch was submitted (s)")
    handles = [Patch(facecolor=colours[name]) for name in names]
    labels = [style.shortened(name) for name in names]
    if any(stretch.is_parked for run in runs for job in run.jobs.values() for stretch in job.stretches()):
        handles.append(Patch(facecolor=style.PAGE, edgecolor=style.INK, hatch="////"))
        labels.append("waits at a step boundary")
    style.legend_above(fig, handles, labels)
    return fig


def _rows(run: MixedRun) -> list[tuple[str, int]]:
    """(device, lane) of each row: its lanes, those made to wait for another there, and last those without a device."""
    used = {place for job in run.jobs.values() for stretch in job.stretches() for place in _places(stretch)}
    return sorted(used | {(device, 0) for device in run.devices}, key=lambda place: (place[0] == NO_DEVICE, place))


def _places(stretch: Stretch) -> Iterator[tuple[str, int]]:
    if not stretch.devices:
        yield NO_DEVICE, 0
    for device, lane in zip(stretch.devices, stretch.lanes, strict=False):
        yield device, ASIDE if stretch.is_parked else lane


def _panel(
    axes: Axes, run: MixedRun, rows: Sequence[tuple[str, int]], colours: Mapping[str, str], end_s: float
) -> None:
    axes.set_xlim(0, style.axis_end(end_s, 1.01))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [_row_name(place) for place in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for job in run.jobs.values():
        for stretch in job.stretches():
            for place in _places(stretch):
                _bar(axes, job, stretch, rows.index(place), colours[job.name])


def _row_name(place: tuple[str, int]) -> str:
    device, lane = style.shortened(place[0], 18), place[1]
    if place[0] == NO_DEVICE:
        return device
    return f"waits for {device}" if lane == ASIDE else f"{device} lane {lane}"


def _bar(axes: Axes, job: MixedJob, stretch: Stretch, row: int, colour: str) -> None:
    width_s = stretch.end_s - stretch.start_s
    face, edge, hatch = (style.PAGE, colour, "////") if stretch.is_parked else (colour, style.PAGE, None)
    axes.barh(row, width_s, 0.8, left=stretch.start_s, facecolor=face, edgecolor=edge, hatch=hatch)
    room = width_s / (axes.get_xlim()[1] or 1.0) * (style.WIDE_INCH - 1.6) / CHARACTER_INCH
    text = "" if stretch.is_parked else next((text for text in _texts(job, stretch) if len(text) + 1 <= room), "")
    if text:
        black = "#000000"
        axes.text(stretch.start_s + width_s / 2, row, text, ha="center", va="center", fontsize=8, color=black)


def _texts(job: MixedJob, stretch: Stretch) -> Iterator[str]:
    """What a bar says, the longest first."""
    cores = count(stretch.cores, "core")
    size = f", {len(stretch.devices)} devices" if len(stretch.devices) > 1 else ""
    yield from (f"{job.name}: {cores}{size}", cores, job.name)
