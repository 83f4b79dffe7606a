"""Jobs as they count on a GPU that they share, by number: of those that are alike one need be looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

from colane.core.cluster.load import Booking
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
    """See the module.

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
