"""Observers of a run: every decision as a line of JSON, one job's whole story, and starts and ends foreseen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, TextIO

from colane.core import Core
from colane.core.events import Decision, Outcome
from colane.foresee.judged import Foretold
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobState
from colane.model.plan import ACTION_NAMES, placement_of
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.scheduling.foresight import Foresight


def find_job(workload: Workload, asked: str) -> TraceJob | None:
    """A job by the name its trace gives it, else by its number."""
    named = next((job for job in workload.jobs if job.spec.name == asked), None)
    if named is not None or not asked.isdecimal():
        return named
    return next((job for job in workload.jobs if job.id == int(asked)), None)


class DecisionLog:
    """Writes one JSON object a line for every action a policy took."""

    def __init__(self, file: TextIO, policy: str, core: Core) -> None:
        self._file = file
        self._policy = policy
        self._jobs = core.state.jobs

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Write the decisions of one moment, and plans that were refused."""
        del now_s
        for decision in outcome.decisions:
            self._write(self._line(decision))
        if outcome.rejected is not None:
            flaws = [{"code": flaw.code, "detail": flaw.detail} for flaw in outcome.rejected.flaws]
            self._write({"policy": self._policy, "action": "refused-plan", "flaws": flaws})

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest: the decision says it all."""

    def _line(self, decision: Decision) -> dict[str, Any]:
        action, reason = decision.action, decision.reason
        job = self._jobs.get(action.job)
        placement = placement_of(action)
        slots = placement.slots if placement is not None else ()
        return {
            "at_s": decision.at_s,
            "policy": self._policy,
            "job": action.job,
            "name": job.spec.name if job is not None else "",
            "action": ACTION_NAMES[type(action)],
            "slots": [{"gpu": str(slot.gpu), "lane": slot.lane} for slot in slots],
            "cores": list(placement.cores) if placement is not None else [],
            "reason": {"why": str(reason.why), "facts": dict(reason.facts), "jobs": list(reason.jobs)},
            "sentence": sentence_of(reason),
        }

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")


class Chapter(NamedTuple):
    """One line of a story: when, in which state, and why."""

    at_s: float
    state: str
    sentence: str


@dataclass(slots=True)
class Story:
    """All that happens to one job: its changes of state, and while it waits every new kind of reason."""

    job: JobId  # the job whose story it is
    core: Core  # asked why the job waits
    chapters: list[Chapter] = field(default_factory=list)  # so far
    _changes: int = 0
    _last: tuple[str, str] | None = None

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Take what is new."""
        changed = next((job for job in outcome.jobs if job.id == self.job), None)
        if changed is not None:
            for line in changed.changes_since(self._changes):
                self.chapters.append(Chapter(line.at_s, str(line.state), _sentence(line.reason)))
                self._last = None
            self._changes = changed.changes
        live = self.core.state.jobs.get(self.job)
        if live is not None and live.state is JobState.QUEUED:
            reason = self.core.why(self.job, now_s)
            told = (str(reason.why), str(reason.facts.get("gpu", "")))
            if told != self._last:  # told again when its kind or the GPU it is about changes, not with every number
                self._last = told
                self.chapters.append(Chapter(now_s, "waits", sentence_of(reason)))

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest: its change of state says it."""


def _sentence(reason: Reason) -> str:
    """Here no process has a number, and what runs from its start need not report steps for it."""
    if reason.why is Why.TAKEN_TO_RUN:
        return "it runs"
    return f"started on {reason.facts['node']}" if reason.why is Why.LAUNCHED else sentence_of(reason)


def lines(chapters: Sequence[Chapter]) -> Iterator[str]:
    """The story for a terminal."""
    for chapter in chapters:
        yield f"{chapter.at_s:>14,.1f} s  {chapter.state:<18} {chapter.sentence}"


QUOTES_MAX: Final = 3000  # of a long trace as many submissions as make about so many quotes, drawn at random


class Foresees:
    """Watches a run, and has each submission that waits foreseen, with the chance given."""

    def __init__(self, core: Core, chance: float, seed: int = 0) -> None:
        self._core = core
        self._chance = chance
        self._foresight = Foresight(core.policy, seed)
        self._random = Random(seed)  # noqa: S311 - which submissions are quoted is no secret
        self._new: list[JobId] = []

    @property
    def foretold(self) -> tuple[Foretold, ...]:
        """What was said, and what came of it."""
        return tuple(self._foresight.foretold.values())

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Take what has happened."""
        self._new += [job.id for job in outcome.jobs if self._foresight.take(job, now_s)]

    def settled(self, now_s: float) -> None:
        """All is decided that is at this moment: foresee what has come and waits."""
        new, self._new = self._new, []
        for job in [self._core.state.jobs[one] for one in new if one in self._core.state.jobs]:
            if self._random.random() < self._chance and job.is_waiting:
                self._foresight.keep(self._foresight.say(self._core.state, [job], now_s, self._core.pacing))
            self._foresight.rank(self._core.state, job, now_s)

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest: its change of state says it."""
