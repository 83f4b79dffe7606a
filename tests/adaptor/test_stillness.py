"""Whether a process stands still is told by where its threads are, for an agent that has it watched."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import pytest

from colane.adaptor.stacks import PREFIX
from colane.adaptor.stillness import EVERY_S, QUESTION, computes, look
from colane.adaptor.wire import STEPS_FILE_ENV, create
from colane.adaptor.writer import CONTROL_OFFSET, HOLD, MOVED, RESTS_WORD, STILL_WORD, WATCH, WATCHABLE
from tests.agent.waiting import until

CHILD = """
import asyncio, os, select, sys, threading, time
from colane.adaptor.recorder import Recorder

def reads(): sys.stdin.buffer.raw.readline()
def selects(): select.select([0], [], []); reads()
def looks():
    while not select.select([0], [], [], 0)[0]: time.sleep(0.05)
    reads()
def waits():
    over = threading.Thread(target=reads)
    over.start()
    over.join()
def runs():
    async def wait():
        while not select.select([0], [], [], 0)[0]: await asyncio.sleep(0.05)
        reads()
    asyncio.run(wait())
to = Recorder(sys.argv[1])
to.register()
print("ready", flush=True)
globals()[sys.argv[2]]()
print("on", flush=True)
threading.Event().wait()
"""


class Child:
    """A process that waits in one way, for a line, and then in another."""

    def __init__(self, path: Path, way: str) -> None:
        create(path)
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), way],
            env=os.environ | {STEPS_FILE_ENV: str(path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin: IO[str] = self.process.stdin
        self.stdout: IO[str] = self.process.stdout
        self.says("ready")

    def says(self, word: str) -> None:
        assert self.stdout.readline() == f"{word}\n"

    def go_on(self) -> None:
        self.stdin.write("\n")
        self.stdin.flush()

    def word(self, index: int) -> int:
        return int(struct.unpack_from("=Q", self.path.read_bytes(), index * 8)[0])

    def order(self, word: int, value: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(CONTROL_OFFSET + word * 8)
            file.write(struct.pack("=Q", value))

    def watch(self) -> None:
        self.order(WATCH, 1)
        (pipe,) = [one for one in self.path.parent.iterdir() if one.name.startswith(PREFIX)]
        with pipe.open("wb") as file:
            file.write(QUESTION)

    def is_still(self) -> bool:
        return self.word(STILL_WORD) > MOVED

    def has_moved(self) -> bool:
        return self.word(STILL_WORD) == MOVED


@pytest.fixture
def child(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Child]:
    made = Child(tmp_path / "steps", request.param)
    yield made
    made.process.kill()
    made.process.wait()
    made.stdin.close()
    made.stdout.close()


@pytest.mark.parametrize("child", ["reads", "selects", "looks", "waits", "runs"], indirect=True)
def test_what_waits_stands_still_until_it_goes_on(child: Child) -> None:
    assert (child.word(RESTS_WORD), child.word(STILL_WORD)) == (WATCHABLE, 0)
    child.watch()
    until(child.is_still, "it stands still")
    child.order(HOLD, 1)
    seen = child.word(STILL_WORD)
    until(lambda: child.word(STILL_WORD) > seen, "it still does")
    child.go_on()
    child.says("on")
    until(child.has_moved, "it has moved")
    child.order(HOLD, 0)
    until(child.is_still, "it may stand still again where it waits now")
    child.order(WATCH, 0)
    until(lambda: child.word(STILL_WORD) == 0, "it is watched no more")
    child.watch()
    until(child.is_still, "it can be watched once more")


def test_what_computes_is_told_by_what_it_has_run() -> None:
    """Python's lock is had by the thread that looks, so another that computes is seen to wait for it, at one place."""
    wanted: SimpleQueue[float] = SimpleQueue()
    done: SimpleQueue[None] = SimpleQueue()

    def compute() -> None:
        while (until_s := wanted.get()) >= 0:
            while time.thread_time() < until_s:
                pass
            done.put(None)

    thread = threading.Thread(target=compute)
    thread.start()
    seen = []
    for run_s in (0.0, 0.1, 0.1):  # the last time it waits from beginning to end
        wanted.put(run_s)
        done.get()
        until(lambda: "running" not in str(look().places[thread.ident or 0]), "it waits")
        seen.append(look())
    ident = thread.ident or 0
    wanted.put(-1)
    thread.join()
    for place, one in enumerate(seen):
        one.at_s = place * EVERY_S
        one.ran_ns = {ident: one.ran_ns[ident]}
    assert [computes(*pair) for pair in pairwise(seen)] == [True, False]
    assert seen[1].places[ident] == seen[2].places[ident]
