"""Next to the co-runners that are worth most: where the sum of speeds rises most.

Jobs that share are worth the sum of their speeds, each over its own alone at its best (Gavel's normalised throughput,
Narayanan et al., OSDI 2020, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, Order, SchedulingContext
from colane.scheduling.engine.refusals import no_place
from colane.scheduling.engine.usual import BoundSourceDefaults
from colane.scheduling.mechanisms.sharing.gpu_group_index import Hopes
from colane.scheduling.mechanisms.sharing.sharing_places import may_share
from colane.scheduling.mechanisms.sharing.sharing_values import JOBS_PER_GPU_MAX, Joining, SharingValues


@dataclass(frozen=True, slots=True)
class BesideBest:
    """Next to those with which the sum of speeds rises most.

    Attributes:
        jobs_per_gpu_max: Jobs on one GPU at most.
        rise_min: The sum of speeds must rise by so much.
    """

    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX
    rise_min: float = 0.0

    def bind(self, context: SchedulingContext) -> BoundBestSharing | None:
        return BoundBestSharing(context, self.jobs_per_gpu_max, self.rise_min) if self.jobs_per_gpu_max > 1 else None

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job is stopped."""
        return inf


@dataclass(frozen=True, slots=True)
class BesideUnmeasured:
    """What a chooser that weighs known sharing leaves: sharing to be tried, and why a job finds no co-runners.

    Attributes:
        jobs_per_gpu_max: Jobs on one GPU at most.
    """

    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX

    def bind(self, context: SchedulingContext) -> BoundBestSharing | None:
        return BoundBestSharing(context, self.jobs_per_gpu_max, inf) if self.jobs_per_gpu_max > 1 else None

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job is stopped."""
        return inf


TRIED: Final = 0.05
"""What sharing counts as worth when it was never measured: little, so that what is known to pay goes before."""


class _SharedGpu(NamedTuple):
    """A GPU to come to, by how much the sum of speeds rises, and the newcomer's speed."""

    rise: float
    ratio: float
    load: GpuLoad


