"""How devices and jobs use what they have at a moment, as agents measure it. None is unknown, and never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from colane.model.bounds import WORD_MAX, Count, MeasuredRatio, ShortWord, Size, several, within
from colane.model.field_values import GPUS_MAX

THROTTLES: Final = ("power-cap", "hw-slowdown", "sync-boost", "thermal", "hw-thermal", "power-brake")
"""Why the clocks of a GPU are below what they could be: NVML's clock event reasons that slow work, in their order."""

THERMAL: Final = frozenset({"thermal", "hw-thermal", "hw-slowdown", "power-brake"})
"""Throttling that says that something is wrong; a power cap is how many GPUs are run."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Of one device, by all processes on it.

    Attributes:
        index: Position in its node.
        busy_ratio: Part of the time in which any kernel ran; of a cpu device, part of its cores' time that was used.
        used_bytes: Memory held by all processes; of a cpu device, by jobs.
        power_w: Power drawn.
        temperature_c: Temperature.
        throttle: Of `THROTTLES`, those that hold now; empty where none does.
        xid: Number of the last error that its driver told of since it started, or fatal and never reset; or None.
    """

    index: Annotated[int, within(0, GPUS_MAX - 1)]
    busy_ratio: MeasuredRatio | None = None
    used_bytes: Size | None = None
    power_w: MeasuredRatio | None = None
    temperature_c: Annotated[float, within(-300, 10_000)] | None = None
    throttle: Annotated[tuple[ShortWord, ...], several(WORD_MAX)] | None = None
    xid: Count | None = None

    @property
    def is_odd(self) -> bool:
        """Whether its driver told of an error, or something is wrong with its clocks."""
        return self.xid is not None or bool(self.throttle and not THERMAL.isdisjoint(self.throttle))


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Of one job on one node, by its own processes.

    Attributes:
        busy_ratio: Part of the time in which its kernels ran, mean over its GPUs; on cpu devices and without GPUs, CPU
            time used of what its cores have.
        device_bytes: Memory that it holds of its devices, all together.
        cpu_cores: Cores it kept busy.
        host_bytes: Host memory that its processes hold (resident sets).
        steps_per_s: Steps made over the last report's interval.
        share_ratio: Part of the time it wanted its lane in which it had it; None where it shares none.
    """

    busy_ratio: MeasuredRatio | None = None
    device_bytes: Size | None = None
    cpu_cores: MeasuredRatio | None = None
    host_bytes: Size | None = None
    steps_per_s: MeasuredRatio | None = None
    share_ratio: MeasuredRatio | None = None
