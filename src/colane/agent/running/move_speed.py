"""How fast this machine moves GPU memory to its host and back, as its own moves have shown.

The scheduler weighs parking a job against stopping it by that speed. On an H100 in a virtual machine 9.2 GB took 3.9 s
to the host and 1.5 s back (gpu/results), where the default believes in 10 GB/s each way.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import Final

from colane.agent.files.jobdir import read_json, write_json

log = logging.getLogger(__name__)

RECORD: Final = "moves.json"
MOVES_MAX: Final = 8  # the latest moves count: memory of the host becomes scarce, or is found already
BYTES_MIN: Final = 256 * 2**20  # what is smaller takes the driver's time, not the memory's
CHANGED_RATIO: Final = 0.1  # a change by less is not told


class MoveSpeed:
    """Speed of the latest moves, both ways together; kept for the next agent. Any thread may note a move.

    Args:
        folder: The agent's directory.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORD
        self._lock = threading.Lock()
        self._told: float | None = None
        self._moves: deque[tuple[int, float]] = deque(_read(self._path), maxlen=MOVES_MAX)

    def note(self, size_bytes: int, took_s: float) -> None:
        """Take in a move of so many bytes."""
        if size_bytes < BYTES_MIN or took_s <= 0:
            return
        with self._lock:
            self._moves.append((size_bytes, took_s))
            try:
                write_json(self._path, {"moves": list(self._moves)})
            except OSError as error:
                log.warning("how fast memory moves is not kept: %s", error)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes per second; None before anything was moved."""
        with self._lock:
            whole_s = sum(took_s for _, took_s in self._moves)
            return sum(size_bytes for size_bytes, _ in self._moves) / whole_s if whole_s else None

    def tell(self) -> float | None:
        """Give the speed to a scheduler, and remember that it knows it."""
        self._told = self.bytes_per_s
        return self._told

    @property
    def is_news(self) -> bool:
        """Whether the speed is another one than was told."""
        now, told = self.bytes_per_s, self._told
        return now is not None and (told is None or abs(now - told) > CHANGED_RATIO * told)


def _read(path: Path) -> list[tuple[int, float]]:
    """What an earlier agent has kept; nothing of a record that is not whole."""
    found = (read_json(path) or {}).get("moves")
    try:
        moves = [(int(size_bytes), float(took_s)) for size_bytes, took_s in found or ()]
    except (TypeError, ValueError, OverflowError):
        return []
    return [(size_bytes, took_s) for size_bytes, took_s in moves if size_bytes >= BYTES_MIN and 0 < took_s < 1e6]
