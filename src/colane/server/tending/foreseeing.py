"""Looks ahead: when jobs start and end, worked out by a copy of this process, and judged by what comes of it.

No roll-out runs on the event loop. After a look there is a pause, with which it comes to no more than `CPU_PART` of a
core, as long as what is told does not grow older than `LOOK_AGAIN_S`; there is none while nothing waits or runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from time import monotonic, process_time
from typing import Final, NamedTuple

from colane.foresee.foreseer import SaidQuote
from colane.foresee.said import Shown, said_fault
from colane.model.job import JobId
from colane.scheduling.foresight import Foresight, unforeseen_of
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.ground.whole_file import write_whole
from colane.server.handlers.forecasts import Forecasts
from colane.server.parts import Parts
from colane.server.writer.driver import FORETOLD_KEPT

LOOK_EVERY_S: Final = 5.0
"""A look is at most so old where anything has changed, and it is not held back by what it costs;"""

LOOK_AGAIN_S: Final = 30.0  # where nothing has, or where looks cost much, so old

CPU_PART: Final = 0.02
KEPT_EVERY: Final = 20  # of so many looks, after one it is written what was learnt

SAID_AT_ONCE: Final = 200  # submissions that are judged are these of one look, the oldest; all are shown

log = logging.getLogger(__name__)


class Looked(NamedTuple):
    """What a copy has found: what is shown of each job, what is to be judged, and what it took."""

    shown: dict[int, Shown]
    said: list[SaidQuote]
    cpu_s: float


def pause_after(cpu_s: float, took_s: float) -> float:
    """Return the pause after a look, by what it took of a core, and until it was told: the next one takes as long."""
    return max(LOOK_EVERY_S, min(cpu_s / CPU_PART, LOOK_AGAIN_S - 2 * took_s))


@dataclass(slots=True)
class Foreseeing:
    """Asks copies, and keeps what they say."""

    parts: Parts  # what the scheduler consists of
    forecasts: Forecasts  # by which copies are asked
    _said: set[JobId] = field(default_factory=set)
    _due: dict[JobId, float] = field(default_factory=dict)
    _version: int = -1
    _looked_s: float = float("-inf")
    _looks: int = 0
    _problems: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Look, until it is cancelled; what is learnt is kept over a restart."""
        self.take_back()
        try:
            await self._look_on()
        finally:
            self.keep()

    def take_back(self) -> None:
        """Go on from what was kept; what cannot be read is begun anew."""
        path, driver = self.parts.config.foreseen, self.parts.driver
        if path is None or not path.exists():
            return
        found = Foresight(driver.decider, keeps=FORETOLD_KEPT)
        try:
            found.take_back(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            log.warning("%s cannot be read and is begun anew; starts are not known at first: %s", path, error)
            return
        driver.foresight = found
        if driver.is_ready:
            found.forget(driver.core.state, driver.now())

    def keep(self) -> None:
        """Write what was learnt; a file that cannot be written costs no more than what it had."""
        path = self.parts.config.foreseen
        if path is not None and self._looks:
            try:
                write_whole(path, json.dumps(self.parts.driver.foresight.kept()))
            except OSError as error:
                log.warning("what is learnt of starts is not kept: %s", error)

    async def _look_on(self) -> None:
        pause_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_EVERY_S
            try:
                if self.parts.leads and self.parts.driver.is_ready and self._has_changed():
                    began_s = monotonic()
                    pause_s = pause_after(await self.look(), monotonic() - began_s)
                    if self._looks % KEPT_EVERY == 0:
                        self.keep()
            except RefusedError as error:  # no copy in time: there is one at the next look
                log.debug("nothing is foreseen now: %s", error)
            except Exception as error:  # jobs matter more than what is said of them
                log.exception("a fault: starts are not foreseen now")
                driver = self.parts.driver
                if driver.is_ready:
                    driver.shown = unforeseen_of(driver.core.state, driver.now(), said_fault(error))
                pause_s = LOOK_AGAIN_S

    def _has_changed(self) -> bool:
        """Whether anything is to be looked at that is not known yet, or not so any more."""
        driver = self.parts.driver
        if not driver.core.state.jobs:
            driver.shown = {}
            return False
        return self._version != driver.core.state.version or abs(driver.now() - self._looked_s) >= LOOK_AGAIN_S

    async def look(self) -> float:
        """Look at all jobs once; what that took of a core. Raises RefusedError: 503, there is no answer in time."""
        driver = self.parts.driver
        self._looks += 1
        asked, foresight, new = driver.core, driver.foresight, self._new()

        def question(turn: Turn) -> Looked:
            began_s, core = process_time(), driver.core
            foresight.turn(self._looks)
            shown = foresight.board(core, turn.now_s)
            jobs = [core.state.jobs[one] for one in new if one in core.state.jobs]
            jobs = [job for job in jobs if job.is_waiting and not (job.id in shown and shown[job.id].problem)]
            said = foresight.say(core.state, jobs, turn.now_s, core.pacing)
            return Looked(shown, said, process_time() - began_s)

        found = await self.forecasts.of_copy(question)
        if not driver.is_ready or driver.core is not asked or driver.foresight is not foresight:
            return found.cpu_s  # another leads, or the store was read anew: that was of what is no more
        problems = {one.problem for one in found.shown.values() if one.problem}
        for problem in sorted(problems - self._problems):
            log.warning("starts of some jobs are not foreseen: %s", problem)
        self._problems = problems
        self._version, self._looked_s = driver.core.state.version, driver.now()
        driver.shown = found.shown
        self._said.update(new)
        driver.foresight.keep(found.said)
        self._keep_ends(found.shown)
        return found.cpu_s

    def _new(self) -> list[JobId]:
        """Jobs that wait and of which nothing was said yet, to be judged by what comes of it; arrays are not."""
        state, now_s, foresight = self.parts.driver.core.state, self.parts.driver.now(), self.parts.driver.foresight
        foresight.meet(state, now_s)
        self._said &= state.jobs.keys()
        unsaid = [job for job in state.jobs.values() if job.id not in self._said and job.array is None]
        fresh = [job for job in unsaid if job.is_waiting and job.first_start_s is None]
        for job in fresh:
            foresight.rank(state, job, now_s)
        self._said.update(job.id for job in fresh[SAID_AT_ONCE:])
        return [job.id for job in fresh[:SAID_AT_ONCE]]

    def _keep_ends(self, shown: dict[int, Shown]) -> None:
        """Of jobs that run, ends are judged that are said at first, and each time they have run twice as long."""
        state = self.parts.driver.core.state
        self._due = {job: due_s for job, due_s in self._due.items() if job in state.jobs}
        for number, one in shown.items():
            job = state.jobs.get(JobId(number))
            if one.start is not None or job is None or job.start_s is None or self._due.get(job.id, 0.0) > one.at_s:
                continue
            self._due[job.id] = one.at_s + max(300.0, one.at_s - job.start_s)
            self.parts.driver.foresight.of(job.spec.pool).keep_end(job.id, one)
