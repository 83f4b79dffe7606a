"""What is counted every so often: devices, reasons for waiting, devices kept for jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from colane.server.ground.problems import RefusedError
from colane.server.parts import Parts
from colane.server.samples.counts import COUNTED_EACH_S, WAITING_COUNTED_EACH_S, broken, counted
from colane.server.samples.marks import BROKEN, KEPT
from colane.server.views.holders import holders_of
from colane.server.views.overview import OverviewMaker, kept_devices, waiting_by_user


@dataclass(slots=True)
class ClusterWatch:
    """Counts it."""

    parts: Parts  # what the scheduler consists of
    overviews: OverviewMaker  # the whole cluster in numbers

    async def run(self) -> None:
        """Count, until it is cancelled."""
        waited_s = self.parts.driver.now()
        while True:
            now_s = self.parts.driver.now()
            self.parts.samples.take_cluster(now_s, counted(self.parts.read_model, self.parts.samples, now_s))
            self.parts.marks.take(BROKEN, now_s, broken(self.parts.read_model))
            if now_s >= waited_s + WAITING_COUNTED_EACH_S:
                waited_s = self.count_waiting(waited_s, now_s)
            await asyncio.sleep(COUNTED_EACH_S)

    def count_waiting(self, before_s: float, now_s: float) -> float:
        """Count why jobs wait; nothing is known of a longer time in which that was not asked."""
        if now_s < before_s + 2 * WAITING_COUNTED_EACH_S and self.parts.driver.is_ready:
            with suppress(RefusedError):
                waiting = waiting_by_user(
                    self.parts.driver, self.parts.read_model.jobs.values(), self.overviews.waits()
                )
                self.parts.samples.take_waiting(now_s, waiting, now_s - before_s)
                self.mark_kept(now_s)
        return now_s

    def mark_kept(self, now_s: float) -> None:
        """Note which devices are kept for which jobs now. Raises RefusedError: 503 while the store cannot be read."""
        kept = kept_devices(self.parts.read_model, self.overviews.waits(), holders_of(self.parts.read_model))
        self.parts.marks.take(KEPT, now_s, {one["gpu"]: one["job"] for one in kept})
