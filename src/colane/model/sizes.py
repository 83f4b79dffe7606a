"""Numbers of GPUs a job can run on, as people write them: `4`, `1..4`, `1,2,4`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CORES_MAX: Final = 65_536
GPUS_MAX: Final = 4096
"""GPUs of one job; far above any machine's, low enough to list."""

_FORMS: Final = f"a number of GPUs from 0 to {GPUS_MAX}, a range as 1..4, or sizes as 1,2,4"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Numbers of GPUs from text, ascending, each once; one number for a job of one size.

    Raises:
        ValueError: It is not of that form, a range runs backwards, or 0 stands among others.
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

    Raises:
        ValueError: There is none, one is out of bounds, or 0 stands among others.
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
