"""A running attempt in virtual time: how much is left, how fast it goes, since when; and the GPUs such run on."""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.lab.simulate.world import Running
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId


@dataclass(slots=True, eq=False)
class PoolUse:
    """How many GPUs a pool has, how many of them carry jobs, and how many jobs wait for it."""

    gpus: int = 0
    active: int = 0
    waiting: int = 0


@dataclass(slots=True, eq=False)
class GpuUse:
    """One GPU."""

    id: GpuId  # which
    pool: PoolUse  # its node's
    processes: dict[JobId, Process] = field(default_factory=dict)  # those on it, in order of start
    is_active: bool = False  # whether there is any, as was counted last
    utilized: float = 0.0  # use its jobs make of it, 0..1, as was counted last
    epoch: int = 0  # grows with every change of the jobs on it


@dataclass(slots=True, eq=False)
class Process:
    """One attempt of one job."""

    id: JobId  # its job
    attempt: int  # number of the attempt
    lanes: tuple[int, ...]  # lanes it is in, by GPU
    running: Running  # the job and where it runs
    work_steps: float  # steps of the whole job
    left_steps: float  # steps left at `since_s`
    saved_steps: float  # steps made before it came to these GPUs, and kept
    durable_steps: float  # those of them that it keeps if its node is lost
    start_s: float  # when the process started
    since_s: float  # since when it has gone at this speed
    uses: tuple[GpuUse, ...] = ()  # its GPUs, in rank order
    alone_steps_per_s: float = 0.0  # its speed with its GPUs to itself and the cores it has
    occupancy_ratio: float | None = None  # part of a GPU it keeps busy alone; None where the world does not know
    steps_per_s: float = 0.0  # its speed
    gpu_share: float = 0.0  # GPUs it is given: of a GPU that carries k jobs each is given 1/k
    gpu_s: float = 0.0  # GPU-seconds it was given up to `since_s`
    is_stepping: bool = False  # whether it has launched and was not asked to stop
    has_begun: bool = False  # whether it has launched
    is_stopping: bool = False  # whether it was asked to stop
    has_failed: bool = False  # whether it has ended as an attempt did that is recorded to have failed: it keeps no step
    is_parking: bool = False  # whether it was parked, and its memory leaves its GPUs
    out_bytes: int | None = None  # how much of it has left them, once that is so; None before
    serial: int = 0  # of its completion on the agenda; an older entry means nothing
    first_step_s: float | None = None  # end of the first step of this attempt
    arrived: int = 0  # its serial number among all starts
    lane_share: float = 1.0  # part of its lane's time it has
    lane_pace: float = 1.0  # its speed by that, as part of its speed with the lane to itself
    lane_part: float = 1.0  # part of its GPU that this is
    turn_efficiency: float = 1.0  # part of its turns that is not lost to passing them on
    paused_s: float = 0.0  # time it waited for its turn, up to `since_s`
    is_loading: bool = False  # whether it launches and that is work of its device
    loading_left_s: float = 0.0  # how much of that is left, in seconds alone
    loading_work_ratio: float = 1.0  # part of it that co-runners slow
    loading_ratio: float = 0.0  # its speed over that alone
    is_sampled: bool = False  # whether what its samples say beside its present co-runners is not known already
    idle_s: float = 0.0  # time it held GPUs and made no step, up to `since_s`

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
        if self.is_loading:
            self.loading_left_s = max(0.0, self.loading_left_s - self.loading_ratio * span_s)
        made = self.steps_per_s * span_s
        if self.first_step_s is None and made > 0:
            self._note_first_step(made)
        self.left_steps = max(0.0, self.left_steps - made)
        self.since_s = now_s

    def _note_first_step(self, made: float) -> None:
        """When the first whole step since the start of this attempt ended, if it has."""
        to_go = min(self.saved_steps + 1 - self.done_steps, self.left_steps)
        if made >= to_go:
            self.first_step_s = self.since_s + to_go / self.steps_per_s


def lanes_of(job: Job) -> tuple[int, ...]:
    """Lanes a job is in, by GPU."""
    return tuple([slot.lane for slot in job.placement.slots]) if job.placement is not None else ()
