"""Sizes and durations as people write them: "2GB", "512MiB", "90s", "1h30m"."""

from __future__ import annotations

import math
import re
from typing import Final

SIZE_UNITS: Final = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
"""Bytes in each unit, lower case: decimal as printed on memory (GB), binary with an i (GiB)."""

DURATION_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds in each unit."""

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*")


def parse_size(text: str) -> int:
    """Return a size in bytes.

    Raises:
        ValueError: Not a size; the message names the units.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in SIZE_UNITS:
        raise ValueError(f"must be a size such as 2GB, 512MiB or 2000000000, got {text[:40]!r}")
    return round(float(found[1]) * SIZE_UNITS[found[2]]) if "." in found[1] else _whole(found[1], found[2])


def _whole(digits: str, unit: str) -> int:
    return int(digits) * SIZE_UNITS[unit]


def parse_rate(text: str) -> int:
    """Return bytes per second, of a size with or without `/s`.

    Raises:
        ValueError: Not a rate; the message names the units.
    """
    try:
        return parse_size(re.sub(r"\s*/\s*s(ec)?$", "", text.strip().lower()))
    except ValueError as error:
        raise ValueError(f"must be bytes per second such as 20GB/s, got {text[:40]!r}") from error


def parse_duration(text: str) -> float:
    """Return a duration in seconds; parts add up ("1h30m").

    Raises:
        ValueError: Not a duration; the message names the units.
    """
    wanted = text.strip().lower()
    parts = _DURATION_PART.findall(wanted)
    whole = "".join(match[0] for match in _DURATION_PART.finditer(wanted)) == wanted
    if not parts or not whole or any(unit not in DURATION_UNITS for _, unit in parts):
        raise ValueError(f"must be a duration such as 90, 90s, 5m, 1h30m or 2d, got {text[:40]!r}")
    return math.fsum(float(number) * DURATION_UNITS[unit] for number, unit in parts)
