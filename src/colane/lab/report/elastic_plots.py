"""Elastic jobs in pictures: throughput by number of GPUs, devices over time, a loss curve over resizes (paper E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from colane.lab.report import style


class CoreSample(NamedTuple):
    """One look at a job.

    Attributes:
        at_s: When, since the beginning.
        cores: Cores it may use; 0 while it does not run.
        steps_per_s: Since the look before; None of a job that makes no steps, or has not begun.
    """

    at_s: float
    cores: int
    steps_per_s: float | None = None


@style.styled
def speed_and_cores(jobs: Mapping[str, Sequence[CoreSample]]) -> Figure:
    """Steps per second above, cores granted below, of each job.

    Args:
        jobs: By name, looks in order of time.
    """
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
    above.set_title("How fast it goes, and the cores it has")
    above.set_ylabel("steps/s")
    above.set_ylim(0, style.axis_end(max([one.steps_per_s or 0.0 for one in every], default=1.0), 1.1))
    below.set_ylabel("cores granted")
    below.set_xlabel("time (s)")
    below.set_ylim(0, max([one.cores for one in every], default=1) + 0.5)
    below.yaxis.get_major_locator().set_params(integer=True)
    below.set_xlim(0, style.axis_end(max([one.at_s for one in every], default=1.0), 1.02))
    style.legend_of(fig, lines, jobs)
    return fig


SMOOTH_STEPS: Final = 20
SHIFT: Final = 0.5
"""Jobs that learn alike would hide each other's loss."""


class ThroughputCurve(NamedTuple):
    """f(n): steps per second by number of GPUs, where it was measured and as it is believed elsewhere."""

    measured: dict[int, float]
    believed: dict[int, float]


class DeviceSpan(NamedTuple):
    """A job has so many devices from one time to another."""

    devices: int
    start_s: float
    end_s: float


class LossPoint(NamedTuple):
    """A step, how many devices made it, and its loss."""

    step: int
    devices: int
    loss: float


@style.styled
def throughputs(curves: Mapping[str, ThroughputCurve]) -> Figure:
    """f(n) of each kind of job: measured points, and the line that is believed between and beyond them."""
    fig = style.new_figure(4.2)
    axes = fig.subplots()
    lines = _throughputs(axes, curves)
    style.legend_of(fig, lines, curves)
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

    Args:
        spans: Of each job.
        devices: How many there are.
        curves: f(n) by kind of job.
        losses: Of each job, by step.
        undisturbed: Losses of the same jobs without resizing.
    """
    fig = style.new_figure(7.4, is_wide=True)
    grid = fig.subplot_mosaic([["devices", "devices"], ["speeds", "losses"]], height_ratios=(1, 1.25))
    lines = _devices(grid["devices"], spans, devices)
    _throughputs(grid["speeds"], curves)
    _losses(grid["losses"], losses, undisturbed)
    style.legend_of(fig, lines, spans)
    return fig


def _throughputs(axes: Axes, curves: Mapping[str, ThroughputCurve]) -> list[Line2D]:
    lines = []
    for place, curve in enumerate(curves.values()):
        believed = sorted(curve.believed.items())
        (line,) = axes.plot([n for n, _ in believed], [f for _, f in believed], linewidth=1.8, **style.look(place))
        sizes, speeds = list(curve.measured), list(curve.measured.values())
        axes.plot(sizes, speeds, style.group_marker(place), color=style.group_colour(place), markersize=8)
        lines.append(line)
    most = max([max(curve.believed, default=1) for curve in curves.values()], default=1)
    fastest = [max((*curve.measured.values(), *curve.believed.values()), default=0.0) for curve in curves.values()]
    axes.set_title("f(n): known (marks) and fitted (lines)")
    axes.set_xlabel("GPUs")
    axes.set_ylabel("steps/s")
    axes.set_xlim(0, most + 0.5)
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
    lines = []
    for place, (name, found) in enumerate(spans.items()):
        times = [at_s for span in found for at_s in (span.start_s, span.end_s)]
        counts = [span.devices for span in found for _ in range(2)]
        (line,) = axes.plot(times, counts, label=name, **style.look(place, len(spans)))
        lines.append(line)
    axes.set_title("Devices over time")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("devices")
    axes.set_ylim(-0.2, devices + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
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
    axes.set_title("Loss, mean of 20 steps; grey: never resized")
    axes.set_xlabel("step")
    axes.set_ylabel(f"loss (jobs are {SHIFT:g} apart)")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
