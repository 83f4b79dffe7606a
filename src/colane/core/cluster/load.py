"""What one GPU carries: immutable values, shared by the state and by drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from colane.model.hardware import EXCLUSIVE, Gpu, GpuId
from colane.model.job import Job, JobId
from colane.model.profile import Memory, ProfileKey
from colane.model.progress import UNGATED
from colane.model.resources import has_room_for_caches, needed_bytes
from colane.perf.estimates import BelievedLoad, Estimates, Load, Terms


@final
@dataclass(unsafe_hash=True, slots=True)
class Booking:
    """One job's hold on one GPU. `memory` is None while unknown; `believed` is where its load is looked up."""

    job: Final[JobId]
    lane: Final[int]
    key: Final[ProfileKey]
    user: Final[str]
    share: Final[bool]
    measurement_group: Final[str | None]
    memory: Final[Memory | None]
    believed: Final[BelievedLoad]
    sharing_domain: Final[str] = ""

    @property
    def load(self) -> Load | None:
        """As it is believed now; None while unknown."""
        return self.believed.value


Weight = tuple[float, float, int]  # sum of C, sum of M, number of jobs: the lighter first (paper A, algorithm 2)


def weight_of(carried: Sequence[BelievedLoad]) -> Weight:
    """Of jobs together; one of which nothing is known weighs nothing."""
    loads = [believed.value for believed in carried if believed.value is not None]
    return sum([load.occupancy for load in loads]), sum([load.bandwidth for load in loads]), len(carried)


def book(job: Job, lane: int, terms: Terms) -> Booking:
    """What a job holds of a GPU in that lane, by present beliefs."""
    spec, memory = job.effective, memory_held(job, terms)
    return Booking(
        job.id,
        lane,
        terms.key,
        spec.user,
        spec.share,
        spec.measurement_group,
        memory,
        terms.believed,
        spec.sharing_domain,
    )


def memory_held(job: Job, terms: Terms) -> Memory | None:
    """What a job may hold of a GPU while others of its lane step, and beyond it in its turn.

    One that runs without turns may hold all it needs at any time, as in a lane of its own.
    """
    if terms.memory is None or job.turn != UNGATED:
        return terms.memory
    return Memory.of_peak(sum(terms.memory))


