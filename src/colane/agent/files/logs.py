"""Reads a job's log, which lies in segments named by their place in the output, perhaps with a gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from colane.agent.supervisor.shim_files import LOG_PREFIX

READ_MAX_BYTES = 1 << 20  # one answer holds at most this much; a reader that wants more asks again from `next_offset`


class Segment(NamedTuple):
    """A part of the output that was kept."""

    start: int
    size: int
    path: Path

    @property
    def end(self) -> int:
        """Offset behind it."""
        return self.start + self.size


class LogRange(NamedTuple):
    """Bytes of a log and where to read on."""

    data: bytes
    next_offset: int


def segments(directory: Path) -> list[Segment]:
    """Give what is kept, in order."""
    found = []
    for path in directory.glob(f"{LOG_PREFIX}*"):
        try:
            found.append(Segment(int(path.name.removeprefix(LOG_PREFIX)), path.stat().st_size, path))
        except (FileNotFoundError, ValueError):  # dropped meanwhile, or not ours
            continue
    return sorted(found)


def read_log(directory: Path, offset: int = 0, limit: int = READ_MAX_BYTES) -> LogRange:
    """Read a range of a job's output.

    Args:
        directory: The job's directory.
        offset: Where to begin, in bytes of what the job printed; negative counts from the end.
        limit: Bytes at most, of `READ_MAX_BYTES`.

    Returns:
        The bytes, and the offset behind them. Output that was dropped is replaced by one line that says so.
    """
    kept = segments(directory)
    end = kept[-1].end if kept else 0
    start = max(end + offset, 0) if offset < 0 else offset
    remaining = min(limit, READ_MAX_BYTES)
    parts: list[bytes] = []
    while remaining > 0 and start < end:
        part, start = _read_next(kept, start, remaining)
        parts.append(part)
        remaining -= len(part)
    return LogRange(b"".join(parts), start)


def _read_next(kept: Sequence[Segment], start: int, limit: int) -> tuple[bytes, int]:
    """Give bytes from `start`, or the line that stands for a gap there; and the offset behind."""
    segment = next(s for s in kept if s.end > start)
    if segment.start > start:
        return b"\n[... %d bytes were not kept ...]\n" % (segment.start - start), segment.start
    try:
        with segment.path.open("rb") as file:
            file.seek(start - segment.start)
            data = file.read(min(limit, segment.end - start))
    except FileNotFoundError:
        data = b""
    return (data, start + len(data)) if data else (b"", segment.end)


def read_tail(directory: Path, limit: int) -> str:
    """Give the end of the output as text."""
    return read_log(directory, -limit, limit).data.decode(errors="replace")
