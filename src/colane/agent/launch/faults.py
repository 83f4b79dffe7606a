"""Faults of this node that keep jobs from being started here: a full or broken disk, no more processes.

While there is one, the node takes no jobs: devices without a job are reported as unhealthy, those with one go on.
It looks again and again whether the fault is over.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from colane.model.hardware import Gpu

log = logging.getLogger(__name__)

PROBE_EVERY_S = 2.0
PROBE_BYTES = 1 << 18  # more than the directory of a job takes


class NodeFault:
    """Whether jobs can be started here.

    Attributes:
        problem: Why not; empty when they can.
        is_confirmed: It was there again just now, so that jobs which wait for its end are better queued again.
    """

    def __init__(self, place: Path) -> None:
        """Begin without one.

        Args:
            place: Where jobs' directories lie.
        """
        self.problem = ""
        self.is_confirmed = False
        self._place = place
        self._probed_s = 0.0

    def note(self, problem: str) -> None:
        """A job could not be started, and that was not its fault."""
        if not self.problem:
            log.warning("this node takes no jobs: %s", problem)
        self.problem, self._probed_s = problem, time.monotonic()

    def look(self) -> None:
        """See now and then whether it is over."""
        self.is_confirmed = False
        if self.problem and time.monotonic() >= self._probed_s + PROBE_EVERY_S:
            self._probed_s = time.monotonic()
            try:
                path = self._place / ".probe"
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                    try:
                        os.posix_fallocate(fd, 0, PROBE_BYTES)
                        os.fsync(fd)
                    finally:
                        os.close(fd)
                finally:
                    path.unlink(missing_ok=True)
            except OSError as error:
                self.is_confirmed = True
                log.info("this node still takes no jobs: %s", error)
            else:
                log.warning("this node takes jobs again")
                self.problem = ""

    def messages(self) -> list[str]:
        """What people should know."""
        return [f"takes no jobs: {self.problem}"] if self.problem else []

    def closed(self, gpus: Iterable[Gpu], busy: frozenset[int]) -> tuple[Gpu, ...]:
        """The devices as they are offered: without a job and with a fault, a device is none."""
        if not self.problem:
            return tuple(gpus)
        return tuple(gpu if gpu.index in busy else replace(gpu, healthy=False) for gpu in gpus)
