"""Starts and ends foreseen in virtual time: the same quotes that a live cluster makes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from colane.core import Core
from colane.core.events import Outcome
from colane.foresee.judged import Foretold
from colane.lab.simulate.process import Process
from colane.lab.simulate.world import Running
from colane.model.job import JobId
from colane.scheduling.foresight import Foresight

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
                self._foresight.keep(self._foresight.say(self._core.state, [job], now_s))
            self._foresight.rank(self._core.state, job, now_s)

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest: its change of state says it."""
