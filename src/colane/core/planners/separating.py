"""What is done about jobs that are slower in company than was predicted: the cheapest means that loses no work.

In this order: the newest that can takes turns with the others in one lane; the newest that can gives its GPU up at its
boundary and goes on later where it has one to itself (on cpu devices on any that is free, else on the same one); the
newest that is preemptible is stopped. Where none of these can be done, it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.lifecycle import MOVABLE
from colane.core.planners.overflow import may_take_turns
from colane.lanes.turns import SHARED
from colane.model.job import Job, JobId, JobState
from colane.model.lane import Turns
from colane.model.reason import Reason, Why

Facts = dict[str, str | int | float]


class Separation:
    """One company on the GPU where it is largest.

    Args:
        draft: Where actions go.
        load: The GPU.
        job: The one that is too slow.
        facts: By what numbers.
        said: How long the stories of jobs were once it was said of them that nothing can be done; this is said again
            only where a job's story has gone on since.
    """

    def __init__(self, draft: Draft, load: GpuLoad, job: Job, facts: Facts, said: dict[JobId, int]) -> None:
        self._draft = draft
        self._load = load
        self._job = job
        self._said = said
        self._facts: Facts = {"gpu": str(load.id), **facts}
        self._newest_first = [draft.view.job(booking.job) for booking in reversed(load.bookings)]

    def carry_out(self, turns: Turns) -> None:
        """Do the first of the means that can be done."""
        means: tuple[Callable[[], bool], ...] = (self._park, self._stop)
        if turns.rule in SHARED:
            means = (self._take_turns, *means)
        if not any(do() for do in means) and self._job.state is JobState.RUNNING and not self._is_to_come():
            self._say()

    def _take_turns(self) -> bool:
        """Bring the newest into the lane of the oldest, if they run in several."""
        lane = self._load.bookings[0].lane
        mates = [booking.job for booking in self._load.bookings if booking.lane == lane]
        lanes = {booking.job: booking.lane for booking in self._load.bookings}
        for one in self._newest_first:
            if lanes[one.id] != lane and may_take_turns(self._draft.view, one.id, mates):
                reason = Reason(Why.TURNS_INSTEAD, {**self._facts, "job": self._job.id, "lane": lane}, tuple(mates))
                self._draft.move(one, [self._draft.load(self._load.id)], reason, [lane])
                return True
        return False

    def _park(self) -> bool:
        for one in self._newest_first:
            if self._draft.view.parking_refusal(one) is None:
                self._draft.park(one, self._reason(Why.PARKED_TOO_SLOW, one), isolate=True)
                return True
        return False

    def _stop(self) -> bool:
        for one in self._stoppable():
            if one.state in MOVABLE:
                # what they achieved is learnt first, so that their like is not brought together again
                self._draft.stop(one, self._reason(Why.TOO_SLOW_TOGETHER, one), learn=True, isolate=True)
                return True
        return False

    def _stoppable(self) -> Sequence[Job]:
        return [
            one for one in self._newest_first if one.effective.preemptible and one.placement and _is_on_one_node(one)
        ]

    def _is_to_come(self) -> bool:
        """Whether somebody may be stopped later, once it is not protected any more."""
        return bool(self._stoppable())

    def _reason(self, why: Why, gone: Job) -> Reason:
        return Reason(why, {**self._facts, "job": self._job.id}, self._others(gone))

    def _others(self, one: Job) -> tuple[JobId, ...]:
        return tuple(sorted(each.id for each in self._newest_first if each is not one))

    def _say(self) -> None:
        job = self._job
        if self._said.get(job.id) != job.changes:
            self._said[job.id] = job.changes + 1
            self._draft.remark(job, Reason(Why.SLOW_TOGETHER, self._facts, self._others(job)))


def _is_on_one_node(job: Job) -> bool:
    return job.placement is not None and len(job.placement.nodes) == 1
