"""Parked jobs come back to where they may go on: every policy has this one way for them."""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults


class BoundReturn(BoundSourceDefaults):
    """Every composition has it, and it alone has candidates of free GPUs for parked jobs: `Draft.homes` names them.

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
