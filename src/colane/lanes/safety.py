"""The safety condition of one GPU (paper B, section 3.3): sum of P + sum of lane sizes <= capacity.

A lane is as large as the largest ephemeral need in it, so at least one job of every lane can always proceed.
"""

from __future__ import annotations

from collections.abc import Iterable

from colane.model.profile import Memory


def needed_bytes(members: Iterable[tuple[int, Memory]]) -> int:
    """Memory that jobs, given as (lane, memory), need together: sum of P + sum over lanes of the largest E."""
    persistent = 0
    lanes: dict[int, int] = {}
    for lane, memory in members:
        persistent += memory.persistent_bytes
        lanes[lane] = max(lanes.get(lane, 0), memory.ephemeral_bytes)
    return persistent + sum(lanes.values())


def has_room_for_caches(members: Iterable[tuple[int, Memory]], capacity_bytes: int) -> bool:
    """Whether every job, given as (lane, memory), may keep what it needed within a step while it waits for its turn.

    The safety condition counts the largest E of a lane only, for one job of it runs at a time. A framework that keeps
    freed memory for its next step holds its own E at all times; where these do not all fit, it must give it back.
    """
    return sum(memory.persistent_bytes + memory.ephemeral_bytes for _, memory in members) <= capacity_bytes


def is_safe(members: Iterable[tuple[int, Memory]], capacity_bytes: int) -> bool:
    """Whether jobs, given as (lane, memory), can share a GPU of that capacity."""
    return needed_bytes(members) <= capacity_bytes
