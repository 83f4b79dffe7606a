"""Runs the real shim on real commands."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colane.agent.files.jobdir import JobDir
from colane.agent.files.logs import read_log
from colane.agent.processes import ProcessId
from colane.agent.supervisor import programs, shim_files
from colane.agent.supervisor.command import Command
from colane.devices.host import boot_id
from tests.agent.waiting import DEADLINE_S, until, until_gone

GRACE_S = 30.0
"""For commands that end on SIGTERM: a busy machine may let one wait for a core for seconds."""
QUICK_GRACE_S = 0.3
"""For commands that do not."""


@dataclass
class Supervised:
    """One command under the shim."""

    job: JobDir

    @property
    def supervisor(self) -> ProcessId:
        claimed_by = self.job.claimed_by()
        assert claimed_by is not None
        return claimed_by

    @property
    def main(self) -> ProcessId:
        started = until(self.job.started, "the start of the command")
        return ProcessId(started["pid"], started["start_ticks"], boot_id())

    def stop(self, cause: str = "cancelled by a test") -> None:
        """Order its end as the agent does."""
        self.job.order_end({"cause": cause})
        os.kill(self.supervisor.pid, signal.SIGTERM)

    def stop_from_outside(self) -> None:
        os.kill(self.supervisor.pid, signal.SIGTERM)

    def end(self) -> dict[str, Any]:
        until_gone(self.supervisor)
        record = self.job.exit_record()
        assert record is not None, self.job.shim_errors()
        return record

    def output(self) -> bytes:
        return read_log(self.job.path).data


def write_command(root: Path, argv: list[str], *, marker: str, **changes: Any) -> JobDir:
    """Prepare a job's directory as the agent does."""
    path = root / "1-1"
    path.mkdir()
    name, _, value = marker.partition("=")
    settings: dict[str, Any] = {"workdir": str(root), "env": {"PATH": os.environ["PATH"]}, "grace_s": GRACE_S}
    settings |= changes
    settings["env"] = {**settings["env"], name: value}
    (path / shim_files.COMMAND).write_bytes(Command(tuple(argv), **settings).encode())
    return JobDir(path)


def program(root: Path, name: str) -> list[str]:
    """How an agent runs its copy of the fork server or of `ranks`."""
    return [sys.executable, "-I", "-S", str(programs.place(root) / name)]


def launch(job: JobDir, preexec: Any = None, times: int = 1) -> Supervised:
    """Have the shim forked; back when the command runs or cannot."""
    ours, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = program(job.path.parent, programs.FORK_SERVER)
    with ours, end, (job.path / "shim.err").open("ab") as errors:
        server = subprocess.Popen(argv, stdin=end.fileno(), cwd="/", preexec_fn=preexec, start_new_session=True)  # noqa: PLW1509 - no threads
        ready, ready_end = os.pipe()
        for _ in range(times):
            socket.send_fds(ours, [os.fsencode(job.path)], [ready_end, errors.fileno()])
    os.close(ready_end)
    assert select.select([ready], [], [], DEADLINE_S)[0], "it neither runs nor fails"
    os.close(ready)
    assert server.wait(DEADLINE_S) == 0
    return Supervised(job)


def run(root: Path, *argv: str, marker: str, **changes: Any) -> Supervised:
    """Prepare and start."""
    return launch(write_command(root, list(argv), marker=marker, **changes))
