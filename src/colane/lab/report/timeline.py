"""Gantt timeline: which job ran when on which device, jobs that shared one stacked within its band."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from colane.lab.report import style
from colane.lab.report.prose import duration
from colane.model.words import count

DEVICES_MAX = 64  # all panels together show at most so many devices, the busiest; a longer figure cannot be read
PANEL_DEVICES_MIN = 8  # a panel may show so many, however many panels there are
VECTOR_BARS_MAX = 2000
"""With more bars the bars of an SVG become a picture: a page of 100,000 rectangles would not scroll."""

FAILED_EDGE = "#000001"
"""Not quite black: an SVG leaves out the fill of black, and the page's ink would take its place."""

DARK_BELOW = 1.3  # where red, green and blue of a bar come to less than this of 3, its label is white

EDGED_BARS_MAX = 60  # bars of one device that are drawn with an edge
TITLE_CHARACTERS_MAX = 24  # a group's name over its panel; the makespan and the number of devices follow it
BAND_INCH = 0.62
BAND_INCH_MIN = 0.2
PANELS_INCH_MAX = 14.0
BAND_FILLED = 0.88
CHARACTER_INCH = 0.083  # width of a character at the size of the bars' labels, on the safe side
LABEL_HEIGHT_INCH = 0.16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One job on one device; a job on several devices has a bar on each."""

    device: str
    start_s: float
    end_s: float
    label: str
    family: str
    succeeded: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """The timeline of one group; times count from its first submission."""

    name: str
    devices: tuple[str, ...]
    bars: tuple[Bar, ...]


def stack(bars: Sequence[Bar]) -> list[int]:
    """Row of each bar within its device's band: the first row that is free when it starts."""
    rows = [0] * len(bars)
    free_s: list[float] = []
    for position in sorted(range(len(bars)), key=lambda i: (bars[i].start_s, bars[i].end_s, i)):
        bar = bars[position]
        row = next((r for r, end_s in enumerate(free_s) if end_s <= bar.start_s), len(free_s))
        if row == len(free_s):
            free_s.append(bar.end_s)
        rows[position], free_s[row] = row, bar.end_s
    return rows


@style.styled
def timeline(panels: Sequence[Panel]) -> Figure:
    """One panel for each group over the same time axis, one band for each device, coloured by family."""
    kept = max(DEVICES_MAX // max(len(panels), 1), PANEL_DEVICES_MIN)
    shown = [_busiest(panel, kept) for panel in panels]
    bands = [max(len(panel.devices), 1) for panel in shown]
    band_inch = min(BAND_INCH, max(BAND_INCH_MIN, PANELS_INCH_MAX / max(sum(bands), 1)))
    fig = style.new_figure(1.2 + band_inch * sum(bands) + 0.45 * len(shown), is_wide=True)
    if not shown:
        return style.nothing_to_draw(fig, fig.subplots(), "Timeline: no group")
    every = fig.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=bands)[:, 0]
    end_s = max((bar.end_s for panel in panels for bar in panel.bars), default=1.0)
    colours = style.family_colours(bar.family for panel in panels for bar in panel.bars)
    for axes, panel, whole, position in zip(every, shown, panels, range(len(shown)), strict=True):
        _panel(axes, panel, colours, end_s, band_inch)
        _panel_title(axes, whole, panel, position)
    style.time_axis(every[-1], end_s, room=None)
    _legend(fig, colours, any(not bar.succeeded for panel in panels for bar in panel.bars))
    return fig


def _busiest(panel: Panel, devices_max: int) -> Panel:
    """The panel with its busiest devices only, in their own order."""
    if len(panel.devices) <= devices_max:
        return panel
    busy_s = dict.fromkeys(panel.devices, 0.0)
    for bar in panel.bars:
        busy_s[bar.device] += bar.end_s - bar.start_s
    kept = set(sorted(panel.devices, key=lambda device: -busy_s[device])[:devices_max])
    devices = tuple(device for device in panel.devices if device in kept)
    return Panel(panel.name, devices, tuple(bar for bar in panel.bars if bar.device in kept))


def _panel(axes: Axes, panel: Panel, colours: Mapping[str, str], end_s: float, band_inch: float) -> None:
    unit_s, _ = style.time_unit(end_s)
    axes.set_xlim(0, max(end_s, 1e-9) / unit_s)
    axes.set_ylim(max(len(panel.devices), 1) - 0.5, -0.5)
    axes.set_yticks(range(len(panel.devices)), [style.shortened(device, 22) for device in panel.devices])
    axes.tick_params(axis="y", length=0, labelsize=style.points(9 if band_inch > BAND_INCH_MIN else 7.5))
    axes.grid(visible=False, axis="y")
    for line in range(1, len(panel.devices)):
        axes.axhline(line - 0.5, color=style.GRID, linewidth=0.7)
    for band, device in enumerate(panel.devices):
        _band(axes, band, [bar for bar in panel.bars if bar.device == device], colours, (unit_s, band_inch))
    if not panel.bars:
        style.say_in_the_middle(axes, "no job ran", backgroundcolor=style.PAGE)


