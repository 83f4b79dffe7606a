"""A stranger with a thousand connections, who does whatever a stranger can, beside agents that report.

    python -m tests.faults.strangers --seconds 60

It asks each listener of a cluster of one node, the scheduler's and the agent's, by as many connections, which send
requests without an end, begin some and wait, announce bodies, send noise, and ask over and over. Meanwhile another
agent reports ten times a second. What is said in the end: how long its reports took, whether a node was lost, how much
memory scheduler and agent took and have given back, and what they wrote into their logs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx

from colane.cli import output
from tests.listening.kinds import BEGUN, ENDLESS, JSON, NOISE
from tests.listening.listeners import Listeners, cluster
from tests.server.harness import node, report

MB: Final = 2**20
PERIOD_S: Final = 0.1
"""Of the reports that are timed."""
TURN_MAX_S: Final = 8.0
"""A connection is held for so long, and another one opened."""
THERE: Final = "there\n"
GIVEN_BACK_S: Final = 30.0
"""Within this after the last connection memory is looked at once more."""
KEPT_MAX_BYTES: Final = 20 * MB
"""That a process may have beyond what it had: what it keeps of its own work is among it."""
ASKED: Final = f"GET /health HTTP/1.1\r\n{JSON}\r\n".encode()
ANNOUNCED: Final = f"POST /health HTTP/1.1\r\n{JSON}Content-Length: 8388608\r\n\r\n".encode() + b"a" * 60_000


@dataclass
class Told:
    """What came of it.

    Attributes:
        reports_s: How long each report took; one that was refused or failed counts as infinite.
        lost: Nodes that were lost.
        more_bytes: The most memory that each process had beyond what it had before.
        kept_bytes: What it had beyond that in the end.
        lines: Lines that each wrote.
        turns: What strangers did, by kind and how often.
    """

    reports_s: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    more_bytes: dict[str, int] = field(default_factory=dict)
    kept_bytes: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    turns: Counter[str] = field(default_factory=Counter)

    def report_s(self, part: float) -> float:
        """The time within which such a part of the reports was answered."""
        return sorted(self.reports_s)[min(int(part * len(self.reports_s)), len(self.reports_s) - 1)]


def withstand(here: Listeners, seconds: float, connections: int, seed: int = 0) -> Told:
    """Let strangers at a cluster's listeners for a while, and see what they take from others."""
    told, processes = Told(), (here.tcp, here.agent)
    before = {each.name: each.memory_bytes() for each in processes}
    logged = {each.name: len(each.log.read_text().splitlines()) for each in processes}
    stop = threading.Event()
    reporter = threading.Thread(target=_report, args=(here, told, stop))
    strangers = [_crowd_at(each.address, connections, seed + number) for number, each in enumerate(processes)]
    for one in strangers:
        assert one.stdout is not None
        assert one.stdout.readline() == THERE
    reporter.start()
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for each in processes:
            more = each.memory_bytes() - before[each.name]
            told.more_bytes[each.name] = max(told.more_bytes.get(each.name, 0), more)
        told.lost += [one["name"] for one in here.running.http.get("/nodes").json() if one["lost"]]
        stop.wait(0.2)
    for one in strangers:
        told.turns.update(json.loads(one.communicate()[0]))
    stop.set()
    reporter.join()
    until_s = time.monotonic() + GIVEN_BACK_S
    for each in processes:
        while (kept := each.memory_bytes() - before[each.name]) > KEPT_MAX_BYTES and time.monotonic() < until_s:
            time.sleep(0.5)
        told.kept_bytes[each.name] = kept
        told.lines[each.name] = len(each.log.read_text().splitlines()) - logged[each.name]
    return told


