"""Whether jobs keep to their turns: a rule on what the driver says of the kernels of their processes.

A thread or a second process of a job that asks for no turn computes in those of others, and its memory within a step
counts twice. The part of the time in which a job's kernels ran is compared to that in which it had its lanes. The
driver samples it over a period of its own, so a difference is a suspicion only: the job is then kept at its boundary
for a moment, in which nothing of it may run. One that computes there is let run without turns, and booked like that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from colane.agent.gate.values import Seen
from colane.model.words import percent

SUSPECT_RATIO: Final = 0.05
"""So much more than its turns a job's kernels run, on average over `WINDOWS` samples, before it is looked at. A turn
is seldom full of kernels, and what runs in others' may hide in what its own leave: so each is looked at once whatever
it runs, after its first turns, but for what answers requests, which would wait. Of one that waits nothing runs: what
drivers, which count in hundredths, tell twice is found.
"""
WINDOWS: Final = 3
CHECK_S: Final = 2.5  # a job is kept so long before its kernels are looked at: drivers sample over up to a second
CLEARED_S: Final = 600.0
"""One that was found to wait is not looked at again for so long, and after each further look for twice as long."""

LEAKS: Final = (
    "computes in the turns of others: while it waited, kernels of its threads or processes ran {busy} of the time; "
    "it runs beside its lane, without turns"
)

UNCHECKED: Final = (
    "turns of jobs are not checked: the driver does not tell what each process runs here (it counts processes of "
    "another pid namespace, or the GPU is a MIG instance)"
)


@dataclass(slots=True)
class _Suspect:
    """What is known of one job."""

    service_s: float
    at_s: float
    excess_ratio: float = 0.0
    windows: int = 0
    checked_s: float | None = None
    parked_s: float | None = None
    is_doubted: bool = False
    quiet_until_s: float = 0.0
    quiet_s: float = CLEARED_S


class TurnAudit:
    """Follows all jobs of a node."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Suspect] = {}
        self._known: set[int] = set()  # jobs that were looked at
        self.found: dict[int, str] = {}
        """Why jobs have no turns any more, by job."""

    def is_checked(self, job: int) -> bool:
        """Whether it shall stay at its boundary, to be looked at."""
        return job in self._jobs and self._jobs[job].checked_s is not None

    def look(
        self, now_s: float, seen: Mapping[int, Seen], busy: Mapping[int, float | None], here: Collection[int]
    ) -> None:
        """Take a sample.

        Args:
            now_s: Monotonic time.
            seen: How jobs fare that share a lane.
            busy: Of jobs, the part of the time in which their kernels ran, in the time since the last sample.
            here: All jobs of this node.
        """
        self.found = {job: why for job, why in self.found.items() if job in here}
        self._known.intersection_update(here)
        self._jobs = {job: one for job, one in self._jobs.items() if job in seen and job not in self.found}
        for job, stands, busy_ratio in self._judged(seen, busy):
            one = self._jobs.setdefault(job, _Suspect(stands.service_s, now_s))
            if one.checked_s is None:
                self._compare(job, one, stands, busy_ratio, now_s)
            elif not stands.is_parked or one.parked_s is None:
                one.parked_s = now_s if stands.is_parked else None
            elif now_s >= one.parked_s + CHECK_S:
                self._decide(job, one, stands, busy_ratio, now_s)

    def _judged(self, seen: Mapping[int, Seen], busy: Mapping[int, float | None]) -> Iterator[tuple[int, Seen, float]]:
        for job, stands in seen.items():
            ratio = busy.get(job)
            is_gated = stands.state in {"running", "waiting"} or self.is_checked(job)
            if ratio is not None and is_gated and job not in self.found:
                yield job, stands, ratio
            elif job in self._jobs and not is_gated:
                del self._jobs[job]

    def _compare(self, job: int, one: _Suspect, stands: Seen, busy_ratio: float, now_s: float) -> None:
        if (window_s := now_s - one.at_s) <= 0.0:
            return
        excess = busy_ratio - (stands.service_s - one.service_s) / window_s
        one.service_s, one.at_s, one.windows = stands.service_s, now_s, one.windows + 1
        one.excess_ratio += (excess - one.excess_ratio) / min(one.windows, WINDOWS)
        is_new = job not in self._known and stands.service_s >= CHECK_S and not stands.answers
        is_suspect = one.windows > WINDOWS and (is_new or one.excess_ratio > SUSPECT_RATIO)
        is_other = any(other.checked_s is not None for other in self._jobs.values())  # its turns are those it would use
        if is_suspect and not is_other and now_s >= one.quiet_until_s:
            one.checked_s = now_s

    def _decide(self, job: int, one: _Suspect, stands: Seen, busy_ratio: float, now_s: float) -> None:
        if busy_ratio and one.is_doubted:
            self.found[job] = LEAKS.format(busy=percent(busy_ratio))
            del self._jobs[job]
            return
        one.is_doubted = busy_ratio > 0.0
        if one.is_doubted:
            return
        one.checked_s = one.parked_s = None
        self._known.add(job)
        one.service_s, one.at_s, one.windows, one.excess_ratio = stands.service_s, now_s, 0, 0.0
        one.quiet_until_s, one.quiet_s = now_s + one.quiet_s, 2 * one.quiet_s
