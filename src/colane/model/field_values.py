"""What a field of a job may hold. Each border reads these values its own way: options, JSON, cells of a table."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s, parse_size_bytes

EXACT_MAX: Final = 2**53
"""Largest integer that every JSON reader keeps exactly."""

TIME_MAX_S: Final = 1e12
"""Longest time that may be named; for finite sums alone."""

NO_CONTROLS: Final = r"^[^\x00-\x1f\x7f]*$"
NO_NUL: Final = r"^[^\x00]*$"


class Text(NamedTuple):
    """Text."""

    most: int = 10_000  # longest, in characters
    least: int = 0  # shortest
    pattern: str = NO_NUL  # what it must match
    # gives what the job has of it, where that is more than text; raises ValueError for text that is none
    parse: Callable[[str], Any] | None = None
    is_path: bool = False  # names a file or a directory


class Whole(NamedTuple):
    """A whole number."""

    least: int | None = None  # smallest; None: any
    most: int | None = None  # largest; None: any
    noun: str = ""  # what it counts


class Number(NamedTuple):
    """A number."""

    least: float | None = None  # smallest; None: any
    above: float | None = None  # it is larger than that; None: any
    most: float | None = None  # largest; None: any


class Flag(NamedTuple):
    """True or false."""

    implies: tuple[str, ...] = ()  # flags that are set with it by its option


class OneOf(NamedTuple):
    """One of an enumeration, by its value."""

    of: type[StrEnum]


class SomeOf(NamedTuple):
    """Some of an enumeration, by their values."""

    of: type[StrEnum]


class BaseUnit(NamedTuple):
    """What an amount is measured in."""

    suffix: str  # how the names of fields end that hold it in its base unit
    metavar: str  # what help calls it
    parse: Callable[[object], float]  # reads text with a unit
    is_whole: bool  # its base unit is never split


BYTES: Final = BaseUnit("_bytes", "SIZE", parse_size_bytes, is_whole=True)
BYTES_PER_S: Final = BaseUnit("_bytes_per_s", "RATE", parse_bandwidth_bytes_per_s, is_whole=True)
SECONDS: Final = BaseUnit("_s", "TIME", parse_duration_s, is_whole=False)


class Amount(NamedTuple):
    """An amount of bytes or time. Beside the field in the base unit stands one without it, for text: `gpu_memory`."""

    unit: BaseUnit  # what it is measured in
    least: int | None = None  # smallest; None: any
    above: int | None = None  # it is larger than that; None: any
    most: float = EXACT_MAX  # largest
    slurm_unit: str = ""  # unit of a bare number for users of Slurm, where that differs from the unit here

    def parse(self, text: object) -> float:
        """Return the amount that text with a unit names, in the base unit. Raises ValueError: it names none."""
        value = self.unit.parse(text)
        return round(value) if self.unit.is_whole else value


class GpuSizes(NamedTuple):
    """A number of GPUs, or several that a job can run on."""


class TextMap(NamedTuple):
    """Names with texts."""

    name: Text  # what a name may be
    value: Text  # what a text may be
    most: int  # how many at most


class TextList(NamedTuple):
    """Texts in their order."""

    value: Text  # what a text may be
    most: int  # how many at most


def within(takes: Whole | Number | Amount, value: float) -> bool:
    """Whether a number is one that may be given."""
    above = None if isinstance(takes, Whole) else takes.above
    if (takes.least is not None and value < takes.least) or (above is not None and value <= above):
        return False
    return takes.most is None or value <= takes.most


def bounds(takes: Whole | Number | Amount) -> str:
    """Return between what a number must lie, as `at least 0, at most 4`; empty where it may be any."""
    above = None if isinstance(takes, Whole) else takes.above
    most = None if takes.most in {EXACT_MAX, TIME_MAX_S} else takes.most
    told = (("at least", takes.least), ("more than", above), ("at most", most))
    return ", ".join(f"{word} {bound:,.12g}" for word, bound in told if bound is not None)


Values = Text | Whole | Number | Flag | OneOf | SomeOf | Amount | GpuSizes | TextMap | TextList
