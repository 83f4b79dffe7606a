"""From when to when devices were broken, or kept for a job: what a timeline draws where no job was.

It is looked at now and then, kept in memory, and begun anew with the scheduler: of a time before that nothing is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

MARKS_MAX: Final = 4_000  # the last ones that are over

BROKEN: Final = "broken"
KEPT: Final = "kept"


class DeviceMark(NamedTuple):
    """What a device was."""

    gpu: str  # which, as `node/number`
    kind: str  # `BROKEN` or `KEPT`
    job: int | None  # for which job it was kept; None where it was broken, or is kept for none in particular
    since_s: float  # when that was seen first, unix time
    until_s: float | None = None  # when it was seen to be over; None while it holds


class DeviceMarks:
    """Intervals in which devices were broken or kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], DeviceMark] = {}
        self._over: deque[DeviceMark] = deque(maxlen=MARKS_MAX)

    def take(self, kind: str, now_s: float, jobs: Mapping[str, int | None]) -> None:
        """Note which devices are of a kind now, and for which job each is."""
        for key, mark in list(self._open.items()):
            if mark.kind == kind and (mark.gpu not in jobs or jobs[mark.gpu] != mark.job):
                self._over.append(mark._replace(until_s=now_s))
                del self._open[key]
        for gpu, job in jobs.items():
            self._open.setdefault((gpu, kind), DeviceMark(gpu, kind, job, now_s))

    def between(self, since_s: float, until_s: float) -> Iterator[DeviceMark]:
        """Yield what lies in a time, or reaches into it."""
        for mark in (*self._over, *self._open.values()):
            if mark.since_s < until_s and (mark.until_s is None or mark.until_s > since_s):
                yield mark
