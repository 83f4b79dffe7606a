"""What starting, stopping and moving jobs takes on a node, as the description of a cluster states it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from colane.model.hardware import TO_HOST_BYTES_PER_S
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What living takes on a node besides steps."""

    launch_s: float = 0.0  # from start of a process to its stepping
    restart_s: float = 0.0  # added to it where an attempt before has saved anything: loading the saved state
    stop_s: float = 0.0  # from the decision to stop a process, which halts its steps, to its end: saving the state
    park_s: float = 0.0  # parking a job, and bringing it back, each take so long besides moving its memory
    # how fast GPU memory is moved to the host when a job is parked, and back
    to_host_bytes_per_s: float = TO_HOST_BYTES_PER_S
    switch_s: float = 0.0  # passing on the turn of a lane, which no job uses meanwhile

    def move_s(self, size_bytes: int) -> float:
        """How long parking a job with so much GPU memory takes, or bringing it back."""
        return self.park_s + size_bytes / self.to_host_bytes_per_s


def highest(costs: Iterable[Costs]) -> Costs:
    """What a job over several nodes pays: of every cost the highest, as its ranks wait for each other."""
    first, *others = costs
    for other in others:
        worst = {cost.name: max(getattr(first, cost.name), getattr(other, cost.name)) for cost in fields(Costs)}
        worst["to_host_bytes_per_s"] = min(first.to_host_bytes_per_s, other.to_host_bytes_per_s)
        first = replace(first, **worst)
    return first


def parse_to_host(value: object) -> float:
    """Return bytes per second above 0. Raises ValueError: not a bandwidth, or none."""
    found = parse_bandwidth_bytes_per_s(value)
    if not found > 0:
        raise ValueError(f"must be above 0 bytes per second, got {value!r}")
    return found


KEYS: Final[Mapping[str, tuple[str, Callable[[Any], float]]]] = {
    "launch": ("launch_s", parse_duration_s),
    "restart": ("restart_s", parse_duration_s),
    "stop": ("stop_s", parse_duration_s),
    "park": ("park_s", parse_duration_s),
    "to_host": ("to_host_bytes_per_s", parse_to_host),
    "switch": ("switch_s", parse_duration_s),
}
"""Keys of `costs` in a cluster file: the field each sets, and how its value is read."""
