"""Whether servers answer in time beside jobs that came to them, whatever was believed of these.

How long the steps of a job of unknown kind are is not known when it comes to a GPU of servers
(`scheduling.mechanisms.sharing.beside_servers`). When a server that has kept its objective is seen to miss it, the job
leaves by its cheapest means that has held its lane while answers waited, and shares no GPU from then on; where none has
held it, the newest there that answers no requests. One that may be neither parked nor stopped is stopped in its first
time there alone, in which it has little to lose. A server never leaves: where one has held the lane, all stay.

A server that is measured to answer later than it may even alone has no job moved for it; its owner is told so, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.events import Event, Progressed
from colane.core.planners.means import SplitReasons, may_split_off, split_off
from colane.model.job import Job, JobId, JobKind
from colane.model.phases import STEPPING
from colane.model.plan import Plan
from colane.model.profile import ValueSource
from colane.model.progress import LateAnswers, late_answers
from colane.model.reason import Reason, Why
from colane.perf.answers import answers_alone

TRIAL_S: Final = 900.0
"""So long after its start a job is on trial beside servers: it is stopped even if its owner did not allow it."""

LATE: Final = SplitReasons(Why.LATE_ANSWERS, Why.LATE_ANSWERS)


class _Late(NamedTuple):
    """A server that misses its objective, as it has not done before, and who has held its lane meanwhile."""

    server: JobId
    answers: LateAnswers
    held_by: JobId | None


class KeptAnswers:
    """The planner that does so.

    Args:
        state: The cluster's state.
    """

    name = "answers"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: dict[JobId, Mapping[JobId, float]] = {}  # how long others had held its lane by then
        self._late: list[_Late] = []
        self._hopeless: dict[JobId, Reason] = {}
        self._told: set[JobId] = set()

    @property
    def is_due(self) -> bool:
        """Whether a server misses its objective that it has kept before, or is seen to miss it even alone."""
        return bool(self._late or self._hopeless)

    def notice(self, events: Iterable[Event]) -> None:
        """Look at the servers of which samples have come in this step."""
        self._late.clear()
        self._hopeless.clear()
        for event in events:
            if isinstance(event, Progressed):
                job = self._state.jobs.get(event.job)
                if job is not None and job.effective.latency_s is not None and job.attempt == event.attempt:
                    self._look(job, event)

    def _look(self, job: Job, event: Progressed) -> None:
        late = late_answers(event.progress, job.effective.latency_s)
        hopeless = None if late is None else self._late_alone(job, late)
        if hopeless is not None:
            self._kept.pop(job.id, None)
            if job.id not in self._told and job.state in STEPPING:
                self._hopeless[job.id] = hopeless
        elif late is None:
            self._kept[job.id] = {held.job: held.held_s for held in self._holders(job)}
        elif job.id in self._kept:
            before = self._kept[job.id]
            held_by = blamed(held._replace(held_s=_since(before, held)) for held in self._holders(job))
            self._late.append(_Late(job.id, late, held_by))

    def _late_alone(self, server: Job, late: LateAnswers) -> Reason | None:
        """Why it misses its objective whatever runs beside it; None where it may keep it, as far as was measured."""
        load = self._state.gpus.get(server.gpus_held[0]) if server.gpus_held else None
        if load is None:
            return None
        alone = answers_alone(self._state.beliefs, server.effective, load.gpu.type)
        if alone is None or not self._is_measured(server, load) or alone.beyond_s(late.latency_s) is None:
            return None
        facts: dict[str, str | float] = {"took": alone.text, "gpu_type": load.gpu.type, "latency_s": late.latency_s}
        return Reason(Why.LATE_ALONE, facts)

    def _is_measured(self, server: Job, load: GpuLoad) -> bool:
        """Whether what is believed of its speed alone was measured on this type: not declared, nor seen elsewhere."""
        beliefs = self._state.beliefs
        profile = beliefs.profiles.get(beliefs.terms(server.effective, load.gpu.type).key)
        step_s = None if profile is None else profile.step_s
        return step_s is not None and step_s.source is ValueSource.MEASURED

    def _holders(self, server: Job) -> Iterator[Held]:
        """How long each job has held a lane of a server's since it shares it."""
        slots = server.placement.slots if server.placement is not None else ()
        loads = [(slot.lane, self._state.gpus[slot.gpu]) for slot in slots if slot.gpu in self._state.gpus]
        others = {booking.job for lane, load in loads for booking in load.bookings if booking.lane == lane}
        for other in sorted(others - {server.id}):
            progress = self._state.progress.get(other)
            if progress is not None and progress.turn_service_s is not None:
                yield Held(other, progress.turn_service_s, progress.step_mean_s)

    def plan(self, view: ClusterView) -> Plan:
        """Let those leave that are to blame; what is late already counts against none that comes later."""
        draft = Draft(view)
        self._told = {job for job in self._told if job in view.jobs}
        for job_id, reason in self._hopeless.items():
            hopeless = view.jobs.get(job_id)
            if hopeless is not None and hopeless.state in STEPPING:
                self._told.add(job_id)
                draft.remark(hopeless, reason)
        self._kept = {job: held for job, held in self._kept.items() if job in view.jobs}
        for late in self._late:
            server = view.jobs.get(late.server)
            loads = [] if server is None else [view.gpu(gpu) for gpu in server.gpus_held]
            if not [load for load in loads if not _is_settled(draft, load, late)]:
                self._kept.pop(late.server, None)
        return draft.plan()


def _since(before: Mapping[JobId, float], held: Held) -> float:
    """How long it has held the lane since; a job that has begun anew counts from there."""
    passed_s = held.held_s - before.get(held.job, 0.0)
    return passed_s if passed_s >= 0 else held.held_s


def _is_settled(draft: Draft, load: GpuLoad, late: _Late) -> bool:
    """Let who is to blame leave a GPU; false while it does not step yet, so that it is looked at again."""
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "job": late.server, **late.answers._asdict()}
    jobs = [booking.job for booking in reversed(load.bookings)]
    others = [draft.view.job(job) for job in jobs if late.held_by in {None, job}]
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


class Held(NamedTuple):
    """How long a job has held the lane of a server while that was late, and how long its steps are: seconds."""

    job: JobId
    held_s: float
    step_s: float | None


def delay_s2(held: Held) -> float:
    """How much answers were delayed by one that held their lane, up to a factor that all have in common: s^2.

    A request that comes meanwhile waits for the end of the step, half of one on average, and the longer the lane was
    held, the more come. Whose steps are not known has held the lane for one.
    """
    return held.held_s * (held.held_s if held.step_s is None else held.step_s)


def blamed(holders: Iterable[Held]) -> JobId | None:
    """Who of a lane has delayed answers most; None where none has held it. Who came when does not count."""
    found = max(holders, key=lambda held: (delay_s2(held), held.job), default=None)
    return found.job if found is not None and delay_s2(found) > 0 else None
