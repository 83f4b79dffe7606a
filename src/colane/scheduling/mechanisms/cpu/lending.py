"""Arrays of cores beside jobs with GPUs that wait for none: what is kept for these, lent, and taken back (`colane`).

Under CODA a job with GPUs waits for its cores. Here cores are an offer: it starts at once with what is free, one core
at least is left for each idle GPU, and jobs without GPUs that borrowed what it was to have are stopped, so that it gets
that as it comes free (`core.planners.tuning`). Jobs whose cores are a need have them taken back before they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.useful_cores import is_tuned, useful_cores_believed
from colane.cpu.start import start_cores
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Placement
from colane.model.plan import Start
from colane.model.resources import Resources
from colane.scheduling.engine.contracts import Candidate, Order, SchedulingContext
from colane.scheduling.engine.user_weights import ALL_ALIKE, UserWeights
from colane.scheduling.engine.usual import SourceDefaults, UsualMoving
from colane.scheduling.mechanisms.cpu.arrays import ABORTS_MAX, AtCap, BoundTakeBack
from colane.scheduling.mechanisms.cpu.cpu_array import ArrayPlacer, CpuArray
from colane.scheduling.mechanisms.topology.array_demand import ArrayDemand
from colane.scheduling.mechanisms.topology.connected import speed_on


class OfferedDemand(ArrayDemand):
    """Cores kept for each GPU; of jobs that ask for none those that such a job starts with under CODA."""

    def cores_per_gpu(self, job: Job) -> int:
        return super().cores_per_gpu(job) or _unasked(job.effective, 1)


class OfCpuJobs(NodesMatterNot):
    """Jobs without GPUs that hold cores, by node.

    Attributes:
        on: They, by the node's name.
    """

    def __init__(self) -> None:
        self.on: dict[str, dict[JobId, None]] = {}

    def cpu_only_moved(self, old: Job | None, new: Job | None) -> None:
        before = None if old is None or old.placement is None else old.placement.node
        after = None if new is None or new.placement is None else new.placement.node
        if before == after:
            return
        if old is not None and before is not None:
            self.on[before].pop(old.id, None)
            if not self.on[before]:
                del self.on[before]
        if new is not None and after is not None:
            self.on.setdefault(after, {})[new.id] = None


class Owed:
    """Cores that jobs with GPUs are to have and have not, in one plan."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._starting: dict[str, list[tuple[Job, Placement]]] = {}
        for action in draft.actions:
            if isinstance(action, Start) and action.placement.slots:
                job = draft.view.job(action.job)
                self._starting.setdefault(action.placement.node, []).append((job, action.placement))

    def by_job(self, node: NodeState) -> Iterator[tuple[Job, int]]:
        """Those of a node that have too few, and how many more they are to have."""
        jobs = [self._draft.view.job(job) for job in node.jobs]
        there = [(job, job.placement) for job in jobs if job.placement is not None and job.placement.slots]
        for job, placement in (*there, *self._starting.get(node.node.name, ())):
            due = self._due(job, placement)
            if due > 0:
                yield job, due

    def kept(self, node: NodeState, wanted: int = 0) -> int:
        """Cores of a node that are lent to none: those, and one for each GPU on which a job may start.

        Not for these, however, where a job without GPUs wants so many that it would fit beside them on no day.
        """
        idle = min(self._idle(node), max(0, len(node.node.cores) - wanted))
        return sum([due for _, due in self.by_job(node)]) + idle

    def _idle(self, node: NodeState) -> int:
        loads = [self._draft.load(gpu) for gpu in node.ids.values()]
        return len([load for load in loads if load.gpu.healthy and not load.bookings])

    def _due(self, job: Job, placement: Placement) -> int:
        """How many more; what it shares with others is not counted, so a job without cores is owed all that it uses.

        A job over several nodes keeps the cores with which it started, as does one that is measured on purpose.
        """
        spec, has = job.effective, len(placement.cores)
        if not is_tuned(spec) or len(placement.nodes) != 1:
            return 0
        ranks = len(placement.slots)
        if job.constraints.cores is None and not spec.cores:
            return _unasked(spec, ranks)
        if not spec.cores_offered:
            return 0
        kind = self._draft.load(placement.gpus[0]).gpu.type
        known = useful_cores_believed(self._draft.beliefs, spec, kind, ranks)
        return (known or spec.part(spec.cores_offered, ranks)) - has


