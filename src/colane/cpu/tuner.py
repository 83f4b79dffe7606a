"""How many CPU cores a training job needs, found by trying while it runs (CODA, paper D, section IV-B).

Speed rises about linearly with cores up to what a job needs and hardly changes beyond. A tuner is a pure function: from
what was tried so far it says what to try next, so it can be stopped, asked again and explained at any time.

Tuners count cores of one GPU: a job on several GPUs of a node is given so many times that (need is linear in GPUs,
ibid.). What is too much of that, as one core for each GPU is a large step there, `trim` takes away (ours).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import ceil, isqrt
from types import MappingProxyType
from typing import NamedTuple

EPSILON_RATIO = 0.02
"""Speeds that differ by less than this part count as equal; the paper says "better" and no more."""

STEPS_MAX = 4
"""Tries after the start that `linear` takes at most: what the paper's cases took (Table II)."""


class TunerName(StrEnum):
    """Ways to look for the right number."""

    STEP = "step"
    """The paper's: one core up or down at a time."""
    LINEAR = "linear"
    """Along the line through the origin to where the best speed is reached, then one up or down."""


class CoreTry(NamedTuple):
    """Cores that a job had for a while, and how fast it went."""

    cores: int  # cores for each of its GPUs, at least 1
    speed: float  # mean of its samples, steps per second or any measure in proportion to them
    # part of the time its GPU was busy, 0..1, where it had it alone; None where that says nothing
    utilisation: float | None = None


Tuner = Callable[[Sequence[CoreTry], int], int | None]
"""From what was tried, the start first, and the most cores it could have: what to try next, None once it is found.

It may ask for more than it could have now, where it had more before.
"""


def found(tried: Sequence[CoreTry], epsilon_ratio: float = EPSILON_RATIO) -> CoreTry:
    """The right number of those tried: the fewest cores whose speed is within epsilon of the best.

    Args:
        tried: At least one.
        epsilon_ratio: See `EPSILON_RATIO`.
    """
    latest = _by_cores(tried)
    best = max([one.speed for one in latest.values()])
    enough = [one for one in latest.values() if one.speed >= best * (1 - epsilon_ratio)]
    return min(enough, key=lambda one: one.cores)


def step(tried: Sequence[CoreTry], cores_max: int) -> int | None:
    """The paper's tuner: one core fewer while that is no worse, else one core more while that is better."""
    speeds = {cores: one.speed for cores, one in _by_cores(tried).items()}
    start = tried[0].cores
    low = best = start
    while low > 1:
        if low - 1 not in speeds:
            return low - 1
        if speeds[low - 1] < speeds[best] * (1 - EPSILON_RATIO):
            break
        low -= 1
        best = max(best, low, key=speeds.__getitem__)
    high = start
    while low == start and high < cores_max:
        if high + 1 not in speeds:
            return high + 1
        if speeds[high + 1] <= speeds[high] * (1 + EPSILON_RATIO):
            break
        high += 1
    return None


def linear(tried: Sequence[CoreTry], cores_max: int) -> int | None:
    """From the best speed and a slower try, along the line through the origin to the fewest cores that reach it.

    The best speed is that with the most cores it could have, tried first, or, where the utilisation of its GPU is
    known, what full utilisation would give. What lies too low or high ends up between the largest number that was too
    few and the smallest that was enough, and is found when they are neighbours, or after `STEPS_MAX` tries.
    """
    if len(tried) > STEPS_MAX:
        return None
    latest = _by_cores(tried)
    aim, most = max([_aim(one) for one in latest.values()]), max(cores_max, *latest)
    few = [one for one in latest.values() if one.speed < aim * (1 - EPSILON_RATIO) and one.cores < most]
    enough = [one.cores for one in latest.values() if one.speed >= aim * (1 - EPSILON_RATIO)]
    if len(latest) == 1 and tried[0].utilisation is None and tried[0].cores < cores_max:
        return cores_max
    high = min(enough, default=most + 1)
    low = max([one for one in few if one.cores < high], key=lambda one: one.cores, default=None)
    if low is None:
        return None if high <= 1 else max(1, min(high - 1, isqrt(high)))
    if high - low.cores <= 1:
        return None
    return max(low.cores + 1, min(high - 1, ceil(low.cores * aim / low.speed))) if low.speed > 0 else high - 1


def next_total(tuner: Tuner, tried: Sequence[CoreTry], cores_max: int, gpus: int, changes: int) -> int | None:
    """What a job on several GPUs is to try next: as many cores for each as its tuner says, then a few less in all.

    Args:
        tuner: The tuner.
        tried: Cores of all its GPUs together, the start first.
        cores_max: Most it could have, in all.
        gpus: How many it has.
        changes: How often its cores were changed; after `STEPS_MAX` nothing is trimmed: the next of its
            kind goes on.

    Returns:
        Cores of all its GPUs together, more than `cores_max` where it had more before; None once they are found.
    """
    whole = [_counted(one, one.cores // gpus) for one in tried if one.cores % gpus == 0]
    if not whole:
        rounded = max(1, tried[0].cores // gpus) * gpus
        return rounded if rounded <= cores_max else None
    if tried[0].cores % gpus:
        whole.insert(0, found(whole))
    wanted = tuner(whole, max(1, cores_max // gpus))
    if wanted is not None:
        return wanted * gpus
    return trim(tried, gpus) if changes < STEPS_MAX else None


def trim(tried: Sequence[CoreTry], gpus: int) -> int | None:
    """Half way between what was enough and what was too few, where they differ by less than a core for each GPU."""
    right = found(tried).cores
    best = max([one.speed for one in tried])
    few = [one.cores for one in tried if one.cores < right and one.speed < best * (1 - EPSILON_RATIO)]
    low = max(max(few, default=0), right - gpus)
    return None if right - low <= 1 else (right + low) // 2


def _counted(one: CoreTry, cores: int) -> CoreTry:
    """The same try, counted otherwise."""
    return CoreTry(cores, one.speed, one.utilisation)


def _aim(one: CoreTry) -> float:
    """The speed at which its GPU would always be busy, as far as a try tells."""
    return one.speed if not one.utilisation else one.speed / min(1.0, one.utilisation)


def _by_cores(tried: Sequence[CoreTry]) -> dict[int, CoreTry]:
    """The latest try of each number."""
    return {one.cores: one for one in tried}


TUNERS: Mapping[TunerName, Tuner] = MappingProxyType({TunerName.STEP: step, TunerName.LINEAR: linear})
"""All tuners by name."""
