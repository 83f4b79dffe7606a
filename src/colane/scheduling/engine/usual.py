"""What most parts answer: parts derive from these, and say what is otherwise with them; and what every policy has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import QUANTUM_S, Candidate, Classes, Order, Outlook, SchedulingContext, Verdict


class SourceDefaults:
    """It has candidates whether or not jobs make steps."""

    __slots__ = ()

    @property
    def awaits_first_steps(self) -> bool:
        return False


class UsualSource(SourceDefaults):
    """No job is stopped."""

    __slots__ = ()

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        return inf


class BoundSourceDefaults:
    """A source with candidates for any job, no account of what was decided, and no better reason."""

    goes_first: bool = False
    single: bool = False
    at_home: bool = False
    preempts: bool = False
    frees_host: bool = False
    has_grown: bool = False

    @property
    def outlook(self) -> Outlook:
        return Outlook.ALL

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        """Nothing to do."""

    def may_help(self, _classes: Classes) -> Classes | None:
        return None

    def plan_again(self) -> None:
        """Nothing to do."""

    def refusal(self, _job: Job, _spec: JobSpec) -> Reason | None:
        return None


class UsualRule:
    """It judges no candidate, and calls no job out of turn."""

    judges: bool = False

    def urgent(self) -> Iterator[Job]:
        return iter(())

    def walks(self) -> None:
        """Nothing to do."""

    def allows(self, _job: Job, _spec: JobSpec, _candidate: Candidate) -> bool:
        return True

    def took(self, _job: Job, _spec: JobSpec, _candidate: Candidate) -> None:
        """Nothing to do."""

    def refused(self, _job: Job, verdict: Verdict) -> Verdict:
        return verdict


class UsualMoving:
    """Those that wait are served before."""

    __slots__ = ()

    @property
    def goes_first(self) -> bool:
        return False


class UsualOrder:
    """Room is made by priority alone."""

    __slots__ = ()

    @property
    def quantum_s(self) -> float:
        return QUANTUM_S


@dataclass(frozen=True, slots=True)
class BesidePolicy:
    """The policy knows nothing of them: they are placed after it was asked (`core.planners.cpu_only`)."""

    @property
    def is_idle(self) -> bool:
        return True

    @property
    def makes_room(self) -> bool:
        return False

    def place(self, draft: Draft, pool: str) -> None:
        """Nothing to do."""


class BoundReturn(BoundSourceDefaults):
    """Parked jobs come back to where they may go on: it alone has free GPUs for them (`Draft.homes`), in every policy.

    A job comes back to a GPU that is free, its own before others; beside others only where these are some it left there
    and all may still share.
    """

    def __init__(self, context: SchedulingContext) -> None:
        self.goes_first = True
        self._draft = context.draft

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        draft, placement = self._draft, job.placement
        if placement is None or not draft.has_room_at_home(job):
            return
        own = set(placement.gpus)
        homes = sorted(draft.homes(job), key=lambda load: (load.id not in own, load.id))
        free = [load for load in homes if load.is_empty and draft.fits_alone(load, spec)]
        if len(free) >= len(placement.gpus):
            yield self._candidate(job, tuple(free[: len(placement.gpus)]))
            return
        for load in homes if len(placement.gpus) == 1 else ():
            if self._may_rejoin(job, spec, load):
                yield self._candidate(job, (load,))

    def refusal(self, job: Job, _spec: JobSpec) -> Reason | None:
        """The jobs on the GPUs it could come back to."""
        others = tuple(sorted({other for load in self._draft.homes(job) for other in load.jobs}))
        return Reason(Why.WAITS_PARKED, {"home": job.home}, others)

    def _may_rejoin(self, job: Job, spec: JobSpec, load: GpuLoad) -> bool:
        memory = self._draft.beliefs.terms(spec, load.gpu.type).memory
        if (
            memory is None
            or sum(memory) > load.left_bytes
            or not load.is_shareable
            or not load.admits(spec.sharing_domain)
        ):
            return False
        return spec.share and bool(load.bookings) and set(load.jobs) <= set(job.left_beside)

    def _candidate(self, job: Job, gpus: tuple[GpuLoad, ...]) -> Candidate:
        return Candidate(gpus, Reason(Why.COMES_BACK, {"gpu": str(gpus[0].id), "home": job.home}))
