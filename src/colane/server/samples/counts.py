"""How many devices work and how many jobs wait, counted every few seconds: what screens draw of the last hour."""

from __future__ import annotations

from collections import Counter
from typing import Final

from colane.model.arrays import number_of
from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.server.board.read_model import ReadModel
from colane.server.samples.keeper import ClusterCounts, SampleKeeper

COUNTED_EACH_S: Final = 10.0
WAITING_COUNTED_EACH_S: Final = 60.0
"""Why all jobs wait takes a plan."""


def counted(read_model: ReadModel, samples: SampleKeeper, now_s: float) -> ClusterCounts:
    """Count: some ms with ten thousand jobs."""
    holders, stopped = Counter[GpuId](), Counter[GpuId]()
    running = waiting = 0
    for job in list(read_model.jobs.values()):
        if job.array is not None:
            waiting += number_of(job.array.pending)
        elif job.placement is not None:
            running += 1
            holders.update(job.gpus_held)
            if job.state is JobState.PAUSED:
                stopped.update(job.gpus_held)
        elif job.state is JobState.QUEUED:
            waiting += 1
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
    return ClusterCounts(devices, working, sharing, running, waiting, sum(busy) / len(busy) if busy else None)


def broken(read_model: ReadModel) -> dict[str, None]:
    """Devices that do not work any more, of nodes that are not lost."""
    return {
        f"{name}/{gpu.index}": None
        for name, record in read_model.nodes.items()
        if not record.lost
        for gpu in record.node.gpus
        if not gpu.healthy
    }
