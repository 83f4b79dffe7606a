"""What one answer of /metrics, and of /overview, takes of a large cluster: CPU time of the scheduler.

    python -m benchmarks.metrics [--nodes 1000] [--jobs 8000] [--waiting 10000]

Nodes of eight devices, each sampled, with one running job on each device; the rest waits.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

from tests.server.harness import World, gpu, launched, node, report, world

from colane.model.device_use import DeviceUsage, JobUsage
from colane.server.ground.access import Caller, Role
from colane.server.service import Service

GPUS = 8
TIMES = 9


def cpu_s(work: Callable[[], Any]) -> tuple[float, float]:
    """First and median CPU time."""
    took = []
    for _ in range(TIMES):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return took[0], statistics.median(took[1:])


async def populate(w: World, nodes: int, jobs: int, waiting: int) -> None:
    """Let nodes register, jobs come, and all that run report a step."""
    for number in range(nodes):
        name, devices = f"n{number}", [gpu(index, type="A100", uuid=f"{number}-{index}") for index in range(GPUS)]
        await w.good("POST", "/node", node(name, agent_id=name, cores=list(range(64))) | {"gpus": devices})
    request = {"command": ["true"], "user": "ann", "family": "f"}
    for first in range(0, jobs + waiting, 2_000):
        batch = [{**request, "name": f"vit-{first + n}", "user": f"u{(first + n) % 40}"} for n in range(2_000)]
        await w.good("POST", "/jobs", batch[: jobs + waiting - first])
    by_node: dict[str, list[Any]] = {}
    for job in w.service.read_model.jobs.values():
        if job.placement is not None:
            by_node.setdefault(job.placement.node, []).append(job)
    for name, placed in by_node.items():
        told = [launched(j.id, start_s=1.0, progress={"at_s": 1.0, "steps": 9, "step_mean_s": 0.1}) for j in placed]
        await w.good("POST", f"/node/{name}/report", report(*told, agent_id=name))


def sample(service: Service) -> None:
    """Let every device and every job be seen."""
    for name in service.read_model.nodes:
        uses = [DeviceUsage(index, 0.97, 71 * 10**9, 512.5, 61.0, ("power-cap",), None) for index in range(GPUS)]
        jobs = {int(j.id): JobUsage(0.97, 71 * 10**9, 7.5, 10**10, 12.5) for j in service.read_model.assigned(name)}
        service.samples.take(name, service.driver.now(), uses, jobs)


async def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=8_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    asked = parser.parse_args()
    async with world(policy="colane") as w:
        await populate(w, asked.nodes, asked.jobs, asked.waiting)
        service, sight = w.service, w.service.sight(Caller("op", Role.OPERATOR))
        sample(service)
        text = service.metrics.text(sight, is_open=False)
        print(f"{asked.nodes} nodes x {GPUS}, {asked.jobs} jobs, {asked.waiting} waiting; {len(text) / 1e6:.1f} MB,")
        print(f"{text.count(chr(10))} lines; why all wait: {service.overviews.reasons_cost_s * 1e3:.0f} ms")
        for name, work in (
            ("/overview", lambda: service.overviews.make(sight)),
            ("/metrics", lambda: service.metrics.text(sight, is_open=False)),
        ):
            first, median = cpu_s(work)
            print(f"{name}: {first * 1e3:.0f} ms the first time, {median * 1e3:.0f} ms then (median of {TIMES - 1})")


if __name__ == "__main__":
    asyncio.run(main())
