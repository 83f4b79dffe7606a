"""What decisions are composed of: orders, sizers, sources, choices, admissions, and candidates that pass between them.

A part as it stands in a composition is a value without memory (`Order`, `Source`, ...). For one pool in one plan it is
bound to a `SchedulingContext`, and what comes of that may remember what has been decided so far.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from math import inf
from typing import Final, Protocol, final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.plan import Action
from colane.model.reason import Reason

Rank = tuple[float, ...]
"""Smaller goes first; the first number is the priority with its sign turned, so that higher priorities go first."""

ClassKey = tuple[int, NeedClass]  # a priority and a class of need

Classes = Mapping[ClassKey, Line]  # waiting jobs by class


@final
@dataclass(unsafe_hash=True, slots=True)
class Candidate:
    """One complete way to run a job; what it brings and costs is worked out by the choices that ask for it."""

    gpus: tuple[GpuLoad, ...]  # one a rank, as they are before the job comes
    reason: Reason  # why there
    lanes: Sequence[int] | None = None  # on each of the GPUs; a new one on each where None
    room: tuple[Action, ...] = ()  # what others must do before the job can start there
    waits_for: tuple[JobId, ...] = ()  # jobs whose GPUs it waits for
    accepted: Callable[[], None] | None = None  # to be called when it is taken; None where the source need not know
    # whether it cannot start at once: something it needs is still to come free
    is_later: bool = field(default=False, kw_only=True)
    ratio: float = field(default=1.0, kw_only=True)  # speed of the job there, over that in its reference
    harm: float = field(default=0.0, kw_only=True)  # what all others lose, in speed, by its coming and by preemption
    cost_s: float = field(default=0.0, kw_only=True)  # time lost by preemption and by starting


class QueueIterator(Protocol):
    """Waiting jobs, in order; told what became of the last one."""

    def __iter__(self) -> Iterator[Job]:
        """The next job each time, given what has been decided."""

    def skip_class(self) -> None:
        """No other job with the needs of the job last seen can be placed."""

    def took(self, job: Job, spec: JobSpec) -> None:
        """The job last seen starts at this size."""


class PlanWalks(Protocol):
    """Makes walks that count what a plan has started so far, and go past it."""

    def walk(self, worth: Callable[[], Classes]) -> QueueIterator:
        """A walk over the waiting jobs of these classes."""

    def took(self, job: Job, spec: JobSpec) -> None:
        """The plan starts a job at this size."""


QUANTUM_S: Final = 60.0  # a job runs so long at least before another takes its place, so that starting it was worth it


def gpu_group(_job: Job) -> float:
    """Every job's speed counts as much as any other's."""
    return 1.0


def is_free(_job: Job) -> float:
    """No job waits for the GPUs of another."""
    return 0.0


def is_not_known(_job: Job) -> bool:
    """Nothing is said of when jobs should have ended."""
    return False


def is_unknown(_job: Job) -> float | None:
    """Nothing is said of what jobs have left."""
    return None


Entry = tuple[Rank, JobId]  # a job where its rank puts it, equal ranks by arrival

Head = tuple[Rank, JobId, ClassKey]  # one of the first jobs of a class


def entry_of(head: Head) -> Entry:
    """Without its class."""
    return head[:2]


@dataclass(frozen=True, slots=True)
class FirstOf:
    """Which jobs of a class are its first."""

    serves: Callable[[NeedClass], bool]  # of which classes they are asked for
    tell: Callable[[Job], int]  # of those of which this is the same one is enough
    among: int  # so many are looked at

    def of(self, jobs: Mapping[JobId, Job], line: Iterator[Entry], key: ClassKey) -> list[Head]:
        """Those of a line of one class, of these jobs."""
        found: dict[int, Head] = {}
        for rank, number in islice(line, self.among):
            found.setdefault(self.tell(jobs[number]), (rank, number, key))
        return list(found.values())


@dataclass(slots=True)
class Firsts:
    """The first jobs of every class of a pool, while `beliefs` and `gpu_types` hold."""

    beliefs: int  # as said
    gpu_types: int  # as said
    judged: int  # up to which version it was looked at what is learnt of lengths
    in_order: list[Head] = field(default_factory=list)  # all of them
    by_class: dict[ClassKey, list[Head]] = field(default_factory=dict)  # they by class
    others: dict[ClassKey, None] = field(default_factory=dict)  # classes of which they were not asked for
    # classes in which a job came or went, or that are judged otherwise
    stale: dict[ClassKey, None] = field(default_factory=dict)

    def put(self, key: ClassKey, heads: list[Head]) -> None:
        """Other jobs of a class go first, or none any more."""
        for head in self.by_class.pop(key, ()):
            del self.in_order[bisect_left(self.in_order, head[:2], key=entry_of)]
        if heads:
            self.by_class[key] = heads
        for head in heads:
            insort(self.in_order, head, key=entry_of)


def no_line(_key: ClassKey) -> Iterator[Entry]:
    """Nothing is said of the order within a class."""
    return iter(())


def always_yields(_job: Job, _victim: Job) -> bool:
    """The order alone says which job leaves."""
    return True


HIGHER_PRIORITY: Final = "it has a higher priority"


@final
@dataclass(unsafe_hash=True, slots=True)
class BoundOrder:
    """An order bound to a pool: which job is asked next, and which jobs' places it may take."""

    walk: Final[Callable[[Callable[[], Classes]], QueueIterator]]  # makes a walk over the waiting jobs of these classes
    rank: Final[Callable[[Job], Rank]]  # order of jobs, running and waiting ones alike
    # whether a waiting job of the first rank may take the place of a running one of the second. It is false for equal
    # ranks, and holds for every rank before the first if it holds for the first
    displaces: Final[Callable[[Rank, Rank], bool]]
    # whether the second job leaves for the first, which goes before it, where what one of them has left is not told but
    # learnt; asked only of jobs of one priority
    yields: Final[Callable[[Job, Job], bool]] = always_yields
    quantum_s: Final[float] = QUANTUM_S  # a job may be displaced when it has run this long
    # how many times more a running one must have, by the second number of ranks, to be displaced
    gain_min: Final[float] = 1.0
    because: Final[str] = HIGHER_PRIORITY  # ends the sentence "stopped for job N: ..."
    until_s: Final[float] = inf  # until when the order holds if nothing happens
    turns_s: Final[Callable[[Job], float] | None] = None  # the same as far as one running job is concerned
    # GPU types, best first, for a job; None keeps them as they are
    preferred: Final[Callable[[Job, JobSpec, list[str]], list[str]] | None] = None
    # why a job starts that is its turn; None leaves that to the source
    reason: Final[Callable[[Job, Candidate], Reason] | None] = None
    # which job is to run where in the present round, for what moves jobs there; None where there are no rounds
    aim: Final[object | None] = None
    # how much a job's speed counts beside that of others; only ratios of it matter
    weigh: Final[Callable[[Job], float]] = gpu_group
    # what a second on one GPU saves those behind a job, in seconds of the job's own
    gpu_price: Final[Callable[[Job], float]] = is_free
    # what a job is expected to have left to do, alone at its best; None where the order does not ask for it
    left_s: Final[Callable[[Job], float | None]] = is_unknown
    # whether what a job has left is not told, but learnt of others
    is_learnt: Final[Callable[[Job], bool]] = is_not_known
    # whether a job without counted steps is far past its believed end
    is_past_end: Final[Callable[[Job], bool]] = is_not_known
    # in how many seconds all could have ended at best, where sharing must not make any end later
    soonest_end_s: Final[Callable[[], float] | None] = None
    # how long those that cannot be stopped would rather wait than be bound; None where none waits for it
    drains_s: Final[Callable[[], float] | None] = None
    # whether no job is stopped for one that has a place before it could be through (`engine.waiting`)
    awaits: Final[bool] = False
    # what the walk goes by among jobs of one rank, smallest first, before their arrival
    class_key: Final[Callable[[NeedClass], tuple[float, ...]] | None] = None
    # whether `weigh` is in job-seconds that a second of work saves, for which places change hands
    exchanges: Final[bool] = False
    # the same, but for a parked job, which holds the place that it had; None where that is `rank`
    held: Final[Callable[[Job], Rank] | None] = None
    # ranks of jobs on GPUs by what is kept of these; None where each is asked anew
    ranks_placed: Final[Callable[[Iterable[Job]], list[Rank]] | None] = None
    # the first waiting jobs of every class; None where more than rank and arrival tells one from another
    firsts: Final[Callable[[FirstOf], Firsts] | None] = None
    # the first waiting job of every class by rank, where jobs of several users wait
    class_heads: Final[Callable[[], list[Head]] | None] = None
    # the waiting jobs of a class in order, where there are `firsts`
    line: Final[Callable[[ClassKey], Iterator[Entry]]] = no_line
    # whether of jobs of one GPU and one priority none weighs more than one before it
    weighs_first_most: Final[bool] = False
    # where a walk depends on what was started before: makes those that are told of it once; None has each told of all
    plan_walks: Final[Callable[[], PlanWalks] | None] = None

    def place(self, job: Job) -> Rank:
        """Where walks come to a job."""
        return self.rank(job) if self.held is None else self.held(job)

    def because_of(self, job: Job, victim: Job) -> str:
        """Why a job takes a running one's place, to end the sentence "stopped for job N: ..."."""
        return HIGHER_PRIORITY if job.spec.priority > victim.spec.priority else self.because


