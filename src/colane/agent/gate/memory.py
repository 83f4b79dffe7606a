"""Which jobs may step next to jobs that run without turns: a pure rule on what jobs book of their devices.

A job that is left out of the turns runs at any time, so it counts as a lane of its own. Where the safety condition
(`is_safe`) does not hold like that, others wait at their step boundaries, where they hold P alone: those in its
lane first, and the youngest of them. It needs no word from the scheduler, which may be unreachable just then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colane.agent.gate.values import Lane
from colane.model.profile import Memory
from colane.model.resources import is_safe, needed_bytes


class Tenant(NamedTuple):
    """A job that holds memory of devices."""

    job: int  # its id
    arrived: int  # order of arrival
    lanes: tuple[Lane, ...]  # its lanes, in order
    memory: Memory | None  # what it books of each device; None where that is not known
    is_ungated: bool  # whether it runs without turns
    is_still: bool  # whether it waits at a boundary for another reason, so that it uses no E


def kept_back(tenants: Sequence[Tenant], capacity_bytes: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Say which jobs must wait at their boundaries, and for which.

    Args:
        tenants: All jobs.
        capacity_bytes: By device, what they may use together; nothing is judged of others.

    Returns:
        By job that has no room, the jobs without turns on its devices.
    """
    found: dict[int, tuple[int, ...]] = {}
    for device, size_bytes in capacity_bytes.items():
        here = [tenant for tenant in tenants if any(lane[0] == device for lane in tenant.lanes)]
        free = tuple(sorted(tenant.job for tenant in here if tenant.is_ungated))
        if free and all(tenant.memory is not None for tenant in here):
            for job in _without_room(here, device, size_bytes):
                found[job] = tuple(sorted({*found.get(job, ()), *free}))
    return found


def _without_room(here: Sequence[Tenant], device: int, size_bytes: int) -> list[int]:
    """Of the jobs of one device, those for whose steps there is no room next to those that cannot be kept."""
    sizes = {tenant.job: tenant.memory or Memory(0, 0) for tenant in here}
    lane_of = {tenant.job: number for tenant in here for index, number in tenant.lanes if index == device}
    # Where they were booked beyond what there is already, turns need no more than before.
    limit_bytes = max(size_bytes, needed_bytes((lane_of[job], size) for job, size in sizes.items()))
    free = {tenant.job for tenant in here if tenant.is_ungated}
    lanes = {lane_of[job] for job in free}
    members = {
        job: (lane_of[job], Memory(sum(size), 0) if job in free else Memory(size.persistent_bytes, 0))
        for job, size in sizes.items()
    }
    kept = []
    others = [tenant for tenant in here if not (tenant.is_ungated or tenant.is_still)]
    for tenant in sorted(others, key=lambda one: (lane_of[one.job] in lanes, one.arrived)):
        tried = {**members, tenant.job: (lane_of[tenant.job], sizes[tenant.job])}
        if is_safe(tried.values(), limit_bytes):
            members = tried
        else:
            kept.append(tenant.job)
    return kept
