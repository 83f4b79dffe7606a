"""Beside one whose mate moves to another GPU, where both pairs together are worth more than joining at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from colane.core.load import GpuLoad
from colane.model.job import Job, JobSpec, JobState
from colane.model.reason import Reason, Why
from colane.policies.companies import (
    CompanyValues,
    fits_instead,
    is_untouched,
    kinds_on,
    made_for,
    may_join,
    may_share,
)
from colane.policies.indexes.live import LiveJobs
from colane.policies.means import launch_s
from colane.policies.parts import Desk, Offer, Order
from colane.policies.usual import UsualFinder


@dataclass(frozen=True, slots=True)
class ByMovingMate:
    """Beside one whose mate moves to another GPU, where that raises the sum of speeds more than joining at once does.

    Attributes:
        company_max: Jobs on one GPU at most.
        moving_min: The sum of speeds must rise by so much more than by the best company there is.
    """

    company_max: int = 2
    moving_min: float = 0.1

    def bind(self, desk: Desk) -> MateFinder | None:
        """See `Source`."""
        return MateFinder(self, desk) if self.company_max > 1 else None

    def spares_s(self, order: Order) -> float:
        """See `Source`."""
        return order.quantum_s


class MateFinder(UsualFinder):
    """See `ByMovingMate`."""

    def __init__(self, source: ByMovingMate, desk: Desk) -> None:
        self._draft = desk.draft
        self._desk = desk
        self._jobs_max = source.company_max - 1
        self._moving_min = source.moving_min
        self._values = CompanyValues(desk.draft)
        self._live = desk.draft.view.derived(LiveJobs).pool(desk.pool)

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        if not may_share(spec) or job.home or made_for(self._draft, self._live, job) is not None:
            return
        for kind in self._draft.view.gpu_types(self._desk.pool, spec.gpu_type):
            best = self._best(job, spec, kind)
            if best is not None:
                yield self._offer(job, best)

    def _best(self, job: Job, spec: JobSpec, kind: str) -> _Exchange | None:
        best: _Exchange | None = None
        open_gpus = list({kinds_on(load): load for load in self._open(kind)}.values())
        for mate in self._mates(kind) if open_gpus else ():
            here = self._draft.load(mate.gpus_held[0])
            rest = here.without(mate.id)
            if not fits_instead(self._draft, spec, rest, mate):
                continue
            for there in open_gpus:
                found = self._exchange(job, spec, mate, here, rest, there)
                if found is not None and (best is None or found.value > best.value):
                    best = found
        return best

    def _open(self, kind: str) -> Iterator[GpuLoad]:
        for load in self._draft.open_gpus((self._desk.pool, kind), self._jobs_max):
            if is_untouched(self._draft, load):
                yield load

    def _mates(self, kind: str) -> Iterator[Job]:
        """Jobs that share a GPU and may be started elsewhere."""
        draft = self._draft
        for job_id in self._live.ripe(draft.now_s, self._desk.queue.quantum_s):
            job = draft.view.job(job_id)
            if job.state is not JobState.RUNNING or not job.spec.preemptible or len(job.gpus_held) != 1:
                continue
            load = draft.load(job.gpus_held[0])
            if len(load.bookings) > 1 and load.gpu.type == kind and is_untouched(draft, load):
                yield job

    def _exchange(
        self, job: Job, spec: JobSpec, mate: Job, here: GpuLoad, rest: GpuLoad, there: GpuLoad
    ) -> _Exchange | None:
        draft, values = self._draft, self._values
        memory = draft.beliefs.terms(mate.spec, there.gpu.type).memory
        if there.id == here.id or memory is None or sum(memory) > there.left_bytes:
            return None
        mine, his = values.booking(job, spec, rest), values.booking(mate, mate.spec, there)
        before = values.total(here, here.bookings) + values.total(there, there.bookings)
        after = values.total(here, (*rest.bookings, mine)) + values.total(there, (*there.bookings, his))
        if not may_join(draft, there, mate.spec) or values.hurts(mate.spec, there, there.bookings, his):
            return None
        if values.hurts(spec, rest, rest.bookings, mine):
            return None
        return _Exchange(after - before, values.rate(spec, here, rest.bookings).ratio, here, mate, there)

    def _offer(self, job: Job, best: _Exchange) -> Offer:
        mate, here, there = best.mate, best.here, best.there

        def accepted() -> None:
            facts: dict[str, str | int | float] = {"had": str(here.id), "gpu": str(there.id), "rise": best.value}
            self._draft.resize(mate, (there,), Reason(Why.MOVED, facts, there.jobs), for_job=job.id)

        return Offer(
            (here,), Reason(Why.MAKING_ROOM, {}, (mate.id,)), waits_for=here.jobs, accepted=accepted, is_later=True,
            ratio=best.ratio, harm=best.ratio - best.value + self._moving_min, cost_s=launch_s(mate),
        )  # fmt: skip


class _Exchange(NamedTuple):
    """A mate goes there, and who comes takes his place here; by how much the sum of speeds rises."""

    value: float
    ratio: float
    here: GpuLoad
    mate: Job
    there: GpuLoad
