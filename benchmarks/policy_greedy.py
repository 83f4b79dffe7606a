"""A bare greedy loop to hold policies against, of a hundred lines and without any part of Colane.

At every event the first jobs in the order get a GPU each, and the others join one where the sum of speeds rises most,
one joiner a GPU, as far as the memory they declare fits; it knows all speeds, and moving is free.

`shadow-price` is the search for the least mean jct: the shortest get a GPU each, and speeds are weighed by what a
second of work on a job saves all jobs, itself and those behind it. What is found is an upper bound of the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

Speeds = Callable[[int, int], tuple[float, float]]
"""Speeds of two jobs together, each over its own alone; zeros where they do not fit."""

SHADOW_PRICE = "shadow-price"
ORDERS = {"shortest": 1.0, "longest": -1.0, "arrival": 0.0, SHADOW_PRICE: 1.0}
"""Orders, and the sign that what is left of a job has in each."""


def greedy(submit_s: Sequence[float], alone_s: Sequence[float], speeds: Speeds, gpus: int, order: str) -> list[float]:
    """When each job ends; `order` is one of `ORDERS`."""
    left, end_s = list(alone_s), [inf] * len(alone_s)
    living: list[int] = []
    now_s, came = 0.0, 0
    while came < len(submit_s) or living:
        sign = ORDERS[order]
        living.sort(key=lambda job: (sign * left[job], job))
        speed = (_priced if order == SHADOW_PRICE else _paired)(living, speeds, gpus)
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


def shadow_price(behind: int, gpus: int) -> float:
    """Job-seconds that a second of work saves on a job with a GPU that so many others come after.

    It ends a second earlier itself, and each of the others a second over the number of GPUs, but for half a round,
    which a job waits on average for those before it in its own.
    """
    return max(1.0, 1 + behind / gpus - 0.5)


def _priced(ordered: Sequence[int], speeds: Speeds, gpus: int) -> dict[int, float]:
    """The first of the order get a GPU each; of all that could join one, those first whose joining is worth most."""
    price = {job: shadow_price(len(ordered) - 1 - place, gpus) for place, job in enumerate(ordered)}
    joins = []
    for host in ordered[:gpus]:
        for job in ordered[gpus:]:
            slowed, joined = speeds(host, job)
            worth = price[job] * joined - price[host] * (1 - slowed)
            if joined > 0 and worth > 0:
                joins.append((-worth, host, job))
    speed = dict.fromkeys(ordered[:gpus], 1.0)
    taken: set[int] = set()
    for _, host, job in sorted(joins):
        if host not in taken and job not in speed:
            taken.add(host)
            speed[host], speed[job] = speeds(host, job)
    return speed
