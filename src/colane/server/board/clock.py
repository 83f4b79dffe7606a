"""The service's time: unix seconds that go on as the monotonic clock does, whatever is done to the wall clock.

Everything that lasts (time limits, protection, waiting) is counted in it, so a wall clock that is set forward ends no
wait early, and one that is set back does not stop time. What the wall clock differs is made up slowly, `SLEW_RATIO` of
the time that passes, so that times shown come right again and a duration is never wrong by more than that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from colane.api.forms import record

SLEW_RATIO: Final = 0.01
"""Of each second, at most so much is given to or taken from the time shown; it bounds the error of a duration."""

JUMP_MIN_S: Final = 1.0
"""A step of the wall clock is logged from here on; daemons that keep time turn it slowly over less."""

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


def boot_id() -> str:
    """Return the identity of this boot of the machine, empty where the kernel tells none."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Return seconds since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class ClockMark:
    """One moment of the service's time, by which the next process on this machine goes on."""

    now_s: float  # the service's time
    boot: str  # the boot in which it was taken
    since_boot_s: float  # seconds since that boot


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Where time comes from."""

    wall: Callable[[], float] = time.time  # Unix seconds; may jump
    steady: Callable[[], float] = time.monotonic  # seconds that only go forward
    since_boot: Callable[[], float] = since_boot_s  # seconds since boot
    boot: Callable[[], str] = boot_id  # identity of this boot


class ServiceClock:
    """Unix seconds that never jump.

    Args:
        clocks: Where time comes from.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._boot = clocks.boot()
        self._wall_s = self._now_s = clocks.wall()
        self._steady_s = clocks.steady()

    def resume(self, mark: ClockMark) -> None:
        """Go on from where an earlier process was: exactly in the same boot, else not before it."""
        passed_s = self._clocks.since_boot() - mark.since_boot_s
        if self._boot and mark.boot == self._boot and passed_s >= 0:
            self._now_s = mark.now_s + passed_s
        else:
            self._now_s = max(self._now_s, mark.now_s)

    def go_on(self, now_s: float) -> None:
        """Go on from the time that another machine's scheduler has just written, whatever the wall clock here says."""
        self._now_s, self._steady_s, self._wall_s = now_s, self._clocks.steady(), self._clocks.wall()

    def now(self) -> float:
        """Return the service's time."""
        steady_s, wall_s = self._clocks.steady(), self._clocks.wall()
        passed_s, jump_s = steady_s - self._steady_s, (wall_s - self._wall_s) - (steady_s - self._steady_s)
        self._steady_s, self._wall_s = steady_s, wall_s
        if passed_s > 0:
            self._now_s += passed_s
            most_s = SLEW_RATIO * passed_s
            self._now_s += min(most_s, max(-most_s, wall_s - self._now_s))
        if abs(jump_s) >= JUMP_MIN_S:
            log.warning(
                "the wall clock was set %s by %.1f s; durations go on by the monotonic clock, and the times shown, now "
                "%.1f s off, are brought back by at most %g %% of the time that passes",
                "forward" if jump_s > 0 else "back", abs(jump_s), abs(wall_s - self._now_s), SLEW_RATIO * 100,
            )  # fmt: skip
        return self._now_s

    def mark(self, now_s: float) -> ClockMark:
        """Return what lets the next process go on from `now_s`, a time just read."""
        return ClockMark(now_s, self._boot, self._clocks.since_boot())


CLOCK_MARK: Final = record(ClockMark)

AGENT_OFFSET_MIN_S: Final = 1.0
"""Below this, what an agent's clock differs from ours cannot be told from the time its report travelled."""


def offset_s(now_s: float, at_s: float) -> float:
    """Return what must be added to an agent's times to get ours, given when its report was written and when it came."""
    return now_s - at_s if abs(now_s - at_s) >= AGENT_OFFSET_MIN_S else 0.0
