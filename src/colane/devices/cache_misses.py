"""Memory traffic by core, counted as cache misses (perf_event_open(2)), where the kernel lets us count whole cores.

A miss of the last cache moves one line. What the processor fetches ahead or writes back is not in it, so it is a lower
bound; as a part of the most that was seen it is good enough to compare.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

LINE_BYTES = 64
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _CACHE_MISSES = 0, 3
_ATTRIBUTE_BYTES = 112

Opener = Callable[[int], int]  # from a core to a descriptor of its counter


class CountersError(Exception):
    """Cache misses cannot be counted; the message says why."""


def open_counter(core: int) -> int:
    """Count the cache misses of all processes on a core. Raises OSError: the kernel or the machine does not let us."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"not known how on {platform.machine()}")
    attribute = struct.pack("IIQ", _HARDWARE, _ATTRIBUTE_BYTES, _CACHE_MISSES).ljust(_ATTRIBUTE_BYTES, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(number, attribute, -1, core, -1, 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


class CacheMisses:
    """Counters of a node's cores.

    Args:
        cores: Of the node.
        opener: Opens a counter.

    Raises:
        CountersError: There are none, or we may not count.
    """

    def __init__(self, cores: Iterable[int], opener: Opener = open_counter) -> None:
        self._counters: dict[int, int] = {}
        try:
            for core in cores:
                self._counters[core] = opener(core)
        except OSError as error:
            self.close()
            raise CountersError(f"cache misses cannot be counted ({error.strerror})") from error

    def read(self) -> dict[int, int]:
        """Bytes so far, by core."""
        return {core: LINE_BYTES * _value(counter) for core, counter in self._counters.items()}

    def close(self) -> None:
        """Count no more."""
        for counter in self._counters.values():
            with suppress(OSError):
                os.close(counter)
        self._counters.clear()


def _value(counter: int) -> int:
    return int(struct.unpack("Q", os.read(counter, 8))[0])
