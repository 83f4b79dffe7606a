"""Groups of GPUs that are equal in all that decides what sharing them is worth, and the jobs on them by number.

Of jobs that are alike as co-runners one need be looked at, and so of GPUs on which such jobs are.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from typing import Any, Final, NamedTuple, final

from colane.core.cluster.contents import Kind
from colane.core.cluster.load import Booking, GpuLoad, Weight, weight_of
from colane.model.hardware import GpuId
from colane.model.job import JobSpec, NeedClass
from colane.model.profile import Memory, ProfileKey
from colane.perf.estimates import BelievedLoad
from colane.perf.estimates import Kind as KindOfJob

COMPANIONS_MAX: Final = 1 << 16
"""Kinds of jobs that are told apart; then all begins anew."""


class CoRunner(NamedTuple):
    """All of a job that counts on a GPU it shares: its speed, that of others next to it, and which may join.

    `asked` is the GPU type it asked for, to which its speed is compared. `stays` until its end where it began, if it
    cannot be stopped. `latency_s` is the longest that an answer of it may take.
    """

    key: ProfileKey
    memory: Memory | None
    believed: BelievedLoad
    share: bool
    co_runners: str | None
    sharing_domain: str
    asked: str | None
    utility_min: float
    stays: bool
    latency_s: float | None = None


def co_runner(booking: Booking, spec: JobSpec) -> CoRunner:
    """A job as it counts on a GPU."""
    known = (
        booking.key,
        booking.memory,
        booking.believed,
        booking.share,
        booking.measurement_group,
        booking.sharing_domain,
    )
    return CoRunner(*known, spec.gpu_type, spec.utility_min, not spec.preemptible, spec.latency_s)


Members = tuple[int, ...]
"""Jobs by number, in order of their start."""


def others(members: Members, place: int) -> Members:
    """All but one of them."""
    return (*members[:place], *members[place + 1 :])


@final
class CoRunnerIndex:
    """Jobs as they count on a GPU that they share, by number.

    Attributes:
        specs: One description of each, by its number.
        known: Each, by its number.
        asked: Numbers of jobs that were asked for, see `SharingValues.number`.
    """

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []
        self.known: list[CoRunner] = []
        self.asked: dict[tuple[NeedClass, float, bool, str], int] = {}
        self._numbers: dict[CoRunner, int] = {}
        self._updates: list[int] = []
        self._of_kind: dict[KindOfJob, set[int]] = {}

    def number(self, booking: Booking, spec: JobSpec) -> int:
        """Of a job by number."""
        known = co_runner(booking, spec)
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = len(self.specs)
            self._of_kind.setdefault((known.key.family, known.key.batch_size), set()).add(number)
            self.specs.append(spec)
            self.known.append(known)
            self._updates.append(0)
        return number

    def stamp(self, members: Members) -> int:
        """What was worked out of these holds as long as this stays the same."""
        updates = self._updates
        return sum([updates[number] for number in members])

    def learn(self, kinds: Iterable[KindOfJob]) -> set[int]:
        """Something was learnt of these kinds: it concerns the numbers that are returned."""
        numbers = set[int]().union(*[self._of_kind.get(kind, ()) for kind in kinds])
        for number in numbers:
            self._updates[number] += 1
        for asked in [asked for asked, number in self.asked.items() if number in numbers]:
            del self.asked[asked]
        return numbers


Site = tuple[str, str]
"""A GPU type and a way of sharing, on which speeds of co-runners depend."""


@final
class GpuGroup:
    """GPUs that are alike.

    Attributes:
        kind: Their pool and type.
        site: Their type and way of sharing.
        members: The jobs on each.
        left_bytes: Memory that these leave.
        sharing_domain: Whose jobs may join; None where none may.
        carried: Where the loads of the jobs on each are looked up.
        weight: Sums of these loads, and how many they are, as the group is filed.
        order: Of those of one weight.
        gpus: Those of which nothing was decided in the present plan, in order.
        fresh: Others that may be joined, in order.
        rises: By how much the sum of speeds rises by a job that joins; minus infinity where one is hurt.
        worked_out: What else follows of a job that comes, by its number.
    """

    __slots__ = (
        "carried",
        "fresh",
        "gpus",
        "kind",
        "left_bytes",
        "members",
        "order",
        "rises",
        "sharing_domain",
        "site",
        "weight",
        "worked_out",
    )

    def __init__(self, kind: Kind, members: Members, load: GpuLoad) -> None:
        self.kind: Final = kind
        self.site: Final[Site] = (kind[1], load.gpu.sharing)
        self.order: Final = (*[str(booking.key) for booking in load.bookings], str(load.left_bytes))
        self.carried: Final = load.carried
        self.weight: Weight = weight_of(self.carried)
        self.members: Final = members
        self.left_bytes: Final = load.left_bytes
        self.sharing_domain: Final = sharing_domain_of(load)
        self.gpus: list[GpuId] = []
        self.fresh: list[GpuId] = []
        self.rises: dict[int, float] = {}
        self.worked_out: dict[int, Any] = {}

    @property
    def gpu_count(self) -> int:
        """How many GPUs are in it."""
        return len(self.gpus) + len(self.fresh)

    @property
    def joinable(self) -> Iterable[GpuId]:
        """Both, in order."""
        if not self.gpus:
            return self.fresh
        return merge(self.gpus, self.fresh) if self.fresh else self.gpus


def sharing_domain_of(load: GpuLoad) -> str | None:
    """The domain whose jobs may join."""
    sharing_domain = load.bookings[0].sharing_domain
    return sharing_domain if load.is_foreseeable and load.admits(sharing_domain) else None
