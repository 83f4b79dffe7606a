"""Elastic jobs in pictures: throughput by number of GPUs, devices over time, a loss curve over resizes (paper E)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from colane.lab.report import style
from colane.lab.report.measured import ThroughputCurve
from colane.lab.report.mixed import CoreSample, DeviceSpan, LossPoint, MixedJob, MixedRun, Stretch
from colane.lab.report.prose import duration
from colane.model.words import count

ROW_INCH = 0.42
NO_DEVICE = "no device"
ASIDE = 1 << 30  # row of those that wait at a step boundary, below the lanes of the device they will go on with
CHARACTER_INCH = 0.085  # width of a character of a bar's text, on the safe side


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
    room = width_s / (axes.get_xlim()[1] or 1.0) * (style.wide_inch() - 1.6) / CHARACTER_INCH
    text = "" if stretch.is_parked else next((text for text in _texts(job, stretch) if len(text) + 1 <= room), "")
    if text:
        black = "#000000"
        axes.text(stretch.start_s + width_s / 2, row, text, ha="center", va="center", fontsize=8, color=black)


def _texts(job: MixedJob, stretch: Stretch) -> Iterator[str]:
    """What a bar says, the longest first."""
    cores = count(stretch.cores, "core")
    size = f", {len(stretch.devices)} devices" if len(stretch.devices) > 1 else ""
    yield from (f"{job.name}: {cores}{size}", cores, job.name)


@style.styled
def speed_and_cores(jobs: Mapping[str, Sequence[CoreSample]]) -> Figure:
    """Steps per second above, cores granted below, of each job."""
    fig = style.new_figure(5.0, is_wide=True)
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines = []
    for place, samples in enumerate(jobs.values()):
        look = {**style.look(place), "linewidth": 2.0}
        stepping = [one for one in samples if one.steps_per_s is not None]
        above.plot([one.at_s for one in stepping], [one.steps_per_s for one in stepping], **look)
        running = [one for one in samples if one.cores]
        lines.append(style.steps(below, [one.at_s for one in running], [one.cores for one in running], **look))
    every = [one for samples in jobs.values() for one in samples]
    fastest = style.axis_end(max([one.steps_per_s or 0.0 for one in every], default=1.0), 1.1)
    above.set(title="How fast it goes, and the cores it has", ylabel="steps/s", ylim=(0, fastest))
    end_s, most = max([one.at_s for one in every], default=1.0), max([one.cores for one in every], default=1)
    below.set(xlabel="time (s)", xlim=(0, style.axis_end(end_s, 1.02)), ylabel="cores granted", ylim=(0, most + 0.5))
    style.whole_numbers(below)
    style.legend_of(fig, lines, jobs)
    return fig


SMOOTH_STEPS: Final = 20
SHIFT: Final = 0.5  # jobs that learn alike would hide each other's loss


@style.styled
def throughputs(curves: Mapping[str, ThroughputCurve]) -> Figure:
    """f(n) of each kind of job: measured points, and the line that is believed between and beyond them."""
    fig, axes = style.one_panel(4.2)
    style.legend_of(fig, _throughputs(axes, curves), curves)
    return fig


@style.styled
def elastic_jobs(
    spans: Mapping[str, Sequence[DeviceSpan]],
    devices: int,
    curves: Mapping[str, ThroughputCurve],
    losses: Mapping[str, Sequence[LossPoint]],
    undisturbed: Mapping[str, Sequence[float]],
) -> Figure:
    """Devices over time above, f(n) and the loss of each step below.

    Behind each loss stands, in grey, that of the same job without resizing.
    """
    fig = style.new_figure(7.4, is_wide=True)
    grid = fig.subplot_mosaic([["devices", "devices"], ["speeds", "losses"]], height_ratios=(1, 1.25))
    lines = _devices(grid["devices"], spans, devices)
    _throughputs(grid["speeds"], curves)
    _losses(grid["losses"], losses, undisturbed)
    style.legend_of(fig, lines, spans)
    return fig


def _throughputs(axes: Axes, curves: Mapping[str, ThroughputCurve]) -> list[Line2D]:
    lines: list[Line2D] = []
    for place, curve in enumerate(curves.values()):
        believed = sorted(curve.believed.items())
        lines += axes.plot([n for n, _ in believed], [f for _, f in believed], linewidth=1.8, **style.look(place))
        sizes, speeds = list(curve.measured), list(curve.measured.values())
        axes.plot(sizes, speeds, style.group_marker(place), color=style.group_colour(place), markersize=8)
    most = max([max(curve.believed, default=1) for curve in curves.values()], default=1)
    fastest = [max((*curve.measured.values(), *curve.believed.values()), default=0.0) for curve in curves.values()]
    axes.set(title="f(n): known (marks) and fitted (lines)", xlabel="GPUs", ylabel="steps/s", xlim=(0, most + 0.5))
    axes.set_ylim(0, style.axis_end(max(fastest, default=0.0), 1.1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return lines


def _smooth(losses: Sequence[float]) -> list[float]:
    """The mean of each step and those up to `SMOOTH_STEPS` before it."""
    sums = [0.0, *accumulate(losses)]
    return [
        (sums[end] - sums[max(0, end - SMOOTH_STEPS)]) / min(end, SMOOTH_STEPS) for end in range(1, len(losses) + 1)
    ]


def _devices(axes: Axes, spans: Mapping[str, Sequence[DeviceSpan]], devices: int) -> list[Line2D]:
    lines: list[Line2D] = []
    for place, (name, found) in enumerate(spans.items()):
        times = [at_s for span in found for at_s in (span.start_s, span.end_s)]
        counts = [span.devices for span in found for _ in range(2)]
        lines += axes.plot(times, counts, label=name, **style.look(place, len(spans)))
    axes.set(title="Devices over time", xlabel="time (s)", ylabel="devices", ylim=(-0.2, devices + 0.4))
    style.whole_numbers(axes)
    axes.set_xlim(0, style.axis_end(max([s.end_s for found in spans.values() for s in found], default=1.0), 1.02))
    return lines


def _losses(axes: Axes, losses: Mapping[str, Sequence[LossPoint]], undisturbed: Mapping[str, Sequence[float]]) -> None:
    for place, (name, points) in enumerate(losses.items()):
        up = SHIFT * (len(losses) - 1 - place)
        whole = [loss + up for loss in _smooth(undisturbed[name])]
        own = [loss + up for loss in _smooth([point.loss for point in points])]
        axes.plot(range(1, len(whole) + 1), whole, color=style.GRID, linewidth=5)
        axes.plot([point.step for point in points], own, linewidth=1.4, color=style.group_colour(place))
        for (before, after), loss in zip(pairwise(points), own[1:], strict=True):
            if before.devices != after.devices:
                axes.plot(after.step, loss, "o", color=style.group_colour(place), markersize=6, zorder=4)
                axes.annotate(
                    f"{before.devices}→{after.devices}", (after.step, loss), (4, 7),
                    textcoords="offset points", fontsize=8, color=style.group_colour(place),
                )  # fmt: skip
    axes.set(
        title="Loss, mean of 20 steps; grey: never resized", xlabel="step", ylabel=f"loss (jobs are {SHIFT:g} apart)",
        xlim=(0, None), ylim=(0, None),
    )  # fmt: skip
