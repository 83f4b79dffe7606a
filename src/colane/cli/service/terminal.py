"""What a terminal may do to a command that keeps services running: ask for its end, or be closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from colane.cli.output import note
from colane.engines.local import handled

UP_LOG: Final = "up.log"  # in the state directory: what is said once the terminal is closed


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for whatever asks for our end, so that what was started is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled(interrupt):
        yield


def outlive_terminal(folder: Path) -> None:
    """From now on a closed terminal is no order: what would be said there is written to a file."""

    def go_on(_number: int, _frame: FrameType | None) -> None:
        log = os.open(folder / UP_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for fd in (1, 2):
            os.dup2(log, fd)
        os.close(log)
        note(f"its terminal is closed: it goes on in the background; kill {os.getpid()} stops all")

    signal.signal(signal.SIGHUP, go_on)
