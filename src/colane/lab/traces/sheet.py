"""A table of text read column by column, so that a bad cell is named with file, line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from colane.lab.traces import cells
from colane.model.nearest import did_you_mean
from colane.model.words import count
from colane.settings.input_file import InputFileError

T = TypeVar("T")


class Sheet:
    """Rows of a file by column; bad rows raise at once, or are kept aside when they may be skipped."""

    def __init__(
        self, path: Path, names: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]], *, skip_bad_rows: bool
    ) -> None:
        self.path = path  # the file
        self.names = tuple(names)  # column names
        self.lines = [line for line, _ in rows]  # line number of each row
        self.bad: dict[int, InputFileError] = {}  # rows found bad so far, by row number, each with its first error
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
        """Raise `InputFileError` unless all these columns are there."""
        for name in names:
            if name not in self._columns:
                near = did_you_mean(name, self.names)
                raise InputFileError(self.path, f"has no column {name!r}{near}", line=1)

    def column(self, name: str, parse: Callable[[str], T]) -> list[T]:
        """Return one column parsed. Cells of bad rows hold None, which `good` keeps from the reader's eyes.

        Raises InputFileError: there is no such column, or a cell is bad and bad rows may not be skipped.
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
        """Take a row as bad. Raises InputFileError: bad rows may not be skipped."""
        error = InputFileError(self.path, message, line=self.lines[row], column=column)
        if not self._skip:
            raise error
        self.bad.setdefault(row, error)

    def unique_names(self, name: str) -> list[str]:
        """Return a column of names that each stand once.

        Raises InputFileError: it is missing, or a cell of it is bad or stands twice (unless rows may be skipped).
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

    Raises InputFileError: a quoted cell never ends, or a cell is absurdly long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputFileError(path, f"is not a {delimiter!r}-separated table ({error})", line=reader.line_num) from error


def read_sheet(
    path: Path, text: str, *, names: Sequence[str] | None = None, delimiter: str = ",", skip_bad_rows: bool = False
) -> Sheet:
    """Read a table. Its first row is the header, unless `names` gives the columns of a file without one.

    Raises InputFileError: it has no header, a column twice, or a row of the wrong length (unless rows may be skipped).
    """
    rows = numbered_rows(path, text, delimiter)
    if names is None:
        if not rows:
            raise InputFileError(path, "is empty")
        line, header = rows[0]
        names = [name.strip() for name in header]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputFileError(path, f"has column {twice[0]!r} twice", line=line)
        rows = rows[1:]
    return Sheet(path, names, rows, skip_bad_rows=skip_bad_rows)
