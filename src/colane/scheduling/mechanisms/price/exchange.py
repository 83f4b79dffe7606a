"""Whether gangs take places, and others theirs: by what it is worth that two change places in the order.

A job that takes the places of others ends sooner by as long as the last of them would have kept it waiting; each of
them ends later by as long as it runs, as far as its GPUs are theirs. What leaving costs them is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from colane.model.job import Job, JobSpec
from colane.scheduling.engine.choices import horizon_s, most_valued, value_of
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.mechanisms.price.changes import MOVE_PART

GANG_GROWTH: Final = 1.5
"""Each later move costs so many times the one before: less than of jobs of one GPU, as nothing else bounds them."""


@dataclass(frozen=True, slots=True)
class ByExchange:
    """The candidate of most value, but for places that others leave: these by exchange.

    Value is the job's speed there, less what others lose, less what it costs spread over what it has left. Of equal
    ones the first; one that brings no more than it takes is not taken.

    Among jobs of one GPU alone the chooser has decided. Where another objective than the mean time to the end is
    aimed at, it is no exchange that saves time: those leave that the order names, where that is of most value.
    """

    def choose(
        self, context: SchedulingContext, job: Job, _spec: JobSpec, candidates: Iterator[Candidate]
    ) -> Candidate | None:
        over_s = horizon_s(context.queue.left_s(job))
        return most_valued(candidates, partial(_value, context, job, over_s))


def _value(context: SchedulingContext, job: Job, over_s: float, candidate: Candidate) -> float:
    victims = _equals(context, job, candidate) if context.queue.exchanges else []
    return _exchanged(context, job, candidate, victims) if victims else value_of(candidate, over_s)


def _equals(context: SchedulingContext, job: Job, candidate: Candidate) -> list[Job]:
    """Who leaves for a job that is neither more urgent nor overdue; one that has no GPU changes places with none."""
    victims = [context.draft.view.job(action.job) for action in candidate.room]
    if job.home or any(victim.spec.priority < job.spec.priority for victim in victims) or context.is_overdue(job):
        return []
    return [] if any(victim.effective.sizes or not victim.gpus_held for victim in victims) else victims


def _exchanged(context: SchedulingContext, job: Job, candidate: Candidate, victims: list[Job]) -> float:
    """What a change of places is worth, over how long the last of them would have kept the job waiting."""
    if job.gpu_count == 1 and all(victim.gpu_count == 1 for victim in victims):
        return 0.0
    queue, taken = context.queue, {load.id for load in candidate.gpus}
    mine_s = queue.left_s(job) or 0.0
    waits_s = max([queue.left_s(victim) or 0.0 for victim in victims])
    net_s = waits_s
    for victim in victims:
        part = sum([gpu in taken for gpu in victim.gpus_held]) / victim.gpu_count
        dearer = MOVE_PART * GANG_GROWTH**victim.moves
        net_s -= part * mine_s + queue.weigh(victim) * (candidate.cost_s + dearer * mine_s * part)
    return net_s / waits_s if net_s > 0 else 0.0
