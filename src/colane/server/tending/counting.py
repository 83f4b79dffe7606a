"""What is counted every so often: devices, reasons for waiting, devices kept for jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from colane.facts.job import waiting
from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.server.board.read_model import ReadModel
from colane.server.ground.problems import RefusedError
from colane.server.parts import Parts
from colane.server.samples.keeper import ClusterCounts, SampleKeeper
from colane.server.samples.marks import BROKEN, KEPT
from colane.server.views.holders import holders_of
from colane.server.views.overview import OverviewMaker, kept_devices, waiting_by_user

# -- How many devices work and how many jobs wait, counted every few seconds: what screens draw of the last hour.

COUNTED_EACH_S: Final = 10.0
WAITING_COUNTED_EACH_S: Final = 60.0  # why all jobs wait takes a plan


def counted(read_model: ReadModel, samples: SampleKeeper, now_s: float) -> ClusterCounts:
    """Count: some ms with ten thousand jobs."""
    holders, stopped = Counter[GpuId](), Counter[GpuId]()
    running = wait = 0
    for job in list(read_model.jobs.values()):
        wait += waiting(job)
        if job.placement is not None:
            running += 1
            holders.update(job.gpus_held)
            if job.state is JobState.PAUSED:
                stopped.update(job.gpus_held)
    devices, gone, busy = 0, set[GpuId](), list[float]()
    for name, record in read_model.nodes.items():
        gone.update(GpuId(name, gpu.index) for gpu in record.node.gpus if record.lost or not gpu.healthy)
        if record.lost:
            continue
        devices += len(record.node.gpus)
        for use in samples.devices_now(name, now_s):
            if use.busy_ratio is not None and GpuId(name, use.index) in holders:
                busy.append(use.busy_ratio)
    held = {gpu: count for gpu, count in holders.items() if gpu not in gone}
    working = sum(count > stopped[gpu] for gpu, count in held.items())
    sharing = sum(count > 1 for count in held.values())
    return ClusterCounts(devices, working, sharing, running, wait, sum(busy) / len(busy) if busy else None)


def broken(read_model: ReadModel) -> dict[str, None]:
    """Devices that do not work any more, of nodes that are not lost."""
    return {
        f"{name}/{gpu.index}": None
        for name, record in read_model.nodes.items()
        if not record.lost
        for gpu in record.node.gpus
        if not gpu.healthy
    }


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
