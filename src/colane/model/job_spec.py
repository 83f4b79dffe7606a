"""What a job needs: in which words, as its owner declared it, and under what it is held to besides.

The declaration (`Job.spec`) is never rewritten. What decides looks at `Job.effective`, which is worked out of it and of
the constraints that were learnt of the job, or imposed by the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from colane.model.hardware import DEFAULT_POOL, GpuId, nodes_named


class JobKind(StrEnum):
    """What a job's steps are."""

    TRAINING = "training"  # optimizer steps
    INFERENCE = "inference"  # requests, answered by a resident process

    __hash__ = str.__hash__  # an enumeration's own is interpreted: classes of need are looked up at every step


class CommPattern(StrEnum):
    """Which ranks of a job talk to each other."""

    ALL = "all"  # every pair, as in data-parallel training
    RING = "ring"
    PIPELINE = "pipeline"


class Ranks(StrEnum):
    """How many processes of a job are started."""

    ONE = "one"
    PER_GPU = "per-gpu"


class BatchOf(StrEnum):
    """What its batch size is of."""

    GLOBAL = "global"
    PER_GPU = "per-gpu"


class Category(StrEnum):
    """Kinds of training that differ in what their CPU side has to do (CODA, paper D, section IV-B)."""

    CV = "cv"  # images and video
    NLP = "nlp"  # text
    SPEECH = "speech"  # sound
    UNKNOWN = "unknown"


_BY_NAME: Final = {category.value: category for category in Category}


def parse_category(text: str) -> Category:
    """The category of that name, whatever its case; unknown where there is none such."""
    return _BY_NAME.get(text.strip().lower(), Category.UNKNOWN)


class CoreHint(StrEnum):
    """What an owner may say of the work between two steps, which changes how many cores a job starts with (ibid.)."""

    PIPELINED = "pipelined"  # the next batch is made ready while the GPU works: one core fewer
    MANY_WEIGHTS = "many-weights"  # steps are long, so loading has time: one fewer
    COMPLEX_BETWEEN = "complex-between"  # much is computed on the CPU between two steps: one more


class IfNever(StrEnum):
    """What becomes of a job once its condition cannot come true any more."""

    CANCEL = "cancel"
    HOLD = "hold"


class ShareBetween(StrEnum):
    """Which jobs may share a GPU."""

    ALL = "all"
    GROUP = "group"  # jobs of users that named the same group; jobs without a group share with those of the same user
    USER = "user"


SAVED: Final = 75  # exit code of a job that has saved its state and is to be started again (EX_TEMPFAIL of sysexits.h)


class CheckpointContract(NamedTuple):
    """How a job that is to go on later is stopped: a signal, and after it so much time to save."""

    # name of the signal. It goes to the first of its processes, from the top, that catch it: those that would die of it
    # do not get it
    signal: str
    lead_s: float  # how long saving may take
    saved_codes: tuple[int, ...] = (0, SAVED)  # exit codes that say, after the signal, that its state is saved
    reforms: bool = False  # whether its ranks can go on as fewer without a restart, as they have said
    # the signal tells of its time limit, as Slurm's does: a job that leaves with 0 then is done
    is_notice: bool = False
    to_shell: bool = False  # it is for its script alone, not for the command that the script waits for


class NeedClass(NamedTuple):
    """All that decides where a job may run: if one job of a class finds no place, none does."""

    pool: str
    gpus: int
    sizes: tuple[int, ...]
    gpu_type: str | None
    gpu_memory_bytes: int | None
    cores: int
    host_memory_bytes: int
    host_bandwidth_bytes_per_s: int
    share: bool
    family: str
    batch_size: int | None
    multi_node: bool
    gpus_per_node: int
    kind: JobKind
    latency_s: float | None
    sharing_domain: str
    cores_beside: int
    nodes: str
    whole_node: bool
    home: str = ""  # where alone a parked job may go on: "node", or "node/gpu"; empty where a job may start anywhere


class PoolWay(NamedTuple):
    """What a job of several pools asks for in one of them."""

    pool: str
    gpus: int  # of several sizes the best that the pool could hold
    time_limit_s: float | None  # as said, or as the pool gives it


