"""What users hold of a pool, and which of their jobs wait; kept from one plan to the next."""

from __future__ import annotations

from collections.abc import Mapping

from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import Job, JobSpec, NeedClass
from colane.model.resources import host_needs
from colane.scheduling.engine.live import OfNodes

Amounts = tuple[int, int, int]  # GPUs, cores and host memory

Lines = Mapping[tuple[int, NeedClass], Line]  # waiting jobs by priority and class of need

NOTHING: Amounts = (0, 0, 0)


def needs(spec: JobSpec, gpus: int) -> Amounts:
    """What a job takes of each of the resources with so many GPUs."""
    host = host_needs(spec, gpus)
    return gpus, host.cores, host.host_memory_bytes


def plus(amounts: Amounts, more: Amounts, times: int = 1) -> Amounts:
    """Both together."""
    return amounts[0] + times * more[0], amounts[1] + times * more[1], amounts[2] + times * more[2]


class Users(OfNodes):
    """An index of users by pool."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[tuple[str, str], Amounts] = {}
        self._lines: dict[str, dict[str, dict[tuple[int, NeedClass], Line]]] = {}
        self._capacities: dict[str, Amounts] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if (
            old is not None
            and new is not None
            and old.effective is new.effective
            and old.home == new.home
            and _place(old) == _place(new)
            and _size(old) == _size(new)
        ):
            return
        if old is not None:
            self._leave(old)
        if new is not None:
            self._enter(new)

    def lines(self, pool: str) -> Mapping[str, Lines]:
        """Waiting jobs of each user that has some."""
        return self._lines.get(pool, {})

    def taken(self, pool: str, user: str) -> Amounts:
        """What the jobs of a user hold."""
        return self._taken.get((pool, user), NOTHING)

    def capacities(self, view: ClusterView, pool: str) -> Amounts:
        """What there is."""
        self.look(view)
        return self._capacities.get(pool, NOTHING)

    def count(self, node: Node, change: int) -> None:
        has = len(node.gpus), len(node.cores), node.host_memory_bytes
        self._capacities[node.pool] = plus(self._capacities.get(node.pool, NOTHING), has, change)

    def _enter(self, job: Job) -> None:
        spec = job.effective
        if job.placement is not None and not job.home:
            self._take(job, 1)
        elif _place(job) is not None:
            lines = self._lines.setdefault(spec.pool, {}).setdefault(spec.user, {})
            lines.setdefault((spec.priority, job.need), Line()).add(job.id)

    def _leave(self, job: Job) -> None:
        spec = job.effective
        if job.placement is not None and not job.home:
            self._take(job, -1)
        elif _place(job) is not None:
            lines = self._lines[spec.pool][spec.user]
            line = lines[spec.priority, job.need]
            line.remove(job.id)
            if line.is_empty:
                del lines[spec.priority, job.need]
            if not lines:
                del self._lines[spec.pool][spec.user]

    def _take(self, job: Job, change: int) -> None:
        key = job.spec.pool, job.spec.user
        taken = plus(self._taken.get(key, NOTHING), needs(job.effective, job.gpu_count), change)
        if any(taken):
            self._taken[key] = taken
        else:
            self._taken.pop(key, None)


def _size(job: Job) -> int:
    """How many GPUs it takes; a job that waits takes none."""
    return 0 if job.placement is None or job.home else len(job.placement.slots)


def _place(job: Job) -> bool | None:
    """Whether a job runs; None where it does neither run nor wait in a line that policies order."""
    if job.placement is not None and not job.home:
        return True
    return False if job.is_waiting and job.spec.measurement_group is None else None
