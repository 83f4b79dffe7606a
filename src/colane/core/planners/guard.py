"""The guard: jobs that are slower with co-runners than predicted are separated, or it is said that they are slow.

Prediction may be wrong, and a job may change while it runs. Of jobs that are too slow together for some time the newest
that can takes turns with the others in one lane; else the newest that may leaves them by its cheapest means
(`splitting`), and shares no GPU from then on. What they achieved is learnt before, so that policies that ask for
predictions do not bring their like together again. Where none of this can be done, it is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from colane.core.cluster.co_runners import CoRunners, shared_gpus
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import Booking, GpuLoad
from colane.core.cluster.situations import rates_of
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Event, Progressed
from colane.core.planners.means import Facts, SplitReasons, may_split_off, split_off
from colane.core.planners.overflow import may_take_turns
from colane.lanes.turns import SHARED
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState
from colane.model.phases import COMING_UP, LEAVING, STEPPING
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.perf.pace import Paces
from colane.perf.rate import Rate

TOO_SLOW: Final = SplitReasons(Why.PARKED_TOO_SLOW, Why.TOO_SLOW_TOGETHER)


class Suspect(NamedTuple):
    """A job that has been slower with its co-runners for long than was predicted."""

    job: JobId
    measured: float
    predicted: float


class Guard:
    """Notices jobs that co-runners slow too much, and plans what is to be done about it.

    Args:
        state: The cluster's state.
        paces: Remembers how fast they went.
        config: Settings of the core.
    """

    name = "guard"

    def __init__(self, state: ClusterState, paces: Paces, config: CoreConfig) -> None:
        self._state = state
        self._paces = paces
        self._config = config
        self._suspects: list[Suspect] = []
        self._said: dict[JobId, int] = {}
        self._turns = Turns()

    @property
    def is_due(self) -> bool:
        """Whether it has a job to separate."""
        return bool(self._suspects)

    def notice(self, events: Iterable[Event], turns: Turns) -> None:
        """Look at the jobs of which samples have come in this step."""
        self._suspects.clear()
        self._turns = turns
        for event in events:
            if isinstance(event, Progressed):
                job = self._state.jobs.get(event.job)
                if job is not None and job.attempt == event.attempt and _is_first(job, event.node):
                    self._look(job, event, turns)

    def _look(self, job: Job, event: Progressed, turns: Turns) -> None:
        state, config = self._state, self._config
        active = {gpu: _active(state, state.gpus[gpu]) for gpu in shared_gpus(state, job)}
        co_runners = tuple((gpu, b.job, b.lane) for gpu, bookings in active.items() for b in bookings or ())
        if job.state not in STEPPING or not active or None in active.values() or _is_disturbed(state, active):
            self._paces.forget(job.id)
            return
        steps_min = state.knowledge.steps_min
        paces, window_s = self._paces, config.guard_after_s
        is_over = paces.add(job.id, co_runners, event.progress, steps_min=steps_min, window_s=window_s)
        seen = co_runners_of(state, paces, job, turns) if is_over or paces.foreseen(job.id) is None else None
        if seen is None or seen.predicted is None:
            return
        paces.foresee(job.id, seen.predicted)
        if not is_over or seen.measured is None:
            return
        if seen.measured > seen.predicted * (1 + config.guard_margin_ratio):
            self._suspects.append(Suspect(job.id, seen.measured, seen.predicted))

    def plan(self, view: ClusterView) -> Plan:
        """Separate each of them from the co-runners it is too slow with, or say that this cannot be done."""
        draft, broken = Draft(view), set[GpuId]()
        self._said = {job: changes for job, changes in self._said.items() if job in view.jobs}
        for suspect in self._suspects:
            job = view.jobs.get(suspect.job)
            shared = [load for gpu in job.gpus_held if len((load := view.gpu(gpu)).bookings) > 1] if job else []
            if job is not None and shared and job.state in STEPPING:
                load = max(shared, key=lambda load: len(load.bookings))
                if load.id not in broken:
                    broken.add(load.id)
                    self._separate(draft, load, suspect)
        return draft.plan()

    def _separate(self, draft: Draft, load: GpuLoad, suspect: Suspect) -> None:
        """Do the first that can be done of the means the module names."""
        job, newest_first = draft.view.job(suspect.job), [draft.view.job(one.job) for one in reversed(load.bookings)]
        facts: Facts = {"gpu": str(load.id), "measured": suspect.measured, "predicted": suspect.predicted}
        if self._turns.rule in SHARED and _take_turns(draft, load, newest_first, {**facts, "job": job.id}):
            return
        for one in newest_first:
            if may_split_off(draft, one):
                split_off(draft, load, one, {**facts, "job": job.id}, TOO_SLOW, learn=True, isolate=True)
                return
        if job.state is JobState.RUNNING and not any(map(_may_leave_later, newest_first)):
            self._say(draft, load, job, facts)

    def _say(self, draft: Draft, load: GpuLoad, job: Job, facts: Facts) -> None:
        """Say that nothing can be done; again only where the job's story has gone on since."""
        if self._said.get(job.id) != job.changes:
            self._said[job.id] = job.changes + 1
            others = tuple(sorted(other for other in load.jobs if other != job.id))
            draft.remark(job, Reason(Why.SLOW_TOGETHER, facts, others))


