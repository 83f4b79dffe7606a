"""A file that a user names: its text, and what is wrong with it in one line."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

TEXT_BYTES_MAX = 2 * 2**30  # no recorded trace is as large; a file that would be is refused before it fills the memory

READ_BYTES = 2**20


class InputFileError(ValueError):
    """A trace, table, cluster or topology file that cannot be used.

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


def _remade(path: str, message: str, line: int | None, column: str | None) -> InputFileError:
    return InputFileError(path, message, line=line, column=column)


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked when its name ends in `.gz`.

    Raises InputFileError: it cannot be read, is too large, no whole gzip file, no UTF-8, or holds a NUL byte.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = _bounded(path, file).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputFileError(path, f"is not a whole gzip file ({error})") from error
    except UnicodeDecodeError as error:
        raise InputFileError(path, f"is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from error
    if (nul := text.find("\0")) >= 0:  # of a file damaged on disk, or written in another encoding
        raise InputFileError(
            path, "holds a NUL byte: it is damaged, or no UTF-8 text", line=text.count("\n", 0, nul) + 1
        )
    return text


def _bounded(path: Path, file: io.BufferedIOBase) -> bytearray:
    """Read piece by piece: a megabyte of gzip may stand for a gigabyte."""
    text = bytearray()
    while part := file.read(READ_BYTES):
        text += part
        if len(text) > TEXT_BYTES_MAX:
            raise InputFileError(path, f"is larger than {TEXT_BYTES_MAX >> 20} MiB; leave out what is not needed")
    return text