GANG_WAIT_MIN_S: Final = 6 * 3600.0
"""No gang is overdue sooner for what it has left (`SchedulingContext.gang_wait_ratio`)."""


@final
class SchedulingContext:
    """Where one pool is served in one plan: what every bound part may look at.

    Attributes:
        queue: In which order.
        sizer: How many GPUs a job is offered.
        explains: Whether a user asks why a job waits, so that all must be looked at.
        max_wait_s: A job that has waited longer is overdue.
        gang_wait_ratio: One of several GPUs, where the mean time to the end is aimed at, that has waited so many times
            what it has left, too.
        bound_sources: Bound sources, in the order they are asked.
        reason: Why a job starts that takes a candidate; None leaves that to the source.
        refused: Jobs that found nothing, also in plans with which this one goes on, and what that means for others.
        left_out: Whether a source has left jobs out of a walk that may find something once others have started.
        skips_hopeless: Whether jobs for which nothing can be found now need not be looked at.
    """

    __slots__ = (
        "bound_sources", "draft", "explains", "gang_wait_ratio", "left_out", "max_wait_s", "pool", "queue", "reason",
        "refused", "sizer", "skips_hopeless",
    )  # fmt: skip

    def __init__(self, draft: Draft, pool: str, queue: BoundOrder, sizer: Sizer) -> None:
        self.draft: Final = draft
        self.pool: Final = pool
        self.queue: Final = queue
        self.sizer: Final = sizer
        self.explains: Final = draft.view.explain is not None
        self.skips_hopeless = not self.explains
        self.left_out = False
        self.refused: dict[JobId, Verdict] = {}
        self.max_wait_s = inf
        self.gang_wait_ratio = inf
        self.bound_sources: list[BoundSource] = []
        self.reason: Callable[[Job, Candidate], Reason] | None = queue.reason

    def sizes(self, job: Job) -> Iterable[JobSpec]:
        """What a job is offered, see `Sizer`; one that waits parked comes back with as many GPUs as it had."""
        is_parked = job.parking is not None and job.home != ""
        return (job.effective.at(job.gpu_count),) if is_parked else self.sizer.sizes(self, job)

    def least(self, job: Job) -> JobSpec:
        """The smallest of these."""
        return job.effective.at(job.gpu_count if job.home else self.sizer.fewest(job.effective))

    def is_overdue(self, job: Job) -> bool:
        """Whether a job has waited beyond the bound."""
        return self.overdue_s(job) <= self.draft.now_s

    def overdue_s(self, job: Job) -> float:
        """From when on it has; asked for and judged by one and the same sum, as a difference rounds otherwise."""
        return waits_since_s(job) + self.longest_wait_s(job)

    def longest_wait_s(self, job: Job) -> float:
        """How long it is to wait at most: of a gang of unknown length alike for all of its family that had as much."""
        max_s, spec = self.max_wait_s, job.effective
        if self.gang_wait_ratio < inf and spec.gpus > 1 and not spec.sizes and self.queue.exchanges:
            left_s = self.queue.left_s(job)
            if left_s is not None:
                max_s = min(max_s, max(GANG_WAIT_MIN_S, self.gang_wait_ratio * left_s))
        return max_s

    def watch_overdue(self) -> float:
        """A job was left out that may start once it is overdue, or in another order: ask again then.

        Returns:
            When the next one is overdue; now if one has found nothing although it is.
        """
        now_s, next_s, is_late = self.draft.now_s, inf, False
        for line in self.draft.view.queue(self.pool).lines.values() if self.max_wait_s < inf else ():
            for job in map(self.draft.view.job, line):
                if job.submit_s + self.max_wait_s >= next_s:
                    break
                due_s = self.overdue_s(job)
                is_late = is_late or due_s <= now_s
                next_s = min(next_s, due_s) if due_s > now_s else next_s
        again_s = min(next_s, self.queue.until_s)
        if again_s < inf:
            self.draft.plan_again(self.pool, again_s)
        return now_s if is_late else next_s

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """Something was decided about these GPUs: every source is told."""
        for bound_source in self.bound_sources:
            bound_source.changed(gpus)


