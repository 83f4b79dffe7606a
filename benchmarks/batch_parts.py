"""What each part of a batch of submissions costs, in CPU time: read, judged, entered, composed, committed, answered.

One process without HTTP, on SQLite's file; of several batches the least of each part, which other work raises least.
Between "composed" and "committed" lies no time of the disk: CPU time has none.

    python -m benchmarks.batch_parts [--jobs 2000] [--rounds 8] [--state DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import gc
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from benchmarks.submit_rest import JOB
from pydantic_core import to_json

from colane.core.core import Core
from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.ground.access import Caller, Role
from colane.server.http.batch_body import parse_batch
from colane.server.main import LOCK_HELD_S, NEVER, OBJECTS_PER_COLLECTION
from colane.server.store.opening import open_store
from colane.server.store.sqlite import SqliteStore
from colane.server.writer import driver
from colane.server.writer.ledger import compose

Answer = TypeVar("Answer")


class Parts:
    """CPU seconds of the threads that ran each part, a batch after another."""

    def __init__(self) -> None:
        self.took_s: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, call: Callable[..., Answer]) -> Callable[..., Answer]:
        """Return the call, which is timed."""

        def called(*given: object, **named: object) -> Answer:
            began_s = time.thread_time()
            answer = call(*given, **named)
            self.took_s[name].append(time.thread_time() - began_s)
            return answer

        return called


async def measured(jobs: int, rounds: int, folder: Path) -> Parts:
    """Submit batch after batch."""
    parts, body, caller = Parts(), json.dumps([JOB] * jobs).encode(), Caller("me", Role.OPERATOR)
    service = make_service(open_store(None, folder), ServiceConfig(policy="fifo", workdir="/", tick_s=1_000.0))
    with (
        patch.object(Core, "step", parts.timed("entered", Core.step)),
        patch.object(driver, "compose", parts.timed("composed", compose)),
        patch.object(SqliteStore, "commit", parts.timed("committed", SqliteStore.commit)),
    ):
        running = asyncio.create_task(service.driver.run())
        for _ in range(rounds):
            gc.collect()
            began_s = time.process_time()
            read_s = time.thread_time()
            requests = await parse_batch(body)
            parts.took_s["read"].append(time.thread_time() - read_s)
            families = await service.submissions.families(requests, caller)
            prepare = parts.timed("judged", service.submissions.submit(requests, caller, families))
            ids = await service.driver.change(prepare)
            parts.timed("answered", to_json)({"ids": ids})
            parts.took_s["all"].append(time.process_time() - began_s)
        service.driver.stop()
        await running
    return parts


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2_000, help="of each batch")
    parser.add_argument("--rounds", type=int, default=8, help="batches")
    parser.add_argument("--state", type=Path, help="where the store lies (default: a temporary)")
    asked = parser.parse_args()
    gc.set_threshold(OBJECTS_PER_COLLECTION, NEVER, NEVER)
    sys.setswitchinterval(LOCK_HELD_S)
    with tempfile.TemporaryDirectory(dir=asked.state) as folder:
        parts = asyncio.run(measured(asked.jobs, asked.rounds, Path(folder)))
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| part | least | for a job |\n| --- | --- | --- |")
    for name in ("read", "judged", "entered", "composed", "committed", "answered", "all"):
        large = sorted(parts.took_s[name], reverse=True)[: asked.rounds]  # the core steps at its start as well
        print(f"| {name} | {large[-1] * 1e3:.1f} ms | {large[-1] / asked.jobs * 1e6:.1f} us |")


if __name__ == "__main__":
    main()
