"""Which of its candidates a job takes, and on which GPU types they are looked for first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobSpec, NeedClass
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import Candidate, SchedulingContext


@dataclass(frozen=True, slots=True)
class First:
    """The first acceptable one: sources are asked in turn, each names its best first. What all papers do."""

    def choose(
        self, _context: SchedulingContext, _job: Job, _spec: JobSpec, candidates: Iterator[Candidate]
    ) -> Candidate | None:
        return next(candidates, None)


FIRST: Final = First()


def most_valued(candidates: Iterable[Candidate], value: Callable[[Candidate], float]) -> Candidate | None:
    """The first of those of most value, if that is above 0; one that is worth `ALL` is the last that is looked at."""
    best, most = None, 0.0
    for candidate in candidates:
        worth = value(candidate)
        if worth > most:
            best, most = candidate, worth
        if most >= ALL:
            break
    return best


def value_of(candidate: Candidate, over_s: float) -> float:
    """Speed it brings, less what others lose, less what it costs, spread over so many seconds."""
    return candidate.ratio - candidate.harm - candidate.cost_s / over_s


ALL: Final = 1.0  # value of a candidate that brings a job its full speed and costs no other anything

MOST_URGENT_S: Final = 60.0
"""What is left of a job counts as so much at least, so that costs of seconds do not keep short jobs waiting."""


def horizon_s(left_s: float | None) -> float:
    """How long what a job costs when it starts is spread over; endless where it is unknown what it has left."""
    return inf if left_s is None else max(MOST_URGENT_S, left_s)


def urgent_value(rise: float, lost: float, cost_s: float, left_s: float | None) -> float:
    """Value of the place of jobs of lower priority: less the more they lose, but never so little that it is declined.

    Args:
        rise: By how much the sum of speeds rises by the newcomer.
        lost: What the jobs that leave lose, in speed, weighed against the newcomer's.
        cost_s: Time that preemption takes.
        left_s: What the newcomer has left; None where that is not known.
    """
    return rise / (1.0 + lost + cost_s / horizon_s(left_s))


# -- which of its sizes a job gets


class SizeBy(StrEnum):
    """Which of its sizes a job gets."""

    ASKED = "asked"  # the one its owner would like best: it waits for that
    LARGEST = "largest"  # the largest for which there is a candidate now; others are preempted for the smallest alone


@dataclass(frozen=True, slots=True)
class Sizing:
    """How many GPUs a job is offered, of the numbers it can run on."""

    size: SizeBy = SizeBy.ASKED  # which of its sizes a job gets

    def sizes(self, _context: SchedulingContext, job: Job) -> Iterable[JobSpec]:
        spec = job.effective
        if self.size is SizeBy.ASKED or not spec.sizes:
            return (spec,)
        return [spec.at(gpus) for gpus in reversed(spec.sizes)]

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        return asked.sizes[0] if asked.sizes and self.size is SizeBy.LARGEST else asked.gpus

    def room_for(self, _context: SchedulingContext, job: Job) -> int:
        return self.fewest(job.effective)


AS_ASKED: Final = Sizing()
LARGEST: Final = Sizing(SizeBy.LARGEST)


def speeds_by_type(draft: Draft, spec: JobSpec, gpu_types: Sequence[str]) -> list[tuple[str, float]]:
    """The types with the job's speed on each over that on its fastest one, fastest first.

    A type nothing is known of counts as no slower than the fastest known one, and goes before it: so each is tried once
    before the slower ones are taken again. Else types that seem alike stay in their order.
    """
    if len(gpu_types) < 2:
        return [(kind, 1.0) for kind in gpu_types]
    rated = []
    for place, kind in enumerate(gpu_types):
        rate = draft.beliefs.rate(spec, Situation(kind))
        rated.append((-rate.ratio, rate.step_s is not None, place))
    return [(gpu_types[place], -ratio) for ratio, _, place in sorted(rated)]


def fastest_first(draft: Draft, spec: JobSpec, gpu_types: Sequence[str]) -> list[str]:
    """The types alone (see `speeds_by_type`)."""
    return [kind for kind, _ in speeds_by_type(draft, spec, gpu_types)]