def waits_since_s(job: Job) -> float:
    """Since when a job waits this time: one that has run and lost its GPUs waits anew."""
    return job.submit_s if job.since_s is None else job.since_s


class Outlook(Enum):
    """Which jobs may have something from a source before something else happens than that jobs come."""

    ALL = 0  # any job: one that was refused may be looked at again with another answer
    NEWCOMERS = 1  # those that come: what was refused stays refused
    NONE = 2  # nor do those that come find anything


class BoundSource(Protocol):
    """A source bound to a scheduling context: one mechanism that finds candidates."""

    goes_first: bool  # whether it is asked before those listed ahead of it

    single: bool  # whether what was just refused says nothing about others of the same class

    at_home: bool  # whether it has candidates for a parked job, on the GPUs that it may come back to

    preempts: bool  # whether others leave for its candidates: it is asked for the smallest size of a job alone

    frees_host: bool  # whether its candidates are free GPUs for which jobs without GPUs leave their node

    has_grown: bool  # whether a start in this plan may have opened the way for a job that found nothing before

    @property
    def outlook(self) -> Outlook:
        """Which jobs may have something from it after this plan."""

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """Ways to run a job of this size, best first."""

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """Something was decided about these GPUs, given as they were."""

    def may_help(self, classes: Classes) -> Classes | None:
        """Classes for which there may be a candidate now; None where that cannot be told quickly.

        It must leave out none that has one: jobs of other classes are not looked at.
        """

    def plan_again(self) -> None:
        """A job is left waiting: say when this source may have something for one though nothing happens before."""

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Why it has none for a job, if it can say more than which need is not met."""


class Source(Protocol):
    """One mechanism: where candidates come from."""

    def bind(self, context: SchedulingContext) -> BoundSource | None:
        """To serve a pool; None where it has no candidates there."""

    def min_runtime_before_preemption_s(self, order: Order) -> float:
        """How long a job runs at least before it is stopped for another; infinite where none is."""

    @property
    def awaits_first_steps(self) -> bool:
        """Whether it has candidates beside jobs only from the first step of these on."""


class Verdict(Enum):
    """What a job that found nothing means for those behind it."""

    NEXT_CLASS = 0  # others of its class find nothing either
    NEXT_JOB = 1  # each is to be looked at
    STOP = 2  # no job may pass it


class Rule(Protocol):
    """An admission bound to a scheduling context, whose sources are known by then."""

    judges: bool  # whether it has a say about candidates: only then are `allows` and `took` called

    def urgent(self) -> Iterator[Job]:
        """Jobs to be served before the order begins."""

    def walks(self) -> None:
        """The line is walked from its beginning, not for the first time in this plan perhaps."""

    def allows(self, job: Job, spec: JobSpec, candidate: Candidate) -> bool:
        """Whether a job may take a candidate."""

    def took(self, job: Job, spec: JobSpec, candidate: Candidate) -> None:
        """A job has taken a candidate."""

    def refused(self, job: Job, verdict: Verdict) -> Verdict:
        """A job found nothing; what that means for those behind it, given what others say."""


class Admission(Protocol):
    """Which jobs may start now, in addition to what fits."""

    def bind(self, context: SchedulingContext) -> Rule | None:
        """To serve a pool; None where it has nothing to say there."""


Bind = Callable[[Draft, str], BoundOrder]


class Keeping(Protocol):
    """What goes before all that a policy decides: places that jobs were promised."""

    def keep(self, draft: Draft, pool: str, bind: Bind) -> bool:
        """Decide so in a draft for a pool in which something has changed; `bind` makes the order of the policy.

        Returns:
            Whether it has left places to the policy that it has a use for if that has none: then `fill` is called.
        """

    def fill(self, draft: Draft, pool: str, bind: Bind) -> None:
        """Decide about what the policy has left."""

    def is_settled(self, view: ClusterView, pool: str) -> bool:
        """Whether it has nothing to decide because of what the policy has started in a pool."""


class PastUsage(Protocol):
    """Something that goes before the order of a policy: users that have used least of late."""

    @property
    def usage_half_life_s(self) -> float | None:
        """Use counts half as much after so long; None where it does not count."""

    def bind(self, draft: Draft, pool: str, own: BoundOrder) -> BoundOrder:
        """The order with the jobs of users first that have used least."""


class Order(Protocol):
    """Which job is asked next."""

    @property
    def quantum_s(self) -> float:
        """A job may be displaced when it has run this long."""

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        """To serve a pool."""


class Sizer(Protocol):
    """How many GPUs a job is offered."""

    def sizes(self, context: SchedulingContext, job: Job) -> Iterable[JobSpec]:
        """Its needs at each size that comes into question, best first, the smallest last."""

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        """How many GPUs the smallest of them has."""

    def room_for(self, context: SchedulingContext, job: Job) -> int:
        """At which size others leave for a job: at no other does any."""


class Moving(Protocol):
    """How running jobs are moved or resized, also while no job waits."""

    @property
    def goes_first(self) -> bool:
        """Whether before those that wait are served, not after."""

    def plan(self, context: SchedulingContext) -> None:
        """Decide so in the draft of the scheduling context."""


class Choice(Protocol):
    """Which of a job's candidates is taken."""

    def choose(
        self, context: SchedulingContext, job: Job, spec: JobSpec, candidates: Iterator[Candidate]
    ) -> Candidate | None:
        """One of the admissible candidates, None to take none."""