@final
@dataclass(unsafe_hash=True, slots=True)
class GpuLoad:
    """A GPU and the jobs booked on it.

    `returning` are jobs whose memory lies on the host and that wait to come back: no other job may start here until
    they have. Of a node that is drained it is `closed`: no job is newly given it.
    """

    id: Final[GpuId]
    gpu: Final[Gpu]
    bookings: Final[tuple[Booking, ...]] = ()
    returning: Final[tuple[JobId, ...]] = ()
    closed: Final[bool] = False

    @property
    def is_usable(self) -> bool:
        """Whether it works, and its node takes jobs."""
        return self.gpu.healthy and not self.closed

    @property
    def is_empty(self) -> bool:
        """Whether it works and no job is there or is to come back: a job that lives on its node may have it."""
        return not self.bookings and not self.returning and self.gpu.healthy

    @property
    def capacity_bytes(self) -> int:
        """Memory our jobs may use: usable memory less what foreign processes hold."""
        return self.gpu.capacity_bytes

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Jobs on it, in order of their start."""
        return tuple([booking.job for booking in self.bookings])

    @property
    def is_free(self) -> bool:
        """Whether a job may have it alone."""
        return not self.bookings and not self.returning and self.gpu.healthy and not self.closed

    @property
    def needed_bytes(self) -> int | None:
        """Memory its jobs need by the safety condition; None when some job's is unknown."""
        members = [(b.lane, b.memory) for b in self.bookings if b.memory is not None]
        return needed_bytes(members) if len(members) == len(self.bookings) else None

    @property
    def left_bytes(self) -> int:
        """Memory left over by its jobs; 0 when some job's need is unknown."""
        needed = self.needed_bytes
        return 0 if needed is None else self.capacity_bytes - needed

    @property
    def is_tight(self) -> bool:
        """Whether its jobs must give cached memory back when they yield their turns, for the others' steps."""
        members = [(b.lane, b.memory) for b in self.bookings if b.memory is not None]
        return len(self.bookings) > 1 and not has_room_for_caches(members, self.capacity_bytes)

    @property
    def is_shareable(self) -> bool:
        """Whether all its jobs may have co-runners: sharing allowed, memory known, not being measured or returning.

        The driver gives one that is exclusive to one process only, also while that waits.
        """
        if self.gpu.sharing == EXCLUSIVE:
            return False
        for booking in self.bookings:
            if not booking.share or booking.memory is None or booking.measurement_group is not None:
                return False
        return not self.returning

    @property
    def is_part_of_several(self) -> bool:
        """Whether one job has it, and others besides."""
        return len(self.bookings) == 1 and self.bookings[0].key.gpus > 1

    @property
    def is_joinable(self) -> bool:
        """Whether it carries jobs that may have co-runners: one-GPU jobs of known memory that allow it."""
        return self.is_joinable_by_gangs and not self.carries_gang

    @property
    def is_joinable_by_gangs(self) -> bool:
        """The same where jobs of several GPUs may share, too."""
        return bool(self.bookings) and self.is_usable and self.is_shareable

    @property
    def carries_gang(self) -> bool:
        """Whether a job has it and other GPUs."""
        return any(booking.key.gpus != 1 for booking in self.bookings)

    @property
    def is_open(self) -> bool:
        """Whether a job may join by paper A's rule, which needs the C of every job there and knows of no others."""
        return self.is_joinable and not self.gpu.is_disturbed and all(b.load is not None for b in self.bookings)

    def admits(self, sharing_domain: str) -> bool:
        """Whether all its jobs are in a newcomer's sharing domain."""
        return all(booking.sharing_domain == sharing_domain for booking in self.bookings)

    @property
    def sort_key(self) -> tuple[float, float, int, GpuId]:
        """(sum of C, sum of M, jobs, id): the order of paper A's algorithm 2."""
        return (*weight_of(self.carried), self.id)

    @property
    def carried(self) -> tuple[BelievedLoad, ...]:
        """Where the loads of its jobs are looked up, in order of their start."""
        return tuple([booking.believed for booking in self.bookings])

    @property
    def next_lane(self) -> int:
        """Lowest lane number in no use."""
        if not self.bookings:
            return 0
        used = {booking.lane for booking in self.bookings}
        return next(lane for lane in range(len(used) + 1) if lane not in used)

    def with_booking(self, booking: Booking) -> GpuLoad:
        """The same GPU with one job more."""
        return GpuLoad(self.id, self.gpu, (*self.bookings, booking), self.returning, self.closed)

    def without(self, job: JobId) -> GpuLoad:
        """The same GPU with that job gone."""
        left = self.bookings
        is_its_own = len(left) == 1 and left[0].job == job
        bookings = () if is_its_own else tuple([b for b in left if b.job != job])
        return GpuLoad(self.id, self.gpu, bookings, self.returning, self.closed)

    def in_lane(self, job: JobId, lane: int) -> GpuLoad:
        """The same GPU with that job in another lane."""
        bookings = tuple([replace(b, lane=lane) if b.job == job else b for b in self.bookings])
        return GpuLoad(self.id, self.gpu, bookings, self.returning, self.closed)

    def awaited_by(self, job: JobId, *, returning: bool) -> GpuLoad:
        """The same GPU with that job waiting to come back, or not any more."""
        if returning == (job in self.returning):
            return self
        return replace(self, returning=tuple(sorted({*self.returning} ^ {job})))


def booked_on(job: Job, beliefs: Estimates, loads: Sequence[GpuLoad], lanes: Sequence[int], gpus: int) -> list[GpuLoad]:
    """GPUs with one job more on each, which has so many in all, in a lane of each; equal ones share one result."""
    found: list[GpuLoad] = []
    booking: Booking | None = None
    alone: tuple[Booking, ...] = ()
    for load, lane in zip(loads, lanes, strict=True):
        gpu_type = load.gpu.type
        if booking is None or booking.lane != lane or booking.key.gpu_type != gpu_type:
            booking = book(job, lane, beliefs.terms(job.effective, gpu_type, gpus))
            alone = (booking,)
        bookings = (*load.bookings, booking) if load.bookings else alone
        found.append(GpuLoad(load.id, load.gpu, bookings, load.returning, load.closed))
    return found