def _take_turns(draft: Draft, load: GpuLoad, newest_first: Sequence[Job], facts: Facts) -> bool:
    """Bring the newest that can into the lane of the oldest, if they run in several."""
    lane = load.bookings[0].lane
    lane_mates = [booking.job for booking in load.bookings if booking.lane == lane]
    for one in newest_first:
        if one.id not in lane_mates and draft.is_undecided(one.id) and may_take_turns(draft.view, one.id, lane_mates):
            reason = Reason(Why.TURNS_INSTEAD, {**facts, "lane": lane}, tuple(lane_mates))
            draft.move(one, [draft.load(load.id)], reason, [lane])
            return True
    return False


def _may_leave_later(job: Job) -> bool:
    """Whether it is protected as yet, or may be stopped once it goes on."""
    return job.state is JobState.RUNNING_PROTECTED or job.effective.preemptible


def _is_first(job: Job, node: str) -> bool:
    """Whether a sample comes from the node that speaks for a job."""
    return job.placement is not None and node in ("", job.placement.node)


def _active(state: ClusterState, load: GpuLoad) -> tuple[Booking, ...] | None:
    """Bookings of jobs that go on; None while any job starts, stops or has no turns, or all are measured together."""
    states = {booking.job: state.jobs[booking.job].state for booking in load.bookings}
    passing = any(each in COMING_UP or each in LEAVING for each in states.values())
    passing = passing or any(state.jobs[booking.job].turn for booking in load.bookings)
    if passing or any(booking.measurement_group is not None for booking in load.bookings):
        return None
    return tuple([booking for booking in load.bookings if states[booking.job] is not JobState.PAUSED])


def _is_disturbed(state: ClusterState, gpus: Iterable[GpuId]) -> bool:
    """Whether others use these GPUs: then how slow a job is says nothing about its co-runners."""
    return any(state.gpus[gpu].gpu.is_disturbed for gpu in gpus)


def co_runners_of(state: ClusterState, paces: Paces, job: Job, turns: Turns) -> CoRunners | None:
    """How a job shares its GPUs; None when it shares none. Of several the one on which it is slowest counts."""
    loads = [state.gpus[gpu] for gpu in shared_gpus(state, job)]
    rates = rates_of(state, job, turns.rule) if loads else []
    if not rates:
        return None
    is_promised = all(rate.is_promised for rate in rates)
    lanes = {(load.id, b.lane) for load in loads for b in load.bookings if b.job == job.id}
    rest = [((load.id, b.lane) in lanes, b.job) for load in loads for b in load.bookings if b.job != job.id]
    lane_mates = {other for is_lane_mate, other in rest if is_lane_mate}
    return CoRunners(
        tuple(sorted(lane_mates)),
        tuple(sorted({other for _, other in rest} - lane_mates)),
        min(1 / rate.factors.turns.slowdown for rate in rates) if is_promised else None,
        (paces.foreseen(job.id) or max(rate.factors.co_runner_slowdown for rate in rates)) if is_promised else None,
        _measured(paces, job, rates[0]),
    )


def _measured(paces: Paces, job: Job, rate: Rate) -> float | None:
    """Step time now over step time alone in the same place with the same cores."""
    step_s = paces.step_s(job.id)
    return None if step_s is None or rate.alone is None else step_s / (rate.alone.value * rate.factors.cores.slowdown)
