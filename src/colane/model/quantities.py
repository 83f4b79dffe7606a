"""Amounts as people write them: durations, sizes, bandwidths, whole numbers. The only place that reads them.

Each function takes text or a number, which is in the base unit already (seconds, bytes, bytes per second), and raises
`ValueError` with one sentence, "must be ... such as ..., got ...", for its caller to set the name of the field before.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeGuard

SIZE_UNITS: Final = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
"""Bytes in each unit, lower case: decimal as printed on memory (GB), binary with an i (GiB)."""

BIT_UNITS: Final = {"kb": 125, "mb": 125_000, "gb": 125_000_000, "tb": 125_000_000_000}
"""Bytes in each unit of a network's speed: Gb/s and Gbit/s count bits."""

DURATION_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds in each unit."""

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]*)", re.IGNORECASE)
_PER_S = re.compile(r"\s*/\s*s(ec)?$", re.IGNORECASE)
_BITS = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kMGT]b)|([kMGT]b)its?)", re.IGNORECASE)
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*")
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?")
_SHOWN_MAX: Final = 40


def parse_duration_s(value: object) -> float:
    """Return seconds of `90`, `250ms`, `1h30m` (parts add up), or Slurm's `MM:SS`, `HH:MM:SS`, `D-HH[:MM[:SS]]`.

    A bare number counts seconds (Slurm's counts minutes). Raises ValueError: not a duration; the message names the
    forms.
    """
    if _is_number(value):
        return float(value)
    text = value.strip().lower() if isinstance(value, str) else ""
    found = _clock_s(text) if "-" in text or ":" in text else _parts_s(text)
    if found is None:
        raise _refusal("a duration such as 90, 90s, 5m, 1h30m, 2d or 1-12:00:00", value)
    return found


def _parts_s(text: str) -> float | None:
    parts = [match.groups() for match in _DURATION_PART.finditer(text)]
    whole = "".join(match[0] for match in _DURATION_PART.finditer(text)) == text
    if not parts or not whole or any(unit not in DURATION_UNITS for _, unit in parts):
        return None
    return math.fsum(float(number) * DURATION_UNITS[unit] for number, unit in parts)


def _clock_s(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if max(second or 0, third or 0) > 59:  # minutes and seconds behind a colon
        return None
    if days is None and third is None:  # MM:SS; with days the first is hours
        return 60.0 * (first or 0) + (second or 0)
    return 86400.0 * (days or 0) + 3600.0 * (first or 0) + 60.0 * (second or 0) + (third or 0)


def parse_size_bytes(value: object) -> int:
    """Return bytes of `2GB`, `512MiB`, `4G` (decimal) or a number of bytes.

    Raises ValueError: not a size; the message names the units.
    """
    found = _size_bytes(value)
    if found is None:
        raise _refusal("a size such as 2GB, 512MiB or 2000000000", value)
    return found


def _size_bytes(value: object) -> int | None:
    if isinstance(value, int):
        return value if value >= 0 and not isinstance(value, bool) else None
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = None if match is None else SIZE_UNITS.get(match[2].lower())
    if match is None or unit is None:
        return None
    return round(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_bandwidth_bytes_per_s(value: object) -> float:
    """Return bytes per second of `20GB/s`, `20GB`, `10Gb/s` or `10Gbit/s` (bits: a small b, or the word).

    Raises ValueError: not a bandwidth; the message names the units.
    """
    if _is_number(value):
        return float(value)
    text = _PER_S.sub("", value.strip()) if isinstance(value, str) else None
    bits = None if text is None else _BITS.fullmatch(text)
    if bits is not None and (bits[3] or (bits[2][0].isupper() and bits[2][1] == "b")):
        return float(bits[1]) * BIT_UNITS[(bits[2] or bits[3]).lower()]
    found = _size_bytes(text)
    if found is None:
        raise _refusal("bytes per second such as 20GB/s, or bits such as 10Gb/s", value)
    return float(found)


def parse_count(value: object, least: int = 0, most: int | None = None) -> int:
    """Return a whole number.

    Args:
        value: Digits, with a minus where `least` allows it, or a number.
        least: Smallest allowed.
        most: Largest allowed; None: any.

    Raises:
        ValueError: Not a whole number, or out of range; the message names the range.
    """
    written = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip())
    count = int(str(value)) if written else value
    if isinstance(count, int) and not isinstance(count, bool) and least <= count and (most is None or count <= most):
        return count
    raise _refusal(f"a whole number from {least}" + (" up" if most is None else f" to {most}"), value)


def parse_number(value: object, least: float = 0.0, most: float = math.inf) -> float:
    """Return a finite number. Raises ValueError: not a number, or out of range; the message names the range."""
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        raise _refusal(f"a number from {least:g}" + (" up" if most == math.inf else f" to {most:g}"), value)
    return number


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _refusal(wanted: str, value: object) -> ValueError:
    return ValueError(f"must be {wanted}, got {value[:_SHOWN_MAX] if isinstance(value, str) else value!r}")
