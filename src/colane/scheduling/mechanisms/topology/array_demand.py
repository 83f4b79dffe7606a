"""What jobs with GPUs ask for, now: how a pool is divided into arrays (CODA, paper D, section V).

The paper sizes its arrays by history. Here it is the jobs that run and wait which say it, so that a restarted scheduler
decides as before; a pool without any is not divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from math import ceil

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobSpec
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import LiveJobs

LARGE_GPUS = 4  # a job with as many GPUs belongs to the 4-GPU sub-array (section V)

COVERED_RATIO = 0.75  # so many of the jobs with GPUs find the cores they need, if each GPU has what is kept for it


class PoolDemand:
    """Of one pool: jobs by cores for each GPU, and GPUs asked for by small and by large jobs."""

    def __init__(self) -> None:
        self.jobs_by_cores: Counter[int] = Counter()
        self.small_gpus = 0
        self.large_gpus = 0

    @property
    def cores_per_gpu(self) -> int:
        """Cores kept for each GPU: what three quarters of the jobs make do with, rounded up."""
        least = self.jobs_by_cores.total() * COVERED_RATIO
        seen = 0
        for cores in sorted(self.jobs_by_cores):
            seen += self.jobs_by_cores[cores]
            if seen >= least:
                return cores
        return 0


class ArrayDemand(NodesMatterNot):
    """The demand of a pool's jobs for its arrays."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolDemand] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and new is not None and old.effective is new.effective:
            return
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)

    def of(self, pool: str) -> PoolDemand:
        """Of a pool."""
        found = self._pools.get(pool)
        if found is None:
            found = self._pools[pool] = PoolDemand()
        return found

    def kept_cores(self, view: ClusterView, node: NodeState) -> int:
        """Cores of a node that only borrowers get besides.

        Of those that jobs with GPUs would use if all GPUs that they may have were in use, as large a part as they ask
        for of these GPUs.
        """
        pool = node.node.pool
        demand, live = self.of(pool), view.derived(LiveJobs)
        gpus = live.usable_gpus(view, pool)
        asked = min(gpus, demand.small_gpus + demand.large_gpus)
        reserved = demand.cores_per_gpu * _gpus_of(node, live.types_in_use(view, pool))
        return ceil(min(len(node.node.cores), reserved) * asked / gpus) if gpus else 0

    def large_nodes(self, view: ClusterView, pool: str) -> set[int]:
        """Nodes of the 4-GPU sub-array, by order: the last ones, as large a part of GPUs as large jobs ask for."""
        types = view.derived(LiveJobs).types_in_use(view, pool)
        nodes = [(node, _gpus_of(node, types)) for node in view.nodes.values() if node.node.pool == pool]
        demand, total = self.of(pool), sum([gpus for _, gpus in nodes])
        asked = demand.small_gpus + demand.large_gpus
        left = total * demand.large_gpus / asked if asked else 0.0
        found: set[int] = set()
        for node, gpus in reversed(nodes):
            if left <= 0:
                break
            if gpus >= LARGE_GPUS:
                found.add(node.order)
                left -= gpus
        return found

    def cores_per_gpu(self, job: Job) -> int:
        """Cores that a job with GPUs is to have for each of them."""
        return ceil((job.constraints.cores or job.effective.cores) / job.effective.gpus)

    def _count(self, job: Job, change: int) -> None:
        spec = job.effective
        if not spec.gpus:
            return
        demand, per_gpu = self.of(spec.pool), self.cores_per_gpu(job)
        demand.jobs_by_cores[per_gpu] += change
        if not demand.jobs_by_cores[per_gpu]:
            del demand.jobs_by_cores[per_gpu]
        if spec.gpus >= LARGE_GPUS:
            demand.large_gpus += change * spec.gpus
        else:
            demand.small_gpus += change * spec.gpus


class SubArrays:
    """Nodes of the 4-GPU and of the 1-GPU sub-array, in one plan."""

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context
        self._found: set[int] | None = None
        waiting = [need.gpus for _, need in context.draft.view.queue(context.pool).classes if need.gpus >= LARGE_GPUS]
        self._large_need = min(waiting, default=0)

    @property
    def large(self) -> set[int]:
        """Nodes of the 4-GPU sub-array, by order; most plans look for none."""
        if self._found is None:
            view = self._context.draft.view
            self._found = view.derived(ArrayDemand).large_nodes(view, self._context.pool)
        return self._found

    def own_first(self, spec: JobSpec, orders: Iterable[int]) -> list[int]:
        """Of these nodes those of a job's own sub-array, then those of the other that it may borrow."""
        own, foreign = list[int](), list[int]()
        for order in orders:
            (own if (spec.gpus >= LARGE_GPUS) is (order in self.large) else foreign).append(order)
        return own + [order for order in foreign if self._is_lent(order, spec)]

    def _is_lent(self, order: int, spec: JobSpec) -> bool:
        """Whether a job of the other sub-array may have GPUs of a node: not where a large one that waits could have it.

        Else a job that was stopped for that one would come back before it.
        """
        if not self._large_need or spec.gpus >= LARGE_GPUS:
            return True
        view = self._context.draft.view
        node = view.node_at(order)
        held = sum([view.job(job).gpu_count for job in node.jobs if view.job(job).gpu_count >= LARGE_GPUS])
        return len(node.node.gpus) - held < self._large_need


def _gpus_of(node: NodeState, types: Collection[str]) -> int:
    """GPUs of a node that are of these types."""
    return len([gpu for gpu in node.node.gpus if gpu.type in types])
