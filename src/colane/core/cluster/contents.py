"""What there is in a cluster, as plans read it, and the indexes that policies derive from it.

`core.cluster.state` keeps it up to date: an index is made when first asked for, and told what has changed from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol, TypeVar

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.free import FreeIndex, OpenGpus
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import PoolQueue
from colane.core.usage import UsageBook
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.progress import Progress
from colane.model.resources import Guarantee
from colane.perf.estimates import Estimates


class Derived(Protocol):
    """An index over nodes. It is told order numbers and reads what it needs through the view it is asked with.

    One with a `moved(old, new)` is told of each new value of a live job with GPUs too, also of those there are when it
    is made; one with a `cpu_only_moved(old, new)` of those without.

    It holds nothing that could not be worked out anew, so a policy with it decides as one without memory would.
    """

    def touched(self, node: int) -> None:
        """What a node is, or carries, has changed, or it is new."""

    def removed(self, node: int) -> None:
        """A node has gone."""


class NodesMatterNot:
    """For indexes over jobs, or over what is believed: nodes change nothing of them."""

    def touched(self, _node: int) -> None:
        """Nothing to do."""

    def removed(self, _node: int) -> None:
        """Nothing to do."""


NONE_CAME: Final[set[JobId]] = set()


class JobsOfKind(NodesMatterNot, ABC):
    """The jobs of which an index says that they belong to its kind, by what each is now."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    @abstractmethod
    def belongs(self, job: Job) -> bool:
        """Whether a job is of this kind: told by the job alone."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and self.belongs(old):
            self._pools[old.spec.pool].discard(old.id)
        if new is not None and self.belongs(new):
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, NONE_CAME)


Kind = tuple[str, str]  # a pool and a GPU type: GPUs of one kind are interchangeable to a policy

D = TypeVar("D", bound=Derived)

Newcomers = tuple[tuple[int, NeedClass], ...]  # classes of waiting jobs, with their priorities, of which some have come


class News(NamedTuple):
    """All that has happened to a pool since it was last planned that its next plan may depend on, but for time."""

    came: frozenset[JobId]  # jobs that have come to wait
    gpus: tuple[GpuId, ...]  # GPUs that jobs have come to or left, or whose jobs may do other things than before
    since_s: float = -inf  # when it was last planned
    until_s: float = -inf  # until when a plan may look at no more than such news (`Replan.news_until_s`)


class ConnectedGpus(NamedTuple):
    """GPUs of a node for ranks of a job."""

    gpus: tuple[GpuId, ...]  # in order of rank
    far: float  # how much worse they are connected than the best of an empty node like it, 0 to 1, by how much it talks


class ClusterContents(ABC):
    """Nodes, live jobs and bookings, with their indexes.

    Attributes:
        version: Rises with each change.
        beliefs: About speed and memory.
        jobs: All live jobs.
        nodes: All nodes by name.
        gpus: All GPUs, with their jobs.
        progress: Latest samples of running jobs.
        usage: What users have used of late.
        queues: Waiting jobs by pool.
        free: Free GPUs by node.
        gpu_types: Of each pool, in order of name.
        by_order: Nodes by their order numbers.
        steps_unseen: Whether running jobs are taken to step though no step was seen.
        cpu_only_passes_s: A job with GPUs that has waited so long is left what it books of a host.
        guarantees: GPUs that groups are guaranteed.
    """

    def __init__(self, beliefs: Estimates, version: int = 0) -> None:
        self.version = version
        self.beliefs = beliefs
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[str, NodeState] = {}
        self.gpus: dict[GpuId, GpuLoad] = {}
        self.progress: dict[JobId, Progress] = {}
        self.usage = UsageBook()
        self.queues: dict[str, PoolQueue] = {}
        self.free: dict[Kind, FreeIndex] = {}
        self.gpu_types: dict[str, list[str]] = {}
        self.by_order: dict[int, NodeState] = {}
        self.steps_unseen = False
        self.cpu_only_passes_s = inf
        self.guarantees: tuple[Guarantee, ...] = ()

    @abstractmethod
    def open_gpus(self, kind: Kind, jobs: int) -> OpenGpus:
        """GPUs of a kind with that many jobs that may be joined, lightest first."""

    @abstractmethod
    def best_connected(self, node: NodeState, spec: JobSpec, ranks: int, able: Sequence[GpuId]) -> ConnectedGpus:
        """The best connected of these GPUs of a node for ranks of a job; of sets as good the first of them."""

    @abstractmethod
    def derived(self, make: Callable[..., D], *parameters: Hashable) -> D:
        """A policy's own index for these parameters, told of every change from when it is first asked for."""
