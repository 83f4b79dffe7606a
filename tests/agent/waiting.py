"""Waiting for processes and conditions, always with a deadline."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from colane.agent import processes
from colane.agent.processes import ProcessId

T = TypeVar("T")

DEADLINE_S = 60.0
"""On a busy machine what takes a second takes ten; this is for what never comes."""
LOOK_EVERY_S = 0.005


def until(look: Callable[[], T | None], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """Look until there is something to see."""
    until_s = time.monotonic() + deadline_s
    pause = threading.Event()
    while not (seen := look()):
        assert time.monotonic() < until_s, f"waited in vain: {what or look}"
        pause.wait(LOOK_EVERY_S)
    return seen


def until_gone(process: ProcessId) -> None:
    """Wait for the end of a process."""
    pidfd = processes.open_pidfd(process)
    if pidfd is not None:
        waiter = select.poll()
        waiter.register(pidfd, select.POLLIN)
        assert waiter.poll(DEADLINE_S * 1000), f"{process} did not end"
        os.close(pidfd)


def read_state(pid: int) -> str:
    """State of a process as ps(1) shows it; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
