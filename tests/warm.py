"""Starts schedulers and agents from a process that has imported them: each start would take 2 s of a core for imports.

What they do from there on, and what kills, freezes and signals do to them, is as ever: each is a process of its own, in
a session of its own. That a command starts one from nothing is shown by the tests of commands.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "colane.server.main",
    "colane.agent.main",
    "colane.cli.app",
    "colane.cli.service.agent",
    "colane.cli.service.server",
    "colane.cli.service.terminal",
    "colane.cli.service.up",
    "colane.engines.local",
    "tests.warm",
)


class Warm:
    """One such process.

    Args:
        code: What it runs, as after `python -c`.
        words: Its arguments, `sys.argv[1:]`.
        out: What it prints is added to this file; a named pipe is waited for.
        errors: So is its standard error to this one.
        env: Its environment; None is ours.
    """

    def __init__(
        self, code: str, words: Sequence[str], out: Path, errors: Path, env: Mapping[str, str] | None = None
    ) -> None:
        paths = [str(out), str(errors)]
        self._process = _context().Process(target=_run, args=(code, list(words), paths, dict(env or os.environ)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.is_alive():
            with suppress(ProcessLookupError):  # it ended just now
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

    def poll(self) -> int | None:
        """Return its exit code once it has ended."""
        return self._process.exitcode


UP = """
import subprocess, sys, types
from colane.cli import main
from colane.engines import child
from tests.warm import ForkedChild, show_as

show_as([sys.executable, "-m", "colane.cli", *sys.argv[1:]])
child.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": ForkedChild})
sys.exit(main())
"""


class WarmUp(Warm):
    """A `colane up` whose scheduler and agent are forks of it, with what tests use of a `subprocess.Popen`.

    Args:
        words: As after `colane`.
        env: Its environment.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder, "said")
            os.mkfifo(said)
            super().__init__(UP, words, Path(os.devnull), said, env)
            self.stderr = said.open()

    @property
    def returncode(self) -> int | None:
        """Its exit code once it has ended."""
        return self.poll()

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for its end, and for that of all that writes where it does; return what was still to be read."""
        left = "" if self.stderr.closed else self.stderr.read()
        self.stderr.close()
        self.wait(timeout)
        return None, left


class ForkedChild(subprocess.Popen[bytes]):
    """A process that is forked where another would be started: `[PYTHON, "-m", "colane.cli", ...]` by this very Python.

    It has what an `exec` would have left: its own descriptors, environment and command line, no handlers of signals.
    """

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        _, _, _, _, _, env, _, _, _, stdin, _, _, stdout, _, stderr = given[:15]
        streams = stdin, stdout, stderr
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(args, env, streams)
        self._child_created = True
        for fd in {*streams} - {-1}:
            os.close(fd)


def _become(args: Sequence[str], env: Mapping[str, str] | None, streams: Sequence[int]) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for fd, stream in enumerate(streams):
            if stream >= 0:
                os.dup2(stream, fd)
        nothing = os.open(os.devnull, os.O_RDWR)
        for open_fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if open_fd > 2 and open_fd != nothing:  # kept occupied: what we inherit may still close its number
                os.dup2(nothing, open_fd, inheritable=False)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        show_as(args)
        sys.argv[:] = ["colane", *args[3:]]
        from colane.cli import main  # noqa: PLC0415 - only a process that has imported it gets here

        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing above us is ours
        traceback.print_exc()
    finally:
        gc.freeze()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def show_as(words: Sequence[str]) -> None:
    """Give this process a command line in `/proc`, over the one it was forked with."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert len(line) < end - start, f"there is no room for {line!r}"
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


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
