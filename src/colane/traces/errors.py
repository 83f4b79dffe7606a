"""What is wrong with a file, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class TraceError(ValueError):
    """A trace, table or cluster file that cannot be used.

    Attributes:
        path: The file.
        message: What is wrong and how to mend it.
        line: Line of the file, counted from 1, where one is to blame.
        column: Column or key, where one is to blame.
    """

    def __init__(self, path: str | Path, message: str, *, line: int | None = None, column: str | None = None) -> None:
        self.path = str(path)
        self.message = message
        self.line = line
        self.column = column
        super().__init__(str(self))

    def __reduce__(self) -> tuple[object, ...]:
        """So that it comes back whole from another process."""
        return _remade, (self.path, self.message, self.line, self.column)

    def __str__(self) -> str:
        """`FILE:LINE: column 'NAME': MESSAGE`, as far as known."""
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        what = "" if self.column is None else f"column {self.column!r}: "
        return f"{where}: {what}{self.message}"


def _remade(path: str, message: str, line: int | None, column: str | None) -> TraceError:
    return TraceError(path, message, line=line, column=column)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean a or b?)`, empty when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
