"""Bandwidth between cores and host memory: how much of a node's each job uses, and which jobs are throttled."""

from __future__ import annotations

from typing import Final, NamedTuple, final


@final
class BandwidthSample(NamedTuple):
    """What an agent saw over one interval. Ratios are parts of all the bandwidth that the node has.

    Attributes:
        at_s: When the interval ended.
        used_ratio: What all jobs together used; None where it is not known what the node has.
        by_job: What each job used.
        by: What measured it, as `BY_RESCTRL`.
        can_limit: Whether the machine can bound the bandwidth of a job (Intel MBA, AMD's QoS).
    """

    at_s: float
    used_ratio: float | None
    by_job: tuple[tuple[int, float], ...] = ()
    by: str = ""
    can_limit: bool = False


BY_RESCTRL: Final = "resctrl"
BY_WORLD: Final = "world"
"""A simulation knows it."""
BY_MISSES: Final = "cache-misses"
BY_CPU_TIME: Final = "cpu-time"
"""No counter at all: an estimate, as if every busy core used an equal part of the bandwidth."""


@final
class Throttle(NamedTuple):
    """How a job without GPUs is held back, for training jobs on its node.

    Attributes:
        cores: The cores it may use.
        withheld: Cores it books and has given up: it gets them back, and no job with GPUs takes them meanwhile.
        bandwidth_ratio: Part of the bandwidth of the memory behind its cores that it may use; 1 does not bound it.
    """

    cores: tuple[int, ...]
    withheld: tuple[int, ...] = ()
    bandwidth_ratio: float = 1.0
