"""The rule for jobs that use nothing of what they hold."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from colane.model.choices import IdleRule
from colane.model.job import JobId
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.parts import Parts
from colane.server.store.store import StoreError
from colane.server.views.look import span
from colane.server.views.overview import OverviewMaker
from colane.server.writer import changes

IDLE_PERIOD_S: Final = 30.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class IdleRuling:
    """Carries the rule out."""

    parts: Parts  # what the scheduler consists of
    overviews: OverviewMaker  # the whole cluster in numbers
    # why jobs that are idle cannot be parked, where they shall be
    problems: dict[int, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Carry it out, until it is cancelled."""
        acts = {IdleRule.PARK: self.park_idle, IdleRule.STOP: self.stop_idle}
        act = acts.get(self.parts.config.idle_rule)
        while act is not None:
            await asyncio.sleep(IDLE_PERIOD_S)
            with suppress(RefusedError, StoreError):  # by the next time it can be written
                await act()

    async def stop_idle(self) -> None:
        """Cancel the jobs that are idle. Raises RefusedError: 503, nothing can be written."""

        def prepare(turn: Turn) -> None:
            for one in self.overviews.idle(turn.now_s):
                changes.cancel(turn, JobId(one["job"]), f"the rule for idle jobs, after {span(one['idle_s'])}")

        if self.overviews.idle(self.parts.driver.now()):
            await self.parts.driver.change(prepare)

    async def park_idle(self) -> None:
        """Have the jobs that are idle give their devices up until they would step again, where they can.

        Raises RefusedError: 503, nothing can be written.
        """

        def prepare(turn: Turn) -> None:
            for one in self.overviews.idle(turn.now_s):
                job = self.parts.read_model.jobs[JobId(one["job"])]
                changes.park_idle(turn, self.parts.driver.core.state, job, one["idle_s"])

        idle = self.overviews.idle(self.parts.driver.now())
        kept = {one["job"]: one["problem"] for one in idle if one["problem"]}
        for job, problem in kept.items() - self.problems.items():
            log.info("job %d is idle, and is not parked: %s", job, problem)
        self.problems = kept
        if len(kept) < len(idle):
            await self.parts.driver.change(prepare)
