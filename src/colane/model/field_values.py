"""What a field of a job may hold. Each border reads these values its own way: options, JSON, cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s, parse_size_bytes

# -- Numbers of GPUs a job can run on, as people write them: `4`, `1..4`, `1,2,4`.

CORES_MAX: Final = 65_536
GPUS_MAX: Final = 4096  # GPUs of one job; far above any machine's, low enough to list

_FORMS: Final = f"a number of GPUs from 0 to {GPUS_MAX}, a range as 1..4, or sizes as 1,2,4"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of GPUs from text, ascending, each once; one number for a job of one size.

    Raises ValueError: it is not of that form, a range runs backwards, or 0 stands among others.
    """
    first, dots, last = text.partition("..")
    counts = [_count(part) for part in ([first, last] if dots else text.split(","))]
    if None in counts:
        raise ValueError(f"must be {_FORMS}, got {text[:60]!r}")
    known = [count for count in counts if count is not None]
    if dots and known[0] > known[1]:
        raise ValueError(f"the smallest number of GPUs comes first: {known[1]}..{known[0]}, got {text!r}")
    return check_sizes(range(known[0], known[1] + 1) if dots else known)


def check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """The same sizes ascending, each once.

    Raises ValueError: there is none, one is out of bounds, or 0 stands among others.
    """
    found = tuple(sorted(set(sizes)))
    if not found or found[0] < 0 or found[-1] > GPUS_MAX:
        got = f", got {describe_sizes(found)[:60]}" if found else ""
        raise ValueError(f"must be {_FORMS}{got}")
    if found[0] == 0 and len(found) > 1:
        raise ValueError("0 is no size among others: a job without GPUs asks for 0 alone; let the sizes begin at 1")
    return found


def groups_problem(sizes: Sequence[int], gpus_per_node: int) -> str | None:
    """What is wrong with a job of these sizes that is to have so many GPUs on each of its nodes; None: nothing.

    Args:
        sizes: Numbers of GPUs it can run on, or the only one.
        gpus_per_node: As its owner asks; 0 for a job that leaves it open.
    """
    uneven = [gpus for gpus in sizes if gpus_per_node and gpus % gpus_per_node]
    if not uneven:
        return None
    even = [gpus for gpus in sizes if not gpus % gpus_per_node] or [-(-uneven[0] // gpus_per_node) * gpus_per_node]
    have = f"{uneven[0]} GPUs cannot lie on nodes with {gpus_per_node} of them each"
    return f"{have}: ask for multiples of {gpus_per_node}, as gpus {describe_sizes(tuple(even))}"


def describe_sizes(sizes: tuple[int, ...]) -> str:
    """Sizes as people write them, a range where they are one."""
    if len(sizes) > 2 and sizes[-1] - sizes[0] < len(sizes) and sizes == tuple(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ",".join(map(str, sizes))


def _count(part: str) -> int | None:
    """None for what is no number of GPUs, or far too long to be one."""
    return int(part) if part.strip().isdecimal() and len(part) <= len(str(GPUS_MAX)) + 2 else None


EXACT_MAX: Final = 2**53  # largest integer that every JSON reader keeps exactly

TIME_MAX_S: Final = 1e12  # longest time that may be named; for finite sums alone

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