def _band(axes: Axes, band: int, bars: Sequence[Bar], colours: Mapping[str, str], scale: tuple[float, float]) -> None:
    unit_s, band_inch = scale
    rows = stack(bars)
    height = BAND_FILLED / (max(rows, default=0) + 1)
    boxes = [
        (bar.start_s / unit_s, bar.end_s / unit_s, band - BAND_FILLED / 2 + row * height)
        for bar, row in zip(bars, rows, strict=True)
    ]
    for succeeded in (True, False):
        chosen = [i for i, bar in enumerate(bars) if bar.succeeded is succeeded]
        shapes = [
            [(left, top), (right, top), (right, top + height), (left, top + height)]
            for left, right, top in (boxes[i] for i in chosen)
        ]
        _add_bars(axes, shapes, [colours[bars[i].family] for i in chosen], "" if succeeded else "////")
    for bar, (left, right, top) in zip(bars, boxes, strict=True):
        is_dark = sum(to_rgb(colours[bar.family])) < DARK_BELOW
        _label(
            axes, bar.label, (left, right, top + height / 2), height * band_inch, "#ffffff" if is_dark else "#000000"
        )


def _add_bars(axes: Axes, shapes: Sequence[list[tuple[float, float]]], colours: Sequence[str], hatch: str) -> None:
    if not shapes:
        return
    bars = PolyCollection(shapes, facecolors=colours, linewidths=0.6, hatch=hatch or None)
    if hatch:
        bars.set_edgecolor(FAILED_EDGE)
    else:  # edges part neighbours, but many would hide the bars: then each bar has its own colour as edge
        bars.set_edgecolor(style.PAGE if len(shapes) <= EDGED_BARS_MAX else "face")
    bars.set_rasterized(len(shapes) > VECTOR_BARS_MAX / max(len(axes.get_yticks()), 1))
    axes.add_collection(bars, autolim=False)


def _label(axes: Axes, label: str, place: tuple[float, float, float], height_inch: float, ink: str) -> None:
    """The label in its bar, shortened to its last word or left out where the bar is too small for it."""
    left, right, middle = place
    low, high = axes.get_xlim()
    room = (right - left) / (high - low) * (style.wide_inch() - 1.4) / CHARACTER_INCH
    if height_inch < LABEL_HEIGHT_INCH:
        return
    choices = (label, label.rsplit(" ", 1)[-1])
    fitting = next((text for text in choices if len(text) + 1 <= room), None)
    if fitting is not None:
        text = style.shortened(fitting, 60)
        axes.text((left + right) / 2, middle, text, ha="center", va="center", fontsize=style.points(8), color=ink)


def _panel_title(axes: Axes, whole: Panel, shown: Panel, position: int) -> None:
    end_s = max((bar.end_s for bar in whole.bars), default=0.0)
    title = style.shortened(whole.name, 16 if style.is_column() else TITLE_CHARACTERS_MAX)
    title += f": makespan {duration(end_s)}" if whole.bars else ""
    if len(shown.devices) < len(whole.devices):
        break_ = "\n" if style.is_column() else " "
        title += f"{break_}(the {len(shown.devices)} busiest of {len(whole.devices):,} devices)"
    axes.set_title(title, color=style.group_colour(position))


def _legend(fig: Figure, colours: Mapping[str, str], any_failed: bool) -> None:
    own = {family: colour for family, colour in colours.items() if colour != style.OTHER_COLOUR}
    handles = [Patch(facecolor=colour) for colour in own.values()]
    labels = [style.shortened(family) for family in own]
    if len(own) < len(colours):
        handles.append(Patch(facecolor=style.OTHER_COLOUR))
        labels.append(f"{count(len(colours) - len(own), 'other family')}")
    if any_failed:
        handles.append(Patch(facecolor="#ffffff", edgecolor=FAILED_EDGE, hatch="////"))
        labels.append("did not succeed")
    style.legend_above(fig, handles, labels)


def panel_of(name: str, devices: Iterable[str], jobs: Iterable[tuple[Bar, ...]], first_submit_s: float) -> Panel:
    """A panel whose times count from the first submission."""
    bars = tuple(
        replace(bar, start_s=bar.start_s - first_submit_s, end_s=bar.end_s - first_submit_s)
        for job in jobs
        for bar in job
    )
    return Panel(name, tuple(devices), bars)
