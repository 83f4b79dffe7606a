from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.processes import ProcessId
from colane.devices.host import boot_id
from tests.agent.waiting import read_state, until

pytestmark = pytest.mark.live


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"{tmp_path} and more"


@pytest.fixture
def child(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["sh", "-c", "sleep 1000 & wait"], env={**os.environ, "MARK": mark}, start_new_session=True
    )
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_process_is_identified(child: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(child.pid)
    assert identity is not None
    assert identity == ProcessId(child.pid, identity.start_ticks, boot_id())
    pidfd = processes.open_pidfd(identity)
    assert pidfd is not None
    os.close(pidfd)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("earlier_boot", [False, True])
def test_a_recycled_pid_is_another_process(child: subprocess.Popen[bytes], earlier_boot: bool) -> None:
    identity = processes.identify(child.pid)
    assert identity is not None
    stranger = identity._replace(boot_id="another") if earlier_boot else identity._replace(start_ticks=1)
    descriptors = count_descriptors()
    assert processes.open_pidfd(stranger) is None
    assert not processes.kill([stranger])
    assert processes.identify(child.pid) == identity, "it was not killed for another's deeds"
    assert count_descriptors() == descriptors


def test_a_dead_process_is_none() -> None:
    process = subprocess.Popen(["true"])
    until(lambda: read_state(process.pid) == "Z")
    assert processes.identify(process.pid) is None
    process.wait()
    assert processes.identify(process.pid) is None
    assert processes.open_pidfd(ProcessId(process.pid, 1, boot_id())) is None
    assert processes.read_tree(process.pid) == processes.Tree()


def test_a_tree(child: subprocess.Popen[bytes]) -> None:
    until(lambda: len(processes.read_tree(child.pid).processes) == 2)
    first, second = processes.read_tree(child.pid).processes
    assert first.pid == child.pid != second.pid


def test_one_that_a_signal_has_stopped(child: subprocess.Popen[bytes]) -> None:
    until(lambda: len(processes.read_tree(child.pid).processes) == 2)
    below = processes.read_tree(child.pid).processes[1].pid
    assert not processes.read_tree(child.pid).is_stopped
    os.kill(below, signal.SIGSTOP)
    until(lambda: processes.read_tree(child.pid).is_stopped)
    assert not processes.read_tree(below).is_stopped, "nothing is below it"
    os.kill(below, signal.SIGCONT)
    until(lambda: not processes.read_tree(child.pid).is_stopped)


def test_marks(child: subprocess.Popen[bytes], mark: str) -> None:
    variable = f"MARK={mark}".encode()
    until(lambda: len(processes.marked(variable)) == 2)
    assert child.pid in processes.marked(variable)
    assert processes.marked(variable[:-1]) == [], "a part of a value is no mark"


def test_killing_all_of_them(child: subprocess.Popen[bytes]) -> None:
    tree = until(lambda: found if len(found := processes.read_tree(child.pid).processes) == 2 else None)
    assert processes.kill(tree)
    child.wait()
    until(lambda: not processes.kill(tree))
