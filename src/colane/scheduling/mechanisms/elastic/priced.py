"""Sizes by price: as many GPUs as make what is left of a job cost least; running jobs grow where that pays a restart.

Each second of a job on k GPUs costs itself a second, and those behind it what k GPUs for a second are worth to them:

    cost of k GPUs = (1 + k x price of a GPU) x time left with k

It starts with the k of least cost; with another only where that costs hardly more, or no more than the wait until so
many GPUs fall free. A running job goes on with other GPUs by the same price (`price.gangs`): a restart costs what it
takes, and each move of a job more than the one before, up to a quarter of what it has left: one that changed places
often is not left small beside free GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from typing import Final, NamedTuple

from colane.core.planners.means import stopped_s
from colane.model.job import Job, JobId, JobKind, JobSpec, NeedClass
from colane.model.plan import Park, Resize, Start, Stop
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.moving_costs import STOP_S, dearness
from colane.scheduling.engine.sized_rates import goodput, most_on_a_node
from colane.scheduling.engine.times import gpu_type_of
from colane.scheduling.mechanisms.elastic.reach import reach_of, usable
from colane.scheduling.mechanisms.elastic.running import elastic_jobs
from colane.scheduling.mechanisms.elastic.share_out import variance


@dataclass(frozen=True, slots=True)
class PricedSizes:
    """Sizes by what they cost a job and those behind it."""

    # whether a step counts by what it teaches (Pollux), where a job tells the noise of its gradient
    goodput: bool = True
    size_worth_min: float = 0.9  # a job starts with a number of GPUs that costs up to one over this part of the least
    # bound on the variance of the speeds of elastic jobs, each throughput over that at its best size (paper E's, see
    # `share_out`); 1 is none
    variance_max: float = 1.0

    @property
    def is_bounded(self) -> bool:
        """Whether speeds are to vary by less than they could."""
        return self.variance_max < VARIANCE_MOST

    def sizes(self, context: SchedulingContext, job: Job) -> Iterator[JobSpec]:
        """That of least cost; where it finds no place, those which cost hardly more, or no more than waiting for it."""
        spec = job.effective
        if not spec.sizes:
            yield spec
            return
        costs = self.costs(context)
        ranked = costs.fair(job)
        least_s, wanted = ranked[0]
        for cost_s, gpus in ranked:
            hardly_more = cost_s * self.size_worth_min <= least_s
            if hardly_more or context.is_overdue(job) or cost_s <= least_s + costs.opens_s(job, wanted):
                yield spec.at(gpus)

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        return asked.sizes[0] if asked.sizes else asked.gpus

    def room_for(self, context: SchedulingContext, job: Job) -> int:
        return self.costs(context).fair(job)[0][1]

    def costs(self, context: SchedulingContext) -> SizeCosts:
        """What each size costs each job, worked out once in a plan."""
        asked = (self, context.pool)
        known: _KnownCosts | None = context.draft.worked_out.get(asked)
        if known is None:
            known = context.draft.worked_out[asked] = _KnownCosts({}, {}, {})
        return SizeCosts(self, context, known)


PRICED_SIZES: Final = PricedSizes()

SAMPLE_MAX: Final = 512  # of more live jobs every second, third, ... is asked when it ends
SAMPLE_SEEN_MAX: Final = 128  # the same where no more is looked at than what has changed

VARIANCE_MOST: Final = 0.25  # no speeds between 0 and 1 vary by more

MOVED_PART_MAX: Final = 0.25
"""Part of what a job has left that its move to free GPUs costs at most: others lose nothing by it."""


class _KnownCosts(NamedTuple):
    """What was worked out in a plan: kept by its draft, and without it, as the two would be a cycle of garbage."""

    rates: dict[tuple[object, ...], float]
    ends: dict[str, list[tuple[float, int]]]
    ranked: dict[JobId, list[tuple[float, int]]]


class SizeCosts:
    """What each size of a job costs."""

    def __init__(self, sizes: PricedSizes, context: SchedulingContext, known: _KnownCosts) -> None:
        self._context = context
        self._draft = context.draft
        self._queue = context.queue
        self._goodput = sizes.goodput
        self._variance_max = sizes.variance_max
        self._is_bounded = sizes.is_bounded
        self._on_a_node = most_on_a_node(context.draft)
        self._rates = known.rates
        self._ends = known.ends
        self._ranked = known.ranked

    def ranked(self, job: Job) -> list[tuple[float, int]]:
        """Its sizes, each with what it would cost, in seconds; the least first, of equals the smallest."""
        found = self._ranked.get(job.id)
        if found is None:
            spec, price = job.effective, self._queue.gpu_price(job)
            left = [(self.left_s(job, gpus, spans=self._spans(gpus)), gpus) for gpus in spec.sizes]
            found = sorted([((1.0 + gpus * price) * left_s, gpus) for left_s, gpus in left])
            found = self._ranked[job.id] = [one for one in found if one[0] < inf] or [(0.0, spec.gpus)]
        return found

    def fair(self, job: Job) -> list[tuple[float, int]]:
        """Those of them that keep the variance of speeds below its bound; where none does, that which leaves it least.

        So Listing 1 of paper E goes on, too, where no step keeps the bound.
        """
        ranked = self.ranked(job)
        if not self._is_bounded:
            return ranked
        found = [one for one in ranked if self.is_fair(job, one[1])]
        return found or [min(ranked, key=lambda one: self.variance_with(job, one[1]))]

    def is_fair(self, job: Job, gpus: int) -> bool:
        """Whether the speeds of elastic jobs vary by less than the bound with so many GPUs, or no more than without."""
        if not self._is_bounded:
            return True
        then = self.variance_with(job, gpus)
        return then < self._variance_max or then <= variance(list(self._speeds().values()))

    def variance_with(self, job: Job, gpus: int) -> float:
        """The variance of speeds with so many GPUs for a job."""
        others = [speed for other, speed in self._speeds().items() if other != job.id]
        return variance([*others, self._speed(job, gpus)])

    def _speeds(self) -> dict[JobId, float]:
        """Of the elastic jobs of the pool once this plan is carried out: those that wait make no steps.

        As many of these count as there are GPUs.
        """
        view, pool = self._draft.view, self._context.pool
        gpus = view.derived(LiveJobs).usable_gpus(view, pool)
        sizes = {job: 0 for job in islice(view.queue(pool), gpus) if view.job(job).effective.sizes}
        sizes.update({job.id: job.gpu_count for job in elastic_jobs(self._context)})
        for action in self._draft.actions:
            if isinstance(action, (Stop, Park)) and action.job in sizes:
                sizes[action.job] = 0
            elif isinstance(action, (Start, Resize)) and action.job in sizes:
                sizes[action.job] = len(action.placement.slots)
        return {job: self._speed(view.job(job), gpus) for job, gpus in sizes.items()}

    def _speed(self, job: Job, gpus: int) -> float:
        """Throughput over that at its best size."""
        most = max([self._rate(job, size, None) for size in job.effective.sizes], default=0.0)
        return self._rate(job, gpus, None) / most if gpus and most > 0 else 0.0

    def left_s(self, job: Job, gpus: int, *, spans: bool | None = None) -> float:
        """What it would have left with so many GPUs; endless where it cannot run with them.

        Of one of unknown length that has not begun, of which nothing is expected, in parts of that at the size it asks
        for: with nothing left all sizes would cost alike.
        """
        rate = self._rate(job, gpus, spans)
        return (self._queue.left_s(job) or 1.0) * self._rate(job, job.effective.gpus, None) / rate if rate else inf

    def now_s(self, job: Job) -> float:
        """What a running job has left where it is."""
        return self.left_s(job, job.gpu_count, spans=len({gpu.node for gpu in job.gpus_held}) > 1)

    def gain_s(self, job: Job, gpus: int, then_s: float) -> float:
        """What is saved if it goes on with so many GPUs, with which it has that left, its restart paid.

        That moves are dear counts at the price of its GPUs where it goes on with as many, and for itself alone where it
        grows into free ones: it takes no others' place.
        """
        had, price, now_s = job.gpu_count, self._queue.gpu_price(job), self.now_s(job)
        restart_s = stopped_s(self._draft.view, job) + STOP_S
        moved_s = min(dearness(job, self._draft.now_s), MOVED_PART_MAX) * now_s
        moved_s *= 1.0 + had * price if gpus == had else 1.0
        return (1.0 + had * price) * now_s - (1.0 + gpus * price) * (then_s + restart_s) - moved_s

    def growths(self, job: Job) -> Iterator[tuple[float, int]]:
        """Larger sizes that free GPUs allow and that pay, with what they save, if it lies on as few nodes as can be."""
        most = job.gpu_count + usable(self._context, reach_of(job), self._draft.load(job.gpus_held[0]).gpu.type)
        for gpus in job.effective.sizes:
            if job.gpu_count < gpus <= most:
                gain_s = self.gain_s(job, gpus, self.left_s(job, gpus, spans=self._spans(gpus)))
                if gain_s > 0:
                    yield gain_s, gpus

    def may_grow(self, job: Job) -> bool:
        """Whether any larger size would leave a running job less: else none pays at any price."""
        larger = [gpus for gpus in job.effective.sizes if gpus > job.gpu_count]
        now_s = self.now_s(job) if larger else 0.0
        return any(self.left_s(job, gpus, spans=self._spans(gpus)) < now_s for gpus in larger)

    def opens_s(self, job: Job, gpus: int) -> float:
        """In how many seconds so many GPUs of one type are expected to be free for it, if no other job takes them."""
        return min([self._opens_of(kind, gpus) for kind in self._draft.view.gpu_types_for(job.effective)], default=inf)

    def _opens_of(self, kind: str, gpus: int) -> float:
        free = self._draft.free((self._context.pool, kind))
        lacking = gpus - sum([mask.bit_count() for mask in free.masks[1:]])
        if lacking <= 0:
            return 0.0
        for end_s, gpus_then in self._ends_of(kind):
            lacking -= gpus_then
            if lacking <= 0:
                return end_s
        return inf

    def _ends_of(self, kind: str) -> list[tuple[float, int]]:
        """When jobs on GPUs of a type end, the first first, and how many each has."""
        found = self._ends.get(kind)
        if found is None:
            draft, found = self._draft, list[tuple[float, int]]()
            jobs = draft.view.derived(LiveJobs).pool(self._context.pool).jobs
            news = draft.view.news(self._context.pool)
            every = max(1, ceil(len(jobs) / (SAMPLE_MAX if news is None else SAMPLE_SEEN_MAX)))
            for job in islice(jobs.values(), 0, None, every):
                if job.gpus_held and draft.load(job.gpus_held[0]).gpu.type == kind:
                    left_s = None if job.spec.kind is JobKind.INFERENCE else self._queue.left_s(job)  # a server stays
                    found.append((inf if left_s is None else self.left_s(job, job.gpu_count), every * job.gpu_count))
            found.sort()
            self._ends[kind] = found
        return found

    def _spans(self, gpus: int) -> bool:
        return gpus > self._on_a_node

    def _rate(self, job: Job, gpus: int, spans: bool | None) -> float:
        """Speed with so many GPUs; asked once for all jobs of a kind."""
        noise = job.noise_scale if self._goodput else None
        asked = (job.effective.need, gpu_type_of(self._draft.view, job), noise, gpus, spans)
        found = self._rates.get(asked)
        if found is None:
            found = goodput(self._draft, job, gpus, spans=spans, counts_noise=self._goodput)
            self._rates[asked] = found
        return found
