"""Python stacks of a job's processes, asked for by their agent: of real ones that hang, and of what lies about."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from colane.adaptor import bundle, wire
from colane.adaptor.stacks import ANSWER
from colane.agent.app import make_app
from colane.agent.files.jobdir import JobDir, LaunchFacts, StateDir
from colane.agent.processes import identify
from colane.agent.reconcile import Key
from colane.agent.running import stacks
from colane.agent.supervisor import shim_files
from colane.agent.supervisor.command import Command
from colane.devices.host import boot_id
from colane.server.views.stacks import main_stack, place_in_code
from tests.agent.waiting import until
from tests.needs import needs

KEY = Key(1, 1)
HANGS = """
import os, sys, threading
import colane.adaptor as colane

def wait_for_ever():
    print("here", flush=True)
    {call}

def helper():
    threading.Event().wait()

threading.Thread(target=helper, name="a helper", daemon=True).start()
colane.attach()
wait_for_ever()
"""
JOINS = """
import sys
import torch.distributed as dist
print("here", flush=True)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=2)
"""
IN_C = "os.read(os.pipe()[0], 1)"
KEEPS_LOCK = """import ctypes, time
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    ctypes.PyDLL(None).pause()"""


class Scene:
    """One attempt of a job on this node, and its processes."""

    def __init__(self, root: Path) -> None:
        self.state = StateDir(root / "agent", 1.0)
        self.job = self.state.prepare(KEY, Command(("true",), "/", {}), LaunchFacts(boot_id(), 1.0))
        self._bundle = bundle.unpack(root)
        self.started: list[subprocess.Popen[str]] = []
        me = identify(os.getpid())
        assert me is not None
        (self.job.path / shim_files.CLAIM).write_text(f"{me.pid} {me.start_ticks} {me.boot_id}\n")

    @property
    def own(self) -> Path:
        return self.job.steps_path.parent

    def hang(self, call: str, **variables: str) -> subprocess.Popen[str]:
        """Start a process that hangs in a call, and wait until it is about to."""
        return self.start(HANGS.format(call=call), **variables)

    def start(self, script: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a process and wait until it says that it is there."""
        env = {**os.environ, **bundle_env(self._bundle), wire.STEPS_FILE_ENV: str(self.job.steps_path), **variables}
        command = [sys.executable, "-c", script, *words]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        assert read_line(process.stdout) == "here\n"
        return process


def bundle_env(place: Path) -> dict[str, str]:
    return {"PYTHONPATH": bundle.first_on_path(place, ""), bundle.DIR_ENV: str(place)}


