from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from colane.agent import processes
from colane.api.jobs import JobObject
from colane.cli.app import run
from colane.client.client import Client
from colane.client.locate import TOKEN_FILE, read_token
from tests.warm import WarmUp

START_MAX_S = 180.0
"""On a busy machine what takes seconds takes a minute; this is for what never comes."""
ENDING_MAX_S = 20.0
"""Within this what was killed or told to end is gone."""
COLANE = [sys.executable, "-m", "colane.cli"]


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Colane = Callable[..., Said]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, without anything that leads to a scheduler of the user's.

    Other tests run at the same time: their load must not keep jobs from sharing.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COLANE_")}
    return {**plain, "COLANE_OTHERS": "ignore", **variables}


@dataclass
class Up:
    """A running `colane up`."""

    process: subprocess.Popen[str] | WarmUp
    state: Path
    greeting: str
    url: str

    @property
    def env(self) -> dict[str, str]:
        """Variables by which clients reach it."""
        token = read_token(self.state / TOKEN_FILE) or ""
        return {"COLANE_URL": self.url, "COLANE_TOKEN": token}

    @property
    def client(self) -> Client:
        return Client(self.url, self.env["COLANE_TOKEN"])

    def wait_for(self, job_id: int, *states: str) -> JobObject:
        """Wait for the event of a job's state."""
        with self.client as client:
            for event in client.events(0):
                if event.kind == "job" and event.body["job"] == job_id and event.body["state"] in states:
                    return client.job(job_id)
        raise AssertionError("the scheduler has stopped")

    def processes(self) -> list[int]:
        """Every process that carries the state directory in its command line or environment."""
        return marked(self.state)

    def leaves_none(self) -> None:
        """Wait for the end of all of them."""
        until_gone(self.state)

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal and wait; return exit code and what else it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=START_MAX_S)
        assert self.process.returncode is not None
        return self.process.returncode, said


def marked(path: Path) -> list[int]:
    """Every live process with this path in its command line or environment, but this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(path).encode() in text and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def until(look: Callable[[], Any], what: str, within_s: float = START_MAX_S) -> Any:
    """Look until there is something to see."""
    deadline_s = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline_s, f"waited in vain: {what}"
        select.select([], [], [], 0.01)
    return seen


def until_gone(path: Path) -> None:
    """Wait for the end of every process with this path: one that was killed is there until it has had a core."""
    until(lambda: not marked(path), f"no process of {path} is left", ENDING_MAX_S)


def start_up(state: Path, *options: str, is_warm: bool = True, **variables: str) -> Up:
    """Start `colane up` and wait until it says that it is ready; a warm one is forked from a process that has it."""
    words, env = ["up", "--port", "0", "--state", str(state), *options], environment(**variables)
    process: subprocess.Popen[str] | WarmUp
    if is_warm:
        process = WarmUp(words, env)
    else:
        process = subprocess.Popen(
            [*COLANE, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "submit with" in line:
            break
    greeting = "".join(lines)
    assert "submit with" in greeting, greeting
    url = json.loads((state / "server.json").read_text())["url"]
    return Up(process, state, greeting, url)


@pytest.fixture
def make_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `colane up`s on this test's state directory; nothing of them outlives it."""
    made: list[Up] = []
    state = tmp_path / "state"

    def make(*options: str, is_warm: bool = True, **variables: str) -> Up:
        made.append(start_up(state, *options, is_warm=is_warm, **variables))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
    left = marked(state)
    processes.kill(one for pid in left if (one := processes.identify(pid)) is not None)


@pytest.fixture(scope="session")
def shared_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `colane up` with two devices for all tests that only talk to it."""
    up = start_up(tmp_path_factory.mktemp("up") / "state", "--devices", "cpu:2:4GB", "--name", "here")
    yield up
    code, said = up.end(15)
    assert code == 0, said
    up.leaves_none()


@pytest.fixture
def colane(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Colane:
    """Runs a command line in this process; by default there is no scheduler anywhere."""
    monkeypatch.setenv("COLANE_STATE", str(tmp_path / "nothing-here"))
    monkeypatch.delenv("COLANE_TOKEN", raising=False)
    monkeypatch.setenv("COLANE_URL", "http://127.0.0.1:1")

    def call(*words: str) -> Said:
        capfd.readouterr()
        code = run(list(words))
        sys.stdout.flush()
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture
def live(shared_up: Up, colane: Colane, monkeypatch: pytest.MonkeyPatch) -> Colane:
    """Runs a command line against the shared scheduler."""
    for name, value in shared_up.env.items():
        monkeypatch.setenv(name, value)
    return colane


def run_colane(words: Sequence[str], **variables: str) -> Said:
    """Run a command line as a process of its own."""
    done = subprocess.run(
        [*COLANE, *words],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=START_MAX_S,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


class Gate:
    """Lets jobs wait for the test: they read from a named pipe until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    @property
    def job(self) -> list[str]:
        """A command that waits at the gate."""
        return ["sh", "-c", f"echo at the gate; cat '{self.path}'; echo through the gate"]

    def open(self) -> None:
        """Let the job that waits go on."""
        self.path.write_text("")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")
