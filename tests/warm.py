"""Starts schedulers and agents from a process that has imported them: each start would take 2 s of a core for imports.

What they do from there on, and what kills, freezes and signals do to them, is as ever: each is a process of its own, in
a session of its own. That a command starts one from nothing is shown by the tests of commands.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

IMPORTED = ("colane.server.main", "colane.agent.main")


class Warm:
    """One such process.

    Args:
        code: What it runs, as after `python -c`.
        words: Its arguments, `sys.argv[1:]`.
        out: What it prints is added to this file; a named pipe is waited for.
        errors: So is its standard error to this one.
    """

    def __init__(self, code: str, words: Sequence[str], out: Path, errors: Path) -> None:
        paths = [str(out), str(errors)]
        self._process = _context().Process(target=_run, args=(code, list(words), paths, dict(os.environ)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int:
        """Return its exit code, or minus the number of the signal that ended it."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        assert code is not None, f"process {self.pid} goes on after {timeout_s} s"
        return code


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def _run(code: str, words: list[str], paths: list[str], environment: dict[str, str]) -> None:
    os.setsid()
    for number, path in enumerate(paths, 1):
        said = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(said, number)
        os.close(said)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a program of the tests' own
