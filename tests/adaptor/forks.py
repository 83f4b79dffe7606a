"""Processes of scripts that train, forked from a Python that has imported PyTorch: each start would take 2 s of a core.

What they do from there on, and what signals do to them, is as ever: each is a process of its own. That a script is
started from nothing is shown by tests of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

WARM = str(Path(__file__).with_name("warm.py"))


class Forks:
    """Such a Python.

    Args:
        imports: What it imports beside PyTorch.
        env: Its environment beside ours.
    """

    def __init__(self, *imports: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, WARM, *imports],
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def start(self, script: Path | str, *argv: str, env: Mapping[str, str], cwd: Path, stem: str = "std") -> Fork:
        """Start a script; what it prints is in `{stem}out` and `{stem}err` of its directory."""
        places = {f"std{name}": str(cwd / f"{stem}{name}") for name in ("out", "err")}
        for place in places.values():
            Path(place).write_text("")
        pid = self.ask({"script": str(script), "argv": argv, "env": dict(env), "cwd": str(cwd), **places})
        assert pid is not None
        return Fork(self, pid, *map(Path, places.values()))

    def ask(self, order: Mapping[str, Any]) -> int | None:
        """Have it do one thing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer


class Fork:
    """The process of a script, with what tests use of a `subprocess.Popen`."""

    def __init__(self, forks: Forks, pid: int, out: Path, errors: Path) -> None:
        self.pid = pid
        self._forks, self._out, self._errors = forks, out, errors
        self._code: int | None = None

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """The same of its standard error."""
        return self._errors.read_text()

    def poll(self) -> int | None:
        """Return its exit code once it has ended."""
        return self._ended(waits=False)

    def wait(self) -> int:
        """Return its exit code, or minus the number of the signal that ended it."""
        code = self._ended(waits=True)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self._code is None:
            os.kill(self.pid, number)

    def _ended(self, *, waits: bool) -> int | None:
        if self._code is None:
            self._code = self._forks.ask({"pid": self.pid, "waits": waits})
        return self._code
