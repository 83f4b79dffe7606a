"""Services of ours that are started as processes, and end with the one that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress


class Child:
    """A service of ours as a process; its standard input is its lifeline to us.

    Args:
        name: What we call it.
        words: Of `colane`.
        document: Its settings and its token, which it reads first.
        tell: Told what happens.
        env: Its environment; None is ours.
        log: File descriptor of its standard error; None is ours.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        document: Mapping[str, object],
        tell: Callable[[str], None],
        env: Mapping[str, str] | None = None,
        log: int | None = None,
    ) -> None:
        self.name = name
        self.tell = tell
        self.process = subprocess.Popen(
            [sys.executable, "-m", "colane.cli", *words, "--with-parent"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            process_group=0,  # Ctrl-C reaches us alone: the agent has to stop before the scheduler
        )
        self.pidfd = os.pidfd_open(self.process.pid)
        assert self.process.stdin is not None  # noqa: S101 - it was made with a pipe
        with suppress(BrokenPipeError):  # it has ended already, and is found so
            self.process.stdin.write(json.dumps(document).encode() + b"\n")
            self.process.stdin.flush()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self, max_s: float) -> None:
        """Tell it to stop, and kill it when it does not."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        try:
            self.process.wait(max_s)
        except subprocess.TimeoutExpired:
            self.tell(f"the {self.name} does not stop, so it is killed")
            self.process.kill()
            self.process.wait()
        self.close()

    def close(self) -> None:
        """Let go of what we hold of a process that has ended."""
        assert self.process.stdin is not None  # noqa: S101 - it was made with a pipe
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
