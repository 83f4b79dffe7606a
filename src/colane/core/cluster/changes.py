"""What has happened to pools since their policy was asked: anything may have changed, or what is known to have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from colane.core.cluster.contents import Newcomers, News
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, NeedClass


class Happened:
    """What has happened in a pool: which jobs came, what changed on which GPUs, `more`, or `any` thing at all."""

    __slots__ = ("any", "came", "gpus", "jobs", "more")

    def __init__(self) -> None:
        self.came: dict[tuple[int, NeedClass], None] = {}
        self.jobs: dict[JobId, None] = {}
        self.gpus: dict[GpuId, None] = {}
        self.more = False
        self.any = False

    def add(self, other: Happened) -> None:
        """That has happened, too."""
        self.came.update(other.came)
        self.jobs.update(other.jobs)
        self.gpus.update(other.gpus)
        self.more = self.more or other.more
        self.any = self.any or other.any


class Changes:
    """Pools in which something has changed, to be read by others: `pools`, and those `left` to the next step."""

    __slots__ = ("left", "pools")

    def __init__(self) -> None:
        self.pools: dict[str, Happened] = {}
        self.left: dict[str, Happened] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.pools)

    def __len__(self) -> int:
        return len(self.pools)

    def clear(self) -> None:
        """All of it is known."""
        self.pools = {}

    def add(self, pool: str) -> None:
        """Anything may have changed there."""
        self._of(pool).any = True

    def update(self, pools: Iterable[str]) -> None:
        """Anything may have changed in them."""
        for pool in pools:
            self.add(pool)

    def came(self, job: Job) -> None:
        """A job has come to wait."""
        known = self._of(job.spec.pool)
        known.came[job.spec.priority, job.need] = None
        known.jobs[job.id] = None

    def on(self, pool: str, gpus: Iterable[GpuId]) -> None:
        """Jobs have come to these GPUs or left them, or may do there what they might not before."""
        known = self._of(pool)
        known.more = True
        for gpu in gpus:
            known.gpus[gpu] = None

    def booked(self, pool: str, gpus: Iterable[GpuId]) -> None:
        """A job has come to these GPUs, which by itself is no reason to plan anew."""
        if pool in self.pools:
            self.on(pool, gpus)

    def due(self, pools: Iterable[str]) -> None:
        """A time has come at which these are to be planned."""
        for pool in pools:
            self._of(pool).more = True

    def again(self, pools: Iterable[str]) -> None:
        """Plan these again, as a plan has changed them: of no news but of its own, which jobs came is forgotten."""
        made = self.pools
        self.pools = {}
        for pool in pools:
            known = made.get(pool)
            self.on(pool, () if known is None else known.gpus)
            if known is not None and known.any:
                self.add(pool)

    def leave(self, pool: str, told: Happened) -> None:
        """A plan has left to the next step what it was told of a pool."""
        told.more = True
        self.left[pool] = told

    def take(self, known: Mapping[str, Happened]) -> None:
        """That has happened in these, besides what is known of them."""
        for pool, happened in known.items():
            self._of(pool).add(happened)

    def put_off(self, *, everything: bool) -> None:
        """Leave what has happened in such pools since to the next step, too; or whatever is to be planned."""
        for pool in [pool for pool in self.pools if everything or pool in self.left]:
            self.left.setdefault(pool, Happened()).add(self.pools.pop(pool))

    def resume(self) -> None:
        """The next step begins."""
        self.take(self.left)
        self.left = {}

    def newcomers(self, pool: str) -> Newcomers | None:
        """Classes of the jobs that arrived, where nothing else has changed."""
        known = self.pools.get(pool)
        return None if known is None or known.any or known.more else tuple(known.came)

    def news(self, pool: str, since_s: float = -inf, until_s: float = -inf) -> News | None:
        """Jobs that came and GPUs that changed, where nothing else has."""
        known = self.pools.get(pool)
        if known is None or known.any:
            return None
        return News(frozenset(known.jobs), tuple(known.gpus), since_s, until_s)

    def _of(self, pool: str) -> Happened:
        if pool not in self.pools:
            self.pools[pool] = Happened()
        return self.pools[pool]
