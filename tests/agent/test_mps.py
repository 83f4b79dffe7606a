from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.launch import mps
from colane.agent.launch.launcher import wants_mps
from colane.agent.launch.mps import MpsManager
from colane.agent.launch.users import account_of
from colane.model.hardware import Gpu
from tests.agent.agents import config_of
from tests.agent.waiting import DEADLINE_S, until_gone
from tests.users import NEEDS_ROOT, OTHER_UID, as_user, open_directory

pytestmark = pytest.mark.live

CONTROL = str(Path(__file__).with_name("fake-mps-control"))
GPU = Gpu(index=1, uuid="GPU-b", type="NVIDIA H200", memory_bytes=1)
CPU = Gpu(index=0, uuid="cpu-0", type="cpu", memory_bytes=1)


class Fake:
    """Levers of the double."""

    def __init__(self, place: Path, pipe: Path) -> None:
        self.place = place
        self.control = pipe / "control"

    def set(self, name: str, text: str = "") -> None:
        (self.place / name).write_text(text)

    def calls(self) -> list[str]:
        log = self.place / "calls.log"
        return log.read_text().splitlines() if log.exists() else []

    def kill_daemon(self) -> None:
        pid = int(self.control.read_text())
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([ended], [], [], DEADLINE_S)[0], f"process {pid} did not end"
        os.close(ended)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    place = tmp_path / "fake"
    place.mkdir()
    monkeypatch.setenv("MPS_FAKE", str(place))
    return Fake(place, tmp_path / "mps" / "1" / "pipe")


@pytest.fixture
async def manager(tmp_path: Path, fake: Fake) -> AsyncIterator[MpsManager]:
    manager = MpsManager(tmp_path / "mps", CONTROL)
    yield manager
    (fake.place / "mute").unlink(missing_ok=True)
    await manager.stop()
    left = processes.marked(f"MPS_FAKE={fake.place}".encode())
    processes.kill(one for pid in left if (one := processes.identify(pid)) is not None)


async def test_a_daemon_is_started_for_one_gpu_with_directories_of_its_own(manager: MpsManager, fake: Fake) -> None:
    fake.set("servers", "4711\n4712\n")
    environment = await manager.ensure(GPU)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(fake.control.parent)
    assert environment["CUDA_MPS_LOG_DIRECTORY"] == str(fake.control.parents[1] / "log")
    assert "start GPU-b" in fake.calls()
    assert (set(manager.active), set(manager.server_pids), manager.messages) == ({1}, {4711, 4712}, [])


async def test_jobs_that_start_together_have_one_daemon_started(manager: MpsManager, fake: Fake) -> None:
    one, other = await asyncio.gather(manager.ensure(GPU), manager.ensure(GPU))
    assert one == other != {}
    assert (fake.calls().count("start GPU-b"), manager.messages) == (1, [])


async def test_a_server_that_has_failed_takes_no_new_job(manager: MpsManager, fake: Fake) -> None:
    await manager.ensure(GPU)
    assert not await manager.has_failed(1)
    fake.set("servers", "4711\n4712\n")
    fake.set("status", "FAULT\n")
    assert (await manager.has_failed(1), await manager.has_failed(0)) == (True, False)
    assert await manager.ensure(GPU) == {}
    assert "MPS on GPU 1 takes no new job" in manager.messages[0]
    fake.set("status", "ACTIVE\n")
    assert await manager.ensure(GPU)
    assert manager.messages == []


async def test_a_daemon_that_runs_is_used_again(manager: MpsManager, fake: Fake, tmp_path: Path) -> None:
    first = await manager.ensure(GPU)
    assert await manager.ensure(GPU) == first
    restarted = MpsManager(tmp_path / "mps", CONTROL)
    assert await restarted.ensure(GPU) == first
    assert fake.calls().count("start GPU-b") == 1


async def test_a_restarted_agent_knows_the_daemons_of_its_jobs(manager: MpsManager, fake: Fake, tmp_path: Path) -> None:
    fake.set("servers", "4711\n")
    await manager.ensure(GPU)
    restarted = MpsManager(tmp_path / "mps", CONTROL)
    await restarted.adopt([CPU, GPU])
    assert (set(restarted.active), set(restarted.server_pids)) == ({1}, {4711})
    fake.kill_daemon()
    again = MpsManager(tmp_path / "mps", CONTROL)
    await again.adopt([GPU])
    assert (again.active, again.messages) == (frozenset(), [])


async def test_a_server_that_comes_with_its_first_client_or_anew_is_known_in_that_round(
    manager: MpsManager, fake: Fake
) -> None:
    await manager.ensure(GPU)
    assert manager.server_pids == frozenset()
    asked = fake.calls().count("get_server_list")
    await manager.watch(busy=())
    assert fake.calls().count("get_server_list") == asked, "there is no job that it could serve"
    server = await asyncio.create_subprocess_exec("sleep", "1000")
    fake.set("servers", f"{server.pid}\n")
    await manager.watch(busy={1})
    assert manager.server_pids == {server.pid}
    server.kill()
    await server.wait()
    fake.set("servers", f"{os.getpid()}\n")
    await manager.watch(busy={1})
    assert manager.server_pids == {os.getpid()}


