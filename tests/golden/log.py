"""Decisions as lines: when, what, which job, where, and the code of the reason; no sentence, nothing that jitters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from colane.core import Core
from colane.core.events import Decision, Outcome
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running
from colane.model.job import Job, JobId, JobState
from colane.model.placement import Placement
from colane.model.reason import Why

ROUTINE = frozenset({Why.SUBMITTED, Why.LAUNCHED, Why.STEPPING, Why.PROTECTION_OVER, Why.TAKEN_TO_RUN, Why.EXITED})
"""Moves of every job's life, which no plan decides."""

ASKED_EVERY = 7
"""Jobs at the head of a queue are asked why they wait at every such moment, if that has another code than before."""

ASKED_MOST = 4


@dataclass(slots=True)
class FrozenLog:
    """Looks on at a run and writes it down; fits the simulator's driver and `live`.

    Attributes:
        core: Asked why jobs wait.
        lines: So far.
    """

    core: Core
    lines: list[str] = field(default_factory=list)
    _moments: int = 0
    _waits: dict[JobId, Why] = field(default_factory=dict)
    _ends: dict[JobId, Job] = field(default_factory=dict)

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Write what one step of the core decided."""
        if outcome.rejected is not None:
            codes = sorted({flaw.code for flaw in outcome.rejected.flaws})
            self._write(now_s, "refused-plan", *codes)
        decided = set()
        for decision in outcome.decisions:
            decided.add(decision.action.job)
            self._write(now_s, *_words(decision))
        for job in outcome.jobs:
            self._follow(job, now_s, is_decided=job.id in decided)
        self._moments += 1
        if self._moments % ASKED_EVERY == 0:
            self._ask(now_s)

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """The decision says it."""

    def text(self) -> str:
        """All lines, and how every job ended."""
        ends = [
            f"end {job.id} {job.state} {_seconds(job.end_s)} attempts {job.attempt}"
            for _, job in sorted(self._ends.items())
        ]
        left = [f"left {job.id} {job.state}" for _, job in sorted(self.core.state.jobs.items())]
        return "".join(f"{line}\n" for line in [*self.lines, *ends, *left])

    def _follow(self, job: Job, now_s: float, *, is_decided: bool) -> None:
        """What happens to a job by no plan: a guard, a fault, its owner."""
        if job.has_ended:
            self._ends[job.id] = job
        why = job.reason.why if job.reason is not None else Why.SUBMITTED
        is_new = not is_decided and not job.has_ended and why not in ROUTINE
        if is_new and (job.reason is not None and job.story[-1].at_s == now_s):
            self._write(now_s, str(job.state), job.id, *_where(job.placement), why)

    def _ask(self, now_s: float) -> None:
        for pool in sorted(self.core.state.queues):
            for number in list(islice(self.core.state.queues[pool], ASKED_MOST)):
                why = self.core.why(number, now_s).why
                if self._waits.get(number) is not why:
                    self._waits[number] = why
                    self._write(now_s, "wait", number, why)

    def _write(self, now_s: float, *words: object) -> None:
        self.lines.append(" ".join(map(str, (_seconds(now_s), *words))))


def _seconds(at_s: float | None) -> str:
    return "-" if at_s is None else f"{at_s:.1f}"


def _words(decision: Decision) -> Iterator[object]:
    action = decision.action
    yield type(action).__name__.lower()
    yield action.job
    placement: Placement | None = getattr(action, "placement", None)
    yield from _where(placement)
    yield decision.reason.why


def _where(placement: Placement | None) -> list[str]:
    if placement is None:
        return []
    return [",".join(f"{slot.gpu}:{slot.lane}" for slot in placement.slots) or placement.node]


def codes(text: str) -> Counter[str]:
    """How often each reason was given."""
    return Counter(line.split()[-1] for line in _decisions(text.splitlines()))


def _decisions(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if not line.startswith(("end ", "left ")))


def is_running(job: Job) -> bool:
    """Whether its processes make steps."""
    return job.state in {JobState.LAUNCHING, JobState.RUNNING_PROTECTED, JobState.RUNNING}
