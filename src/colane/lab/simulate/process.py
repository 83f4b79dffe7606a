"""A running attempt in virtual time: how much is left, how fast it goes, since when; and the GPUs such run on."""

from __future__ import annotations

from typing import Final

from colane.lab.simulate.world import Running
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId


class PoolUse:
    """How many GPUs a pool has, how many of them carry jobs, and how many jobs wait for it."""

    __slots__ = ("active", "gpus", "waiting")

    def __init__(self) -> None:
        self.gpus = 0
        self.active = 0
        self.waiting = 0

    @property
    def stranded(self) -> int:
        """GPUs without a job while one waits."""
        return self.gpus - self.active if self.waiting else 0


class GpuUse:
    """One GPU.

    Attributes:
        id: Which.
        pool: Its node's.
        processes: Those on it, in order of start.
        is_active: Whether there is any, as was counted last.
        utilized: Use its jobs make of it, 0..1, as was counted last.
        epoch: Grows with every change of the jobs on it.
    """

    __slots__ = ("epoch", "id", "is_active", "pool", "processes", "utilized")

    def __init__(self, gpu: GpuId, pool: PoolUse) -> None:
        self.id: Final = gpu
        self.pool: Final = pool
        self.processes: Final[dict[JobId, Process]] = {}
        self.is_active = False
        self.utilized = 0.0
        self.epoch = 0


class Process:
    """One attempt of one job.

    Attributes:
        id: Its job.
        running: The job and where it runs.
        uses: Its GPUs, in rank order.
        attempt: Number of the attempt.
        alone_steps_per_s: Its speed with its GPUs to itself and the cores it has.
        occupancy_ratio: Part of a GPU it keeps busy alone; None where the world does not know.
        work_steps: Steps of the whole job.
        left_steps: Steps left at `since_s`.
        start_s: When the process started.
        since_s: Since when it has gone at this speed.
        saved_steps: Steps made before it came to these GPUs, and kept.
        durable_steps: Those of them that it keeps if its node is lost.
        steps_per_s: Its speed.
        gpu_share: GPUs it is given: of a GPU that carries k jobs each is given 1/k.
        gpu_s: GPU-seconds it was given up to `since_s`.
        is_stepping: Whether it has launched and was not asked to stop.
        has_begun: Whether it has launched.
        is_stopping: Whether it was asked to stop.
        has_failed: Whether it has ended as an attempt did that is recorded to have failed: it keeps no step.
        is_parking: Whether it was parked, and its memory leaves its GPUs.
        out_bytes: How much of it has left them, once that is so; None before.
        serial: Of its completion on the agenda; an older entry means nothing.
        first_step_s: End of the first step of this attempt.
        lanes: Lanes it is in, by GPU.
        arrived: Its serial number among all starts.
        lane_share: Part of its lane's time it has.
        lane_pace: Its speed by that, as part of its speed with the lane to itself.
        lane_part: Part of its GPU that this is.
        turn_efficiency: Part of its turns that is not lost to passing them on.
        paused_s: Time it waited for its turn, up to `since_s`.
        is_loading: Whether it launches and that is work of its device.
        loading_left_s: How much of that is left, in seconds alone.
        loading_work_ratio: Part of it that co-runners slow.
        loading_ratio: Its speed over that alone.
        is_sampled: Whether what its samples say beside its present co-runners is not known already.
        idle_s: Time it held GPUs and made no step, up to `since_s`.
    """

    __slots__ = (
        "alone_steps_per_s", "arrived", "attempt", "durable_steps", "first_step_s", "gpu_s", "gpu_share", "has_begun",
        "has_failed", "id", "idle_s", "is_loading", "is_parking", "is_sampled", "is_stepping", "is_stopping",
        "lane_pace", "lane_part", "lane_share", "lanes", "left_steps", "loading_left_s", "loading_ratio",
        "loading_work_ratio", "occupancy_ratio", "out_bytes", "paused_s", "running", "saved_steps", "serial", "since_s",
        "start_s", "steps_per_s", "turn_efficiency", "uses", "work_steps",
    )  # fmt: skip

    def __init__(self, job: Job, running: Running, work_steps: float, saved_steps: float, now_s: float) -> None:
        self.id = job.id
        self.running = running
        self.uses: tuple[GpuUse, ...] = ()
        self.attempt = job.attempt
        self.alone_steps_per_s = 0.0
        self.occupancy_ratio: float | None = None
        self.work_steps = work_steps
        self.left_steps = work_steps - saved_steps
        self.saved_steps = self.durable_steps = saved_steps
        self.start_s = now_s
        self.since_s = now_s
        self.lanes = lanes_of(job)
        self.steps_per_s = 0.0
        self.gpu_share = 0.0
        self.gpu_s = 0.0
        self.is_stepping = False
        self.has_begun = False
        self.is_stopping = False
        self.has_failed = False
        self.is_parking = False
        self.out_bytes: int | None = None
        self.serial = 0
        self.first_step_s: float | None = None
        self.arrived = 0
        self.lane_share = 1.0
        self.lane_pace = 1.0
        self.lane_part = 1.0
        self.turn_efficiency = 1.0
        self.paused_s = 0.0
        self.is_loading = False
        self.loading_left_s = 0.0
        self.loading_work_ratio = 1.0
        self.loading_ratio = 0.0
        self.is_sampled = False
        self.idle_s = 0.0

    @property
    def done_steps(self) -> float:
        """Steps of the job made up to `since_s`, by earlier attempts too."""
        return self.work_steps - self.left_steps

    @property
    def is_busy(self) -> bool:
        """Whether it works on its device, so that others there feel it."""
        return self.is_stepping or self.is_loading

    def settle(self, now_s: float) -> None:
        """Count steps and GPU time since the last change."""
        span_s = now_s - self.since_s
        if span_s <= 0:
            return
        self.gpu_s += self.gpu_share * span_s
        if not self.is_stepping and self.running.gpus:
            self.idle_s += span_s
        if self.lane_pace < 1 and self.is_stepping:
            self.paused_s += (1 - self.lane_pace) * span_s
        self.loading_left_s = max(0.0, self.loading_left_s - self.loading_ratio * span_s)
        made = self.steps_per_s * span_s
        if self.first_step_s is None and made > 0:
            self._note_first_step(made)
        self.left_steps = max(0.0, self.left_steps - made)
        self.since_s = now_s

    def _note_first_step(self, made: float) -> None:
        """When the first whole step since the start of this attempt ended, if it has."""
        to_go = self.saved_steps + 1 - self.done_steps
        if made >= min(to_go, self.left_steps):
            self.first_step_s = self.since_s + min(to_go, self.left_steps) / self.steps_per_s


def lanes_of(job: Job) -> tuple[int, ...]:
    """Lanes a job is in, by GPU."""
    return tuple([slot.lane for slot in job.placement.slots]) if job.placement is not None else ()
