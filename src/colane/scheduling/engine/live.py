"""Live jobs as orders and sources look at them that weigh what each has had; kept from one plan to the next.

With it a pass over a full cluster on which nothing can change costs nothing, however many jobs run and wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, TypeVar

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobSpec, JobState, NeedClass

T = TypeVar("T")


class OfNodes(ABC):
    """An index that counts something of each node; subclasses say what in `count`."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._touched: set[int] = set()

    def touched(self, node: int) -> None:
        self._touched.add(node)

    def removed(self, node: int) -> None:
        self._touched.discard(node)
        known = self._nodes.pop(node, None)
        if known is not None:
            self.count(known, -1)

    def look(self, view: ClusterView) -> None:
        """Count the nodes that are not what they were."""
        for order in self._touched:
            node, known = view.node_at(order).node, self._nodes.get(order)
            if node is not known:
                if known is not None:
                    self.count(known, -1)
                self.count(node, 1)
                self._nodes[order] = node
        self._touched.clear()

    @abstractmethod
    def count(self, node: Node, change: int) -> None:
        """A node has come (change 1) or gone (-1)."""


@dataclass(slots=True)
class Need:
    """Jobs that are alike in what they need: how many wait or run, and one of their descriptions.

    `speeds` are those of `Kept.speeds` by GPU type, in order of name, while they are `of` what is kept.
    """

    jobs: int
    spec: JobSpec
    speeds: list[float] = field(default_factory=list)
    of: Kept | None = None


