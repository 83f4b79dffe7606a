"""Runs the real shim on real commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colane.agent import processes, programs, shim_files
from colane.agent.command import Command
from colane.agent.jobdir import JobDir
from colane.agent.logs import read_log
from colane.agent.processes import ProcessId
from tests.agent.waiting import DEADLINE_S, until, until_gone

QUICK_GRACE_S = 0.3


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
        return ProcessId(started["pid"], started["start_ticks"], processes.boot_id())

    def stop(self) -> None:
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
    settings: dict[str, Any] = {"workdir": str(root), "env": {"PATH": os.environ["PATH"]}, "grace_s": QUICK_GRACE_S}
    settings |= changes
    settings["env"] = {**settings["env"], name: value}
    (path / shim_files.COMMAND).write_bytes(Command(tuple(argv), **settings).encode())
    return JobDir(path)


def program(root: Path, name: str) -> list[str]:
    """How an agent runs its copy of the shim or of `ranks`."""
    return [sys.executable, "-I", "-S", str(programs.place(root) / name)]


def launch(job: JobDir, preexec: Any = None) -> Supervised:
    """Start the shim; back when the command runs or cannot."""
    with (job.path / "shim.err").open("ab") as errors:
        command = [*program(job.path.parent, programs.SHIM), str(job.path)]
        subprocess.run(command, check=True, stderr=errors, cwd="/", preexec_fn=preexec, timeout=DEADLINE_S)
    return Supervised(job)


def run(root: Path, *argv: str, marker: str, **changes: Any) -> Supervised:
    """Prepare and start."""
    return launch(write_command(root, list(argv), marker=marker, **changes))
