"""What is known of a job's behaviour, each value with its source and sample count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from colane.model.job_spec import Category

BY_GPM: Final = "nvml-gpm"
"""What measures C on GPUs from Hopper on: warps that are resident, whatever they do. Products of matrices that keep all
of an H100 busy show 0.14 (`lab/papers/measured`)."""


BY_LEFT: Final = "left by others"
"""Says of a step time alone that it is what a step took of the time that others left of its device."""


class ValueSource(StrEnum):
    """Where a value comes from, best first."""

    MEASURED = "measured"
    DECLARED = "declared"
    PREDICTED = "predicted"
    DEFAULT = "default"


class Value(NamedTuple):
    """A number, where it comes from, how many samples stand behind it and what took them."""

    value: float
    source: ValueSource
    samples: int = 1
    by: str = ""


class Memory(NamedTuple):
    """GPU memory of one job: P held between steps, E on top of it within one (paper B, 3.3)."""

    persistent_bytes: int
    ephemeral_bytes: int

    @classmethod
    def of_peak(cls, peak_bytes: int, persistent_bytes: int | None = None) -> Memory:
        """Where P is not known it is all of the peak: with less, jobs would share a lane on no more than a guess."""
        held = peak_bytes if persistent_bytes is None else persistent_bytes
        return cls(held, peak_bytes - held)


class MemoryWindow(NamedTuple):
    """The most that was seen of a kind's memory lately, in whatever attempt.

    Attributes:
        attempts: How many have ended since the window began.
        persistent_bytes: Largest P.
        ephemeral_bytes: Largest E.
    """

    attempts: int
    persistent_bytes: float
    ephemeral_bytes: float


class ProfileKey(NamedTuple):
    """Jobs that share a key are expected to behave the same."""

    family: str
    batch_size: int | None
    gpus: int
    gpu_type: str

    def __str__(self) -> str:
        """Short form for tables."""
        batch = "" if self.batch_size is None else f" b{self.batch_size}"
        count = "" if self.gpus == 1 else f" x{self.gpus}"
        return f"{self.family}{batch}{count} on {self.gpu_type}"


class PlacePace(NamedTuple):
    """Step time in one kind of place, with no job on other GPUs of the same sockets.

    Attributes:
        distance: Sum of the shortest paths between the job's GPUs (paper C, eq. 3).
        step_s: Mean step time there.
    """

    distance: float
    step_s: Value


class CorePace(NamedTuple):
    """Step time with so many cores booked, on all its nodes together."""

    cores: int
    step_s: Value


class Slowdown(NamedTuple):
    """How much slower jobs go next to a neighbour on their sockets.

    Attributes:
        beside: Kind of the neighbour.
        distance: Of the place, as in `PlacePace`.
        ratio: Step time next to it / step time in the same place without neighbours.
    """

    beside: ProfileKey
    distance: float
    ratio: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Behaviour of one key, alone on its GPUs. None is unknown.

    Attributes:
        key: The jobs it describes.
        step_s: Mean step time; of several numbers of cores that of the one with which it is fastest.
        step_median_s: Median step time.
        persistent_bytes: P: GPU memory held between steps, per GPU (paper B).
        ephemeral_bytes: E: peak within a step less P, per GPU.
        overhead_bytes: What one of its processes holds of a GPU outside its allocator's blocks, as a part of P; None
            where P is what an allocator says.
        occupancy: C = sum of occupancy (percent) x kernel time (us) over two steps (paper A, eq. 4.3).
        bandwidth: M = sum of memory-bandwidth use (percent) x kernel time (us) over two steps (eq. 4.2).
        updated_s: When it last changed.
        users: Owners whose jobs it was learnt from.
        places: Step times by how far its GPUs lie from each other, by distance.
        slowdowns: By neighbours on other GPUs of the same sockets, the nearest place of each first.
        core_paces: Step times by cores, ascending, of jobs that book some.
        category: What its jobs work on.
        memory_window: What P and E give way to once enough attempts have ended; None before any was seen.
        answer_p99_s: Of servers: what 99 of 100 answers take, the least that was seen over many of them.
    """

    key: ProfileKey
    step_s: Value | None = None
    step_median_s: Value | None = None
    persistent_bytes: Value | None = None
    ephemeral_bytes: Value | None = None
    overhead_bytes: Value | None = None
    occupancy: Value | None = None
    bandwidth: Value | None = None
    updated_s: float = 0.0
    users: tuple[str, ...] = ()
    places: tuple[PlacePace, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    core_paces: tuple[CorePace, ...] = ()
    category: Category = Category.UNKNOWN
    memory_window: MemoryWindow | None = None
    answer_p99_s: Value | None = None

    @property
    def memory_bytes(self) -> int | None:
        """Peak GPU memory P + E, None when either is unknown."""
        if self.persistent_bytes is None or self.ephemeral_bytes is None:
            return None
        return int(self.persistent_bytes.value + self.ephemeral_bytes.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMeasurement:
    """A set of jobs that really ran together on one GPU.

    Attributes:
        keys: Sorted keys of the set.
        sharing: How they shared: `mps`, `time-slice` or `cpu`.
        step_alone_s: Mean step time alone, in the order of `keys`.
        step_together_s: Mean step time together, in the order of `keys`.
        steps: Steps each made together, in the order of `keys`.
        delta: Eq. 4.1: sum of step times alone / longest step time together.
        delta_general: Same for the steps they really made: work done alone one after another / time together.
        at_s: When it ended.
    """

    keys: tuple[ProfileKey, ...]
    sharing: str
    step_alone_s: tuple[float, ...]
    step_together_s: tuple[float, ...]
    steps: tuple[int, ...]
    delta: float
    delta_general: float
    at_s: float

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Step time together / alone, in the order of `keys`."""
        return tuple(t / a for t, a in zip(self.step_together_s, self.step_alone_s, strict=True))
