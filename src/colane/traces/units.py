"""Amounts with a unit, as people write them in cluster files."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z/]*)\s*")
_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_RATES = {f"{unit}/s": float(factor) for unit, factor in _BYTES.items()} | {
    "Mb/s": 10**6 / 8,
    "Gb/s": 10**9 / 8,
}


def parse_bytes(value: object) -> int:
    """Bytes of `16GB`, `12196MiB` or a whole number of bytes.

    Raises:
        ValueError: Anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return round(_amount(value, {key: float(factor) for key, factor in _BYTES.items()}, "16GB or 12196MiB"))


def parse_bytes_per_s(value: object) -> float:
    """Bytes per second of `100GB/s`, `10Gb/s` (bits), or a number of bytes per second.

    Raises:
        ValueError: Anything else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return _amount(value, _RATES, "100GB/s or 10Gb/s")


def _amount(value: object, units: dict[str, float], example: str) -> float:
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None or match["unit"] not in units:
        raise ValueError(f"expected an amount like {example}, got {value!r}")
    return float(match["number"]) * units[match["unit"]]
