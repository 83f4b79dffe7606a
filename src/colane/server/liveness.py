"""When each node was last heard of. Silence is measured by a clock that never jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Heard(NamedTuple):
    """One moment on two clocks: unix time for people (None before the first report), the steady one for judging."""

    unix_s: float | None
    steady_s: float


class Liveness:
    """Last reports by node; a node not heard of since the scheduler's start counts from the start.

    Args:
        timeout_s: Silence after which a node is lost.
        steady_clock: Seconds that only go forward.
    """

    def __init__(self, timeout_s: float, steady_clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = steady_clock
        self._start = Heard(None, steady_clock())
        self._heard: dict[str, Heard] = {}

    def hear(self, node: str, unix_s: float) -> None:
        """Note that a node has just spoken."""
        self._heard[node] = Heard(unix_s, self._clock())

    def last_seen_s(self, node: str) -> float | None:
        """Return the unix time of the last report, None when there was none since the start."""
        return self._heard.get(node, self._start).unix_s

    def silent(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes that were silent for too long."""
        oldest = self._clock() - self._timeout_s
        return [node for node in nodes if self._heard.get(node, self._start).steady_s < oldest]
