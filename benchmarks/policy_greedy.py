"""A bare greedy loop to hold policies against, of sixty lines and without any part of Colane.

At every event the first jobs in the order get a GPU each, and the others join one where the sum of speeds rises most,
one joiner a GPU, as far as the memory they declare fits; it knows all speeds, and moving is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

Speeds = Callable[[int, int], tuple[float, float]]
"""Speeds of two jobs together, each over its own alone; zeros where they do not fit."""


def greedy(submit_s: Sequence[float], alone_s: Sequence[float], speeds: Speeds, gpus: int, order: str) -> list[float]:
    """When each job ends; `order` is `shortest`, `longest` or `arrival`."""
    left, end_s = list(alone_s), [inf] * len(alone_s)
    living: list[int] = []
    now_s, came = 0.0, 0
    while came < len(submit_s) or living:
        sign = {"shortest": 1.0, "longest": -1.0, "arrival": 0.0}[order]
        living.sort(key=lambda job: (sign * left[job], job))
        speed = _paired(living, speeds, gpus)
        ends = min((now_s + left[job] / rate for job, rate in speed.items() if rate > 0), default=inf)
        then_s = min(ends, submit_s[came] if came < len(submit_s) else inf)
        for job, rate in speed.items():
            left[job] -= rate * (then_s - now_s)
        now_s = then_s
        for job in [job for job in living if left[job] <= 1e-6]:
            living.remove(job)
            end_s[job] = now_s
        while came < len(submit_s) and submit_s[came] <= now_s:
            living.append(came)
            came += 1
    return end_s


def _paired(ordered: Sequence[int], speeds: Speeds, gpus: int) -> dict[int, float]:
    """The first of the order get a GPU each; of the others each joins where the sum of speeds rises most."""
    speed = dict.fromkeys(ordered[:gpus], 1.0)
    single = list(ordered[:gpus])
    for job in ordered[gpus:]:
        best, host = 1.0, -1
        for other in single:
            together = sum(speeds(other, job))
            if together > best:
                best, host = together, other
        if host >= 0:
            single.remove(host)
            speed[host], speed[job] = speeds(host, job)
    return speed
