"""Coming back: a parked job goes on where its process and its memory can, once there is room."""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Desk, Offer
from colane.scheduling.engine.usual import UsualFinder


class ReturnFinder(UsualFinder):
    """Every composition has it, and it alone has offers of free GPUs for parked jobs: `Draft.homes` names them.

    A job comes back to a GPU that is free, its own before others; beside others only where these are some it left there
    and all may still share.
    """

    def __init__(self, desk: Desk) -> None:
        self.goes_first = True
        self._draft = desk.draft

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        draft, placement = self._draft, job.placement
        if placement is None or not draft.has_room_at_home(job):
            return
        own = set(placement.gpus)
        homes = sorted(draft.homes(job), key=lambda load: (load.id not in own, load.id))
        free = [load for load in homes if load.is_empty and draft.fits_alone(load, spec)]
        if len(free) >= len(placement.gpus):
            yield self._offer(job, tuple(free[: len(placement.gpus)]))
            return
        for load in homes if len(placement.gpus) == 1 else ():
            if self._may_rejoin(job, spec, load):
                yield self._offer(job, (load,))

    def refusal(self, job: Job, _spec: JobSpec) -> Reason | None:
        """Who is on the GPUs it could come back to."""
        others = tuple(sorted({other for load in self._draft.homes(job) for other in load.jobs}))
        return Reason(Why.WAITS_PARKED, {"home": job.home}, others)

    def _may_rejoin(self, job: Job, spec: JobSpec, load: GpuLoad) -> bool:
        memory = self._draft.beliefs.terms(spec, load.gpu.type).memory
        if memory is None or sum(memory) > load.left_bytes or not load.is_shareable or not load.admits(spec.circle):
            return False
        return spec.share and bool(load.bookings) and set(load.jobs) <= set(job.left_beside)

    def _offer(self, job: Job, gpus: tuple[GpuLoad, ...]) -> Offer:
        return Offer(gpus, Reason(Why.COMES_BACK, {"gpu": str(gpus[0].id), "home": job.home}))
