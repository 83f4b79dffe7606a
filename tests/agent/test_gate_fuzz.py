"""Whatever is sent to the gate's socket: it goes on serving, and the other job of the lane goes on in its turns.

`COLANE_MESSAGES` says how many are sent; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import turns, writer
from colane.agent import processes
from colane.agent.gate.gate import LINKS_MAX, Follow, LaneGate, Place
from colane.agent.gate.values import GateJob, GateTimeouts
from colane.agent.measuring.telemetry import read_steps
from colane.agent.processes import ProcessId
from colane.model.placement import Turns

pytestmark = pytest.mark.live

MESSAGES = int(os.environ.get("COLANE_MESSAGES", "4000"))
SEEDS = 4
LENGTH_MAX = 200
LINKS = 8
"""Connections kept open at a time."""
EDGES = (0, 1, 2, 3, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
FIELD_BITS = {1: 16, 2: 16, 3: 32, 4: 32, 5: 64, 6: 64}
DEADLINE_S = 60.0
ME, OTHER = 1, 2
STEPPER = """
import sys, time
import colane.adaptor as colane
steps = colane.attach()
while True:
    time.sleep(0.001)
    steps.step()
"""


def garbage(rng: random.Random) -> bytes:
    """Noise, or a request of ours with some of its fields wrong, cut short now and then."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(1, LENGTH_MAX))
    fields: list[Any] = [b"CLNG", turns.PROTOCOL, rng.choice((1, 2, 3)), os.getpid(), 1, rng.randrange(100), 7]
    for place, bits in FIELD_BITS.items():
        if rng.random() < 0.25:
            fields[place] = rng.choice([*EDGES, rng.getrandbits(bits)]) % 2**bits
    if rng.random() < 0.1:
        fields[0] = rng.randbytes(4)
    request = turns.REQUEST.pack(*fields)
    return request[: rng.randrange(1, len(request))] if rng.random() < 0.1 else request


def connect(gate: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(os.fspath(gate))
    link.setblocking(False)
    return link


class Fuzzer:
    """Sends garbage over connections that come and go."""

    def __init__(self, gate: Path, seed: int) -> None:
        self._gate = gate
        self._rng = random.Random(seed)
        self._links: list[socket.socket] = []

    def send(self) -> None:
        rng = self._rng
        if not self._links or (len(self._links) < LINKS and rng.random() < 0.3):
            self._links.append(connect(self._gate))
        link = rng.choice(self._links)
        with suppress(OSError):  # the gate has dropped it, or hears no more for now
            link.send(garbage(rng))
        if rng.random() < 0.1:
            self._links.remove(link)
            link.close()

    def close(self) -> None:
        for link in self._links:
            link.close()


@contextmanager
def stepper(gate: Path, steps_file: Path) -> Iterator[ProcessId]:
    env = {**os.environ, turns.GATE_ENV: str(gate), "COLANE_STEPS_FILE": str(steps_file)}
    with subprocess.Popen([sys.executable, "-c", STEPPER], env=env) as process:
        found = processes.identify(process.pid)
        assert found is not None
        try:
            yield found
        finally:
            process.kill()


def steps_of(steps_file: Path) -> int:
    seen = read_steps(steps_file)
    return seen.steps if seen is not None else 0


async def until(done: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end_s, what
        await asyncio.sleep(0.005)


async def goes_on(steps_file: Path, more: int = 20) -> None:
    goal = steps_of(steps_file) + more
    await until(lambda: steps_of(steps_file) >= goal, "the other job goes on")


async def heard(gate: Path) -> bool:
    """Whether the gate answers a proper question."""
    loop = asyncio.get_running_loop()
    with connect(gate) as link:
        link.send(turns.REQUEST.pack(b"CLNG", turns.PROTOCOL, turns.PING, os.getpid(), 1, 0, 77))
        answer = await asyncio.wait_for(loop.sock_recv(link, turns.ANSWER.size), DEADLINE_S)
    return answer == turns.answer(turns.WAIT, 77)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_message_stops_the_gate_or_the_other_job(tmp_path: Path, seed: int) -> None:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    mine, theirs, path = tmp_path / "mine", tmp_path / "theirs", tmp_path / "gate"
    for file in (mine, theirs):
        writer.create(file)
    me, pages = processes.identify(os.getpid()), writer.Writer(str(mine))
    gate, fuzzer = LaneGate(path, GateTimeouts(yield_s=0.05)), Fuzzer(path, seed)
    with stepper(path, theirs) as other:
        places = [Place(GateJob(job=OTHER, lanes=((0, 0),)), theirs, lambda: other)]
        gate.follow(Follow([*places, Place(GateJob(job=ME, lanes=((0, 0),)), mine, lambda: me)], Turns()))
        await goes_on(theirs)
        for _ in range(MESSAGES // SEEDS):
            fuzzer.send()
            await asyncio.sleep(0)
        assert len(gate._links) <= LINKS_MAX
        fuzzer.close()
        await goes_on(theirs)
        assert await heard(path)
        assert set(gate.seen()) == {ME, OTHER}
    gate.close()
    pages.close()
    assert raised == []
