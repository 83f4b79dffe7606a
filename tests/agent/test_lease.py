"""Jobs are halted when the scheduler was not heard of for their lease, whatever has become of the agent."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from colane.agent.files.lease import KILL_MARGIN_S, Lease, since_boot_s
from colane.agent.files.logs import read_log
from colane.agent.supervisor import shim, shim_files
from colane.server.nodes.liveness import DRIFT_RATIO
from colane.settings import table
from colane.settings.readers import LEASE_MIN_S
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.shims import Supervised, launch, write_command
from tests.agent.waiting import read_state, until

LEASE_S = 3.0


class TestFile:
    def test_it_is_endless_until_it_is_bound(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        assert not lease.is_bound
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (math.inf, math.inf)
        lease.renew(100.0, 30.0)
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (129.0 - 10.0, 129.0)
        assert Lease(tmp_path, grace_s=10.0).is_bound
        lease.renew(200.0, None)
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (math.inf, math.inf)
        lease.close()

    @pytest.mark.parametrize("lease_s", [0.5, 2.0, 5.0, 60.0])
    def test_the_end_is_within_it_and_leaves_time_to_stop(self, tmp_path: Path, lease_s: float) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        lease.renew(0.0, lease_s)
        known = shim_files.read_lease(str(tmp_path / shim_files.LEASE))
        assert known is not None
        assert 0.0 <= known[0] < known[1] <= max(lease_s - KILL_MARGIN_S, lease_s / 2)
        lease.close()

    def test_the_shortest_that_is_taken_outlasts_two_late_reports(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=3600.0)
        lease.renew(0.0, LEASE_MIN_S / (1 + DRIFT_RATIO))
        known = shim_files.read_lease(str(tmp_path / shim_files.LEASE))
        assert known is not None
        assert known[0] > 2.5 * float(str(table.HEARTBEAT.default))
        lease.close()

    def test_reports_are_due_three_times_in_it(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        due_s = [lease.report_within_s]
        for lease_s in (30.0, 15.0, None):
            lease.renew(0.0, lease_s)
            due_s.append(lease.report_within_s)
        assert due_s == [math.inf, 10.0, 5.0, math.inf]
        lease.close()

    @pytest.mark.parametrize("text", ["", "1 2", "1 2 1 3", "a b a b c"])
    def test_one_that_is_not_whole_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "lease").write_text(text)
        assert shim_files.read_lease(str(tmp_path / "lease")) is None


@pytest.mark.live
class TestJobs:
    async def test_they_are_halted_while_the_scheduler_is_away_and_go_on_with_it(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.lease_s = LEASE_S
        fake.want(7, *PYTHON, COUNTING, str(tmp_path), env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: _count(tmp_path))
            fake.away = True
            await agent.until(lambda: _are_halted(tmp_path))
            count = _count(tmp_path)
            await agent.until(lambda: _halted_s(tmp_path) > 0.3)
            assert _count(tmp_path) == count
            fake.away = False
            await agent.until(lambda: _count(tmp_path) > count)
            (tmp_path / "end").touch()
            await agent.until(lambda: fake.ends)
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 4)
        log = read_log(tmp_path / "ended" / "7-1").data.decode()
        assert log.startswith(f"colane: {shim.NO_WORD}: halted for ")
        assert log.endswith(" s, and goes on\n")

    async def test_what_a_node_has_that_cannot_be_halted_is_told(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.lease_s = LEASE_S
        fake.want(7, "sleep", "600", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7) and fake.reports[-1]["lease_left_s"])
            assert fake.reports[-1]["halts"]
            assert fake.reports[-1]["lease_left_s"] < LEASE_S
            fake.want(8, "sh", "-c", "while :; do sleep 600; done; docker run image", env=mark)
            await agent.until(lambda: fake.launched(8) and not fake.reports[-1]["halts"])
            fake.end(8)
            await agent.until(lambda: fake.reports[-1]["halts"])
            fake.end(7)
            await agent.until(lambda: (7, 1) in fake.ends)

    async def test_one_that_was_given_away_meanwhile_is_killed_where_it_stands(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.lease_s = LEASE_S
        script = "trap 'echo it ran on' TERM CONT; while :; do touch count; echo >>count; sleep 0.01; done"
        fake.want(7, "sh", "-c", script, workdir=str(tmp_path), env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: _count(tmp_path))
            fake.away = True
            await agent.until(lambda: _halted_s(tmp_path) > 0.3)
            fake.forget(7)
            fake.want(8, "true", env=mark)
            fake.away = False
            await agent.until(lambda: {(7, 1), (8, 1)} <= fake.ends.keys())
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["signal"]) == ("signalled", signal.SIGKILL)
        assert fake.ends[8, 1]["exit_code"] == 0
        assert b"it ran on" not in read_log(tmp_path / "ended" / "7-1").data

    async def test_one_whose_lease_is_endless_goes_on(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.want(7, "sh", "-c", f"sleep {LEASE_S}; exit 4", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7))
            fake.away = True
            await agent.until((tmp_path / "jobs" / "7-1" / "exit").exists)
            fake.away = False
            await agent.until(lambda: fake.ends)
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 4)

    async def test_one_that_has_run_out_is_not_renewed_before_what_was_given_away_has_ended(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        """On a machine that stood still the agent may be the first to wake; here a supervisor still sleeps."""
        lease = str(tmp_path / shim_files.LEASE)
        fake.lease_s = LEASE_S
        fake.want(7, "sleep", "600", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7))
            supervisor = JobDir(tmp_path / "jobs" / "7-1").claimed_by()
            assert supervisor is not None
            os.kill(supervisor.pid, signal.SIGSTOP)
            fake.away = True
            await agent.until(lambda: _halt_s(lease) <= since_boot_s())
            run_out_s, reports = _halt_s(lease), len(fake.reports)
            fake.forget(7)
            fake.want(8, "true", env=mark)
            fake.away = False
            await agent.until(lambda: len(fake.reports) > reports + 2)
            assert _halt_s(lease) == run_out_s
            assert not fake.ends, "no other is started under it"
            os.kill(supervisor.pid, signal.SIGCONT)
            await agent.until(lambda: (8, 1) in fake.ends)
            assert _halt_s(lease) > since_boot_s()
        assert (fake.ends[7, 1]["signal"], fake.ends[8, 1]["outcome"]) == (signal.SIGKILL, "exited")


@pytest.mark.live
class TestSupervisor:
    """Without an agent: who writes the lease is the test."""

    def test_a_process_that_was_stopped_before_is_left_so(self, tmp_path: Path, marker: str) -> None:
        script = (
            "import os, signal, subprocess, time\nchild = subprocess.Popen(['sleep', '1000'])\n"
            "child.send_signal(signal.SIGSTOP)\nopen('new', 'w').write(str(child.pid))\nos.rename('new', 'pid')\n"
            "while not os.path.exists('end'):\n    time.sleep(0.01)"
        )
        job = _under_lease(tmp_path, marker, *PYTHON, script)
        until((tmp_path / "pid").exists)
        stopped, main = int((tmp_path / "pid").read_text()), job.main.pid
        _bound(tmp_path, -5.0)
        until(lambda: read_state(main) == "T")
        _bound(tmp_path, math.inf)
        until(lambda: read_state(main) != "T")
        assert read_state(stopped) == "T"
        (tmp_path / "end").touch()
        assert job.end()["exit_code"] == 0

    def test_one_that_another_process_lets_go_on_is_halted_again(self, tmp_path: Path, marker: str) -> None:
        job = _under_lease(tmp_path, marker, *PYTHON, COUNTING, str(tmp_path))
        until(lambda: _count(tmp_path))
        _bound(tmp_path, -5.0)
        for _ in range(3):
            until(lambda: read_state(job.main.pid) == "T")
            os.kill(job.main.pid, signal.SIGCONT)
        until(lambda: read_state(job.main.pid) == "T")
        job.stop()
        assert job.end()["signal"] == signal.SIGKILL

    def test_one_that_saves_when_its_lease_runs_out_has_the_rest_of_its_time_afterwards(
        self, tmp_path: Path, marker: str
    ) -> None:
        script = (
            "import os, signal, sys, time\ndef save(*_):\n    open('saving', 'w')\n"
            "    while not os.path.exists('saved'):\n        time.sleep(0.01)\n    sys.exit(6)\n"
            "signal.signal(signal.SIGTERM, save)\nopen('up', 'w')\ntime.sleep(1000)"
        )
        job = _under_lease(tmp_path, marker, *PYTHON, script, grace_s=60.0)
        until((tmp_path / "up").exists)
        job.stop()
        until((tmp_path / "saving").exists)
        _bound(tmp_path, -5.0)
        until(lambda: read_state(job.main.pid) == "T")
        _bound(tmp_path, math.inf)
        (tmp_path / "saved").touch()
        assert job.end()["exit_code"] == 6

    def test_one_that_was_halted_for_too_long_is_killed(self, tmp_path: Path, marker: str) -> None:
        job = _under_lease(tmp_path, marker, *PYTHON, COUNTING, str(tmp_path))
        until(lambda: _count(tmp_path))
        _bound(tmp_path, -5.0)
        until(lambda: read_state(job.main.pid) == "T")
        _bound(tmp_path, -5.0 - shim_files.HALTED_MAX_S)
        end = job.end()
        assert (end["outcome"], end["signal"], end["detail"]) == ("lease-run-out", signal.SIGKILL, shim.NO_WORD)

    def test_what_a_daemon_runs_for_it_cannot_be_halted_so_it_ends_in_time(self, tmp_path: Path, marker: str) -> None:
        docker = tmp_path / "docker"
        docker.write_text("#!/bin/sh\ntrap 'exit 5' TERM\ntouch up\nwhile :; do sleep 0.01; done\n")
        docker.chmod(0o755)
        job = _under_lease(tmp_path, marker, str(docker), "run", "image")
        until((tmp_path / "up").exists)
        _bound(tmp_path, -0.5, 60.0)
        end = job.end()
        assert (end["outcome"], end["exit_code"], end["signal"]) == ("lease-run-out", 5, None)


COUNTING = (
    "import os, sys, time\nos.chdir(sys.argv[1])\nwhile not os.path.exists('end'):\n"
    "    open('count', 'a').write('.')\n    time.sleep(0.01)\nsys.exit(4)"
)
"""Python that writes a dot every 10 ms in the directory that it is given: no process that forks is ever between two."""
PYTHON = (sys.executable, "-S", "-c")


def _count(folder: Path) -> int:
    return (folder / "count").stat().st_size if (folder / "count").exists() else 0


def _are_halted(state: Path) -> bool:
    claimed_by = JobDir(state / "jobs" / "7-1").claimed_by()
    assert claimed_by is not None
    found = [process.pid for process in processes.read_tree(claimed_by.pid).processes if process != claimed_by]
    return bool(found) and all(read_state(pid) in {"T", "Z"} for pid in found)


def _halted_s(state: Path) -> float:
    return since_boot_s() - _halt_s(str(state / shim_files.LEASE))


def _halt_s(path: str) -> float:
    known = shim_files.read_lease(path)
    assert known is not None
    return shim_files.halt_at_s(known)


def _bound(folder: Path, halt_in_s: float, ending_s: float = 0.0) -> None:
    """Write the lease under which jobs are halted then; those that cannot be end by so much later."""
    at_s = since_boot_s() + halt_in_s
    with (folder / shim_files.LEASE).open("r+b") as file:
        file.write(shim_files.lease_line(at_s, at_s + ending_s))


def _under_lease(folder: Path, marker: str, *argv: str, **changes: Any) -> Supervised:
    (folder / "jobs").mkdir()
    (folder / shim_files.LEASE).write_bytes(shim_files.lease_line(math.inf, math.inf))
    return launch(write_command(folder / "jobs", list(argv), marker=marker, workdir=str(folder), **changes))
