"""Time in rounds, for orders that would otherwise change from one moment to the next."""

from __future__ import annotations

from math import floor


def round_number(now_s: float, quantum_s: float) -> int:
    """Rounds that are over, counted from time 0: the largest n with n * quantum_s <= now_s."""
    number = floor(now_s / quantum_s)
    if (number + 1) * quantum_s <= now_s:
        return number + 1
    return number - 1 if number * quantum_s > now_s else number


def round_start_s(now_s: float, quantum_s: float) -> float:
    """When the present round began."""
    return round_number(now_s, quantum_s) * quantum_s


def round_end_s(now_s: float, quantum_s: float) -> float:
    """When the present round ends; always after now."""
    return (round_number(now_s, quantum_s) + 1) * quantum_s
