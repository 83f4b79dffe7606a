"""Beside others on their GPU, in a lane of its own, where all together are predicted to gain (paper A; Gavel)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.core.cluster.situations import situation_beside
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobSpec, NeedClass
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why
from colane.perf.rate import Prediction, Rate, RateSource
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.engine.contracts import Candidate, Classes, Outlook, SchedulingContext
from colane.scheduling.engine.refusals import no_place, not_joined
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.sharing.beside_servers import ServersElse
from colane.scheduling.mechanisms.sharing.sharing_places import is_late, may_join, may_share
from colane.scheduling.mechanisms.topology.free import any_free


def is_known(draft: Draft, spec: JobSpec, gpu_type: str) -> bool:
    """Whether memory and load of a job are known, so that it may share."""
    terms = draft.beliefs.terms(spec, gpu_type)
    return terms.memory is not None and terms.load is not None


def rate_beside(draft: Draft, spec: JobSpec, load: GpuLoad) -> Rate:
    """How fast a job goes in a lane of its own beside those on a GPU."""
    return draft.beliefs.rate(spec, situation_beside(load, load.next_lane, draft.view.jobs))


def may_find_co_runner(context: SchedulingContext, jobs_max: int) -> bool:
    """Whether a GPU of so few jobs is open to others, or may come to be in this plan, or a parked job waits."""
    view = context.draft.view
    found = view.queue(context.pool).parked > 0 or any_free(context)
    for kind in view.gpu_types(context.pool):
        found = found or context.draft.has_open((context.pool, kind), jobs_max)
    return found


def sharers(context: SchedulingContext, classes: Classes, jobs_max: int) -> Classes:
    """Classes for which there may be co-runners, so few a GPU, now or in the course of this plan."""
    if not may_find_co_runner(context, jobs_max):
        return {}
    return context.draft.view.derived(Sharers).among(context.draft.view, context.pool, classes)


def predict(draft: Draft, spec: JobSpec, load: GpuLoad) -> Prediction | None:
    """Speed-up of a job together with those on a GPU; None while too little is known."""
    return rate_beside(draft, spec, load).together


def share_reason(why: Why, load: GpuLoad, prediction: Prediction, threshold: float) -> Reason:
    """Why a job shares a GPU, or does not."""
    facts: dict[str, str | int | float] = {
        "gpu": str(load.id),
        "speedup": prediction.speedup,
        "threshold": threshold,
        "source": prediction.source,
    }
    return Reason(why, facts, load.jobs)


class GainBy(StrEnum):
    """What jobs that share have to gain in."""

    DELTA = "delta"  # time one after another over time together, for equal numbers of steps (paper A, equation 4.1)
    SPEEDS = "speeds"
    """The sum of all speeds, each over that alone (Gavel's normalised throughput): long steps do not outweigh short."""


def gain(prediction: Prediction, gain_by: GainBy) -> Prediction:
    """What is predicted, with the gain that is asked for in the place of the speed-up."""
    if gain_by is GainBy.DELTA or not prediction.jobs:
        return prediction  # of a set of which delta is all that is known, its jobs are taken to be slowed alike
    total = sum([1.0 / job.slowdown for job in prediction.jobs])
    return prediction._replace(speedup=total, source=f"{prediction.source}, sum of speeds")


@dataclass(frozen=True, slots=True)
class BesideLightest(UsualSource):
    """With the jobs of the GPU that has the smallest (C, M), if the set gains (paper A, algorithm 2, corrected).

    The corrections are in `docs/papers/colocation.md`: load is kept per GPU and grows with every decision, memory is a
    hard limit, an unknown job runs alone first, and the number of co-runners is capped.
    """

    speedup_min: float = 1.0  # jobs share when the predicted speed-up is at least this (paper A: 1)
    jobs_per_gpu_max: int = 3  # jobs on one GPU at most (paper A studied 2 and 3)
    gain_by: GainBy = GainBy.DELTA  # what the speed-up is: paper A's delta, or the sum of speeds

    def bind(self, context: SchedulingContext) -> BoundLightest:
        return BoundLightest(self, context)


class BoundLightest(BoundSourceDefaults):
    """`BesideLightest` for one plan."""

    def __init__(self, source: BesideLightest, context: SchedulingContext) -> None:
        self.has_grown = False
        self._context = context
        self._draft = context.draft
        self._speedup_min = source.speedup_min
        self._jobs_max = source.jobs_per_gpu_max - 1
        self._gain_by = source.gain_by

    @property
    def outlook(self) -> Outlook:
        return Outlook.NEWCOMERS if may_find_co_runner(self._context, self._jobs_max) else Outlook.NONE

    def candidates(self, _job: Job, spec: JobSpec) -> Iterator[Candidate]:
        for load, prediction in self._sharing_values(spec):
            if prediction.pays(self._speedup_min):
                yield Candidate((load,), share_reason(Why.SHARES, load, prediction, self._speedup_min))

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """A job that has just started where others may join it opens the way for one that found nothing before."""
        for gpu in gpus:
            load = self._draft.load(gpu.id)
            self.has_grown = self.has_grown or (load.is_open and len(load.bookings) <= self._jobs_max)

    def may_help(self, classes: Classes) -> Classes:
        """Those of which enough is known, while there are co-runners or may come to be; parked jobs may come back."""
        return sharers(self._context, classes, self._jobs_max)

    def refusal(self, _job: Job, spec: JobSpec) -> Reason | None:
        """Co-runners that would not pay, or a first run alone."""
        for load, prediction in self._sharing_values(spec):
            why = Why.NO_EVIDENCE if prediction.basis is RateSource.NO_EVIDENCE else Why.NOT_WORTH_SHARING
            return share_reason(why, load, prediction, self._speedup_min)
        lacking, draft = no_place(self._draft, spec), self._draft
        known = any(is_known(draft, spec, kind) for kind in draft.view.gpu_types_for(spec))
        first_run = may_share(spec) and not known and lacking.gpus
        return replace(lacking.reason, why=Why.UNKNOWN_ALONE_FIRST) if first_run else not_joined(draft, spec, lacking)

    def _sharing_values(self, spec: JobSpec) -> Iterator[tuple[GpuLoad, Prediction]]:
        """Of each GPU type, the fastest first, the lightest co-runners it fits with; heavier would pay still less."""
        if not may_share(spec):
            return
        for kind in fastest_first(self._draft, spec, self._draft.view.gpu_types_for(spec)):
            load = self._lightest(spec, kind)
            prediction = predict(self._draft, spec, load) if load is not None else None
            if load is not None and prediction is not None:
                yield load, gain(prediction, self._gain_by)

    def _lightest(self, spec: JobSpec, gpu_type: str) -> GpuLoad | None:
        terms = self._draft.beliefs.terms(spec, gpu_type)
        if terms.memory is None or terms.load is None:
            return None
        need_bytes = sum(terms.memory)
        for load in self._draft.open_gpus((spec.pool, gpu_type), self._jobs_max):
            fits = need_bytes <= load.left_bytes and may_join(self._draft, load, spec)
            if fits and not is_late(self._draft, load, spec):
                return load
        return None


Partner = tuple[ProfileKey, str]
"""All that a prediction asks of a GPU with one job: that job's profile, and the way of sharing."""


@dataclass(frozen=True, slots=True)
class BesidePartner(UsualSource):
    """In a pair, with the partner with which the two are predicted to gain most (Gavel, section 3.1)."""

    packed: bool = True  # whether jobs may share a GPU in pairs at all
    speedup_min: float = 1.0  # two jobs share a GPU when their predicted speed-up is at least this
    gain_by: GainBy = GainBy.DELTA  # what the speed-up is: paper A's delta, or the sum of speeds

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing."""
        return not self.packed

    def bind(self, context: SchedulingContext) -> BoundPartner | None:
        return None if self.is_idle else BoundPartner(self, context)


class BoundPartner(ServersElse):
    """All GPUs with one job are looked at, by the profile of that job.

    So a job that finds no partner finds none after others have found theirs.
    """

    def __init__(self, source: BesidePartner, context: SchedulingContext) -> None:
        self.has_grown = False
        super().__init__(context)
        self._draft = context.draft
        self._pool = context.pool
        self._speedup_min = source.speedup_min
        self._gain_by = source.gain_by
        self._singles: dict[str, dict[Partner, list[GpuLoad]]] = {}

    @property
    def outlook(self) -> Outlook:
        return Outlook.NEWCOMERS if self._servers is None else Outlook.ALL

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        best = max(self._partners(spec), key=_speedup_of, default=None)
        if best is not None:
            load, prediction = best
            yield Candidate((load,), share_reason(Why.SHARES, load, prediction, self._speedup_min))
        elif self._servers is not None:
            yield from self._servers.candidates(job, spec)

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """A job that has just started alone on a GPU may be joined from now on."""
        for gpu in gpus:
            load = self._draft.load(gpu.id)
            if len(load.bookings) == 1 and load.is_open:
                self.has_grown = True
                if load.gpu.type in self._singles:
                    self._singles[load.gpu.type].setdefault(_partner(load), []).append(load)

    def _partners(self, spec: JobSpec) -> Iterator[tuple[GpuLoad, Prediction]]:
        """One GPU for each kind of partner that pays."""
        if not may_share(spec):
            return
        for kind in self._draft.view.gpu_types_for(spec):
            if not is_known(self._draft, spec, kind):
                continue
            for loads in self._by_partner(kind).values():
                found = predict(self._draft, spec, loads[0])
                prediction = None if found is None else gain(found, self._gain_by)
                if prediction is None or not prediction.pays(self._speedup_min):
                    continue
                load = next((load for load in loads if self._fits(load, spec)), None)
                if load is not None:
                    yield load, prediction

    def _by_partner(self, kind: str) -> dict[Partner, list[GpuLoad]]:
        if kind not in self._singles:
            groups = self._singles[kind] = {}
            for load in self._draft.open_gpus((self._pool, kind), 1):
                groups.setdefault(_partner(load), []).append(load)
        return self._singles[kind]

    def _fits(self, load: GpuLoad, spec: JobSpec) -> bool:
        """Whether a GPU still has one job and room for another."""
        memory = self._draft.beliefs.terms(spec, load.gpu.type).memory
        if memory is None or sum(memory) > load.left_bytes or self._draft.load(load.id) is not load:
            return False
        return may_join(self._draft, load, spec) and not is_late(self._draft, load, spec)


def _speedup_of(found: tuple[GpuLoad, Prediction]) -> float:
    return found[1].speedup


def _partner(load: GpuLoad) -> Partner:
    return load.bookings[0].key, load.gpu.way


# -- classes of which enough is known to share


CLASSES_MAX = 4096  # classes that are remembered at once


class Sharers(NodesMatterNot):
    """Classes of which enough is known for their jobs to share; an answer holds while profiles and GPU types stay."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[int, list[str], dict[NeedClass, bool]]] = {}

    def among(self, view: ClusterView, pool: str, classes: Classes) -> Classes:
        """Those whose jobs might share a GPU, or are parked and may come back to one that others use."""
        known = self._known(view, pool)
        found: dict[tuple[int, NeedClass], Line] = {}
        for key, line in classes.items():
            need = key[1]
            shares = known.get(need)
            if shares is None and line.first is not None:
                if len(known) >= CLASSES_MAX:
                    known.clear()
                shares = known[need] = _might_share(view, need, view.job(line.first).effective)
            if shares:
                found[key] = line
        return found

    def _known(self, view: ClusterView, pool: str) -> dict[NeedClass, bool]:
        version, types = view.beliefs.speeds_version, view.gpu_types(pool)
        kept = self._pools.get(pool)
        if kept is None or kept[0] != version or kept[1] != types:
            kept = self._pools[pool] = version, types.copy(), {}
        return kept[2]


def _might_share(view: ClusterView, need: NeedClass, spec: JobSpec) -> bool:
    """Whether a class has memory and load on some GPU type; of a class of several sizes that is not asked here."""
    if need.home or (need.share and need.sizes):
        return True
    if not need.share or need.gpus != 1:
        return False
    for kind in view.gpu_types(need.pool, need.gpu_type):
        terms = view.beliefs.terms(spec, kind)
        if terms.memory is not None and terms.load is not None:
            return True
    return False
