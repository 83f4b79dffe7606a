"""The agent's side of a steps file's control page: one for each process that reports steps.

It is written with `pwrite`, never through a mapping: a job that truncates its file cannot kill the agent.
"""

from __future__ import annotations

import math
import os
import struct
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from colane.adaptor import turns, wire
from colane.adaptor.writer import (
    ANSWERS_WORD,
    CONTROL_OFFSET,
    COUNT_WORD,
    IN_STEP,
    MOVED,
    PHASE_WORD,
    PID_WORD,
    RANKS_WANTED,
    RECORD,
    RECORD_OFFSETS,
    RESTS,
    RESTS_WORD,
    RESUMED_WORD,
    STILL_WORD,
    WATCH,
    WATCHABLE,
    YIELDED_WORD,
)
from colane.agent.files.jobdir import NAMES_MAX, RANKS_MAX
from colane.agent.gate.values import TurnTimes

STEPS_MAX = 2**53
"""No job does more; what its page says beyond that is not to be believed, and must not overflow a word of another."""

STILL_MAX_NS = 5_000_000_000
"""A process that has not said for so long that it stands still may be within a call that keeps Python's lock."""

_WORD = struct.Struct("=Q")
_STANDS = struct.Struct(f"={STILL_WORD - RESTS_WORD + 1}Q")
_TIMES = struct.Struct(f"={RESUMED_WORD - YIELDED_WORD + 1}Q")
_TIME = struct.Struct("=d")
_RECORDS_BYTES = RECORD_OFFSETS[-1] + RECORD.size - COUNT_WORD * 8
_COUNTERS = struct.Struct(f"={PHASE_WORD - PID_WORD + 1}Q")


class PageCounters(NamedTuple):
    """What a process says of itself."""

    pid: int  # its number as it sees it; 0 before there is one
    steps: int  # steps it has done
    is_computing: bool  # whether it is in a step, as it says at its first use of the device and after each turn


class ControlPage:
    """Control page and counters of one steps file."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises OSError: there is no such file, or it is a link or no file at all: the job could make us write elsewhere.
        """
        self._fd = wire.open_own(path, os.O_RDWR)
        self._written: dict[int, int] = {}

    def counters(self) -> PageCounters:
        """Say which process reports here, and how far it is."""
        try:
            words = _COUNTERS.unpack(os.pread(self._fd, _COUNTERS.size, PID_WORD * 8))
        except (OSError, struct.error):
            return PageCounters(0, 0, is_computing=False)
        return PageCounters(words[0], min(words[COUNT_WORD - PID_WORD], STEPS_MAX), bool(words[-1] & IN_STEP))

    def times(self) -> TurnTimes:
        """Say when it last gave its turn up, and when it last got one; 0 for never."""
        try:
            yielded_ns, resumed_ns = _TIMES.unpack(os.pread(self._fd, _TIMES.size, YIELDED_WORD * 8))
        except (OSError, struct.error):
            return TurnTimes(0.0, 0.0)
        return TurnTimes(yielded_ns * 1e-9, resumed_ns * 1e-9)

    def last_step_s(self) -> float:
        """Say when its latest step ended, by the machine's monotonic clock; 0 where its page tells no time gone by."""
        try:
            data = os.pread(self._fd, _RECORDS_BYTES, COUNT_WORD * 8)
            (count,) = _WORD.unpack_from(data)
            (ended_s,) = _TIME.unpack_from(data, RECORD_OFFSETS[count & 1] - COUNT_WORD * 8)
        except (OSError, struct.error):
            return 0.0
        ago_s = time.time() - ended_s
        return time.monotonic() - ago_s if count and 0 <= ago_s < math.inf else 0.0

    def expect(self, due_s: float) -> None:
        """Say when its turn is expected, by the machine's monotonic clock."""
        self._write(turns.SOON_AT, max(0, int(due_s * 1e9)))

    def rests(self) -> bool:
        """Whether its process uses no device and asks before it does so again, or is seen to stand still."""
        rests, still = self._stands()
        is_seen = rests == WATCHABLE and still > MOVED and time.monotonic_ns() < still + STILL_MAX_NS
        return rests == RESTS or is_seen

    def asks_first(self) -> bool:
        """Whether its process has said that it uses no device before it has asked, if the flag is up."""
        return self._stands()[0] == RESTS

    def has_answered(self) -> bool:
        """Whether its process has answered a request of which it said when it came."""
        with suppress(OSError, struct.error):
            return bool(_WORD.unpack(os.pread(self._fd, _WORD.size, ANSWERS_WORD * 8))[0])
        return False

    def is_to_be_asked(self) -> bool:
        """Whether its process can be watched, and does not know yet that it shall."""
        rests, still = self._stands()
        return rests == WATCHABLE and not still

    def is_watched(self) -> bool:
        """Whether its process is to be watched, as an earlier agent may have said."""
        with suppress(OSError, struct.error):
            return bool(_WORD.unpack(os.pread(self._fd, _WORD.size, CONTROL_OFFSET + WATCH * 8))[0])
        return False

    def watch(self, *, watch: bool) -> None:
        """Say whether it is to be watched whether its process stands still."""
        self._write(WATCH, int(watch))

    def _stands(self) -> tuple[int, int]:
        with suppress(OSError, struct.error):
            rests, still = _STANDS.unpack(os.pread(self._fd, _STANDS.size, RESTS_WORD * 8))
            return rests, still
        return 0, 0

    def is_held(self) -> bool:
        """Whether a process that waits here goes on by our word alone, as an earlier agent may have said."""
        with suppress(OSError, struct.error):
            return bool(_WORD.unpack(os.pread(self._fd, _WORD.size, CONTROL_OFFSET + turns.HOLD * 8))[0])
        return False

    def order(self, *, flag: bool, pause_at: int, flush: bool, hold: bool = False, shares: int = 0) -> None:
        """Say what the job does at its boundaries; the flag rises last and falls first."""
        self._write(turns.HOLD, int(hold))
        if not flag:
            self._write(turns.FLAG, 0)
        self._write(turns.PAUSE_AT, pause_at)
        self._write(turns.FLUSH, int(flush))
        self._write(turns.SHARES, shares)
        if flag:
            self._write(turns.FLAG, 1)

    def want_ranks(self, ranks: int) -> None:
        """Say as how many ranks the job is to go on once it has saved its state; 0: it is to leave."""
        self._write(RANKS_WANTED, ranks)

    def close(self) -> None:
        """Let go of the file; what was written stays."""
        os.close(self._fd)

    def _write(self, word: int, value: int) -> None:
        if self._written.get(word) == value:
            return
        with suppress(OSError):  # a full disk under a file with holes: the job goes on without turns
            os.pwrite(self._fd, _WORD.pack(value), CONTROL_OFFSET + word * 8)
            self._written[word] = value


def pages_of(steps_path: Path) -> dict[int, Path]:
    """Find the steps files of a job's ranks: the first has the job's own, each other one beside it."""
    found = {0: steps_path}
    with suppress(OSError), os.scandir(steps_path.parent) as entries:  # looked at often while jobs take turns
        for entry in islice(entries, NAMES_MAX):
            stem, _, rank = entry.name.rpartition(".")
            if stem == steps_path.name and rank.isdecimal() and int(rank) < RANKS_MAX:
                found[int(rank)] = steps_path.parent / entry.name
    return found
