"""Samples on their way into the file: ticks of 10 s become minutes, and these become ten minutes.

Each series has a ring per level, cut into chunks that are written whole. A chunk's slot in its ring is its number
modulo the ring's chunks, so that a series never grows beyond its rings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from colane.server.samples.codec import Kind, Values


class Resolution(NamedTuple):
    """One resolution."""

    step_s: int  # length of a tick
    ticks: int  # ticks of a chunk
    chunks: int  # chunks of the ring: as many as its span takes, and the one being filled

    @property
    def span_s(self) -> int:
        """How far back a ring goes at least."""
        return self.step_s * self.ticks * (self.chunks - 1)

    @property
    def chunk_s(self) -> int:
        """Length of a chunk."""
        return self.step_s * self.ticks


LEVELS: Final = (Resolution(10, 30, 13), Resolution(60, 60, 25), Resolution(600, 144, 91))  # an hour, a day, 90 days


class SampleChunk(NamedTuple):
    """A chunk to be written."""

    series: str  # of which series
    level: int  # place in `LEVELS`
    number: int  # its number since 1970
    data: bytes  # all its ticks
    is_whole: bool  # whether all that is known of it is in `data`; else the file may hold ticks of an earlier process


class _Ring:
    """The tick and the chunk of one level that are being filled."""

    __slots__ = ("data", "is_dirty", "is_whole", "newest", "number", "taken", "tick")

    def __init__(self) -> None:
        self.tick: int | None = None
        self.taken: list[Values] = []
        self.number: int | None = None
        self.newest: int | None = None
        self.data = bytearray()
        self.is_whole = False
        self.is_dirty = False


class Series:
    """SampleKeeper of one device, or of one job on one node."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.added_s = 0.0
        self._rings = [_Ring() for _ in LEVELS]
        self._full: list[SampleChunk] = []

    def add(self, at_s: float, values: Values) -> None:
        """Take a sample."""
        self.added_s = at_s
        self._add(0, at_s, values)

    def add_packed(self, tick: int, data: bytes, values: Values) -> None:
        """Take what a tick of the finest level comes to, packed and as values."""
        self.added_s = at_s = tick * LEVELS[0].step_s
        ring, place = self._prepared(0, tick)
        size = len(data)
        ring.data[place * size : (place + 1) * size] = data
        self._add(1, at_s, values)

    def take_written(self) -> Iterator[SampleChunk]:
        """Yield what has changed since the last call, as it is now."""
        yield from self._full
        self._full.clear()
        for level, ring in enumerate(self._rings):
            if ring.is_dirty:
                ring.is_dirty = False
                yield self._chunk(level, ring)

    def now(self, level: int) -> SampleChunk | None:
        """Return the chunk of a level that is being filled; None before there is one."""
        ring = self._rings[level]
        return None if ring.number is None else self._chunk(level, ring)

    def waiting(self, level: int) -> list[SampleChunk]:
        """Return full chunks of a level that are not in the file yet."""
        return [chunk for chunk in self._full if chunk.level == level]

    def close(self) -> None:
        """End all ticks that are being filled: no more samples are expected for now."""
        for level in range(len(LEVELS)):
            self._end_tick(level)

    def _add(self, level: int, at_s: float, values: Values) -> None:
        ring = self._rings[level]
        tick = int(at_s // LEVELS[level].step_s)
        if tick != ring.tick:
            self._end_tick(level)
            ring.tick = tick
        ring.taken.append(values)

    def _end_tick(self, level: int) -> None:
        ring = self._rings[level]
        if ring.tick is None:
            return
        joined = self.kind.joined(ring.taken)
        into, place = self._prepared(level, ring.tick)
        self.kind.pack_into(into.data, place, joined)
        at_s = ring.tick * LEVELS[level].step_s
        ring.tick = None
        ring.taken.clear()
        if level + 1 < len(LEVELS):
            self._add(level + 1, at_s, joined)

    def _prepared(self, level: int, tick: int) -> tuple[_Ring, int]:
        """Give the ring of a level, with the chunk that this tick belongs to, and its place there."""
        ring, ticks = self._rings[level], LEVELS[level].ticks
        number, place = divmod(tick, ticks)
        if number != ring.number:
            if ring.is_dirty:
                self._full.append(self._chunk(level, ring))
            # Of a number that comes first, or once more as clocks jump, the file may hold ticks.
            ring.is_whole = ring.newest is not None and number > ring.newest
            ring.newest = number if ring.newest is None else max(ring.newest, number)
            ring.number, ring.data = number, bytearray(self.kind.unknown * ticks)
        ring.is_dirty = True
        return ring, place

    def _chunk(self, level: int, ring: _Ring) -> SampleChunk:
        return SampleChunk(self.name, level, ring.number or 0, bytes(ring.data), ring.is_whole)


def overlaid(kind: Kind, older: bytes, newer: bytes) -> bytes:
    """Return a chunk with the ticks of `newer`, and those of `older` where it has none."""
    size = kind.size_bytes
    if len(older) != len(newer):
        return newer
    parts = (newer[at : at + size] for at in range(0, len(newer), size))
    return b"".join(
        part if part != kind.unknown else older[place * size : (place + 1) * size] for place, part in enumerate(parts)
    )