def read_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(stacks, "WAIT_MAX_S", 60.0)  # on a busy machine
    made = Scene(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
    made.state.close()


def test_a_process_that_hangs_outside_python_tells_where(scene: Scene) -> None:
    process = scene.hang(IN_C)
    until(lambda: ", line 7, in wait_for_ever" in stacks.ask(scene.job)[0]["text"], "it has come to where it hangs")
    for _ in range(2):  # it answers as often as it is asked
        (told,) = stacks.ask(scene.job)
        assert (told["pid"], told["rank"], told["problem"]) == (process.pid, None, "")
        main, helper = told["text"].split("\n\n")
        assert main.splitlines()[0] == "Thread MainThread, innermost call first:"
        assert main.splitlines()[1].endswith(", line 7, in wait_for_ever")
        assert helper.startswith("Thread a helper,")
    assert process.poll() is None


def test_ranks_are_told_in_order_and_one_without_the_adaptor_is_told_of(scene: Scene) -> None:
    bare = {"COLANE_ADAPTOR": "off"}
    second, first = scene.hang(IN_C, RANK="1", LOCAL_RANK="1"), scene.hang(IN_C, RANK="0", LOCAL_RANK="0")
    code = "import sys; print('here', flush=True); sys.stdin.read()"
    third = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **bare, "RANK": "2"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    scene.started.append(third)
    assert read_line(third.stdout) == "here\n"
    told = stacks.ask(scene.job)
    assert [(one["rank"], one["pid"]) for one in told] == [(0, first.pid), (1, second.pid), (2, third.pid)]
    assert [one["problem"] for one in told] == ["", "", stacks.NONE_HERE]


def test_one_that_cannot_answer_is_told_of(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    go = scene.own / "go"
    process = scene.hang(KEEPS_LOCK, RANK="0", GO=str(go))
    until(lambda: stacks.ask(scene.job)[0]["text"], "it listens")
    monkeypatch.setattr(stacks, "WAIT_MAX_S", 0.05)
    go.touch()
    told = until(lambda: next((one for one in stacks.ask(scene.job) if one["problem"] == stacks.SILENT), None), "hangs")
    assert (told["rank"], told["pid"], told["text"]) == (0, process.pid, "")


def test_an_ended_process_leaves_nothing_and_one_that_was_killed_is_not_asked(scene: Scene) -> None:
    killed = scene.hang(IN_C)
    killed.kill()
    killed.wait()
    assert len(list(scene.own.glob("stacks.*"))) == 1
    assert stacks.ask(scene.job) == []
    ended = scene.hang("pass")
    assert ended.wait(60) == 0
    assert len(list(scene.own.glob("stacks.*"))) == 1, "of the killed one alone"


@pytest.mark.parametrize("what", ["file", "link", "directory", "deaf"])
def test_what_a_job_puts_in_the_place_of_a_pipe_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setattr(stacks, "WAIT_MAX_S", 0.05)
    place, target = scene.own / "stacks.0.7.00000000", tmp_path / "target"
    target.write_text("mine")
    if what == "file":
        place.write_text("mine")
    elif what == "link":
        place.symlink_to(target)
    elif what == "directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK) if what == "deaf" else None
    told = stacks.ask(scene.job)
    assert [one["problem"] for one in told] == ([stacks.SILENT] if what == "deaf" else [])
    assert target.read_text() == "mine"
    if reader is not None:
        os.close(reader)


@pytest.mark.parametrize("what", ["link", "pipe", "long"])
def test_an_answer_is_taken_as_a_plain_file_of_so_many_printable_characters(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setattr(stacks, "WAIT_MAX_S", 0.05)
    monkeypatch.setattr(os, "urandom", lambda count: b"\x11" * count)
    place = scene.own / "stacks.0.7.00000000"
    os.mkfifo(place)
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    answer, target = Path(f"{place}{ANSWER}"), tmp_path / "target"
    head = f"{'11' * 8} 5\n"
    target.write_text(f"{head}secret")
    if what == "link":
        answer.symlink_to(target)
    elif what == "pipe":
        os.mkfifo(answer)
    else:
        answer.write_text(f"{head}\x1b[31m\u202e\x00Thread\xe9\n" + "x" * 200_000)
    (told,) = stacks.ask(scene.job)
    os.close(reader)
    if what == "long":
        assert told["rank"] == 5
        assert told["text"].startswith("?[31m??Thread\xe9\nxxx")
        assert 60_000 < len(told["text"]) < stacks.STACKS_BYTES_MAX
    else:
        assert (told["text"], told["problem"]) == ("", stacks.SILENT)


def test_a_forked_child_leaves_its_parents_pipe_alone_and_has_none(scene: Scene) -> None:
    scene.hang("os.fork() or os._exit(0); os.wait(); print('forked', flush=True); " + IN_C)
    assert read_line(scene.started[0].stdout) == "forked\n"
    (told,) = stacks.ask(scene.job)
    assert "wait_for_ever" in told["text"]


def test_a_rank_that_waits_for_the_others_of_its_group_is_heard_before_any_step(scene: Scene, tmp_path: Path) -> None:
    needs("torch", "the rank joins a group")
    scene.start(JOINS, str(tmp_path / "meeting"), RANK="0", GLOO_SOCKET_IFNAME="lo")

    def where() -> str:
        return next((str(place_in_code(main_stack(one["text"]))) for one in stacks.ask(scene.job)), "")

    until(lambda: where() == "waits in init_process_group (<string>:5)", "it waits")


async def test_the_agent_answers_over_its_api(scene: Scene) -> None:
    scene.hang(IN_C)
    app = make_app(scene.state, lambda: None, name="n0", secret="s")
    key = {"Authorization": "Bearer s"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
        answer = await client.get("/stacks/1/1", headers=key)
        (told,) = answer.json()["processes"]
        assert "wait_for_ever" in told["text"]
        assert (await client.get("/stacks/1/1")).status_code == 401
        for path in ("/stacks/2/1", "/stacks/1/2", "/stacks/x/1", "/stacks/1/-1"):
            assert (await client.get(path, headers=key)).status_code == 404, path


def test_a_job_without_processes_says_nothing(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "agent", 1.0)
    job = state.prepare(KEY, Command(("true",), "/", {}), LaunchFacts(boot_id(), 1.0))
    assert stacks.ask(job) == []
    state.close()
    with pytest.raises(FileNotFoundError):
        stacks.ask(JobDir(tmp_path / "2-1"))
