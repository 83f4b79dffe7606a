"""Texts of a fixed width: cut in the middle, since names of a sweep differ at their end; sparks; marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from colane.cli import output

LOOK, BROKEN, WAITS, OTHERS, OWN = "▲", "✕", "‖", "~", "*"
BARS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = str.maketrans({
    "▲": "!", "✕": "x", "‖": "=", "═": "=", "╡": "]", "┄": "-", "·": ".", "─": "-", "▌": "|", "…": "~",
    "▁": "_", "▂": "_", "▃": ".", "▄": "-", "▅": "-", "▆": "+", "▇": "#", "█": "#",
})  # fmt: skip
"""What stands for it where a terminal has no more than ASCII."""

NAME_MAX: Final = 400  # characters of a name that are looked at: four thousand are never shown


def cut(text: str, width: int) -> str:
    """Return a text in at most so many cells, its middle left out; control characters by their codes."""
    text = output.clean(text if len(text) <= NAME_MAX else f"{text[: NAME_MAX // 2]}{text[-NAME_MAX // 2 :]}")
    if cell_len(text) <= width:
        return text
    if width < 3:
        return set_cell_size(text, max(0, width))
    tail = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - tail)}…{_end(text, tail)}"


def cut_end(text: str, width: int) -> str:
    """Return a sentence in at most so many cells, its end left out."""
    text = output.clean(text[:NAME_MAX])
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"[: max(0, width)]


def _end(text: str, width: int) -> str:
    """Return the end of a text, in exactly so many cells."""
    kept = ""
    for one in reversed(text):
        if cell_len(one + kept) > width:
            break
        kept = one + kept
    return " " * (width - cell_len(kept)) + kept


def left(text: str, width: int) -> str:
    """Return a text in exactly so many cells, to the left."""
    shown = cut(text, width)
    return shown + " " * (width - cell_len(shown))


def right(text: str, width: int) -> str:
    """Return a text in exactly so many cells, to the right."""
    shown = cut(text, width)
    return " " * (width - cell_len(shown)) + shown


def spark(values: Sequence[float | None], width: int) -> str:
    """Return the course of a part of a whole, 0 to 1, in so many characters; a gap where nothing is known."""
    if not values:
        return " " * width
    cells = []
    for place in range(width):
        first = place * len(values) // width
        last = max(first + 1, (place + 1) * len(values) // width)
        known = [value for value in values[first:last] if value is not None]
        mean = sum(known) / len(known) if known else None
        cells.append(" " if mean is None else BARS[min(len(BARS) - 1, max(0, int(mean * len(BARS))))])
    return "".join(cells)


def short_span(seconds: float) -> str:
    """Return a time in four characters or so: `42s`, `42m`, `3h05`, `3d4h`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{max(0.0, seconds):.0f}s"
    if minutes < 100:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02d}" if hours < 48 else f"{hours // 24}d{hours % 24}h"


def gigabytes(size: float | None) -> str:
    """Return a size in whole gigabytes, of less than one with a digit."""
    if size is None:
        return "?"
    amount = size / 1e9
    return f"{amount:.0f}" if amount >= 0.95 or amount < 0.05 else f"{amount:.1f}"
