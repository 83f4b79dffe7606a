"""What a policy sees: the state, read-only, at one moment. Time and randomness are data; nothing else can be read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import ClusterContents, ConnectedGpus, D, Kind, Newcomers, News
from colane.core.cluster.free import FreeIndex, OpenGpus
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import PoolQueue
from colane.core.cluster.to_host import bytes_to_move, parking_refusal
from colane.core.usage import UsageBook
from colane.model.hardware import GpuId, is_instance_type
from colane.model.job import Job, JobId, JobSpec
from colane.model.progress import Progress
from colane.model.resources import Guarantee, may_be_instances
from colane.perf.estimates import Estimates

EMPTY = PoolQueue()
NONE_CAME: Mapping[str, Newcomers | None] = MappingProxyType({})
NO_NEWS: Mapping[str, News | None] = MappingProxyType({})


K = TypeVar("K")
T = TypeVar("T")

ENDLESS: Final = 1 << 60


class UnfinishedError(Exception):
    """A plan has worked out as much as one may; what it knows is kept, and the next step's knows it and goes on."""


class ClusterView:
    """The cluster at `now_s`.

    Attributes:
        now_s: The time.
        seed: Seed for a policy that draws lots.
        explain: The job a user asks about; the policy may then take time to name the jobs in the way.
        work_left: So many jobs may be looked at anew before the first change.
    """

    __slots__ = ("_holders", "_newcomers", "_news", "_pools", "_state", "explain", "now_s", "seed", "work_left")

    def __init__(
        self,
        state: ClusterContents,
        now_s: float,
        *,
        pools: Iterable[str] | None = None,
        newcomers: Mapping[str, Newcomers | None] = NONE_CAME,
        news: Mapping[str, News | None] = NO_NEWS,
        explain: JobId | None = None,
        seed: int = 0,
        work_max: int = ENDLESS,
    ) -> None:
        self._state = state
        self.work_left = work_max
        self._newcomers = newcomers
        self._news = news
        self._pools = sorted(state.queues if pools is None else pools)
        self.now_s = now_s
        self.seed = seed
        self.explain = explain
        self._holders: dict[str, tuple[JobId, ...]] = {}

    @property
    def version(self) -> int:
        """Version of the state."""
        return self._state.version

    @property
    def beliefs(self) -> Estimates:
        """What is believed about speed and memory."""
        return self._state.beliefs

    @property
    def steps_unseen(self) -> bool:
        """Whether running jobs are taken to step though no step was seen."""
        return self._state.steps_unseen

    @property
    def cpu_only_passes_s(self) -> float:
        """How long a job with GPUs waits before jobs without leave it what it books of a host."""
        return self._state.cpu_only_passes_s

    def portion(self, new: dict[K, T]) -> dict[K, T]:
        """Take out those of these jobs, or others, that may be looked at anew for what is kept, until none is left.

        Raises:
            UnfinishedError: None may any more: the plan is given up.
        """
        if not new:  # `work` may have done more than was left
            return {}
        self.work(0)
        part = dict(islice(new.items(), self.work_left))
        for job in part:
            del new[job]
        self.work_left -= len(part)
        return part

    def work(self, jobs: int) -> None:
        """As much is done as to look at so many jobs, if any may be."""
        if self.work_left <= 0:
            raise UnfinishedError
        self.work_left -= jobs

    @property
    def pools(self) -> list[str]:
        """Pools in which something changed and a job waits, in order of name."""
        queues = self._state.queues
        return [pool for pool in self._pools if pool in queues and queues[pool].count]

    @property
    def changed_pools(self) -> list[str]:
        """Pools in which something changed, in order of name, whether a job waits there or not."""
        return self._pools

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GPUs that groups are guaranteed."""
        return self._state.guarantees

    @property
    def usage(self) -> UsageBook:
        """What users have used of late."""
        return self._state.usage

    def newcomers(self, pool: str) -> Newcomers | None:
        """Jobs that arrived since the last plan, where nothing else has happened that the plan might depend on."""
        return self._newcomers.get(pool)

    def news(self, pool: str) -> News | None:
        """Jobs that came and GPUs that changed since the last plan, where a plan may look at no more than these."""
        return self._news.get(pool)

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes by name."""
        return self._state.nodes

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """All live jobs."""
        return self._state.jobs

    def queue(self, pool: str) -> PoolQueue:
        """Waiting jobs of a pool."""
        return self._state.queues.get(pool, EMPTY)

    def job(self, job: JobId) -> Job:
        """One live job."""
        return self._state.jobs[job]

    def progress(self, job: JobId) -> Progress | None:
        """Latest sample of a running job."""
        return self._state.progress.get(job)

    @property
    def samples(self) -> Mapping[JobId, Progress]:
        """Latest samples of running jobs."""
        return self._state.progress

    def parking_refusal(self, job: Job, taken_bytes: int = 0) -> str | None:
        """Why a plan may not park a job now; None when it may, with so much of its node's host memory taken."""
        return parking_refusal(self._state, job, taken_bytes)

    def bytes_to_move(self, job: Job) -> int:
        """GPU memory that would be moved to the host if a running job was parked, as far as is known."""
        return bytes_to_move(self._state, job)

    def gpu(self, gpu: GpuId) -> GpuLoad:
        """One GPU with its jobs."""
        return self._state.gpus[gpu]

    @property
    def gpus(self) -> Mapping[GpuId, GpuLoad]:
        """All GPUs with their jobs."""
        return self._state.gpus

    def gpu_types(self, pool: str, asked: str | None = None) -> list[str]:
        """GPU types of a pool, in order of name; only the one asked for, if any."""
        kinds = self._state.gpu_types.get(pool, [])
        return kinds if asked is None else [kind for kind in kinds if kind == asked]

    def gpu_types_for(self, spec: JobSpec, pool: str | None = None) -> list[str]:
        """The GPU types that a job may be given: of its pool, as asked for, and not in parts where it needs several.

        Args:
            spec: Of the job, or of one like it in another pool.
            pool: The job's own, where the spec is of another's.
        """
        kinds = self.gpu_types(spec.pool if pool is None else pool, spec.gpu_type)
        return kinds if may_be_instances(spec) else [kind for kind in kinds if not is_instance_type(kind)]

    def free(self, kind: Kind) -> FreeIndex:
        """Free GPUs of a kind, by node."""
        return self._state.free[kind]

    def open_gpus(self, kind: Kind, jobs: int) -> OpenGpus:
        """GPUs of a kind with that many jobs that may be joined, lightest first."""
        return self._state.open_gpus(kind, jobs)

    def best_connected(self, node: NodeState, spec: JobSpec, ranks: int, able: Sequence[GpuId]) -> ConnectedGpus:
        """The best connected of these GPUs of a node for ranks of a job; of sets as good the first of them."""
        return self._state.best_connected(node, spec, ranks, able)

    def derived(self, make: Callable[..., D], *parameters: Hashable) -> D:
        """The index of this policy's own for these parameters, see `core.cluster.contents`."""
        return self._state.derived(make, *parameters)

    def node_at(self, order: int) -> NodeState:
        """The node with this order number."""
        return self._state.by_order[order]

    def holders(self, pool: str) -> tuple[JobId, ...]:
        """Jobs that hold GPUs of a pool, or wait to come back to them, oldest first."""
        if pool not in self._holders:  # once: many classes of jobs are told that these hold what they need
            nodes = (node for node in self._state.nodes.values() if node.node.pool == pool)
            jobs = (self._state.jobs[job] for job in {job for node in nodes for job in node.jobs})
            self._holders[pool] = tuple(sorted(job.id for job in jobs if job.is_returning or not job.is_on_host))
        return self._holders[pool]
