"""Job arrays: which elements there are, what has become of them, and how people name one: `12[3]`.

The elements of an array have the ids behind its own, in order of their indexes: array 12 of `0-99` has its element 3
under id 16. So a name is an id and an id a name without anything being kept, and elements stand in line where their
array was submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from colane.model.phases import Array, Element, JobId, Ordinals
from colane.model.words import count

ELEMENTS_MAX: Final = 1_000_000
INDEX_MAX: Final = 2**31 - 1
RANGES_MAX: Final = 1_000  # an array's record has at most so many separate pieces, so that it stays small
JOB_DIGITS_MAX: Final = 15

_FORM: Final = "indexes as 0-99, 1,3,7-9 or 0-90:10, and %8 behind them where at most 8 may run at once"
_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,10})(-(?P<last>[0-9]{1,10})(:(?P<step>[0-9]{1,10}))?)?", re.ASCII)
_NAME: Final = re.compile(r"(?P<job>[0-9]+)(\[(?P<indexes>[^\[\]]*)\]|_(?P<index>[0-9]+))?", re.ASCII)


class IndexRange(NamedTuple):
    """Indexes from one to another, both included, each so far from the one before."""

    first: int
    last: int
    step: int = 1

    def __str__(self) -> str:
        """As it is written: `3`, `0-99` or `0-90:10`."""
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}-{self.last}" + (f":{self.step}" if self.step > 1 else "")

    @property
    def size(self) -> int:
        """How many."""
        return (self.last - self.first) // self.step + 1


class Indexes(NamedTuple):
    """Indexes of elements: ranges in ascending order, none of which begins before the one before it has ended."""

    ranges: tuple[IndexRange, ...]

    def __str__(self) -> str:
        """As they are written."""
        return ",".join(map(str, self.ranges))

    @property
    def size(self) -> int:
        """How many."""
        return sum(one.size for one in self.ranges)

    @property
    def first(self) -> int:
        """The smallest."""
        return self.ranges[0].first

    @property
    def last(self) -> int:
        """The greatest."""
        return self.ranges[-1].last

    def ordinal_of(self, index: int) -> int | None:
        """Return which element has an index, counted from 0; None where none has."""
        before = 0
        for one in self.ranges:
            if one.first <= index <= one.last:
                place, rest = divmod(index - one.first, one.step)
                return None if rest else before + place
            before += one.size
        return None

    def index_of(self, ordinal: int) -> int:
        """Return the index of an element. Raises IndexError: there is no such element."""
        left = ordinal
        for one in self.ranges:
            if left < one.size:
                return one.first + left * one.step
            left -= one.size
        raise IndexError(ordinal)

    def ordinals_of(self, wanted: Indexes) -> tuple[tuple[Ordinals, ...], int | None]:
        """Return which elements have the indexes that are wanted, and the first index that none has."""
        found, missing = list[Ordinals](), None
        for one in wanted.ranges:
            here = self._run_of(one) if one.step == 1 else [*self._each_of(one)]
            found += here
            if missing is None and number_of(here) < one.size:
                there = range(one.first, one.last + 1, one.step)
                missing = next(index for index in there if self.ordinal_of(index) is None)
        return joined(found), missing

    def _run_of(self, wanted: IndexRange) -> list[Ordinals]:
        """Elements with indexes of a range without gaps."""
        found, before = list[Ordinals](), 0
        for one in self.ranges:
            first = max(0, -(-(wanted.first - one.first) // one.step))
            last = min(one.size - 1, (wanted.last - one.first) // one.step)
            if first <= last:
                found.append((before + first, before + last))
            before += one.size
        return found

    def _each_of(self, wanted: IndexRange) -> Iterator[Ordinals]:
        for index in range(wanted.first, wanted.last + 1, wanted.step):
            ordinal = self.ordinal_of(index)
            if ordinal is not None:
                yield ordinal, ordinal


def parse_indexes(text: str) -> Indexes:
    """Return the indexes that a text names. Raises ValueError: it names none, or some twice, or too many."""
    found = sorted(_range(part, text) for part in text.replace(" ", "").split(","))
    for one, other in pairwise(found):
        if other.first <= one.last:
            raise ValueError(f"names indexes twice: {one} and {other} overlap; give each index in one range")
    if len(found) > RANGES_MAX:
        raise ValueError(f"names {len(found)} separate ranges, and may name {RANGES_MAX}")
    whole = Indexes(tuple(found))
    if whole.size > ELEMENTS_MAX:
        raise ValueError(f"names {count(f'{whole.size:,}', 'element')}, and may name {ELEMENTS_MAX:,}")
    return whole


def _range(part: str, text: str) -> IndexRange:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"must be {_FORM}, got {text[:40]!r}")
    first, step = int(match["first"]), int(match["step"] or 1)
    last = first if match["last"] is None else int(match["last"])
    if last < first:
        raise ValueError(f"{part} goes down: write {last}-{first}")
    if not step:
        raise ValueError(f"{part} has a step of 0: give at least 1, or leave it out")
    if last > INDEX_MAX:
        raise ValueError(f"{part} has an index above {INDEX_MAX}")
    last -= (last - first) % step
    return IndexRange(first, last, step if last > first else 1)


class AskedArray(NamedTuple):
    """What `--array` asks for."""

    indexes: Indexes  # of the elements
    throttle: int | None = None  # how many of them may run at once; None: any number

    def __str__(self) -> str:
        """As it is written: `0-99%8`."""
        return str(self.indexes) + ("" if self.throttle is None else f"%{self.throttle}")


def parse_array(text: str) -> AskedArray:
    """Return what a text asks for, as `0-99%8`. Raises ValueError: it asks for nothing that can be."""
    indexes, percent, most = text.strip().partition("%")
    if not percent:
        return AskedArray(parse_indexes(indexes))
    if not (most.isascii() and most.isdecimal() and len(most) <= 10):
        raise ValueError(f"must be {_FORM}, got {text[:40]!r}")
    if not int(most):
        raise ValueError("%0 lets no element run: give at least %1, or leave it out")
    return AskedArray(parse_indexes(indexes), int(most))


@lru_cache(maxsize=4096)
def known_indexes(text: str) -> Indexes:
    """Return the indexes of a text that was judged before; the same ones are asked for again and again."""
    return parse_indexes(text)


def known(array: Array) -> Indexes:
    """Return the indexes of an array's elements."""
    return known_indexes(array.indexes)


