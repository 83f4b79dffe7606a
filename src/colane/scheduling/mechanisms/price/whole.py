"""Whole places: a gang goes before the small jobs of the order that would leave some of its GPUs idle.

On free GPUs that could hold it those before it in the order start, if they fill them. If they are too few, what they
leave is idle as long as they run, as the gang finds no whole place beside them. So it is where some of the GPUs are
free, and the others are soon. Of the two it is done what costs less, in job-seconds: the small jobs wait until the gang
has started and run, or it waits for as much longer as they run, and with it all that is behind it for idle GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.model.job import Job
from colane.scheduling.engine.contracts import Candidate, Classes, ClassKey, SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.waiting import Openings
from colane.scheduling.mechanisms.topology.connected import BoundFastest

InOrder = Callable[[Classes], Iterator[Job]]  # waiting jobs of these classes that were found nothing yet, in order


NODES_MAX: Final = 64  # so many nodes with free GPUs are looked at for a place that is soon whole, the emptiest first

BEFORE_MAX: Final = 256  # where more jobs stand before a gang than that, they are taken to fill whatever is free


class WholePlace(NamedTuple):
    """A gang, and free GPUs that it goes on with."""

    job: Job
    candidate: Candidate


class SoonWhole(NamedTuple):
    """GPUs of a node that are free and could be a gang's, with others that will be in so many seconds."""

    in_s: float
    order: int
    gpus: list[GpuLoad]


def next_whole(context: SchedulingContext, in_order: InOrder, fastest: BoundFastest) -> WholePlace | None:
    """The first gang in the order that goes before others on GPUs that are free now."""
    for job in _first_gangs(context, in_order):
        for candidate in fastest.candidates(job, job.effective):
            there = SoonWhole(0.0, 0, list(candidate.gpus))
            if all(load.is_empty for load in there.gpus) and _pays(context, in_order, job, there):
                return WholePlace(job, candidate)
    return None


def next_kept(context: SchedulingContext, in_order: InOrder) -> tuple[Job, SoonWhole] | None:
    """The first gang in the order for which GPUs that are free had better be kept until others fall free, and these."""
    openings: Openings | None = None
    for job in _first_gangs(context, in_order):
        if openings is None:
            openings = Openings(context.draft, context.pool, context.queue)
        soonest = min(_soon(context, openings, job), key=_soonest_first, default=None)
        if soonest is not None and _pays(context, in_order, job, soonest):
            return job, soonest
    return None


def _first_gangs(context: SchedulingContext, in_order: InOrder) -> list[Job]:
    """The first of each size, in order."""
    if max(context.draft.view.derived(LiveJobs).pool(context.pool).wanted, default=1) == 1:
        return []
    sizes: dict[int, dict[ClassKey, Line]] = {}
    for key, line in context.draft.view.queue(context.pool).classes.items():
        need = key[1]
        if need.gpus > 1 and not need.sizes and not need.home:
            sizes.setdefault(need.gpus, {})[key] = line
    firsts = [next(in_order(some), None) for some in sizes.values()]
    ranked = sorted([(context.queue.place(job), job.id, job) for job in firsts if job is not None])
    return [job for _, _, job in ranked]


def _soon(context: SchedulingContext, openings: Openings, job: Job) -> Iterator[SoonWhole]:
    """On each node, if some of its GPUs are free now and enough will be."""
    draft = context.draft
    for kind in draft.view.gpu_types_for(job.effective):
        free_there = draft.free((context.pool, kind))
        some = free_there.masks[1] if free_there.most_free > 0 else 0
        for order in islice(free_there.nodes_emptiest_first(some), NODES_MAX):
            node = draft.view.node_at(order)
            ends = [(end_s, load.id, load) for end_s, load in openings.of(node) if load.gpu.type == kind]
            place = sorted(ends)[: job.gpu_count]
            free = [load for _, _, load in place if load.is_free and load.id not in draft.held]
            may_use = draft.may_use(node, job.effective)
            if may_use and len(place) == job.gpu_count and place[-1][0] < inf and 0 < len(free) < job.gpu_count:
                yield SoonWhole(place[-1][0], node.order, free)


def _pays(context: SchedulingContext, in_order: InOrder, job: Job, there: SoonWhole) -> bool:
    """Whether less is waited if the jobs before it in the order do not start on these."""
    draft, queue, kind = context.draft, context.queue, there.gpus[0].gpu.type
    free, rank, before, wanted = draft.free((context.pool, kind)).count, queue.place(job), list[Job](), 0
    for other in in_order(draft.view.queue(context.pool).classes):
        if wanted >= free or other is job or queue.place(other) >= rank:
            break
        if len(before) == BEFORE_MAX:
            return False
        if not other.home and kind in draft.view.gpu_types_for(other.effective):
            before.append(other)
            wanted += other.gpu_count
    if any(other.spec.priority > job.spec.priority for other in before):
        return False
    elsewhere, waiting, used = free - len(there.gpus), list[Job](), 0
    for other in before:
        if other.gpu_count <= elsewhere:
            elsewhere -= other.gpu_count
        else:
            waiting.append(other)
            used += other.gpu_count
    idle = job.gpu_count - used
    if not waiting or idle <= 0:
        return False
    longer_s = max([queue.left_s(other) or 0.0 for other in waiting]) - there.in_s
    if longer_s <= 0:
        return False
    price = queue.gpu_price(job)
    kept_s = len(waiting) * (there.in_s + (queue.left_s(job) or 0.0)) + len(there.gpus) * there.in_s * price
    return kept_s <= longer_s * (1.0 + idle * price)


def _soonest_first(place: SoonWhole) -> tuple[float, int]:
    return place.in_s, place.order