@dataclass(unsafe_hash=True, slots=True)
class JobSpec:
    """What a job needs, as its owner declared it. Optional values are unknown when None.

    An immutable value; it is not declared frozen, as that would make it thrice as slow, and traces have a million.
    """

    name: str  # for people; need not be unique
    family: str  # profile key: jobs of one family behave the same
    user: str = ""  # owner
    pool: str = DEFAULT_POOL  # nodes it may use; of several pools the one that it is in now
    # GPUs, on one node unless `multi_node`; 0 for a job that books cores and host memory only. Of a job of several
    # sizes the one it would like best
    gpus: int = 1
    # numbers of GPUs it can run on, ascending; empty where `gpus` is the only one. What it has stands in its placement
    sizes: tuple[int, ...] = ()
    gpu_type: str | None = None  # required GPU type, None for any
    gpu_memory_bytes: int | None = None  # peak memory on each GPU
    cores: int = 0  # cores booked for it alone; 0 shares the cores near its GPUs, without GPUs one of the node's
    host_memory_bytes: int = 0  # host memory booked
    # bandwidth to host memory booked (paper C, section 4.2), where nodes say theirs
    host_bandwidth_bytes_per_s: int = 0
    priority: int = 0  # higher goes first where the policy uses it
    time_limit_s: float | None = None  # stopped when an attempt has run this long
    # it is to have ended so long after it was submitted, and shares no GPU; None: no matter when
    deadline_s: float | None = None
    retries: int = 0  # how often a failed attempt is tried again
    share: bool = True  # False keeps every other job off its GPUs
    batch_size: int | None = None  # samples of a step, as asked: of all its GPUs together, or of each (`batch_per_gpu`)
    steps_total: int | None = None  # steps until it is done
    steps_limit: int | None = None  # stopped as succeeded when this many steps are done (profiling)
    measurement_group: str | None = None  # name of a set under measurement, started together on one GPU
    measurement_group_size: int = 1  # jobs in that set
    # it saves its state and goes on from there, so a policy may stop it and start it again later
    preemptible: bool = False
    # without GPUs, it may be stopped for others though it then begins anew (paper D's borrowers)
    abortable: bool = False
    kind: JobKind = JobKind.TRAINING  # training, or inference by a resident process
    latency_s: float | None = None  # objective for one step of an inference job
    weight: float = 1.0  # its share of a lane's turns under the fair rule, against the weights of the others
    group: str = ""  # the group its owner works in, where sharing a GPU is allowed within a group only
    multi_node: bool = False  # its ranks may lie on several nodes; true of one with `gpus_per_node`
    # no two of its ranks on one node (paper C, section 3): a name for `gpus_per_node` of 1
    anti_collocation: bool = False
    gpus_per_node: int = 0  # on each of its nodes it has exactly so many GPUs, as with Slurm's option; 0: as they come
    # a policy that postpones starts it only where its placement utility is at least this, 0..1 (paper C, section 4.3)
    utility_min: float = 0.0
    # how much its ranks talk: 4 much .. 1 little, 0 not at all; None judges by its batch size (paper C)
    comm_weight: int | None = None
    comm_pattern: CommPattern = CommPattern.ALL  # which ranks talk to each other
    sharing_domain: str = ""  # only jobs of the same domain may share a GPU with it: never declared, see `Constraints`
    cores_offered: int = 0  # cores it is to start with where there are as many: never declared, see `Constraints`
    cores_beside: int = 0  # cores that must be free where it comes to a GPU that others use: never declared either
    labels: Mapping[str, str] = field(default_factory=dict)  # for people and reports
    comment: str = ""  # for people
    # what it works on; decides how many cores it starts with where these are tuned (paper D)
    category: Category = Category.UNKNOWN
    core_hints: tuple[CoreHint, ...] = ()  # what its owner says of the work between two steps, for the same
    # how it is asked to save its state before it is stopped; None stops it at once, by SIGTERM
    checkpoint: CheckpointContract | None = None
    batch_per_gpu: bool = False  # whether each GPU has that many, so that a step takes more samples on more GPUs
    after: str = ""  # what other jobs must have done before it starts, as `ok:12,any:13`; empty: nothing
    if_never: IfNever = IfNever.CANCEL  # what becomes of it where that cannot come true any more
    nodes: str = ""  # nodes it may be on alone, as `n1,n2`, or all but these, as `not:n3`; empty: any
    whole_node: bool = False  # no other job is on its nodes, those without GPUs included
    pools: tuple[PoolWay, ...] = ()  # where it named several: those that may start it, the first that can does
    # its class of need, worked out from the fields above
    need: NeedClass = field(init=False, repr=False, compare=False)
    """Worked out once; it is asked for at every move in the queue."""

    def __post_init__(self) -> None:
        """Settle what follows from the other fields: a job with a deadline, or nodes of its own, shares no GPU."""
        self.share = self.share and self.deadline_s is None and not self.whole_node
        self.gpus_per_node = 1 if self.anti_collocation else self.gpus_per_node
        self.anti_collocation = self.gpus_per_node == 1
        self.multi_node = self.multi_node or self.gpus_per_node > 0
        self.need = need_class(self)

    @property
    def gpus_min(self) -> int:
        """Fewest GPUs it can run on."""
        return self.sizes[0] if self.sizes else self.gpus

    @property
    def gpus_max(self) -> int:
        """Most GPUs it can use."""
        return self.sizes[-1] if self.sizes else self.gpus

    def can_run_on(self, gpus: int) -> bool:
        """Whether it can run on so many GPUs."""
        return gpus in self.sizes if self.sizes else gpus == self.gpus

    def at(self, gpus: int) -> JobSpec:
        """The same job asking for another of its sizes; what it books goes by `part`, as ever."""
        if gpus == self.gpus:
            return self
        fresh = self.copied()
        fresh.gpus = gpus
        fresh.need = need_class(fresh)
        return fresh

    def in_pool(self, pool: str) -> JobSpec:
        """The same job asking for nodes of another of its pools."""
        way = next(way for way in self.pools if way.pool == pool)
        return replace(self, pool=pool, gpus=way.gpus, time_limit_s=way.time_limit_s)

    def copied(self) -> JobSpec:
        """An equal one of its own: plans take one for each elastic job, and `dataclasses.replace` is twice as dear."""
        return JobSpec(*_TAKEN(self))

    @property
    def fits_one_node(self) -> bool:
        """Whether all of its GPUs may be of one node."""
        return self.gpus_per_node in {0, self.gpus}

    def ranks_of(self, gpus: int) -> int:
        """How many of its ranks may lie on a node of which it could have so many GPUs: a whole group or none."""
        if not self.gpus_per_node:
            return min(gpus, self.gpus)
        return self.gpus_per_node if gpus >= self.gpus_per_node else 0

    def part(self, total: int, ranks: int) -> int:
        """What of a total that the job books (cores, host memory) lies where so many of its ranks lie, rounded up.

        Of a job of several sizes the total is for the largest, and in proportion for others.
        """
        whole = self.gpus_max
        return total if ranks == whole else -(-total * ranks // whole)


_TAKEN: Final = attrgetter(*[one.name for one in fields(JobSpec) if one.init])  # arguments of an equal spec


_class_of = lru_cache(4096)(NeedClass)


def need_class(spec: JobSpec) -> NeedClass:
    """The class of a job, the same value for all of it: two are told to be equal without comparing their fields."""
    return _class_of(
        spec.pool,
        spec.gpus,
        spec.sizes,
        spec.gpu_type,
        spec.gpu_memory_bytes,
        spec.cores,
        spec.host_memory_bytes,
        spec.host_bandwidth_bytes_per_s,
        spec.share,
        spec.family,
        spec.batch_size,
        spec.multi_node,
        spec.gpus_per_node,
        spec.kind,
        spec.latency_s,
        spec.sharing_domain,
        spec.cores_beside,
        spec.nodes,
        spec.whole_node,
    )


ALL_BUT: Final = "not:"


def parse_nodes(text: str) -> str:
    """Return nodes that a job names as `JobSpec.nodes` has them.

    Raises:
        ValueError: They are none.
    """
    names = nodes_named(text.removeprefix(ALL_BUT)) if text else []
    return f"{ALL_BUT * text.startswith(ALL_BUT)}{','.join(names)}"


def is_among(nodes: str, name: str) -> bool:
    """Whether a job that names nodes so (see `JobSpec.nodes`) may be on this one."""
    return not nodes or (name in nodes.removeprefix(ALL_BUT).split(",")) is not nodes.startswith(ALL_BUT)


class NewLimit(NamedTuple):
    """A limit in place of another: seconds, or elements at once; None for none."""

    value: float | None


class PromisedGpus(NamedTuple):
    """GPUs that are a job's own until it has ended, so that it ends by its deadline."""

    gpus: tuple[GpuId, ...]  # they
    start_by_s: float  # it is to start there by then: Unix seconds
    settle_s: float | None = None  # how long before that others come there no more; None where none may at all
    due_s: float | None = None  # it is promised to end by then where that is before its deadline: Unix seconds


class Constraints(NamedTuple):
    """What was learnt of a job, or imposed on it."""

    isolated: bool = False  # it has its GPUs to itself: it was too slow next to other jobs, or ran out of memory
    not_preemptible: bool = False  # no plan stops it any more: it has failed too often at saving its state
    # how it is asked to save, as learnt of it, in place of what was declared
    checkpoint: CheckpointContract | None = None
    sizes_lost: tuple[int, ...] = ()  # numbers of GPUs at which it does not come up
    # cores it is to start with where there are as many, where these are tuned, in place of those declared: an offer, so
    # that it waits for none
    cores: int | None = None
    sharing_domain: str = ""  # only jobs of the same domain may share a GPU with it; empty where all may
    gpu_memory_bytes: int | None = None  # what it was seen to need of a GPU, where that is more than was declared
    # its declared total of steps is not believed: it has gone past it, or its owner's jobs have
    steps_total_doubted: bool = False
    steps_total_said: int | None = None  # its total by its script, where its owner tells none
    # whose beliefs count for it, where those of its own family are another user's word alone; empty: its own
    family: str = ""
    needs_cores: bool = False  # that it does wait for these, as the policy makes room for them (CODA)
    # its time limit as it was changed since, by its owner or an operator; None: as declared
    time_limit: NewLimit | None = None
    after: str = ""  # the jobs that its declared `after` means, by id (`ok:12` of `ok:@`); empty: as declared
    promised: PromisedGpus | None = None  # the GPUs by which its deadline is kept; None where it has none
    away: tuple[str, ...] = ()  # nodes it may not use now: they are reserved, and it might not have ended before


UNCONSTRAINED: Final = Constraints()


def under(spec: JobSpec, constraints: Constraints) -> JobSpec:
    """What a job needs under its constraints; the declaration itself where there are none. No server is preemptible."""
    serves = spec.kind is JobKind.INFERENCE
    if (constraints is UNCONSTRAINED or constraints == UNCONSTRAINED) and not (serves and spec.preemptible):
        return spec
    lost = constraints.sizes_lost
    left = tuple([size for size in spec.sizes if size not in lost]) if lost else spec.sizes
    learnt, held_bytes = constraints.checkpoint, constraints.gpu_memory_bytes
    offered = 0 if constraints.needs_cores else constraints.cores or 0
    saves = spec.preemptible or (learnt is not None and spec.checkpoint is None)
    return replace(
        spec,
        family=constraints.family or spec.family,
        gpus=left[-1] if left and spec.gpus in lost else spec.gpus,
        sizes=left if len(left) > 1 or not lost else (),
        share=spec.share and not constraints.isolated,
        preemptible=saves and not constraints.not_preemptible and not serves,
        checkpoint=spec.checkpoint if learnt is None else learnt,
        cores=_needed(spec, constraints),
        cores_offered=offered,
        cores_beside=min(offered, spec.cores),
        sharing_domain=constraints.sharing_domain,
        gpu_memory_bytes=spec.gpu_memory_bytes if held_bytes is None else held_bytes,
        steps_total=None if constraints.steps_total_doubted else spec.steps_total or constraints.steps_total_said,
        time_limit_s=spec.time_limit_s if constraints.time_limit is None else constraints.time_limit.value,
        after=constraints.after or spec.after,
        pools=spec.pools
        if constraints.time_limit is None
        else tuple([way._replace(time_limit_s=constraints.time_limit.value) for way in spec.pools]),
        nodes=_but(spec.nodes, constraints.away) if constraints.away else spec.nodes,
    )


NO_NODE_LEFT: Final = ","  # `JobSpec.nodes` of a job that may use none now


def _but(nodes: str, away: Sequence[str]) -> str:
    """What is left of nodes that a job may use without these."""
    if not nodes or nodes.startswith(ALL_BUT):
        return ALL_BUT + ",".join([*filter(None, nodes.removeprefix(ALL_BUT).split(",")), *away])
    return ",".join([name for name in nodes.split(",") if name not in away]) or NO_NODE_LEFT


def serves_elsewhere(spec: JobSpec, constraints: Constraints) -> bool:
    """Whether a job that answers requests, which is stopped for no other, may leave its node for another."""
    saves = spec.preemptible or (constraints.checkpoint or spec.checkpoint) is not None
    return spec.kind is JobKind.INFERENCE and saves and not constraints.not_preemptible


def _needed(spec: JobSpec, constraints: Constraints) -> int:
    """Cores without which a job does not start."""
    if constraints.cores is None:
        return spec.cores
    return constraints.cores if constraints.needs_cores else 0


def sharing_domain(spec: JobSpec, between: ShareBetween) -> str:
    """The sharing domain of a job; empty, and so the same for all, where all jobs may share."""
    if between is ShareBetween.ALL:
        return ""
    if between is ShareBetween.GROUP and spec.group:
        return f"group {spec.group}"
    return f"user {spec.user}"
