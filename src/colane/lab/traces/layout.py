"""How the files of a format are laid out, declared once by each reader: what claims a file, and what is not read of it.

A file is a format's only where its header is that format's, column by column. A near miss (a column renamed, missing
or doubled) is no one's: it is refused with the column named, since the columns that are left may well be another
format's, with other units.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from colane.model.nearest import did_you_mean

HEAD_CHARS = 1 << 16  # a format is told from this much of a file
NEAR = 0.5  # from this part of the columns on, a header is taken for one of this format with something wrong
LIST, OBJECT = "[", "{"  # how a JSON file of jobs opens


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a file is not of a format, though it nearly is."""

    likeness: float  # 0..1, how much of the file is as the format has it
    column: str  # the column to blame
    message: str  # what is wrong with it
    is_more: bool = False  # whether the file has all that the format has, and this column besides


class FileLayout(Protocol):
    """How one kind of file of a format is laid out."""

    def fits(self, head: str) -> bool:
        """Whether a file that begins like this is one of these."""

    def misfit(self, head: str) -> Misfit | None:
        """What is wrong with a file that is nearly one of these; None where it is nothing of the kind."""

    def unused(self, head: str) -> tuple[str, ...]:
        """Columns of such a file that are not read, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A table whose first row names its columns, in any order."""

    read: tuple[str, ...]  # columns that are there and are read
    unread: tuple[str, ...] = ()  # columns that are there and say nothing that a job of ours has
    optional: tuple[str, ...] = ()  # columns that are read where they are there
    besides: tuple[str, ...] = ()  # columns that may be there and are not read
    prefix: str = ""  # columns that begin so may be there, too, and are read; empty is none
    mark: str = ""  # a column that no other format has: it alone claims a file; the reader judges the rest

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are there."""
        return self.read + self.unread

    def fits(self, head: str) -> bool:
        """Whether the first row names every column once, and none besides, or has the mark."""
        names = names_of(head)
        if self.mark in names:
            return True
        return len(set(names)) == len(names) and not self._missing(names) and not self._unknown(names)

    def misfit(self, head: str) -> Misfit | None:
        """Name the first column that is missing, doubled or unknown."""
        names = names_of(head)
        known = {name for name in names if self._knows(name)}
        likeness = len(known) / len({*names, *self.columns})
        if likeness < NEAR or self.fits(head):
            return None
        twice = [name for name in names if names.count(name) > 1]
        missing, unknown = self._missing(names), self._unknown(names)
        if missing:
            return Misfit(likeness, missing[0], f"is missing{_instead(missing[0], unknown)}")
        if twice:
            return Misfit(likeness, twice[0], "is there twice")
        return Misfit(likeness, unknown[0], "is no column", is_more=True)

    def unused(self, head: str) -> tuple[str, ...]:
        """Columns that the reader does not look at."""
        read = {*self.read, *self.optional}
        return tuple(name for name in names_of(head) if name not in read and not self._is_prefixed(name))

    def _knows(self, name: str) -> bool:
        return name in {*self.columns, *self.optional, *self.besides} or self._is_prefixed(name)

    def _is_prefixed(self, name: str) -> bool:
        return bool(self.prefix) and name.startswith(self.prefix)

    def _missing(self, names: Iterable[str]) -> list[str]:
        there = set(names)
        return [name for name in self.columns if name not in there]

    def _unknown(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self._knows(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A table without a header: its columns are told by their number and by what their cells look like."""

    # by column, in order, what parses a cell of it; it raises `ValueError` where the cell is no such value
    shapes: Mapping[str, Callable[[str], object]]
    read: frozenset[str]  # columns that are read
    delimiter: str = ","  # between cells

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns, in order."""
        return tuple(self.shapes)

    def fits(self, head: str) -> bool:
        """Whether the first row has as many cells, each of the right shape."""
        row = first_row(head, self.delimiter)
        return len(row) == len(self.shapes) and not self._wrong(row)

    def misfit(self, head: str) -> Misfit | None:
        """Name the first cell that is not of its column's shape."""
        row = first_row(head, self.delimiter)
        if len(row) != len(self.shapes):
            return None
        wrong = self._wrong(row)
        likeness = 1 - len(wrong) / len(row)
        if not wrong or likeness < NEAR:
            return None
        column = next(iter(wrong))
        return Misfit(likeness, column, wrong[column])

    def unused(self, head: str) -> tuple[str, ...]:
        """Columns that the reader does not look at."""
        del head
        return tuple(name for name in self.shapes if name not in self.read)

    def _wrong(self, row: Sequence[str]) -> dict[str, str]:
        """What is wrong with cells, by column."""
        wrong = {}
        for (name, parse), cell in zip(self.shapes.items(), row, strict=True):
            try:
                parse(cell)
            except ValueError as error:
                wrong[name] = str(error)
        return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A JSON document of jobs."""

    opens: str  # `LIST` of jobs, or `OBJECT` of jobs by id
    read: tuple[str, ...]  # keys of a job that are read; the first job has them all
    unread: tuple[str, ...] = ()  # keys of a job that say nothing that a job of ours has
    inside: tuple[str, ...] = ()  # keys of what stands within a job
    is_lines: bool = False  # each line is a document of its own

    def fits(self, head: str) -> bool:
        """Whether it opens so, and its beginning has every key."""
        return self._opens(head) and set(self.read) <= set(_keys(head))

    def misfit(self, head: str) -> Misfit | None:
        """Name the first key that is missing."""
        keys = set(_keys(head))
        missing = [key for key in self.read if key not in keys]
        likeness = 1 - len(missing) / len(self.read)
        if not missing or likeness < NEAR or not self._opens(head):
            return None
        unknown = sorted(keys - {*self.read, *self.unread, *self.inside})
        return Misfit(likeness, missing[0], f"is missing{_instead(missing[0], unknown)}")

    def unused(self, head: str) -> tuple[str, ...]:
        """Keys that the reader does not look at, as far as they are known."""
        keys = set(_keys(head))
        return tuple(key for key in self.unread if key in keys)

    def _opens(self, head: str) -> bool:
        return head.lstrip().startswith(self.opens)


def names_of(head: str) -> list[str]:
    """Column names of a comma-separated table, none where it begins with none."""
    return [name.strip() for name in first_row(head)]


def first_row(head: str, delimiter: str = ",") -> list[str]:
    """Cells of the first row that is not blank."""
    try:
        return next((row for row in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter) if row), [])
    except csv.Error:
        return []


def is_header(names: Sequence[str]) -> bool:
    """Whether a row can name columns: no cell of it is a number."""
    return bool(names) and not any(re.fullmatch(r"[-+.\deE]*\d[-+.\deE]*", name) for name in names)


def _instead(missing: str, unknown: Sequence[str]) -> str:
    """Guess which of the columns that are unknown stands for the one that is missing."""
    if not unknown:
        return ""
    near = did_you_mean(missing, unknown)
    return near.replace("did you mean", "is it").replace(" or ", ", or ") if near else f" (is it {unknown[0]}?)"


def _keys(head: str) -> list[str]:
    return re.findall(r'"([A-Za-z_][\w ]*)"\s*:', head)