async def test_a_daemon_that_died_is_started_anew(
    manager: MpsManager, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await manager.ensure(GPU)
    fake.kill_daemon()
    await manager.watch()
    assert fake.calls().count("start GPU-b") == 1, "it was asked only just now"
    monkeypatch.setattr(mps, "PROBE_EVERY_S", 0.0)
    await manager.watch()
    assert fake.calls().count("start GPU-b") == 2
    assert manager.active == {1}


async def test_a_daemon_that_cannot_start_leaves_time_slicing_and_says_so(manager: MpsManager, fake: Fake) -> None:
    fake.set("no-start")
    assert await manager.ensure(GPU) == {}
    assert manager.active == frozenset()
    assert manager.messages == [
        "MPS on GPU 1 could not be started: Cannot allocate the control port; time slicing is used"
    ]
    (fake.place / "no-start").unlink()
    assert await manager.ensure(GPU)
    assert manager.messages == [], "what is no longer so is no longer said"


async def test_a_daemon_that_hangs_is_not_waited_for(
    manager: MpsManager, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "ANSWER_MAX_S", 0.2)
    fake.set("mute")
    assert await manager.ensure(GPU) == {}
    (message,) = manager.messages
    assert "no answer within 0.2 s" in message


async def test_daemons_are_ended(manager: MpsManager, fake: Fake) -> None:
    await manager.ensure(GPU)
    daemon = processes.identify(int(fake.control.read_text()))
    assert daemon is not None
    await manager.stop()
    assert manager.active == frozenset()
    until_gone(daemon)
    assert fake.calls()[-1] == "quit"


@NEEDS_ROOT
async def test_each_user_has_a_daemon_of_his_own_which_he_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe directory of root's lets no other in, and CUDA goes on without MPS there, without a word."""
    with open_directory() as folder:
        place, control = folder / "fake", folder / "control"
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        shutil.copy(CONTROL, control)
        monkeypatch.setenv("MPS_FAKE", str(place))
        manager = MpsManager(folder / "mps", str(control))
        other = account_of(str(OTHER_UID))
        own = await manager.ensure(GPU)
        (place / "calls.log").chmod(0o666)
        assert manager.active == {1}
        theirs = await manager.ensure(GPU, other)
        pipe = Path(theirs["CUDA_MPS_PIPE_DIRECTORY"])
        assert theirs != own
        assert as_user(OTHER_UID, lambda: os.access(pipe / "control", os.R_OK)), "his job reaches it"
        assert not as_user(OTHER_UID, lambda: os.access(own["CUDA_MPS_PIPE_DIRECTORY"], os.R_OK))
        pid = int((pipe / "control").read_text())
        assert os.stat(f"/proc/{pid}").st_uid == OTHER_UID, "it runs as him"  # noqa: PTH116
        assert manager.active == set(), "servers of two users take turns on the GPU"
        restarted = MpsManager(folder / "mps", str(control))
        await restarted.adopt([GPU])
        assert restarted.messages == []
        assert await restarted.ensure(GPU, other) == theirs
        (place / "mute").touch(mode=0o666)
        monkeypatch.setattr(mps, "ANSWER_MAX_S", 0.1)
        assert await restarted.ensure(GPU, other) == {}
        assert f"MPS on GPU 1 for {OTHER_UID} could not be started" in restarted.messages[0]
        (place / "mute").unlink()
        monkeypatch.undo()
        monkeypatch.setenv("MPS_FAKE", str(place))
        await manager.stop()
        left = processes.marked(f"MPS_FAKE={place}".encode())
        processes.kill(one for each in left if (one := processes.identify(each)) is not None)


async def test_a_machine_without_mps(tmp_path: Path) -> None:
    manager = MpsManager(tmp_path, "no-such-mps-control")
    assert await manager.ensure(GPU) == {}
    assert "no-such-mps-control is not installed" in manager.messages[0]


async def test_a_directory_too_deep_for_sockets(tmp_path: Path) -> None:
    manager = MpsManager(tmp_path / ("deep" * 30), CONTROL)
    assert await manager.ensure(GPU) == {}
    assert "too long for a socket" in manager.messages[0]


@pytest.mark.parametrize(
    ("mode", "asked", "gpus", "expected"),
    [
        ("auto", True, [GPU], True),
        ("auto", False, [GPU], False),
        ("on", False, [GPU], True),
        ("off", True, [GPU], False),
        ("on", True, [CPU], False),
        ("on", True, [], False),
    ],
)
def test_which_jobs_go_through_mps(tmp_path: Path, mode: str, asked: bool, gpus: list[Gpu], expected: bool) -> None:
    assert wants_mps(config_of(tmp_path, mps=mode), {"mps": asked}, gpus) == expected


def test_the_double_answers_like_the_real_one_without_a_daemon(tmp_path: Path, fake: Fake) -> None:
    assert fake.place.exists()
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    asked = subprocess.run([CONTROL], input=b"get_server_list\n", env=environment, capture_output=True, check=False)
    assert (asked.returncode, asked.stderr) == (1, b"Cannot find MPS control daemon process\n")
