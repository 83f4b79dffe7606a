"""What the store of samples takes: bytes of 90 days, and the part of a core while reports come.

    python -m benchmarks.samples [--nodes 1000] [--gpus 8] [--minutes 5]

Bytes: of some nodes, by filling their rings as 90 days would: the finest and the middle one at their full rate for as
long as they reach back, the coarsest with a sample every ten minutes; then multiplied. The part of a core: all nodes
report every two seconds of simulated time, every device and a job on each, flushed and pruned as the scheduler does.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import gc
import os
import random
import tempfile
import time
from pathlib import Path

from colane.model.device_use import DeviceUsage, JobUsage
from colane.server.main import NEVER, OBJECTS_PER_COLLECTION
from colane.server.samples.keeper import FLUSH_PERIOD_S, SampleKeeper
from colane.server.samples.rings import LEVELS

HEARTBEAT_S = 2.0
FILLED_NODES = 2
BEGIN_S = 1_750_000_000.0
DRAWN = 512
"""Different samples: making them is none of what is measured."""
GB = 10**9


def drawn(gpus: int) -> list[tuple[list[DeviceUsage], list[JobUsage]]]:
    """What nodes tell, none of it twice in a row."""
    chance = random.Random(0)  # noqa: S311
    return [
        (
            [
                DeviceUsage(index, chance.randint(0, 100) / 100, chance.randint(0, 80 * GB), chance.uniform(60, 700),
                            61.0, (), None)
                for index in range(gpus)
            ],
            [
                JobUsage(chance.random(), chance.randint(0, 80 * GB), chance.uniform(0, 16), chance.randint(0, 64 * GB),
                         chance.uniform(0.1, 50), chance.random())
                for _ in range(gpus)
            ],
        )
        for _ in range(DRAWN)
    ]  # fmt: skip


def size_bytes(path: Path, name: str) -> int:
    """Of a file of samples with what SQLite keeps beside it."""
    return sum(one.stat().st_size for one in path.glob(f"{name}*"))


async def filled_bytes(path: Path, gpus: int) -> tuple[int, int]:
    """Bytes of the file of some nodes' rings that are full: of devices alone, and of their jobs too."""
    found = []
    for has_jobs in (False, True):
        keeper, told = SampleKeeper.at(path / f"filled-{has_jobs}.db"), drawn(gpus)
        end_s = BEGIN_S + LEVELS[-1].span_s
        fine_s = end_s - LEVELS[1].span_s
        at_s, number = BEGIN_S, 0
        while at_s < end_s:
            for node in range(FILLED_NODES):
                devices, jobs = told[(number + node) % DRAWN]
                uses = {node * gpus + place: use for place, use in enumerate(jobs)} if has_jobs else {}
                keeper.take(f"node-{node}", at_s, devices, uses)
            number += 1
            at_s += LEVELS[0].step_s if at_s >= fine_s else LEVELS[-1].step_s
            if number % 100 == 0:  # or what is too old would stand beside what is not
                await keeper.flush(at_s)
                await keeper.prune(at_s)
        await keeper.flush(at_s, closing=True)
        await keeper.prune(at_s)
        keeper.close()
        found.append(size_bytes(path, f"filled-{has_jobs}.db"))
    return found[0], found[1]


async def cost(path: Path, nodes: int, gpus: int, minutes: float) -> tuple[float, float, int]:
    """CPU time of the loop's thread and of all threads, and bytes written, while so much simulated time passes."""
    keeper, told = SampleKeeper.at(path / "live.db"), drawn(gpus)
    began, began_loop, at_s, flushed_s = time.process_time(), time.thread_time(), BEGIN_S, BEGIN_S
    for number in range(int(minutes * 60 / HEARTBEAT_S)):
        for node in range(nodes):
            devices, jobs = told[(number + node) % DRAWN]
            keeper.take(f"node-{node}", at_s, devices, {node * gpus + place: use for place, use in enumerate(jobs)})
        at_s += HEARTBEAT_S
        if at_s - flushed_s >= FLUSH_PERIOD_S:
            flushed_s = at_s
            await keeper.flush(at_s)
    took = time.thread_time() - began_loop, time.process_time() - began
    keeper.close()
    return *took, size_bytes(path, "live.db")


def main() -> None:
    """Measure, and print."""
    gc.set_threshold(OBJECTS_PER_COLLECTION, NEVER, NEVER)  # as the scheduler does
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=5.0, help="of simulated time, for the part of a core")
    asked = parser.parse_args()
    print(
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, load before {os.getloadavg()[0]:.1f}; {asked.nodes} nodes x {asked.gpus}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        devices, both = asyncio.run(filled_bytes(path, asked.gpus))
        scale = asked.nodes / FILLED_NODES / GB
        print(f"90 days: {devices * scale:.2f} GB of devices; {both * scale:.2f} GB with a job on each all the time")
        loop_s, all_s, size = asyncio.run(cost(path, asked.nodes, asked.gpus, asked.minutes))
        span_s = asked.minutes * 60
        print(
            f"of a core: {loop_s / span_s:.1%} of the loop, {all_s / span_s:.1%} with the thread that writes; ", end=""
        )
        print(f"{size / 1e6:.0f} MB in the file after {asked.minutes:g} min")


if __name__ == "__main__":
    main()