class BoundBestSharing(BoundSourceDefaults):
    """See `BesideBest`."""

    def __init__(self, context: SchedulingContext, jobs_per_gpu_max: int, rise_min: float) -> None:
        self.has_grown = self.at_home = True
        self._draft = context.draft
        self._pool = context.pool
        self._rise_min = rise_min
        self._values = SharingValues(context.draft, context.pool, jobs_per_gpu_max - 1, context.queue)
        self._settings = float(jobs_per_gpu_max), rise_min

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        if job.home:
            yield from self._at_home(job, spec)
            return
        for kind in self._draft.view.gpu_types_for(spec):
            if self._rises(job, spec, kind):
                best = self._best(job, spec, kind)
                if best is not None and best.rise > self._rise_min:
                    yield self._candidate(best)
            load = self._untried(job, spec, kind)
            if load is not None:
                yield self._try(spec, load)

    def _at_home(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """Next to those that have come since it was parked."""
        draft, values = self._draft, self._values
        for load in draft.homes(job) if may_share(spec) and draft.has_room_at_home(job) else ():
            number, group = values.number(job, spec, load.gpu.type), values.gpu_groups.of(load.id)
            if number is None or group is None:
                continue
            rise = values.rise_at(number, group)
            if rise > max(self._rise_min, values.dilution(group.site, group.members, number)):
                yield self._candidate(_SharedGpu(rise, values.rate(spec, load, load.bookings).ratio, load))

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        self._values.look()

    def may_help(self, classes: Classes) -> Classes:
        """Classes for which there are co-runners that pay, cores apart, and those that are looked at one by one."""
        hopes = Hopes()
        if classes is self._draft.view.queue(self._pool).classes:
            hopes = self._values.gpu_groups.hopes.setdefault(self._pool, hopes)
        kinds = self._draft.view.gpu_types(self._pool)
        for key in hopes.due(classes, (float(self._values.stamp()), float(len(kinds)), *self._settings)):
            need, line = key[1], classes[key]
            if need.home or (need.share and (need.sizes or (need.gpus == 1 and self._may_rise(line)))):
                hopes.found[key] = line
            elif need.share and need.gpus == 1 and self._may_try(line, kinds):
                hopes.tries[key] = line
        # Not kept: a job's first step changes no group, so the stamp does not tell of it.
        tried = [kind for kind in kinds if hopes.tries and self._values.may_try(kind)]
        if not tried:
            return hopes.found
        return {**hopes.found, **{key: line for key, line in hopes.tries.items() if self._may_try(line, tried)}}

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Co-runners that would not pay, or a first run alone."""
        if not may_share(spec):
            return None
        kinds = self._draft.view.gpu_types_for(spec)
        found = [best for kind in kinds if (best := self._best(job, spec, kind)) is not None]
        if found:
            best = max(found, key=_rise)
            least = self._rise_min if self._rise_min < inf else 0.0
            facts: dict[str, str | int | float] = {"gpu": str(best.load.id), "gain": best.rise, "least": least}
            return Reason(Why.NO_GAIN, facts, best.load.jobs)
        few = self._too_few(job, spec, kinds)
        if few is not None:
            return few
        lacking = no_place(self._draft, spec)
        known = any(self._values.number(job, spec, kind) is not None for kind in kinds)
        return None if known or lacking.why is not Why.NO_FREE_GPU else replace(lacking, why=Why.UNKNOWN_ALONE_FIRST)

    def _too_few(self, job: Job, spec: JobSpec, kinds: Iterable[str]) -> Reason | None:
        """That too few wait for two that cannot be stopped to end earlier by sharing (`SharingValues.dilution`)."""
        numbers = [(kind, self._values.number(job, spec, kind)) for kind in kinds]
        found = [self._values.diluted(job, spec, number, kind) for kind, number in numbers if number is not None]
        told = [one for one in found if one is not None]
        if not told:
            return None
        joining, least = max(told, key=_rise_told)
        facts: dict[str, str | int | float] = {"gpu": str(joining.load.id), "gain": joining.rise, "least": least}
        return Reason(Why.NO_GAIN, facts, joining.load.jobs)

    def _may_rise(self, line: Line) -> bool:
        """Whether there are co-runners that pay for the first of a class."""
        if line.first is None:
            return False
        job, rises = self._draft.view.job(line.first), False
        for kind in self._draft.view.gpu_types(self._pool, job.spec.gpu_type):
            rises = rises or self._rises(job, job.effective, kind)
        return rises

    def _may_try(self, line: Line, kinds: Iterable[str]) -> bool:
        """Whether there is sharing to be tried for the first of a class, on one of these types."""
        job = None if line.first is None else self._draft.view.job(line.first)
        if job is None:
            return False
        found = False
        for kind in kinds:
            if job.spec.gpu_type in {None, kind}:
                number = self._values.number(job, job.effective, kind)
                found = found or (number is not None and self._values.has_untried(number, kind))
        return found

    def _untried(self, job: Job, spec: JobSpec, kind: str) -> GpuLoad | None:
        number = self._values.number(job, spec, kind) if may_share(spec) else None
        return None if number is None else self._values.untried(job, spec, number, kind)

    def _rises(self, job: Job, spec: JobSpec, kind: str) -> bool:
        number = self._values.number(job, spec, kind) if may_share(spec) and self._rise_min < inf else None
        return number is not None and self._values.top(number, kind) > self._rise_min

    def _best(self, job: Job, spec: JobSpec, kind: str) -> _SharedGpu | None:
        number = self._values.number(job, spec, kind)
        best = None if number is None else self._values.best(job, spec, number, kind)
        if best is None:
            return None
        return _SharedGpu(best.rise, self._values.rate(spec, best.load, best.load.bookings).ratio, best.load)

    def _try(self, spec: JobSpec, load: GpuLoad) -> Candidate:
        """No job loses more by it than by taking turns; what is learnt counts for all such jobs."""
        ratio = self._values.rate(spec, load, load.bookings).ratio
        reason = Reason(Why.TRIES_SHARING, {"gpu": str(load.id)}, load.jobs)
        return Candidate((load,), reason, utility=TRIED, ratio=ratio, harm=ratio - TRIED)

    def _candidate(self, best: _SharedGpu) -> Candidate:
        reason = Reason(Why.SHARES_BEST, _facts(best, self._rise_min), best.load.jobs)
        return Candidate((best.load,), reason, utility=best.rise, ratio=best.ratio, harm=best.ratio - best.rise)


def _facts(best: _SharedGpu, rise_min: float) -> dict[str, str | int | float]:
    return {"gpu": str(best.load.id), "rise": best.rise, "least": rise_min, "speed": best.ratio}


def _rise_told(told: tuple[Joining, float]) -> float:
    return told[0].rise


def _rise(best: _SharedGpu) -> float:
    return best.rise
