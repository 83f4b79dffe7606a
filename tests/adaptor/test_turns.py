"""The job's side of turns goes on whatever the agent does, or does not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import turns
from colane.adaptor.turns import GO, LEAVE, PING, SOON, WAIT, YIELD, TurnTaker, answer, read_request

DEADLINE_S = 30.0
Serve = Callable[[socket.socket], None]


Make = Callable[..., TurnTaker]


@pytest.fixture
def taker_of() -> Iterator[Make]:
    """Makes takers with such words in their control page."""
    made: list[TurnTaker] = []

    def make(**values: int) -> TurnTaker:
        words = memoryview(bytearray(4096)).cast("Q")
        for name, value in values.items():
            words[getattr(turns, name)] = value
        made.append(TurnTaker(words))
        return made[-1]

    yield make
    for taker in made:
        taker.disarm()


@contextmanager
def agent(path: Path, serve: Serve) -> Iterator[None]:
    """Listen at a path and serve one connection."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    turns.at_address(str(path), listener.bind)
    listener.listen()
    listener.settimeout(DEADLINE_S)

    def run() -> None:
        connection, _ = listener.accept()
        connection.settimeout(DEADLINE_S)
        with connection:
            serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(DEADLINE_S)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gate"
    monkeypatch.setenv(turns.GATE_ENV, str(path))
    monkeypatch.setattr(turns, "RETRY_S", 0.0)
    for name in turns.RANKS_NAMES:
        monkeypatch.delenv(name, raising=False)
    return path


def test_a_turn_is_asked_for_and_waited_for(taker_of: Make, gate: Path) -> None:
    asked = []

    def serve(connection: socket.socket) -> None:
        for _ in range(2):
            asked.append(read_request(connection.recv(100)))
            connection.send(answer(WAIT, asked[-1][-1]))
            connection.send(answer(GO, asked[-1][-1]))

    taker = taker_of()
    with agent(gate, serve):
        taker.boundary(7)
        taker.boundary(8)
    assert asked == [(YIELD, os.getpid(), 1, 7, 1), (YIELD, os.getpid(), 1, 8, 2)]
    assert taker.waited_s > 0


