"""When each node was last heard of. Silence counts only while the scheduler was itself listening.

A scheduler that was paused (a stopped process, a frozen virtual machine, swapping) has heard no agent meanwhile:
after such a gap every agent has the whole time again. A pool of which no node is heard is cut off, or down as a whole:
nothing could start elsewhere, so none of its nodes is lost, and once one is heard the others have the whole time again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from colane.server.board.read_model import NodeRecord, ReadModel

# -- How long jobs of a node may run without word from here.

DRIFT_RATIO: Final = 0.01  # two machines' clocks run at rates that differ by less; crystals keep to a hundredth of that


FAREWELL_S: Final = 180.0
"""A scheduler that ends by order grants this, so that jobs run on until it, or another, is started."""
FAREWELL_MAX_S: Final = 2.0  # so long it waits for agents to ask, before it ends


def lease_s(read_model: ReadModel, record: NodeRecord, node_timeout_s: float) -> float | None:
    """How long after its report all processes of a node must be gone if no other is answered; None: never."""
    if not record.leased and stands_alone(read_model, record.node.name):
        return None
    return node_timeout_s / (1 + DRIFT_RATIO)


def stands_alone(read_model: ReadModel, name: str) -> bool:
    """Whether no other node could run a node's jobs: then they wait for it, however long it is silent."""
    known = read_model.nodes.get(name)
    pool = None if known is None else known.node.pool
    return (known is None or not known.replaced) and not any(
        other.node.pool == pool and not other.lost and other.node.name != name for other in read_model.nodes.values()
    )


GAP_RATIO: Final = 0.25
"""The scheduler looks every second or so; when it has not for this part of the time-out, it was not there."""

log = logging.getLogger(__name__)


SPREAD_RATIO: Final = 0.5
"""Where all fall silent at once, their last words lie no further apart than this part of the time-out: they speak three
times in it."""


class Heard(NamedTuple):
    """When a node has spoken, in unix time for people and by the steady clock, and until when it may be silent."""

    unix_s: float
    at_s: float
    until_s: float


class Liveness:
    """Last reports by node; one not heard of since the scheduler's start may hold the lease of one before.

    Args:
        timeout_s: Silence after which a node is lost.
        steady_clock: Seconds that only go forward.
        look_s: How often `silent` is asked at least, while all is well.
    """

    def __init__(self, timeout_s: float, steady_clock: Callable[[], float], look_s: float = 0.0) -> None:
        self._timeout_s = timeout_s
        self._gap_s = max(GAP_RATIO * timeout_s, 3 * look_s)
        self._clock = steady_clock
        self._fresh_s = self._looked_s = steady_clock()
        self._begun_s, self._begun_until_s = self._fresh_s, self._fresh_s + timeout_s
        self._heard: dict[str, Heard] = {}
        self._cut: set[str] = set()
        self._again_s: dict[str, float] = {}

    def begin(self, grace_s: float = 0.0) -> None:
        """Begin to listen now; nodes may hear another scheduler, or hold a longer lease, for a while yet."""
        self._fresh_s = self._looked_s = self._clock()
        self._begun_s, self._begun_until_s = self._fresh_s, self._fresh_s + self._timeout_s + grace_s

    def allow(self, timeout_s: float) -> None:
        """Let all nodes be silent for so long from now on."""
        self._timeout_s, self._fresh_s = timeout_s, self._clock()

    def hear(self, node: str, unix_s: float, lease_s: float = 0.0, left_s: float | None = None) -> None:
        """Note that a node has just spoken.

        Args:
            node: Its name.
            unix_s: The time.
            lease_s: What it is granted now, where that is longer than others are.
            left_s: What is left of the lease that it has of this scheduler; None where it may hold one of before.
        """
        now_s = self._clock()
        until_s = self._begun_until_s if left_s is None else now_s + left_s
        self._heard[node] = Heard(unix_s, now_s, max(until_s, now_s + max(lease_s, self._timeout_s)))

    def last_seen_s(self, node: str) -> float | None:
        """Return the unix time of the last report, None when there was none since the start."""
        known = self._heard.get(node)
        return None if known is None else known.unix_s

    def is_heard(self, node: str) -> bool:
        """Whether a node has spoken since the start, and not so long ago that it would be lost."""
        known = self._heard.get(node)
        return known is not None and self._clock() <= known.until_s

    def silent(self, nodes: Iterable[str], pools: Mapping[str, str]) -> list[str]:
        """Return the nodes that were silent for too long while we listened, though others of their pool were not.

        Args:
            nodes: Those that may be lost.
            pools: The pool of each node that is there; one that is left out is waited for by no job.
        """
        now_s = self._clock()
        gap_s, self._looked_s = now_s - self._looked_s, now_s
        if gap_s > self._gap_s:
            self._fresh_s = now_s
            log.warning("the scheduler was not listening for %.0f s; its nodes have %g s anew", gap_s, self._timeout_s)
        fresh_until_s = self._fresh_s + self._timeout_s
        silent = [node for node in nodes if now_s > max(fresh_until_s, self._until_s(node))]
        latest_s: dict[str, float] = {}
        for node, pool in pools.items() if silent else ():
            latest_s[pool] = max(latest_s.get(pool, -inf), self._at_s(node))
        waited = {node: pools[node] for node in silent if node in pools}
        kept = {node for node, pool in waited.items() if not self._is_alone_silent(node, pool, latest_s[pool], now_s)}
        return [node for node in silent if node not in kept]

    def _is_alone_silent(self, node: str, pool: str, latest_s: float, now_s: float) -> bool:
        """Whether others of a node's pool have long gone on speaking since its last word."""
        if latest_s <= max(self._at_s(node), self._begun_s) + SPREAD_RATIO * self._timeout_s:
            if pool not in self._cut:
                log.warning("no node of pool %s is heard: its jobs wait for them where they are", pool)
            self._cut.add(pool)
            return False
        if pool in self._cut:
            self._cut.remove(pool)
            self._again_s[pool] = now_s
        return now_s > self._again_s.get(pool, -inf) + self._timeout_s

    def _at_s(self, node: str) -> float:
        known = self._heard.get(node)
        return -inf if known is None else known.at_s

    def _until_s(self, node: str) -> float:
        known = self._heard.get(node)
        return self._begun_until_s if known is None else known.until_s
