"""Whether servers answer in time beside jobs that came to them, whatever was believed of these.

How long the steps of a job of unknown kind are is not known when it comes to a GPU of servers
(`scheduling.mechanisms.sharing.beside_servers`). When a server that has kept its objective beside it, or before it
came, is seen to miss it, the newest job there that answers no requests leaves by its cheapest means, and shares no GPU
from then on. One that may be neither parked nor stopped is stopped in its first time there alone, in which it has
little to lose.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from colane.core.cluster.answers import LateAnswers, late_answers
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.events import Event, Progressed
from colane.core.planners.splitting import SplitReasons, may_split_off, split_off
from colane.model.job import Job, JobId, JobKind
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.model.story import STEPPING

TRIAL_S: Final = 900.0
"""So long after its start a job is on trial beside servers: it is stopped even if its owner did not allow it."""

LATE: Final = SplitReasons(Why.LATE_ANSWERS, Why.LATE_ANSWERS)


class _Late(NamedTuple):
    """A server that misses its objective, as it has not done before."""

    server: JobId
    answers: LateAnswers


class KeptAnswers:
    """The planner that does so.

    Args:
        state: The cluster's state.
    """

    name = "answers"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: dict[JobId, None] = {}
        self._late: list[_Late] = []

    @property
    def is_due(self) -> bool:
        """Whether a server misses its objective that it has kept before."""
        return bool(self._late)

    def notice(self, events: Iterable[Event]) -> None:
        """Look at the servers of which samples have come in this step."""
        self._late.clear()
        for event in events:
            if isinstance(event, Progressed):
                job = self._state.jobs.get(event.job)
                if job is not None and job.effective.latency_s is not None and job.attempt == event.attempt:
                    self._look(job, event)

    def _look(self, job: Job, event: Progressed) -> None:
        late = late_answers(job, event.progress)
        if late is None:
            self._kept[job.id] = None
        elif job.id in self._kept:
            self._late.append(_Late(job.id, late))

    def plan(self, view: ClusterView) -> Plan:
        """Let the newest leave; what is late already counts against none that comes later."""
        draft = Draft(view)
        self._kept = {job: None for job in self._kept if job in view.jobs}
        for late in self._late:
            server = view.jobs.get(late.server)
            loads = [] if server is None else [view.gpu(gpu) for gpu in server.gpus_held]
            if not [load for load in loads if not _is_settled(draft, load, late)]:
                self._kept.pop(late.server, None)
        return draft.plan()


def _is_settled(draft: Draft, load: GpuLoad, late: _Late) -> bool:
    """Let the newest leave a GPU that may; false while it does not step yet, so that it is looked at again."""
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "job": late.server, **late.answers._asdict()}
    others = [draft.view.job(booking.job) for booking in reversed(load.bookings)]
    others = [one for one in others if one.spec.kind is not JobKind.INFERENCE]
    for one in others:
        if may_split_off(draft, one):
            split_off(draft, load, one, facts, LATE, isolate=True)
            return True
        is_on_trial = one.start_s is not None and draft.now_s <= one.start_s + TRIAL_S
        if one.state in STEPPING and is_on_trial and draft.is_undecided(one.id):
            draft.stop(one, Reason(Why.LATE_ANSWERS, facts, (late.server,)), isolate=True)
            return True
    return all(one.state in STEPPING for one in others)
