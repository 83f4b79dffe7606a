"""The scale on which times are compared: their ratio matters, and below a minute nothing does."""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY_S: Final = 86_400.0
FELT_S: Final = 60.0

HORIZONS_S: Final = (0.0, 600.0, 3600.0, 6 * 3600.0, DAY_S)
"""From where to where quotes are judged together, by what they said: below 10 min, 1 h, 6 h, a day, and beyond."""


def scaled(time_s: float) -> float:
    """Return a time on that scale."""
    return log(max(time_s, 0.0) + FELT_S)


def unscaled(value: float) -> float:
    """Return the time in seconds again."""
    return max(0.0, exp(min(value, 50.0)) - FELT_S)


def all_scaled(times_s: Floats) -> Floats:
    """Return times on that scale."""
    found: Floats = np.log(np.maximum(times_s, 0.0) + FELT_S)
    return found


def horizon_of(time_s: float) -> int:
    """Return among which quotes one is judged."""
    return max(0, bisect_right(HORIZONS_S, time_s) - 1)