def has(array_id: JobId, array: Array, job: int) -> bool:
    """Whether an id is that of an element of the array."""
    return array_id < job <= array_id + array.size


def ended(array: Array) -> int:
    """Return how many of its elements have ended."""
    return array.succeeded + array.failed + array.cancelled


def element_of(array_id: JobId, array: Array, job: int) -> Element:
    """Return which element has an id that is one of the array's."""
    return Element(array_id, known(array).index_of(job - array_id - 1))


def array_of(asked: AskedArray) -> Array:
    """Return an array of which nothing has happened yet."""
    return Array(str(asked.indexes), asked.indexes.size, asked.throttle, ((0, asked.indexes.size - 1),))


def element_id(array: int, ordinal: int) -> JobId:
    """Return the id of an element."""
    return JobId(array + 1 + ordinal)


# -- names


def parse_name(text: str) -> tuple[int, Indexes | None]:
    """Return the job, and the elements of it, that people name: `12`, `12[3]`, `12[3,7-9]`, or as in Slurm `12_3`.

    Raises ValueError: it is no such name.
    """
    match = _NAME.fullmatch(text.strip())
    if match is None or len(match["job"]) > JOB_DIGITS_MAX or not int(match["job"]):
        form = (
            "elements of an array, as 12[3,7-9]"
            if "[" in text
            else "the number of a job, as 'colane ps --all' shows it"
        )
        raise ValueError(f"must be {form}, got {text[:40]!r}")
    indexes = match["indexes"] if match["index"] is None else match["index"]
    return int(match["job"]), None if indexes is None else parse_indexes(indexes)


# -- sets of elements


def number_of(ranges: Iterable[Ordinals]) -> int:
    """Return how many elements there are in ranges."""
    return sum(last - first + 1 for first, last in ranges)


def joined(ranges: Iterable[Ordinals]) -> tuple[Ordinals, ...]:
    """Return ranges in order, those that touch or overlap made one."""
    whole = list[Ordinals]()
    for first, last in sorted(ranges):
        if whole and first <= whole[-1][1] + 1:
            whole[-1] = whole[-1][0], max(whole[-1][1], last)
        else:
            whole.append((first, last))
    return tuple(whole)


def both(ranges: Sequence[Ordinals], others: Sequence[Ordinals]) -> tuple[Ordinals, ...]:
    """Return what is in both; each has its ranges in order."""
    found, here, there = list[Ordinals](), 0, 0
    while here < len(ranges) and there < len(others):
        first, last = max(ranges[here][0], others[there][0]), min(ranges[here][1], others[there][1])
        if first <= last:
            found.append((first, last))
        if ranges[here][1] < others[there][1]:
            here += 1
        else:
            there += 1
    return tuple(found)


def without(ranges: Iterable[Ordinals], others: Sequence[Ordinals]) -> tuple[Ordinals, ...]:
    """Return what is in the first alone; each has its ranges in order."""
    left = list[Ordinals]()
    for first, last in ranges:
        for other_first, other_last in others:
            if other_last < first or other_first > last:
                continue
            if first < other_first:
                left.append((first, other_first - 1))
            first = other_last + 1  # noqa: PLW2901 - what is left of the range
            if first > last:
                break
        if first <= last:
            left.append((first, last))
    return tuple(left)


def first_of(ranges: Iterable[Ordinals], most: int) -> tuple[int, ...]:
    """Return the first elements of ranges, at most so many."""
    found = list[int]()
    for first, last in ranges:
        found.extend(range(first, min(last, first + most - len(found) - 1) + 1))
        if len(found) >= most:
            break
    return tuple(found)


def each_of(ranges: Iterable[Ordinals]) -> Iterator[int]:
    """Yield all elements of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)
