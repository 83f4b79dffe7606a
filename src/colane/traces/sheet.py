"""A table of text read column by column, so that a bad cell is named with file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from colane.model.words import count
from colane.traces import cells
from colane.traces.errors import TraceError, did_you_mean

T = TypeVar("T")


TEXT_BYTES_MAX = 2 * 2**30
"""No recorded trace is as large; a file that would be is refused before it fills the memory."""

READ_BYTES = 2**20


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked when its name ends in `.gz`.

    Raises:
        TraceError: It cannot be read, is too large, no whole gzip file, no UTF-8, or holds a NUL byte.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = _bounded(path, file).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(path, f"is not a whole gzip file ({error})") from error
    except UnicodeDecodeError as error:
        raise TraceError(path, f"is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error
    if (nul := text.find("\0")) >= 0:  # of a file damaged on disk, or written in another encoding
        raise TraceError(path, "holds a NUL byte: it is damaged, or no UTF-8 text", line=text.count("\n", 0, nul) + 1)
    return text


def _bounded(path: Path, file: io.BufferedIOBase) -> bytearray:
    """Read piece by piece: a megabyte of gzip may stand for a gigabyte."""
    text = bytearray()
    while part := file.read(READ_BYTES):
        text += part
        if len(text) > TEXT_BYTES_MAX:
            raise TraceError(path, f"is larger than {TEXT_BYTES_MAX >> 20} MiB; leave out what is not needed")
    return text


class Sheet:
    """Rows of a file by column; bad rows raise at once, or are kept aside when they may be skipped.

    Attributes:
        path: The file.
        names: Column names.
        lines: Line number of each row.
        bad: Rows found bad so far, by row number, each with its first error.
    """

    def __init__(
        self, path: Path, names: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]], *, skip_bad_rows: bool
    ) -> None:
        self.path = path
        self.names = tuple(names)
        self.lines = [line for line, _ in rows]
        self.bad: dict[int, TraceError] = {}
        self._skip = skip_bad_rows
        width = len(self.names)
        whole = [self._padded(row, cells, width) for row, (_, cells) in enumerate(rows)]
        columns: Iterable[Sequence[str]] = zip(*whole, strict=True) if whole else [()] * width
        self._columns = dict(zip(self.names, columns, strict=True))

    def __len__(self) -> int:
        """Number of rows, bad ones included."""
        return len(self.lines)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._columns

    def need(self, *names: str) -> None:
        """Raise `TraceError` unless all these columns are there."""
        for name in names:
            if name not in self._columns:
                near = did_you_mean(name, self.names)
                raise TraceError(self.path, f"has no column {name!r}{near}", line=1)

    def column(self, name: str, parse: Callable[[str], T]) -> list[T]:
        """Return one column parsed. Cells of bad rows hold None, which `good` keeps from the reader's eyes.

        Raises:
            TraceError: There is no such column, or a cell is bad and bad rows may not be skipped.
        """
        self.need(name)
        cells = self._columns[name]
        distinct = set(cells)
        try:
            if 2 * len(distinct) > len(cells):
                return list(map(parse, cells))
            parsed = {cell: parse(cell) for cell in distinct}  # pools, users, GPUs: few values stand in many rows
            return [parsed[cell] for cell in cells]
        except ValueError:
            return [self._cell(row, name, cell, parse) for row, cell in enumerate(cells)]

    def column_or(self, name: str, parse: Callable[[str], T], default: T) -> list[T]:
        """Return one column parsed, or the default in every row where there is no such column."""
        return self.column(name, parse) if name in self._columns else [default] * len(self)

    def fail(self, row: int, message: str, column: str | None = None) -> None:
        """Take a row as bad.

        Raises:
            TraceError: Bad rows may not be skipped.
        """
        error = TraceError(self.path, message, line=self.lines[row], column=column)
        if not self._skip:
            raise error
        self.bad.setdefault(row, error)

    def unique_names(self, name: str) -> list[str]:
        """Return a column of names that each stand once.

        Raises:
            TraceError: It is missing, or a cell of it is bad or stands twice (unless rows may be skipped).
        """
        found = self.column(name, cells.word)
        self.unique(found, name)
        return found

    def unique(self, names: Sequence[str], column: str) -> None:
        """Take every row as bad whose id an earlier row has."""
        if len(set(names)) == len(names):
            return
        first: dict[str, int] = {}
        for row, name in enumerate(names):
            if row not in self.bad and first.setdefault(name, row) != row:
                self.fail(row, f"id {name!r} stands in line {self.lines[first[name]]} already", column)

    def good(self) -> Iterator[int]:
        """Numbers of the rows that are not bad, ascending."""
        return (row for row in range(len(self.lines)) if row not in self.bad)

    def _cell(self, row: int, name: str, cell: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(cell)
        except ValueError as error:
            if row not in self.bad:
                self.fail(row, str(error), name)
            return cast("T", None)

    def _padded(self, row: int, cells: Sequence[str], width: int) -> Sequence[str]:
        if len(cells) == width:
            return cells
        self.fail(row, f"has {count(len(cells), 'cell')}, expected {width}")
        return [""] * width


def numbered_rows(path: Path, text: str, delimiter: str = ",") -> list[tuple[int, list[str]]]:
    """Rows of delimited text with the line each ends on; blank lines are left out.

    Raises:
        TraceError: A quoted cell never ends, or a cell is absurdly long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise TraceError(path, f"is not a {delimiter!r}-separated table ({error})", line=reader.line_num) from error


def read_sheet(
    path: Path, text: str, *, names: Sequence[str] | None = None, delimiter: str = ",", skip_bad_rows: bool = False
) -> Sheet:
    """Read a table. Its first row is the header, unless `names` gives the columns of a file without one.

    Raises:
        TraceError: It has no header, a column twice, or a row of the wrong length (unless rows may be skipped).
    """
    rows = numbered_rows(path, text, delimiter)
    if names is None:
        if not rows:
            raise TraceError(path, "is empty")
        line, header = rows[0]
        names = [name.strip() for name in header]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TraceError(path, f"has column {twice[0]!r} twice", line=line)
        rows = rows[1:]
    return Sheet(path, names, rows, skip_bad_rows=skip_bad_rows)
