"""Which waiting jobs may start: those without a hold. The others are not in the queue that policies see.

A hold keeps a job's place in line and costs it nothing else: `Job.is_waiting` is false, so no order, index, reservation
or round counts it. Each kind of hold has one place that sets it and one that ends it:

| kind | set by | ended by |
| --- | --- | --- |
| `user` | suspending a waiting job; losing GPUs while suspended; being sent back by agents repeatedly | resuming |
| `begin` | a time to begin; being queued again repeatedly after short runs | that time, by a timer; resuming |
| `after` | submitting with a condition on other jobs | that coming true, see `core.reducers.dependencies` |
| `limit` | what would exceed a limit of its user or group, see `core.cluster.limits` | others under the limit ending |
| `array` | being an array; being an element of one of which enough run | others ending, see `core.reducers.arrays` |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

from colane.model.hardware import Node
from colane.model.job import Job, JobSpec
from colane.model.phases import Hold, HoldKind, told
from colane.model.reason import Reason, Why

REASONS: Final[Mapping[HoldKind, Why]] = MappingProxyType(
    {
        HoldKind.USER: Why.HELD,
        HoldKind.BEGIN: Why.BEGINS_LATER,
        HoldKind.AFTER: Why.AFTER,
        HoldKind.ARRAY: Why.ARRAY_LIMIT,
        HoldKind.LIMIT: Why.LIMIT,
    }
)
"""What is told of each kind, in the order in which they are told where a job has several."""


def with_hold(job: Job, hold: Hold) -> tuple[Hold, ...]:
    """The holds of a job with this one, in place of another of its kind."""
    return (*without(job, hold.kind), hold)


def without(job: Job, *kinds: HoldKind) -> tuple[Hold, ...]:
    """The holds of a job but those of these kinds."""
    return tuple([hold for hold in job.holds if hold.kind not in kinds]) if job.holds else ()


def held_until_resumed(job: Job, by: str) -> Job:
    """A job that waits again, and was suspended or is to be: a hold takes the place of its suspension."""
    return job.with_holds(with_hold(job, Hold(HoldKind.USER, by)))


def kept_off(spec: JobSpec, nodes: Iterable[Node], now_s: float) -> tuple[tuple[str, ...], float]:
    """Nodes of its pools that a job may not start on now, as they are reserved for others, and when that is asked anew.

    It might not have ended before: by its time limit, or by its deadline where that is later.
    """
    away, again_s = list[str](), inf
    limits_s = {way.pool: way.time_limit_s for way in spec.pools} or {spec.pool: spec.time_limit_s}
    for node in nodes:
        limit_s = limits_s.get(node.pool)
        most_s = inf if limit_s is None else max(limit_s, spec.deadline_s or 0.0)
        for one in node.reservations if node.pool in limits_s else ():
            if one.to_s <= now_s or spec.user in one.users:
                continue
            if now_s >= one.from_s - most_s:  # as the timer has it
                away.append(node.name)
                again_s = min(again_s, one.to_s)
            else:
                again_s = min(again_s, one.from_s - most_s)
    return tuple(dict.fromkeys(away)), again_s


def hold_reason(job: Job) -> Reason:
    """Why a job with holds does not start: the first of what must happen before it may, whatever else has happened."""
    hold = next(hold for kind in REASONS for hold in job.holds if hold.kind is kind)
    if hold.after is not None:
        waits_for = tuple([each.after for each in job.holds if each.after is not None])
        return Reason(Why.AFTER, {"by": told(waits_for)}, tuple([each.job for each in waits_for]))
    if hold.kind is HoldKind.ARRAY and job.array is not None:
        return Reason(Why.SUBMITTED)
    return Reason(REASONS[hold.kind], {"by": hold.by})