def test_what_passes_while_the_turn_is_given_up_is_waited_for(
    taker_of: Make, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who hears the word may take the core from the job that says it: the second until it goes on is no step's."""
    clock = SlowSend()
    taker = taker_of()
    monkeypatch.setattr(turns, "time", clock)
    monkeypatch.setattr(TurnTaker, "_send", clock.sends(TurnTaker._send))

    def serve(connection: socket.socket) -> None:
        connection.send(answer(GO, read_request(connection.recv(100))[-1]))

    with agent(gate, serve):
        taker.boundary(1)
    assert taker.waited_s == 1.0


class SlowSend:
    """A clock that stands, but for a second in which a word is said."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s

    monotonic = perf_counter

    def sends(self, own: Callable[..., None]) -> Callable[..., None]:
        def send(*args: Any) -> None:
            own(*args)
            self.now_s += 1.0

        return send


def soon(words: memoryview, due_s: float) -> None:
    words[turns.SOON_AT] = int(due_s * 1e9)


@pytest.mark.parametrize("due_in_s", [-1.0, 0.0, 0.01, 30.0])
def test_a_job_that_is_told_when_its_turn_comes_waits_for_it_all_the_same(
    taker_of: Make, gate: Path, due_in_s: float
) -> None:
    """However wrong that is: it goes on by the word alone, and at once."""
    taker, told = taker_of(), []

    def serve(connection: socket.socket) -> None:
        *_, serial = read_request(connection.recv(100))
        soon(taker._words, time.monotonic() + due_in_s)
        connection.send(answer(SOON, serial))
        threading.Event().wait(0.05)
        told.append(time.monotonic())
        connection.send(answer(GO, serial))

    with agent(gate, serve):
        taker.boundary(1)
        came_s = time.monotonic()
    assert taker.waited_s > 0
    assert 0 <= came_s - told[0] < 20


def test_a_job_that_finds_no_core_free_for_it_does_not_look_again_soon(
    taker_of: Make, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(turns, "SPIN_AFTER_S", DEADLINE_S)
    monkeypatch.setattr(turns, "SPIN_RETRY_S", 10 * DEADLINE_S)
    has_looked, looks = threading.Event(), Counter[int]()
    step = 1

    def look() -> None:
        looks[step] += 1
        has_looked.set()

    monkeypatch.setattr(os, "sched_yield", look)
    taker = taker_of()

    def serve(connection: socket.socket) -> None:
        for is_first in (True, False):
            *_, serial = read_request(connection.recv(100))
            has_looked.clear()
            soon(taker._words, time.monotonic())
            connection.send(answer(SOON, serial))
            assert has_looked.wait(DEADLINE_S if is_first else 0.1) is is_first
            connection.send(answer(GO, serial))

    with agent(gate, serve):
        taker.boundary(1)
        step = 2
        taker.boundary(2)
    assert (looks[1] > 0, looks[2]) == (True, 0)


def test_a_rank_goes_on_until_the_step_agreed_on(taker_of: Make, gate: Path) -> None:
    asked = []

    def serve(connection: socket.socket) -> None:
        asked.append(read_request(connection.recv(100)))
        connection.send(answer(GO, asked[-1][-1]))

    taker = taker_of(FLAG=1, PAUSE_AT=9)
    with agent(gate, serve):
        for step in (7, 8, 9):
            taker.boundary(step)
    assert [step for _, _, _, step, _ in asked] == [9]


def hang_up(connection: socket.socket) -> None:
    connection.recv(100)


def speak_otherwise(connection: socket.socket) -> None:
    *_, serial = read_request(connection.recv(100))
    connection.send(turns.ANSWER.pack(b"CLNG", turns.PROTOCOL + 1, WAIT, serial))


def speak_nonsense(connection: socket.socket) -> None:
    connection.recv(100)
    connection.send(b"\xff" * 3)


def say_nothing(connection: socket.socket) -> None:
    assert read_request(connection.recv(100))[0] == YIELD
    assert read_request(connection.recv(100))[0] == PING
    assert connection.recv(100) == b"", "it gives up"


@pytest.mark.parametrize("serve", [hang_up, speak_otherwise, speak_nonsense, say_nothing])
def test_whatever_the_agent_does_the_job_goes_on(
    taker_of: Make, gate: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SILENCE_MAX_S", 0.05)
    with agent(gate, serve):
        taker_of().boundary(1)


def test_an_agent_that_lives_is_waited_for_beyond_its_silence(
    taker_of: Make, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SILENCE_MAX_S", 0.05)
    pings = []

    def serve(connection: socket.socket) -> None:
        *_, serial = read_request(connection.recv(100))
        for _ in range(4):
            pings.append(read_request(connection.recv(100))[0])
            connection.send(answer(WAIT, serial))
        connection.send(answer(GO, serial))

    with agent(gate, serve):
        taker_of().boundary(1)
    assert pings == [PING] * 4


@pytest.mark.parametrize("where", [None, "/nowhere/gate", "/dev/null", "/proc/self/mem", "x" * 4000, "/" + "y/" * 200])
def test_no_agent_at_all(taker_of: Make, where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if where is None:
        monkeypatch.delenv(turns.GATE_ENV, raising=False)
    else:
        monkeypatch.setenv(turns.GATE_ENV, where)
    taker = taker_of()
    taker.boundary(1)
    taker.boundary(2)
    taker.leave(2)
    assert taker.waited_s == 0.0


def test_a_path_longer_than_an_address(taker_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120) / "gate"
    deep.parent.mkdir()
    monkeypatch.setenv(turns.GATE_ENV, str(deep))
    heard = []

    def serve(connection: socket.socket) -> None:
        heard.append(read_request(connection.recv(100)))
        connection.send(answer(GO, heard[-1][-1]))

    with agent(deep, serve):
        taker_of().boundary(3)
    assert len(heard) == 1


def test_the_turn_is_given_up_when_the_process_ends(gate: Path) -> None:
    heard = []

    def serve(connection: socket.socket) -> None:
        heard.append(read_request(connection.recv(100))[0])
        connection.send(answer(GO, 1))
        heard.append(read_request(connection.recv(100))[0])

    script = "from colane.adaptor.turns import TurnTaker; TurnTaker(memoryview(bytes(32)).cast('Q')).boundary(1)"
    with agent(gate, serve):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=DEADLINE_S)
    assert heard == [YIELD, LEAVE]


class Deadline(Exception):  # noqa: N818 - what a script would call it
    """Raised by a signal handler of the job."""


@pytest.mark.parametrize("error", [Deadline, TimeoutError, KeyboardInterrupt])
def test_an_error_that_the_jobs_signal_handler_raises_is_the_jobs(
    taker_of: Make, gate: Path, error: type[BaseException]
) -> None:
    def raise_it(*_: Any) -> None:
        raise error

    asked = []

    def serve(connection: socket.socket) -> None:
        asked.append(read_request(connection.recv(100)))
        os.kill(os.getpid(), signal.SIGUSR1)
        asked.append(read_request(connection.recv(100)))
        connection.send(answer(GO, asked[0][-1]))
        connection.send(answer(GO, asked[1][-1]))

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        taker = taker_of()
        with agent(gate, serve):
            with pytest.raises(error):
                taker.boundary(1)
            taker.boundary(2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [step for _, _, _, step, _ in asked] == [1, 2]


def test_a_forked_child_leaves_the_connection_to_its_parent(taker_of: Make, gate: Path) -> None:
    heard = []

    def serve(connection: socket.socket) -> None:
        for _ in range(2):
            heard.append(read_request(connection.recv(100))[3])
            connection.send(answer(GO, len(heard)))

    taker = taker_of()
    with agent(gate, serve):
        taker.boundary(1)
        child = os.fork()
        if child == 0:
            taker.disarm()
            taker.boundary(99)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        taker.boundary(2)
    assert heard == [1, 2]


class Cuda:
    """Notes what is asked of it."""

    def __init__(self, *, capturing: bool = False, broken: bool = False) -> None:
        self.done: list[str] = []
        self.capturing, self.broken = capturing, broken

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def device_count(self) -> int:
        return 3

    def synchronize(self, device: int) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.done.append(f"synchronize {device}")

    def empty_cache(self) -> None:
        self.done.append("empty_cache")


def torch_with(cuda: Cuda) -> types.SimpleNamespace:
    """PyTorch with contexts on the first and the third of three GPUs."""
    return types.SimpleNamespace(cuda=cuda, _C=types.SimpleNamespace(_cuda_hasPrimaryContext=lambda gpu: gpu != 1))


@pytest.mark.parametrize(("flush", "done"), [(0, []), (1, ["empty_cache"])])
def test_the_gpu_is_idle_before_the_turn_is_given_up(
    taker_of: Make, gate: Path, monkeypatch: pytest.MonkeyPatch, flush: int, done: list[str]
) -> None:
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", torch_with(cuda))
    seen = []

    def serve(connection: socket.socket) -> None:
        *_, serial = read_request(connection.recv(100))
        seen.append(list(cuda.done))
        connection.send(answer(GO, serial))

    with agent(gate, serve):
        taker_of(FLUSH=flush).boundary(1)
    assert seen == [["synchronize 0", "synchronize 2", *done]], "each device with a context, and no other"


@pytest.mark.parametrize("cuda", [Cuda(capturing=True), Cuda(broken=True)])
def test_a_graph_under_capture_and_an_error_of_cuda_are_left_alone(
    taker_of: Make, gate: Path, monkeypatch: pytest.MonkeyPatch, cuda: Cuda
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_with(cuda))
    with agent(gate, lambda _connection: None):
        taker_of().boundary(1)
    assert cuda.done == []


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * turns.REQUEST.size, b"CLNG" + b"\xff" * (turns.REQUEST.size - 4)])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|protocol"):
        read_request(data)


def test_the_number_of_ranks_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in turns.RANKS_NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert turns.ranks_here() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert turns.ranks_here() == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    assert turns.ranks_here() == 1