@dataclass(frozen=True, slots=True)
class Lending:
    """How cores are lent to jobs without GPUs."""

    # whether there are arrays, from which they are lent; else such jobs take any free cores, as they come
    arrays: bool = False
    aborts_max: int = ABORTS_MAX  # a borrower is stopped for jobs with GPUs so often
    at_cap: AtCap = AtCap.WAITS  # what becomes of it then


NOT_LENT: Final = Lending()


@dataclass(frozen=True, slots=True)
class CpuArrayBeside:
    """Jobs without GPUs in an array of their own, as in `CpuArray`, beside jobs with GPUs that wait for no cores."""

    lending: Lending = NOT_LENT  # how cores are lent to them
    user_weights: UserWeights = ALL_ALIKE  # A user's cores count divided by the user's weight

    @property
    def is_idle(self) -> bool:
        """Whether the core places jobs without GPUs, as where the policy knows nothing of them."""
        return not self.lending.arrays

    @property
    def makes_room(self) -> bool:
        return False

    def place(self, draft: Draft, pool: str) -> None:
        if self.is_idle:
            return
        draft.serves_cpu_only = True
        classes = draft.view.queue(pool).cpu_only
        if classes:
            array = CpuArray(self.lending.aborts_max, self.lending.at_cap, self.user_weights)
            LendingPlacer(draft, pool, array).place(classes)


class LendingPlacer(ArrayPlacer):
    """It leaves what jobs with GPUs are owed."""

    def __init__(self, draft: Draft, pool: str, array: CpuArray) -> None:
        super().__init__(draft, pool, array)
        self._demand = draft.view.derived(OfferedDemand)
        self._owed = Owed(draft)

    def may_take(self, node: NodeState, job: Job) -> bool:
        left = self._draft.cpu_only_free(node).cores - self._owed.kept(node, job.effective.cores)
        return (node.has_cpu_devices or job.effective.cores <= left) and super().may_take(node, job)


@dataclass(frozen=True, slots=True)
class ReclaimLent(SourceDefaults):
    """Free GPUs whose node has too few cores, host memory or bandwidth as jobs without GPUs borrow them."""

    lending: Lending = NOT_LENT  # how cores are lent

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to take back."""
        return not self.lending.arrays

    def bind(self, context: SchedulingContext) -> BoundLent | None:
        if self.is_idle or not context.draft.view.derived(OfCpuJobs).on:
            return None
        return BoundLent(context, self.lending.aborts_max, self.lending.at_cap)

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job with GPUs is stopped."""
        return inf


class BoundLent(BoundTakeBack):
    """`ReclaimLent` for one plan."""

    moves_small = False
    frees_host = True

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        for candidate in super().candidates(job, spec):
            candidate.ratio = speed_on(self._draft, spec, candidate.gpus)
            yield candidate

    def give_back(self, node: NodeState, kept: int, job: Job) -> None:
        """Stop borrowers of a node for what is to be kept there, as far as it is neither free nor coming free.

        Args:
            node: Where.
            kept: Cores.
            job: What they are told that they leave for.
        """
        coming = sum([len(job.placement.cores_on(node.node.name)) for job in self._leaving(node) if job.placement])
        lack = 0 if node.has_cpu_devices else kept - self._draft.cpu_only_free(node).cores - coming
        for cores in range(lack, 0, -1):
            victims = self._borrowers(node, Resources(0, cores))
            if victims is not None:
                for victim in victims:
                    self._draft.act(self._stop(victim, job))
                return


@dataclass(frozen=True, slots=True)
class GiveBack(UsualMoving):
    """Borrowers of cores that a job with GPUs beside them is to have are stopped; it runs on with what it has."""

    lending: Lending = NOT_LENT  # how cores are lent

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to take back."""
        return not self.lending.arrays

    def plan(self, context: SchedulingContext) -> None:
        view = context.draft.view
        names = [] if self.is_idle else list(view.derived(OfCpuJobs).on)
        if not names:
            return
        bound, owed = BoundLent(context, self.lending.aborts_max, self.lending.at_cap), Owed(context.draft)
        for name in names:
            node = view.nodes.get(name)
            if node is not None and node.node.pool == context.pool:
                lacking = next(owed.by_job(node), None)
                if lacking is not None:
                    bound.give_back(node, owed.kept(node), lacking[0])


def _unasked(spec: JobSpec, gpus: int) -> int:
    """Cores for a job on so many GPUs that asks for none: the paper's start values; none where cores are not tuned."""
    return start_cores(spec.category, (), spec.core_hints, gpus=gpus).total if is_tuned(spec) else 0
