"""How figures look: colours a colour-blind reader can tell apart, plain axes, legends outside the data.

A group keeps its colour in every figure, a family its own. Three sentinel colours (ink, grid, page) become
the page's own where a figure is put inline, so that it suits light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import RcKeyType

INK = "#1b1f24"
GRID = "#c8cdd4"
PAGE = "#fefefe"
GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without yellow and black, which drown on light and dark pages."""

GROUP_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
"""Line styles change faster than colours repeat, so that colour is never the only difference."""

GROUP_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx")  # of bars, for those who read them in grey
GROUP_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FAMILY_COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#44BB99", "#BBCC33", "#99DDFF", "#AAAA00")
"""Paul Tol's light palette: made for black text on it, and different from the colours of groups."""

OTHER_COLOUR = "#BBBBBB"
LEGEND_CHARACTERS_PER_INCH = 11
LEGEND_HANDLE_CHARACTERS = 7  # width of a legend's line or patch and the gaps around it, in characters
PNG_DPI = 144
FIGURE_WIDTH_INCH = 6.2
WIDE_INCH = 11.4
"""Two figures side by side, or one over the whole page, keep the size of their text on a window of 1280 pixels."""

LABEL_CHARACTERS_MAX = 36  # a name in a legend or on an axis is cut to this, so that it leaves room for the data

RC: dict[RcKeyType, object] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": PAGE,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
}

Parameters = ParamSpec("Parameters")
TEXT_RATIO_MIN = 0.7  # text and lines of a narrow figure shrink to this at most: 7 points
_WIDTH_INCH = ContextVar("width_inch", default=FIGURE_WIDTH_INCH)


@contextmanager
def as_wide_as(inch: float | None) -> Iterator[None]:
    """Draw figures so wide, with text and lines to suit; None leaves them as they are."""
    token = _WIDTH_INCH.set(inch or FIGURE_WIDTH_INCH)
    try:
        yield
    finally:
        _WIDTH_INCH.reset(token)


def is_column() -> bool:
    """Whether figures are for a column: what stands side by side on a page then stands one above another."""
    return _WIDTH_INCH.get() < FIGURE_WIDTH_INCH


def wide_inch() -> float:
    """Width of a figure over the whole page, or column."""
    return _WIDTH_INCH.get() if is_column() else WIDE_INCH


def points(size: float) -> float:
    """Size of text that is smaller than the rest, but never below 7 points."""
    return max(size * _text_ratio(), 10.0 * TEXT_RATIO_MIN)


def _text_ratio() -> float:
    return min(max(_WIDTH_INCH.get() / FIGURE_WIDTH_INCH, TEXT_RATIO_MIN), 1.0)


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Draw under the report's own settings, whatever the user's matplotlibrc says, and lay the figure out."""

    @wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(RC)
            if (ratio := _text_ratio()) < 1:
                mpl.rcParams.update({"font.size": 10 * ratio, "axes.titlesize": 11 * ratio, "axes.linewidth": ratio})
            figure = draw(*args, **kwargs)
            if (engine := figure.get_layout_engine()) is not None:
                engine.execute(figure)
                engine.execute(figure)  # ticks that the first has moved may be wider
            figure.set_layout_engine(None)  # laid out once, not again for every file it is written to
            return figure

    return drawn


def new_figure(height_inch: float, *, is_wide: bool = False) -> Figure:
    """An empty figure, half or all of the page's width, that lays itself out; it belongs to no window."""
    width_inch = wide_inch() if is_wide else _WIDTH_INCH.get()
    return Figure(figsize=(width_inch, height_inch * _text_ratio()), layout="constrained")


def one_panel(height_inch: float) -> tuple[Figure, Axes]:
    """Such a figure with one plot in it."""
    fig = new_figure(height_inch)
    return fig, fig.subplots()


def save(fig: Figure, path: Path) -> Path:
    """Write a figure as PNG, PDF or SVG, by the suffix of the path, for a column as PDF, too: the same bytes again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_column():
        path.with_suffix(".pdf").write_bytes(written(fig, "pdf", path.stem))
    path.write_bytes(written(fig, path.suffix.removeprefix("."), path.stem))
    return path


def written(fig: Figure, form: str, salt: str) -> bytes:
    """A figure as a file of `png`, `pdf` or `svg`; the same figure and salt give the same bytes."""
    if form == "svg":
        return svg_text(fig, salt).encode()
    file = io.BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None} if form == "pdf" else {"Software": None}
    with mpl.rc_context({"pdf.fonttype": 42}):  # text stays text
        fig.savefig(
            file,
            format=form,
            dpi=PNG_DPI if fig.get_figwidth() >= FIGURE_WIDTH_INCH else 2 * PNG_DPI,
            metadata=metadata,
        )
    return file.getvalue()


def inline_svg(fig: Figure, name: str, alt: str) -> str:
    """An `<svg>` element for an HTML page: transparent, in the page's ink, with ids of its own.

    The name is unique on the page: prefix of all its ids. The alternative text is for screen readers.
    """
    svg = svg_text(fig, name)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{name}-", svg)
    for colour, variable in ((INK, "var(--ink)"), (GRID, "var(--grid)"), (PAGE, "var(--page)")):
        svg = svg.replace(colour, variable)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)


def group_colour(position: int) -> str:
    """Colour of the group at this position of the report."""
    return GROUP_COLOURS[position % len(GROUP_COLOURS)]


def group_line(position: int) -> str | tuple[int, tuple[int, ...]]:
    """Line style of the group at this position of the report."""
    return GROUP_LINES[position % len(GROUP_LINES)]


def group_width(position: int, groups: int) -> float:
    """Line width in points, falling from group to group: a line upon an equal one leaves that one's rims visible."""
    return _text_ratio() * (2.0 + 2.5 * (groups - 1 - position) / max(groups - 1, 1) * min(groups - 1, 2) / 2)


