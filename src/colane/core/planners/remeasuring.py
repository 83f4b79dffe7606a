"""The co-runners of a job that has changed since it was measured alone step aside until it was measured again.

When a job goes faster with co-runners than it ever went alone (`perf.observe.Outdated`), its speed alone is no longer
known: the cost of sharing cannot be told, so it would share at any loss. Its co-runners are parked, which
loses no step; policies add none before it is known. Where one of them cannot be parked, all remain.
"""

from __future__ import annotations

from collections.abc import Iterable

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.perf.observe import Outdated


class Remeasuring:
    """The planner that does so."""

    name = "remeasuring"

    def __init__(self) -> None:
        self._changed: list[Outdated] = []

    @property
    def is_due(self) -> bool:
        """Whether a job has changed."""
        return bool(self._changed)

    def notice(self, changed: Iterable[Outdated]) -> None:
        """Take jobs whose speed alone does not hold any more; of several on a GPU the first is measured first."""
        self._changed.extend(changed)

    def plan(self, view: ClusterView) -> Plan:
        """Park the co-runners of each of them."""
        draft, met = Draft(view), set[GpuId]()
        for one in self._changed:
            job = view.jobs.get(one.job)
            for load in [] if job is None else [view.gpu(gpu) for gpu in job.gpus_held]:
                if load.id not in met:
                    met.add(load.id)
                    _step_aside(draft, load, one)
        self._changed.clear()
        return draft.plan()


def _step_aside(draft: Draft, load: GpuLoad, one: Outdated) -> None:
    others = [draft.view.job(booking.job) for booking in load.bookings if booking.job != one.job]
    taken_bytes = 0
    for other in others:
        if not draft.is_undecided(other.id) or draft.parking_refusal(other, taken_bytes) is not None:
            return
        taken_bytes += draft.view.bytes_to_move(other)
    for other in others:
        facts: dict[str, str | int | float] = {"gpu": str(load.id), "job": one.job, "ratio": one.ratio}
        draft.park(other, Reason(Why.MEASURED_ANEW, facts, (one.job,)))