@dataclass(slots=True)
class PoolJobs:
    """Live jobs of one pool."""

    version: int = 0  # grows with every change of `needs`
    needs: dict[NeedClass, Need] = field(default_factory=dict)  # those that wait or run, by class of need
    demands: Counter[int] = field(default_factory=Counter)  # how many of them have, or want, how many GPUs
    wanted: Counter[int] = field(default_factory=Counter)  # how many of those that wait want how many
    returned: dict[JobId, Job] = field(default_factory=dict)  # those that wait and have run before
    going: dict[JobId, Job] = field(default_factory=dict)  # those that are being stopped
    jobs: dict[JobId, Job] = field(default_factory=dict)  # all of them
    stoppable: int = 0  # how many of those that run may be stopped, and go on elsewhere
    elastic: int = 0  # how many may have several sizes
    homes: Counter[str] = field(default_factory=Counter)  # how many wait parked to come back, by where they may
    movable: dict[JobId, float] = field(default_factory=dict)  # which may leave, and since when each ran
    _movable: list[tuple[float, JobId]] = field(default_factory=list)
    # of these gangs on one node, by how many GPUs they have and whether they may span nodes
    _gangs: dict[tuple[int, bool], list[tuple[float, JobId]]] = field(default_factory=dict)

    def past_min_runtime(self, now_s: float, quantum_s: float, since_s: float = -inf) -> Iterator[JobId]:
        """Jobs that may be stopped and have run for a quantum, which they had not yet at the other time."""
        before, count = 0, self.count_past_min_runtime(now_s, quantum_s)
        if since_s > -inf:
            before = self.count_past_min_runtime(since_s, quantum_s)
        return (job for _, job in islice(self._movable, before, count))

    def gangs_past_min_runtime(self, now_s: float, quantum_s: float, most: int) -> Iterator[JobId]:
        """Those of them with several GPUs, all on one node, that have so many at most or may span nodes."""
        lines = [line for (gpus, may_span), line in self._gangs.items() if may_span or gpus <= most]
        return (job for line in lines for began_s, job in line if began_s + quantum_s <= now_s)

    def has_past_min_runtime(self, now_s: float, quantum_s: float) -> bool:
        """Whether there is one."""
        return bool(self._movable) and self._movable[0][0] + quantum_s <= now_s

    def min_runtime_until_s(self, now_s: float, quantum_s: float) -> float:
        """When the next of the others will have; infinite when there is none."""
        count = self.count_past_min_runtime(now_s, quantum_s)
        return self._movable[count][0] + quantum_s if count < len(self._movable) else inf

    def count_past_min_runtime(self, now_s: float, quantum_s: float) -> int:
        """How many of them there are."""
        return bisect_right(self._movable, now_s, key=lambda entry: entry[0] + quantum_s)

    def change(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other; None where it is not, or no more, of this pool."""
        if new is not None:
            self.jobs[new.id] = new
        elif old is not None:
            self.jobs.pop(old.id, None)
        before, after = old is not None and _counts(old), new is not None and _counts(new)
        if old is not None and before:
            self._drop(old)
        if new is not None and after:
            self._add(new)
        if old is not None and new is not None and before and after and _is_alike(old, new):
            return
        if old is not None and before:
            self._count(old, -1)
        if new is not None and after:
            self._count(new, 1)

    def _add(self, job: Job) -> None:
        if job.placement is None or job.home:
            self.wanted[job.gpu_count] += 1
            if job.totals.served or job.home:
                self.returned[job.id] = job
            if job.home:
                self.homes[job.home] += 1
        elif job.is_leaving:
            self.going[job.id] = job
        elif job.is_movable:
            insort(self._movable, _start(job))
            self.movable[job.id] = ran_since_s(job)
            self.stoppable += job.effective.preemptible
            if _is_gang(job):
                insort(self._gangs_of(job), _start(job))

    def _drop(self, job: Job) -> None:
        if job.placement is None or job.home:
            self.wanted[job.gpu_count] -= 1
            if not self.wanted[job.gpu_count]:
                del self.wanted[job.gpu_count]
            self.returned.pop(job.id, None)
            if job.home:
                self.homes[job.home] -= 1
                if not self.homes[job.home]:
                    del self.homes[job.home]
        elif job.is_leaving:
            del self.going[job.id]
        elif job.is_movable:
            del self._movable[bisect_left(self._movable, (self.movable.pop(job.id), job.id))]
            self.stoppable -= job.effective.preemptible
            if _is_gang(job):
                del self._gangs_of(job)[bisect_left(self._gangs_of(job), _start(job))]

    def _gangs_of(self, job: Job) -> list[tuple[float, JobId]]:
        return self._gangs.setdefault((job.gpu_count, job.effective.multi_node), [])

    def _count(self, job: Job, change: int) -> None:
        spec, gpus = job.effective, job.gpu_count
        self.version += 1
        need = self.needs.get(spec.need)
        if need is None:
            need = self.needs[spec.need] = Need(0, spec)
        need.jobs += change
        if not need.jobs:
            del self.needs[spec.need]
        self.elastic += change if spec.sizes else 0
        self.demands[gpus] += change
        if not self.demands[gpus]:
            del self.demands[gpus]


def _is_alike(old: Job, new: Job) -> bool:
    """Whether nothing has changed that is counted."""
    return old.effective is new.effective and old.gpu_count == new.gpu_count


def _counts(job: Job) -> bool:
    """Whether it runs, or waits in a line that policies order."""
    return job.placement is not None or (job.is_waiting and job.spec.measurement_group is None)


def _is_gang(job: Job) -> bool:
    return job.placement is not None and len(job.placement.nodes) == 1 and len(job.gpus_held) > 1


def _start(job: Job) -> tuple[float, JobId]:
    return ran_since_s(job), job.id


def ran_since_s(job: Job) -> float:
    """Since when it has run at a stretch; infinite before its start."""
    came_s = job.since_s if job.run.paused_before_s else job.start_s
    return inf if came_s is None else came_s


Alike = tuple[NeedClass, int, int | None, int | None, int | None, float | None]
"""Class of need, priority, steps in all, where they are cut off (declared, and for now), time limit in seconds."""


@dataclass(slots=True)
class Kept:
    """What was worked out from profiles and GPUs, to be kept while these stay as they are."""

    speeds_version: int  # of beliefs, see `Estimates`
    # step times, see `RunTimes`
    steps: dict[tuple[NeedClass, str | None, int | None], float | None] = field(default_factory=dict)
    speeds: dict[NeedClass, dict[str, float]] = field(default_factory=dict)  # speeds by GPU type, see `FairShares`
    # throughput by class, GPU type, whether each GPU has a batch, GPUs and whether they span nodes, see `sized_rates`
    sized: dict[tuple[NeedClass, str, bool, int, bool | None], float] = field(default_factory=dict)
    # what a policy has worked out of each job, with the value of the job it holds for
    jobs: dict[JobId, tuple[Job, Any]] = field(default_factory=dict)
    # how long each is, see `Expected`, which may be asked beside a policy that keeps something else
    lengths: dict[JobId, tuple[Job, Any]] = field(default_factory=dict)
    # mean speeds by GPU type, and the version of the pool they hold for, see `FairShares`
    means: dict[str, float] = field(default_factory=dict)
    means_of: int = -1
    types: tuple[str, ...] | None = None  # GPU types that the speeds are compared over
    # rank, and seconds left, of jobs that wait for their first start, and the version of their family's law by which
    # they are judged; below 0 where they declare their length
    waiting: dict[Alike, tuple[int, tuple[tuple[float, ...], float]]] = field(default_factory=dict)


def once(kept: dict[JobId, tuple[Job, Any]], job: Job, work_out: Callable[[Job], T]) -> T:
    """What is worked out of a job, once for each of its values; always the same for what is kept there."""
    known = kept.get(job.id)
    if known is None or known[0] is not job:
        known = kept[job.id] = (job, work_out(job))
    value: T = known[1]
    return value


NO_GPUS: Counter[str] = Counter()


class LiveJobs(OfNodes):
    """An index of live jobs."""

    def __init__(self) -> None:
        super().__init__()
        self._pools: dict[str, PoolJobs] = {}
        self._kept: dict[str, Kept] = {}
        self._gpus: dict[str, Counter[str]] = {}
        self._sizes: Counter[int] = Counter()

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and new is not None and old.spec.pool == new.spec.pool:
            self.pool(new.spec.pool).change(old, new)
            return
        if old is not None:
            self.pool(old.spec.pool).change(old, None)
            for kept in self._kept.values():
                kept.jobs.pop(old.id, None)
                kept.lengths.pop(old.id, None)
        if new is not None:
            self.pool(new.spec.pool).change(None, new)

    def pool(self, pool: str) -> PoolJobs:
        """Jobs of a pool."""
        found = self._pools.get(pool)
        if found is None:
            found = self._pools[pool] = PoolJobs()
        return found

    def gpus(self, view: ClusterView, pool: str) -> Counter[str]:
        """GPUs of a pool that work, by type, of nodes that take jobs."""
        self.look(view)
        return self._gpus.get(pool, NO_GPUS)

    def types_in_use(self, view: ClusterView, pool: str) -> list[str]:
        """GPU types of a pool that any of these jobs may use, in order of name: no decision depends on others."""
        types = view.gpu_types(pool)
        if len(types) < 2:
            return types
        named: set[str] = set()
        for need in self.pool(pool).needs.values():
            if need.spec.gpu_type is None:
                return types
            named.add(need.spec.gpu_type)
        return [kind for kind in types if kind in named]

    def usable_gpus(self, view: ClusterView, pool: str) -> int:
        """How many GPUs of these types work, on nodes that take jobs."""
        gpus = self.gpus(view, pool)
        return sum([gpus[kind] for kind in self.types_in_use(view, pool)])

    def most_on_a_node(self, view: ClusterView) -> int:
        """GPUs of the largest node that takes jobs."""
        self.look(view)
        return max([size for size, nodes in self._sizes.items() if nodes], default=0)

    def kept(self, view: ClusterView, pool: str) -> Kept:
        """What was worked out for a pool before and holds still."""
        self.look(view)
        kept = self._kept.get(pool)
        if kept is None or kept.speeds_version != view.beliefs.speeds_version:
            kept = self._kept[pool] = Kept(view.beliefs.speeds_version)
        return kept

    def kept_over(self, view: ClusterView, pool: str, types: tuple[str, ...]) -> Kept:
        """The same, as far as it compares these GPU types; what compared others holds no more."""
        kept = self.kept(view, pool)
        if kept.types is not None and kept.types != types:
            kept = self._kept[pool] = Kept(view.beliefs.speeds_version)
        kept.types = types
        return kept

    def count(self, node: Node, change: int) -> None:
        gpus = self._gpus.setdefault(node.pool, Counter())
        for gpu in node.gpus:
            gpus[gpu.type] += change * (gpu.healthy and node.takes_jobs)
        self._sizes[len(node.gpus)] += change * node.takes_jobs
        self._kept.pop(node.pool, None)


class Priorities(NodesMatterNot):
    """How many jobs of each priority hold GPUs, by pool."""

    def __init__(self) -> None:
        self._pools: dict[str, Counter[int]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        before, after = old is not None and _holds(old), new is not None and _holds(new)
        if before == after and (old is None or new is None or old.effective is new.effective):
            return
        if old is not None and before:
            self._count(old.effective, -1)
        if new is not None and after:
            self._count(new.effective, 1)

    def _count(self, spec: JobSpec, change: int) -> None:
        pool = self._pools.setdefault(spec.pool, Counter())
        pool[spec.priority] += change
        if not pool[spec.priority]:
            del pool[spec.priority]

    def lowest(self, pool: str) -> int | None:
        """Lowest priority of those that hold GPUs; None where none does."""
        return min(self._pools.get(pool, ()), default=None)


def _holds(job: Job) -> bool:
    return job.placement is not None and not job.home


def is_past_min_runtime(draft: Draft, job: Job, quantum_s: float) -> bool:
    """Whether a job of one GPU saves its state, runs, and has done so for a quantum: then it may be started elsewhere.

    As `PoolJobs.past_min_runtime`, for one job that is undecided.
    """
    if not draft.is_undecided(job.id):
        return False
    if job.state is not JobState.RUNNING or not job.effective.preemptible or len(job.gpus_held) != 1:
        return False
    return job.is_movable and ran_since_s(job) + quantum_s <= draft.now_s