Take = Callable[[Job, JobSpec, Candidate], None]  # gives a waiting job what it was found, at this size


class Chooser(Protocol):
    """Decides about many jobs at once, after those that are overdue and before the rest of the line.

    A job that it stops has run for the quantum of the order.
    """

    def serve(self, context: SchedulingContext, take: Take) -> None:
        """Serve a pool in one plan, also while no job waits there."""

    def served(self, context: SchedulingContext, *, is_cut: bool) -> None:
        """The rest of the line was served, or is left to the next step as this plan has decided enough."""


class CpuPlacing(Protocol):
    """How a composition places jobs without GPUs."""

    @property
    def is_idle(self) -> bool:
        """Whether it leaves them to the core."""

    @property
    def makes_room(self) -> bool:
        """Whether they give up cores before jobs with GPUs start, which wait for those they are to start with."""

    def place(self, draft: Draft, pool: str) -> None:
        """Start those for which there is room, after the pool's other jobs were served."""


class GuardWatch(Protocol):
    """Is told what guards may have decided."""

    def keeps(self, context: SchedulingContext, job: Job) -> None:
        """GPUs are kept for an overdue job."""

    def asks_urgent(self, context: SchedulingContext, job: Job) -> bool:
        """Whether an overdue job that is about to be served is so as it is overdue."""

    def serves_urgent(self, job: Job) -> None:
        """Such a job was served."""

    def waits(self, context: SchedulingContext) -> None:
        """The line was walked, and jobs are left waiting."""


class GuardTally(NodesMatterNot):
    """An admission that tells a watch how the line was walked.

    Attributes:
        watch: Is told; None where nothing asks.
    """

    def __init__(self) -> None:
        self.watch: GuardWatch | None = None
