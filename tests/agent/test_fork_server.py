"""The process that forks supervisors: what its children inherit, and what happens when it is gone or stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from colane.agent.files.jobdir import JobDir
from colane.agent.launch import launcher as launcher_module
from colane.agent.launch.launcher import Launcher
from colane.agent.supervisor import fork_server, programs, shim_files
from tests.agent.shims import Supervised, run, write_command
from tests.agent.waiting import DEADLINE_S
from tests.many_files import many_files

pytestmark = pytest.mark.live


class World:
    """A launcher and what it was asked for."""

    def __init__(self, root: Path, marker: str) -> None:
        self._root, self._marker = root, marker
        self.launcher = Launcher(root)
        self._ready = asyncio.Event()

    def ask(self, number: int, *argv: str) -> Supervised:
        place = self._root / str(number)
        place.mkdir(parents=True)
        job = write_command(place, list(argv), marker=self._marker)
        self.launcher.spawn(JobDir(job.path.rename(self._root / f"{number}-1")), lambda _: self._ready.set())
        return Supervised(JobDir(self._root / f"{number}-1"))

    async def ready(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self._ready.wait()
        self._ready.clear()

    def servers(self) -> list[psutil.Process]:
        name = str(programs.folder(self._root))
        return [one for one in psutil.Process().children() if name in " ".join(one.cmdline())]


@pytest.fixture
async def world(tmp_path: Path, marker: str) -> AsyncIterator[World]:
    world = World(tmp_path, marker)
    yield world
    world.launcher.close()
    assert not world.servers()


async def test_one_serves_all_and_ends_with_its_agent_while_supervisors_go_on(world: World) -> None:
    first = world.ask(1, "sleep", "1000")
    await world.ready()
    second = world.ask(2, "sleep", "1000")
    await world.ready()
    (server,) = world.servers()
    assert {psutil.Process(one.supervisor.pid).ppid() for one in (first, second)} == {server.pid}
    world.launcher.close()
    assert not server.is_running()
    for one in (first, second):
        one.stop()
        assert one.end()["signal"] == signal.SIGTERM


async def test_an_agent_that_ends_waits_for_what_it_asked_for_beside_more_files_than_select_can_watch(
    world: World,
) -> None:
    with many_files():
        last = world.ask(1, "sh", "-c", "exit 3")
        assert world.launcher.is_under_way(last.job.key)
        world.launcher.close()
    assert last.end()["exit_code"] == 3


async def test_another_is_started_when_it_is_killed(world: World) -> None:
    world.ask(1, "true")
    await world.ready()
    (server,) = world.servers()
    server.kill()
    server.wait(DEADLINE_S)
    supervised = world.ask(2, "sh", "-c", "exit 3")
    await world.ready()
    assert supervised.end()["exit_code"] == 3


async def test_one_that_dies_before_it_forks_is_told_of(world: World) -> None:
    world.ask(1, "true")
    await world.ready()
    (server,) = world.servers()
    server.suspend()
    lost = world.ask(2, "true")
    assert world.launcher.is_under_way(lost.job.key)
    server.kill()
    await world.ready()
    assert not (lost.job.path / shim_files.CLAIM).exists()
    assert not world.launcher.is_under_way(lost.job.key)


async def test_one_that_stands_still_is_not_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ask(1, "true")
    await world.ready()
    (server,) = world.servers()
    server.suspend()
    late = world.ask(2, "sh", "-c", "exit 2")
    monkeypatch.setattr(launcher_module, "LAUNCH_MAX_S", 0.0)
    supervised = world.ask(3, "sh", "-c", "exit 3")
    await world.ready()
    assert supervised.end()["exit_code"] == 3
    monkeypatch.undo()
    server.resume()
    await world.ready()
    assert late.end()["exit_code"] == 2, "what it was asked before it does"


def test_a_job_inherits_nothing_of_it(tmp_path: Path, marker: str) -> None:
    script = "readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; grep Sig[IB] /proc/self/status; pwd"
    supervised = run(tmp_path, "sh", "-c", script, marker=marker)
    supervised.end()
    stdin, descriptors, *signals, workdir = supervised.output().decode().splitlines()
    assert (stdin, descriptors, workdir) == ("/dev/null", "4", str(tmp_path)), "three, and the directory `ls` reads"
    assert [line.split()[1] for line in signals] == ["0" * 16] * 2, "no signal blocked or ignored"


def test_where_no_process_can_be_forked_it_is_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    ours, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, end, (tmp_path / "errors").open("wb") as errors:
        fork_server.fork(end, b"/", ours.fileno(), errors.fileno())
    assert (tmp_path / "errors").read_text() == "no process could be started: Resource temporarily unavailable\n"