def _report(here: Listeners, told: Told, stop: threading.Event) -> None:
    """Report as an agent does, in time, and note how long each takes."""
    with httpx.Client(base_url=here.running.url, headers=here.running.http.headers, timeout=30) as agent:
        agent.post("/node", json=node("probe")).raise_for_status()
        due_s = time.monotonic()
        while not stop.is_set():
            begun_s = time.monotonic()
            try:
                is_taken = agent.post("/node/probe/report", json=report(at_s=time.time())).status_code == 200
            except httpx.HTTPError:
                is_taken = False
            told.reports_s.append(time.monotonic() - begun_s if is_taken else float("inf"))
            due_s = max(due_s + PERIOD_S, time.monotonic())
            stop.wait(due_s - time.monotonic())


def _crowd_at(address: Any, connections: int, seed: int) -> subprocess.Popen[str]:
    """Start a process of strangers, as on another machine: it stops when its input is closed, and tells its turns."""
    words = ["--crowd", json.dumps([address, connections, seed])]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.strangers", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip


async def _crowd(address: Any, connections: int, seed: int) -> None:
    """So many connections at a time, each of a kind that is drawn."""
    os.nice(19)
    turns, over = Counter[str](), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)

    async def one(random: Random) -> None:
        while not over.is_set():
            kind = random.choice((*(f"endless: {one}" for one in ENDLESS), *BEGUN, "noise", "asked", "announced"))
            turns[kind] += 1
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(random.uniform(0.2, TURN_MAX_S)):
                    await _turn(kind, address, random, over)
            await asyncio.sleep(0.01)

    sys.stdout.write(THERE)
    sys.stdout.flush()
    await asyncio.gather(*(one(Random(f"{seed} {number}")) for number in range(connections)))
    sys.stdout.write(json.dumps(turns))


async def _turn(kind: str, address: Any, random: Random, over: asyncio.Event) -> None:
    """One connection, until the other side or its time ends it."""
    _, writer = streams = await asyncio.open_connection(*address)
    try:
        if kind.startswith("endless: "):
            head, piece = ENDLESS[kind.removeprefix("endless: ")]
            writer.write(head.encode())
            number = 0
            while not over.is_set():
                writer.write(piece(number))
                number += 1
                await writer.drain()
        elif kind == "asked":
            while not over.is_set():
                writer.write(ASKED)
                await writer.drain()
                await streams[0].readuntil(b"\r\n\r\n")
        else:
            writer.write({"noise": random.choice(NOISE), "announced": ANNOUNCED}.get(kind) or BEGUN[kind].encode())
            await writer.drain()
            await streams[0].read()
    finally:
        writer.transport.abort()


def main() -> int:
    """Return 1 where strangers took what agents need."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.strangers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (%(default)s)")
    parser.add_argument("--connections", type=int, default=1000, help="at each listener (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (%(default)s)")
    parser.add_argument("--crowd", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.crowd is not None:
        asyncio.run(_crowd(*asked.crowd))
        return 0
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as here:
        told = withstand(here, asked.seconds, asked.connections, asked.seed)
    output.say(f"{sum(told.turns.values())} connections: {dict(told.turns.most_common())}")
    shares = {part: round(told.report_s(part), 3) for part in (0.5, 0.9, 0.99, 1.0)}
    output.say(
        f"{len(told.reports_s)} reports, answered within (s, by part of them): {shares}; nodes lost: {told.lost}"
    )
    for name, more in told.more_bytes.items():
        kept, lines = told.kept_bytes[name], told.lines[name]
        output.say(f"{name}: at most {more / MB:.0f} MB more, {kept / MB:.0f} MB in the end; {lines} lines in its log")
    return 1 if problems(told) else 0


def problems(told: Told) -> list[str]:
    """What strangers took that they should not."""
    found = [f"node {name} was lost" for name in set(told.lost)]
    if told.report_s(0.99) >= 1.0:
        found.append(f"of 100 reports one took {told.report_s(0.99):.2f} s")
    found += [f"{name} took {more / MB:.0f} MB" for name, more in told.more_bytes.items() if more > 100 * MB]
    return found + [
        f"{name} keeps {kept / MB:.0f} MB" for name, kept in told.kept_bytes.items() if kept > KEPT_MAX_BYTES
    ]


if __name__ == "__main__":
    sys.exit(main())
