"""When a job that waits would start, by what is known of those that run: a copied core is played on.

Each job that runs ends when its steps are through at its present pace, or at its time limit; those that start meanwhile
likewise, from their start. What is not known to end is taken to go on, and nothing new comes, so an answer is a guess;
where nothing is known to end in time, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from time import thread_time
from typing import Final

from colane.core.core import Core
from colane.core.events import Ended, Event, Launched, Outcome, Tick
from colane.facts.job import GOING, left_of
from colane.foresee.said import Shown, said_fault, unforeseen
from colane.model.job import Exit, Job, JobId, JobState
from colane.scheduling.foresight import policy_problem

BUDGET_S: Final = 0.03
"""A plan is waited for: a forecast that takes longer, in CPU time as machines may be busy, is none."""

ALONE_S: Final = 0.5  # the same where nothing else is asked

STEPS_MAX: Final = 500
LEAVING: Final = frozenset({JobState.STOPPING, JobState.CHECKPOINTING})


def foreseen(
    core: Core, jobs: Sequence[JobId], now_s: float, board: Callable[[], Mapping[int, Shown]],
    guess: Callable[[], float | None],
) -> tuple[dict[int, Shown], float | None]:  # fmt: skip
    """Return what is shown of jobs, and a guess of when the first starts; a fault in either is why it is not known."""
    found = dict[int, Shown]()
    try:
        shown = board()
        found = {job: shown[job] for job in jobs if job in shown}
        starts_in_s = guess()
        if not (problem := policy_problem(core.policy)):
            return found, starts_in_s
        found = {}
    except Exception as error:  # noqa: BLE001 - whatever it is, what was asked beside it is answered
        problem = said_fault(error)
    known = {job: one for job, one in found.items() if one.start is not None and one.start.is_known}
    return {job: unforeseen(now_s, problem, waits=True) for job in jobs} | known, None


def start_in_s(core: Core, jobs: Sequence[JobId], outcome: Outcome, now_s: float) -> float | None:
    """Play a copied core on until one of these jobs, or an element of one, has a place.

    Args:
        core: Good for nothing else afterwards.
        jobs: Those that wait.
        outcome: Of its last step.
        now_s: The time of that step.

    Returns:
        Seconds until then; None where that is not known.
    """
    return next((at_s - now_s for at_s, _ in _starts(core, jobs, outcome, now_s, BUDGET_S)), None)


def live_starts_in_s(core: Core, jobs: Sequence[JobId], now_s: float, within_s: float = inf) -> dict[JobId, float]:
    """Play a copied core on for so long; those of the live jobs that have a place by then, with seconds until then.

    An array has one once an element has; see `start_in_s`.
    """
    found: dict[JobId, float] = {}
    for at_s, started in _starts(core, jobs, core.step([Tick()], now_s, whole=True), now_s, ALONE_S):
        if at_s > now_s + within_s:
            break
        for job in started:
            found.setdefault(job, at_s - now_s)
        if len(found) == len(jobs):
            break
    return found


def _starts(
    core: Core, jobs: Sequence[JobId], outcome: Outcome, now_s: float, budget_s: float
) -> Iterator[tuple[float, list[JobId]]]:
    """Play a copied core on; yield when, and which of these jobs have a place, or elements that have."""
    until_s, at_s, ends = thread_time() + budget_s, now_s, _Ends(core)
    ends.take(list(core.state.running.values()), at_s)
    for _ in range(STEPS_MAX):
        events = _at_once(outcome.jobs, at_s)
        if not events:
            waiting = [core.state.jobs[job] for job in jobs if job in core.state.jobs]
            begins_s = [hold.until_s for job in waiting for hold in job.holds if hold.until_s is not None]
            next_s = min([ends.next_s, *begins_s])  # other timers that are due by then go off then
            if next_s == inf:
                return
            at_s = max(at_s, next_s)
            events = ends.due(at_s)
        outcome = core.step(events, at_s, whole=True)
        placed = [job for job in outcome.jobs if job.placement is not None]
        ids = [[job.id] if job.element is None else [job.id, job.element.array] for job in placed]
        if started := [one for both in ids for one in both if one in jobs]:
            yield at_s, started
        ends.take(placed, at_s)
        if thread_time() > until_s:
            return


def _at_once(jobs: Sequence[Job], at_s: float) -> list[Event]:
    """What agents would say of jobs that were given a place, or are to leave theirs."""
    events: list[Event] = []
    for job in jobs:
        nodes = () if job.placement is None else job.placement.nodes
        if job.state is JobState.ASSIGNED:
            events += [Launched(job.id, job.attempt, 1, at_s, node) for node in nodes]
        elif job.state in LEAVING:
            events += [ended_by_agent(job, "stopped", at_s, node) for node in nodes if node not in job.run.ended_on]
    return events


def ended_by_agent(job: Job, outcome: str, at_s: float, node: str) -> Ended:
    """What an agent would say of the end of a job."""
    return Ended(job.id, job.attempt, outcome, Exit(0, None), job.start_s, at_s, None, node)


class _Ends:
    """When which attempts are through, the next first."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known = set[tuple[JobId, int]]()
        self._line: list[tuple[float, JobId, int]] = []

    @property
    def next_s(self) -> float:
        """When the next is; infinite where there is none."""
        return self._line[0][0] if self._line else inf

    def take(self, jobs: Sequence[Job], at_s: float) -> None:
        """Note when jobs that run will be through, each attempt once; of one that waits, once it goes on."""
        for job in jobs:
            if (job.id, job.attempt) in self._known:
                continue
            end_s = self._end_s(job, at_s)
            if end_s < inf:
                self._known.add((job.id, job.attempt))
                heappush(self._line, (end_s, job.id, job.attempt))

    def due(self, at_s: float) -> list[Event]:
        """The ends of those that are through by then, and have not gone otherwise."""
        events: list[Event] = []
        while self._line and self._line[0][0] <= at_s:
            _, job_id, attempt = heappop(self._line)
            job = self._core.state.jobs.get(job_id)
            if job is not None and job.attempt == attempt and job.placement is not None:
                events += [ended_by_agent(job, "exited", at_s, node) for node in job.placement.nodes]
        return events

    def _end_s(self, job: Job, at_s: float) -> float:
        """When it ends, at its present speed or by its limit; infinite where neither tells, and while it waits."""
        if job.state not in GOING:
            return inf
        state = self._core.state
        left = left_of(job, state.progress.get(job.id), self._core.pacing(job.id), at_s, state.beliefs.lengths)
        return inf if left.p50_s is None else at_s + left.p50_s
