"""A bare loop of an order: when jobs of a line have their GPUs, where what runs ends then, and each is so long."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

FAR_S: Final = 1e8  # what never has room starts after so long


def starts_in_s(
    free: int, running: Sequence[tuple[float, int]], line: Sequence[int], length_s: Sequence[float]
) -> list[float]:
    """Return in how many seconds each job of a line starts; none starts before the one in front of it.

    Args:
        free: GPUs that no job has.
        running: In how many seconds which GPUs come free.
        line: GPUs that each asks for, the first first.
        length_s: How long each runs.
    """
    ends, now_s, found = list(running), 0.0, list[float]()
    heapify(ends)
    for gpus, long_s in zip(line, length_s, strict=True):
        while free < gpus and ends:
            at_s, more = heappop(ends)
            now_s, free = max(now_s, at_s), free + more
        if free < gpus:
            now_s = FAR_S
        while ends and ends[0][0] <= now_s:
            free += heappop(ends)[1]
        found.append(now_s)
        free -= gpus
        heappush(ends, (now_s + long_s, gpus))
    return found
