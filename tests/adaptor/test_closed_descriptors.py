"""A script may close every descriptor there is, ours among them, and open its own under the same numbers."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from colane.adaptor import turns
from colane.adaptor.turns import GO, YIELD, TurnTaker, answer, read_request
from tests.adaptor.jobs import Job

STEPS = 6
SCRIPT = f"""
import os, sys
import colane.adaptor as colane

def close_all():
    os.closerange(0, 1024)
    if AGAIN:  # as a daemon does: its own files have the numbers of what was closed
        for name in "abcdefghijkl":
            os.open(name, os.O_RDWR | os.O_CREAT)

if WHEN == -1:
    close_all()
steps = colane.attach(total_steps={STEPS})
for i in range({STEPS}):
    if WHEN == i:
        close_all()
    steps.step(loss=0.5)
if AGAIN:
    assert all(os.path.getsize(name) == 0 for name in "abcdefghijkl")
"""


@pytest.mark.parametrize("when", [-1, 0, 3])
@pytest.mark.parametrize("again", [False, True])
def test_a_script_that_has_closed_all_descriptors_goes_on(job: Job, when: int, again: bool) -> None:
    gate = job.folder / "gate"
    served = threading.Thread(target=serve, args=(listening(gate),), daemon=True)
    served.start()
    env = {"COLANE_DEBUG": "1", turns.GATE_ENV: str(gate)}
    job.train(SCRIPT.replace("WHEN", str(when)).replace("AGAIN", str(again)), **env)
    seen = job.seen()
    assert seen is not None
    assert seen.steps == STEPS


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    turns.at_address(str(path), listener.bind)
    listener.listen()
    return listener


def serve(listener: socket.socket, *, connections: int = 1, asked: list[int] | None = None) -> None:
    """Let everybody go who asks, over so many connections."""
    with listener:
        for _ in range(connections):
            connection, _address = listener.accept()
            with connection:
                while data := connection.recv(turns.REQUEST.size + 1):
                    kind, _pid, _ranks, step, serial = read_request(data)
                    if asked is not None:
                        asked.append(step)
                    if kind == YIELD:
                        connection.send(answer(GO, serial))


@pytest.fixture
def taker() -> TurnTaker:
    return TurnTaker(memoryview(bytearray(4096)).cast("Q"))


def test_what_has_taken_the_number_of_our_connection_is_neither_written_to_nor_closed(
    taker: TurnTaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = tmp_path / "gate", list[int]()
    monkeypatch.setenv(turns.GATE_ENV, str(path))
    monkeypatch.setattr(turns, "RETRY_S", 0.0)
    server = threading.Thread(
        target=serve, args=(listening(path),), kwargs={"connections": 2, "asked": asked}, daemon=True
    )
    server.start()
    taker.boundary(1)
    assert taker._socket is not None
    number = taker._socket.fileno()
    theirs, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, other:
        os.dup2(theirs.fileno(), number)  # closes ours, as the script did, and is at once another's
        taker.boundary(2)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(100)
        os.fstat(number)
        os.close(number)
    taker.boundary(3)
    taker.disarm()
    server.join(30)
    assert asked == [1, 2, 3]
