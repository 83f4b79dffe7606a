"""How long jobs may run without word from the scheduler: a file that the agent renews and their shims obey.

The shims look at it themselves, so the jobs of an agent that is frozen or dead are halted in time, too. The scheduler
starts another attempt elsewhere only when every shim that follows it must have halted its job, or ended it.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from colane.agent.supervisor import shim_files
from colane.settings.table import REPORTS_PER_LEASE_MIN

KILL_MARGIN_S = 1.0  # killing takes a moment, and so does noticing that it is time
ENDING_MAX_RATIO = 1 / 3
"""Of a lease jobs have at most so much to end: several reports must fit into the rest, or none would ever run."""


def since_boot_s() -> float:
    """Seconds since boot, the clock of leases: every process of the machine reads the same."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of one node's jobs.

    Attributes:
        is_bound: Whether it ends at all.
        report_within_s: How long after a report the next one is due: a scheduler that was started anew may have a
            shorter lease than the one that the agent's heartbeat was judged by.
    """

    def __init__(self, root: Path, grace_s: float) -> None:
        """Take over the one on disk.

        Args:
            root: The agent's state directory.
            grace_s: From SIGTERM to SIGKILL.

        Raises:
            OSError: It cannot be written.
        """
        self._grace_s = grace_s
        # Written in place, always as long: that works on a full disk, too.
        self._fd = os.open(root / shim_files.LEASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        known = shim_files.read_lease(str(root / shim_files.LEASE))
        self._stop_s, self._kill_s = (math.inf, math.inf) if known is None else known
        self.is_bound = math.isfinite(self._stop_s)
        self.report_within_s = math.inf
        if known is None:
            self._write(math.inf, math.inf)

    def has_run_out(self, now_s: float) -> bool:
        """Whether jobs that cannot be halted must be ending by now, their shims having noticed or not."""
        return self._stop_s <= now_s

    def left_s(self, now_s: float) -> float | None:
        """For how long from now jobs may run without another renewal; None for ever."""
        return max(0.0, self._kill_s - now_s) if math.isfinite(self._kill_s) else None

    def renew(self, sent_s: float, lease_s: float | None) -> None:
        """Let the jobs run for a while again.

        Args:
            sent_s: When the report was sent that the scheduler has answered, since boot.
            lease_s: How long after it every process must be gone; None for ever.

        Raises:
            OSError: It cannot be written.
        """
        if lease_s is None:
            self._write(math.inf, math.inf)
        else:
            kill_s = sent_s + max(lease_s - KILL_MARGIN_S, lease_s / 2)
            self._write(kill_s - min(self._grace_s, lease_s * ENDING_MAX_RATIO), kill_s)
        self.is_bound = lease_s is not None
        self.report_within_s = math.inf if lease_s is None else lease_s / REPORTS_PER_LEASE_MIN

    def close(self) -> None:
        """Leave the file as it is."""
        os.close(self._fd)

    def _write(self, stop_s: float, kill_s: float) -> None:
        os.pwrite(self._fd, shim_files.lease_line(stop_s, kill_s), 0)
        self._stop_s, self._kill_s = stop_s, kill_s