def group_marker(position: int) -> str:
    """Marker of the group at this position of the report."""
    return GROUP_MARKERS[position % len(GROUP_MARKERS)]


def family_colours(families: Iterable[str]) -> dict[str, str]:
    """Colour of each family; the most frequent ones have their own, in a column by lightness, the rest share grey."""
    counts: dict[str, int] = {}
    for family in families:
        counts[family] = counts.get(family, 0) + 1
    order = sorted(counts, key=lambda family: (-counts[family], family))
    light = np.linspace(1.0, 0.3, max(2, min(len(order), len(FAMILY_COLOURS))))
    by_lightness = [mpl.colors.to_hex(mpl.colormaps["cividis"](at)) for at in light]
    own = dict(zip(order, by_lightness if is_column() else FAMILY_COLOURS, strict=False))
    return {family: own.get(family, OTHER_COLOUR) for family in order}


def shortened(name: str, characters: int = LABEL_CHARACTERS_MAX) -> str:
    """The name, cut in its middle where it is longer; matplotlib's mathematics switched off."""
    if len(name) > characters:
        half = (characters - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return name.replace("$", r"\$")


def look(position: int, groups: int | None = None) -> dict[str, Any]:
    """Colour and line style of the group at this position of the report; its width too, where they are so many."""
    width = {} if groups is None else {"linewidth": group_width(position, groups)}
    return {"color": group_colour(position), "linestyle": group_line(position), **width}


def steps(axes: Axes, at: Any, values: Any, **looks: Any) -> Line2D:  # noqa: ANN401 - what matplotlib takes
    """A line that keeps each value until the next."""
    (line,) = axes.plot(at, values, drawstyle="steps-post", **looks)
    return line


def marker(colour: str, shape: str) -> Line2D:
    """A mark alone, for a legend."""
    return Line2D([], [], color=colour, marker=shape, linestyle="none", markersize=8)


def name_rows(axes: Axes, names: Iterable[str], characters: int | None = None, room: float = 0.5) -> None:
    """A row for each name, the first one on top."""
    named = [shortened(name, characters or LABEL_CHARACTERS_MAX) for name in names]
    axes.set_yticks(range(len(named)), named)
    axes.set_ylim(len(named) - room, -0.5)
    axes.grid(visible=False, axis="y")


def legend_of(fig: Figure, handles: Sequence[Artist], names: Iterable[str]) -> None:
    """A legend of names that may be long, outside the axes."""
    legend_above(fig, handles, list(map(shortened, names)))


def legend_above(fig: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend outside the axes, in as many columns as its names leave room for."""
    if handles:
        fig.legend(handles, labels, loc="outside upper left", ncols=_legend_columns(labels, fig.get_figwidth()))


def _legend_columns(labels: Sequence[str], width_inch: float) -> int:
    room = int(width_inch * LEGEND_CHARACTERS_PER_INCH / _text_ratio())
    for columns in range(len(labels), 1, -1):
        # matplotlib fills column by column, the first ones get one more.
        rows, longer = divmod(len(labels), columns)
        starts = [column * rows + min(column, longer) for column in range(columns + 1)]
        widths = [max(map(len, labels[a:b])) for a, b in pairwise(starts)]
        if sum(widths) + LEGEND_HANDLE_CHARACTERS * columns <= room:
            return columns
    return 1


def say_beside(axes: Axes, text: str, at: tuple[float, float], gap: float = 4, **looks: Any) -> None:  # noqa: ANN401
    """A text right of the end of a bar, so many points from it."""
    axes.annotate(text, at, (gap, 0), textcoords="offset points", va="center", **looks)


def nothing_to_draw(fig: Figure, axes: Axes, why: str) -> Figure:
    """The figure, whose plot says why it is empty."""
    axes.set_axis_off()
    say_in_the_middle(axes, why)
    return fig


def say_in_the_middle(axes: Axes, text: str, **looks: Any) -> None:  # noqa: ANN401 - as matplotlib takes them
    """A text in the middle of a plot."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", **looks)


def axis_end(largest: float, room: float) -> float:
    """End of an axis from 0 that leaves room beyond the largest value; also where all values are 0."""
    return largest * room if largest > 0 else 1.0


def whole_numbers(axes: Axes) -> None:
    """Ticks of the vertical axis at whole numbers alone."""
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def time_axis(
    axes: Axes, end_s: float, what: str = "time since the first submission", room: float | None = 1.02
) -> float:
    """Name the horizontal axis, and end it behind this time; return the seconds of its unit."""
    unit_s, unit = time_unit(end_s)
    axes.set_xlabel(f"{what} ({unit})")
    if room is not None:
        axes.set_xlim(0, axis_end(end_s / unit_s, room))
    return unit_s


def time_unit(seconds_max: float) -> tuple[float, str]:
    """Seconds per unit and its name, for an axis that reaches this far."""
    for unit_s, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds_max >= 5 * unit_s:
            return unit_s, name
    return (1.0, "s") if seconds_max >= 0.5 else (0.001, "ms")


def svg_text(fig: Figure, salt: str) -> str:
    """A figure as the text of an SVG file; the same figure and salt give the same bytes."""
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        fig.savefig(written, format="svg", transparent=True, metadata={"Date": None}, dpi=PNG_DPI)
    return written.getvalue()
