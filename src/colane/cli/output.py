"""How things are printed: a Rich table on a terminal, aligned plain columns in a pipe, JSON where asked for."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import stat
import sys
import termios
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

UNKNOWN: Final = "-"
LINES: Final = "\n\t"  # what a text of several lines may hold besides what can be printed

STATE_STYLES: Final = {
    "queued": "yellow",
    "assigned": "cyan",
    "launching": "cyan",
    "running-protected": "green",
    "running": "green",
    "paused": "yellow",
    "stopping": "magenta",
    "succeeded": "bold green",
    "failed": "bold red",
    "out-of-memory": "bold red",
    "timed-out": "bold red",
    "cancelled": "dim",
}
"""Colours of the states."""


FOLDED_MIN: Final = 12  # characters that a column keeps however narrow the terminal is


_LATE_CONTROLS: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control and formatting characters that JSON leaves as they are; their escapes mean the same to any reader."""


class ScreenColumn(NamedTuple):
    """A heading, whether its cells are numbers (set to the right), and whether they may be broken into lines."""

    heading: str
    is_number: bool = False
    may_fold: bool = False


def console() -> Console:
    """Return Rich's console on standard output."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms, for terminals only

    return Console(highlight=False)


def clean(text: str, kept: str = "") -> str:
    """Return text that does nothing to a terminal: control and formatting characters are shown by their codes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)


def has_input() -> bool:
    """Whether our standard input holds something: a file from its start, or a pipe that holds data."""
    try:
        kind = os.fstat(0)
        if stat.S_ISREG(kind.st_mode):
            return kind.st_size > 0 and os.lseek(0, 0, os.SEEK_CUR) == 0
        return stat.S_ISFIFO(kind.st_mode) and bool(select.select([0], [], [], 0)[0]) and _waiting_bytes() > 0
    except OSError:
        return False


def _waiting_bytes() -> int:
    held = bytearray(4)
    fcntl.ioctl(0, termios.FIONREAD, held)
    return int.from_bytes(held, sys.byteorder)


def say(line: str = "") -> None:
    """Print one plain line."""
    sys.stdout.write(f"{clean(line, LINES)}\n")


def note(line: str) -> None:
    """Print one line beside the output, for people: a pipe does not get it."""
    sys.stderr.write(f"{clean(line, LINES)}\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    """Print a value as JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_LATE_CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


def print_table(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print rows of texts; on a terminal within its width and without empty columns, else whole and aligned."""
    rows = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, rows, title)
    else:
        _print_plain(columns, rows, title)


def _print_rich(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, title=clean(title) or None, title_justify="left", pad_edge=False)
    kept = [place for place in range(len(columns)) if not rows or any(row[place] for row in rows)]
    for place in kept:
        column, longest = columns[place], max((len(row[place]) for row in rows), default=0)
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            min_width=min(longest, FOLDED_MIN) if column.may_fold else longest,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(row[place], style=STATE_STYLES.get(row[place], "")) for place in kept))
    console().print(table)


def _print_plain(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]], title: str) -> None:
    if title:
        say(title)
    lines = [[column.heading for column in columns], *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        say("  ".join(cells).rstrip())


def print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two aligned columns."""
    known = list(pairs)
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        say(f"{name.ljust(width)}  {clean(value)}")


def duration(seconds: float | None) -> str:
    """Return a time span as people say it: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    for unit, size, part, part_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def moment(seconds: float) -> str:
    """Return a short time to three digits: `0.12 ms`, `4.2 ms`, `1.5 s`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def size(number_bytes: float | None) -> str:
    """Return a size with a decimal unit, as it is printed on memory."""
    if number_bytes is None:
        return UNKNOWN
    amount = float(number_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(amount) < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.4g} TB"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a few significant digits."""
    return UNKNOWN if value is None else f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def text(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a JSON scalar as text."""
    return UNKNOWN if value is None or value == "" else str(value)
