"""What has happened to pools since their policy was asked: anything may have changed, or jobs have only arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from colane.model.job import Job, NeedClass

Newcomers = tuple[tuple[int, NeedClass], ...]
"""Classes of waiting jobs, with their priorities, of which some have come."""


class Changes:
    """Pools in which something has changed."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[str, dict[tuple[int, NeedClass], None] | None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def clear(self) -> None:
        """All of it is known."""
        self._pools.clear()

    def add(self, pool: str) -> None:
        """Anything may have changed there."""
        self._pools[pool] = None

    def update(self, pools: Iterable[str]) -> None:
        """Anything may have changed in them."""
        for pool in pools:
            self._pools[pool] = None

    def came(self, job: Job) -> None:
        """A job has come to wait."""
        known = self._pools.setdefault(job.spec.pool, {})
        if known is not None:
            known[job.spec.priority, job.need] = None

    def newcomers(self, pool: str) -> Newcomers | None:
        """Jobs that arrived, where nothing else has changed."""
        came = self._pools.get(pool)
        return None if came is None else tuple(came)
