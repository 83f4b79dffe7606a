"""The guard: jobs that are slower in company than was predicted are separated, or it is said that they are.

Prediction may be wrong, and a job may change while it runs. Of a company that is too slow for some time the newest
joiner that is preemptible is stopped and queued again, to run with a GPU to itself. What the company achieved is learnt
before, so that policies that ask for predictions do not bring its like together again. Nobody is stopped who would lose
his work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from colane.core.check import MOVABLE
from colane.core.company import Company, expect, shared_gpus
from colane.core.events import Event, Progressed
from colane.core.lifecycle import evolve, move
from colane.core.load import Booking, GpuLoad
from colane.core.state import ClusterState
from colane.core.step import Step
from colane.core.suspension import STEPPING
from colane.model.job import Job, JobState
from colane.model.lane import Turns
from colane.model.reason import Reason, Why
from colane.perf.pace import Paces

STARTING = frozenset({JobState.ASSIGNED, JobState.LAUNCHING})
RESTING = frozenset({JobState.PAUSED, JobState.STOPPING})


def keep(step: Step, events: Iterable[Event], turns: Turns) -> None:
    """Look at the jobs of which samples have come."""
    for event in events:
        if isinstance(event, Progressed):
            job = step.state.jobs.get(event.job)
            if job is not None and job.attempt == event.attempt and _is_first(job, event.node):
                _look(step, job, event, turns)


def _is_first(job: Job, node: str) -> bool:
    """Whether a sample comes from the node that speaks for a job."""
    return job.placement is not None and node in ("", job.placement.node)


def _look(step: Step, job: Job, event: Progressed, turns: Turns) -> None:
    state = step.state
    active = {gpu: _active(state, state.gpus[gpu]) for gpu in shared_gpus(state, job)}
    company = tuple((gpu, booking.job, booking.lane) for gpu, bookings in active.items() for booking in bookings or ())
    if job.state not in STEPPING or not active or None in active.values():
        step.guard.forget(job.id)
        return
    config = step.config
    steps_min = state.beliefs.config.steps_min
    if not step.guard.add(job.id, company, event.progress, steps_min=steps_min, window_s=config.guard_after_s):
        return
    seen = company_of(state, step.guard, job, turns)
    if seen is None or seen.predicted is None or seen.measured is None:
        return
    if seen.measured > seen.predicted * (1 + config.guard_margin_ratio):
        _separate(step, job, seen.measured, seen.predicted)


def _active(state: ClusterState, load: GpuLoad) -> tuple[Booking, ...] | None:
    """Bookings of jobs that go on; None while somebody starts or stops, or they are measured together on purpose."""
    states = {booking.job: state.jobs[booking.job].state for booking in load.bookings}
    passing = any(each in STARTING or each is JobState.STOPPING for each in states.values())
    if passing or any(booking.company is not None for booking in load.bookings):
        return None
    return tuple([booking for booking in load.bookings if states[booking.job] is not JobState.PAUSED])


def company_of(state: ClusterState, paces: Paces, job: Job, turns: Turns) -> Company | None:
    """How a job shares its GPUs; None when it shares none. Of several the one on which it is slowest counts."""
    loads = [state.gpus[gpu] for gpu in shared_gpus(state, job)]
    if not loads:
        return None
    expected = []
    for load in loads:
        going = [b for b in load.bookings if b.job == job.id or state.jobs[b.job].state not in RESTING]
        expected.append(expect(state, job, load, going, turns))
    shares = [each.share_ratio for each in expected if each.share_ratio is not None]
    slowdowns = [each.slowdown for each in expected if each.slowdown is not None]
    lanes = {(load.id, b.lane) for load in loads for b in load.bookings if b.job == job.id}
    rest = [((load.id, b.lane) in lanes, b.job) for load in loads for b in load.bookings if b.job != job.id]
    mates = {other for is_mate, other in rest if is_mate}
    return Company(
        tuple(sorted(mates)),
        tuple(sorted({other for _, other in rest} - mates)),
        min(shares) if len(shares) == len(expected) else None,
        max(slowdowns) if len(slowdowns) == len(expected) else None,
        _measured(state, paces, job),
    )


def _measured(state: ClusterState, paces: Paces, job: Job) -> float | None:
    """Step time now over step time alone."""
    step_s = paces.step_s(job.id)
    profile = state.beliefs.profile(job.spec, state.gpus[job.gpus_held[0]].gpu.type)
    if step_s is None or profile is None or profile.step_s is None or profile.step_s.value <= 0:
        return None
    return step_s / profile.step_s.value


def _separate(step: Step, job: Job, measured: float, predicted: float) -> None:
    """Stop the newest joiner that may be, on the GPU with most jobs; say so where nobody may."""
    load = max((step.state.gpus[gpu] for gpu in shared_gpus(step.state, job)), key=lambda load: len(load.bookings))
    members = [step.state.jobs[booking.job] for booking in reversed(load.bookings)]
    stoppable = [one for one in members if one.spec.preemptible and one.placement and len(one.placement.nodes) == 1]
    newest = next((one for one in stoppable if one.state in MOVABLE), None)
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "measured": measured, "predicted": predicted}
    if newest is not None:
        step.company_changed([load.id])
        rest = tuple(sorted(one.id for one in members if one is not newest))
        reason = Reason(Why.TOO_SLOW_TOGETHER, {**facts, "job": job.id}, rest)
        step.stop(newest, JobState.QUEUED, reason)
    elif not stoppable and job.state is JobState.RUNNING and job.story[-1].reason.why is not Why.SLOW_TOGETHER:
        rest = tuple(sorted(one.id for one in members if one is not job))
        step.put(move(job, JobState.RUNNING, step.now_s, Reason(Why.SLOW_TOGETHER, facts, rest)))


def apart(job: Job) -> Job:
    """The job as it is queued again: one that was too slow in company gets a GPU to itself."""
    if job.story[-1].reason.why is not Why.TOO_SLOW_TOGETHER:
        return job
    return evolve(job, spec=replace(job.spec, share=False))
