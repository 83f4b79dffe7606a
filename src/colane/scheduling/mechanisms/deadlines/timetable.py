"""When jobs that have GPUs of their own would end: a calculation over numbers, with nothing of the cluster in it.

Each job has its GPUs from the start. On each GPU jobs go in order of their deadlines, after what is there now. So the
jobs before one are the same whatever ends when, and one that ends sooner than believed makes none end later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from colane.model.hardware import GpuId
from colane.model.job import JobId


class Seated(NamedTuple):
    """A job that waits for GPUs that are its own."""

    due_s: float  # when it is to have ended
    job: JobId  # its id, by which jobs of one deadline are in order
    gpus: tuple[GpuId, ...]  # they
    takes_s: float  # from the moment that the last of them is to be left for it, until it has ended at the latest


def ends_s(seated: Iterable[Seated], left_s: Mapping[GpuId, float]) -> dict[JobId, float]:
    """When each would have ended at the latest.

    Args:
        seated: The jobs, in any order.
        left_s: When what is on their GPUs now has left them, or may be asked to.
    """
    ends: dict[JobId, float] = {}
    free_s = dict(left_s)
    for one in sorted(seated):
        end_s = max([free_s[gpu] for gpu in one.gpus]) + one.takes_s
        ends[one.job] = end_s
        for gpu in one.gpus:
            free_s[gpu] = end_s
    return ends


def is_kept(seated: Iterable[Seated], newcomer: Seated, left_s: Mapping[GpuId, float]) -> bool:
    """Whether a newcomer would end in time, and each of the others in time or no later than without it."""
    others = list(seated)
    before, after = ends_s(others, left_s), ends_s([*others, newcomer], left_s)
    if after[newcomer.job] > newcomer.due_s:
        return False
    return all(after[one.job] <= max(one.due_s, before[one.job]) for one in others)


def earliest_s(seated: Iterable[Seated], newcomer: Seated, left_s: Mapping[GpuId, float]) -> float:
    """The earliest deadline for a newcomer on these GPUs that could be kept, found among two: infinite where none is.

    Behind all others it delays none; where it may go before some, its end is the same or sooner.
    """
    others = list(seated)
    last = newcomer._replace(due_s=inf)
    end_s = ends_s([*others, last], left_s)[newcomer.job]
    if end_s == inf or is_kept(others, newcomer._replace(due_s=end_s), left_s):
        return end_s
    return max([end_s, *[one.due_s for one in others]])
