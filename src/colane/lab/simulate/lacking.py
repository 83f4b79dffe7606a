"""What a policy is defined by and a workload does not tell: what it achieves is then not its own; said first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from colane.core.policy import Policy
from colane.lab.simulate.world import World
from colane.lab.traces.workload import TraceJob
from colane.model.placement import TurnRule
from colane.perf.beliefs import Beliefs
from colane.scheduling.admissions.backfill import Backfill
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.cpu.arrays import ReclaimCores
from colane.scheduling.mechanisms.cpu.lending import ReclaimLent
from colane.scheduling.mechanisms.elastic.fair_throughput import FairThroughput
from colane.scheduling.mechanisms.elastic.priced import PricedSizes
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.fairness.service import SmallestPart, WorstFinish
from colane.scheduling.mechanisms.lanes.in_lane import InLane
from colane.scheduling.mechanisms.sharing.beside import BesideLightest
from colane.scheduling.orders.length import LeastRemaining, Shortest
from colane.scheduling.orders.price import FAIR, ByShadowPrice


class Truth(NamedTuple):
    """What can be known of jobs: told, learnt from what the world shows, or from a table."""

    world: World
    beliefs: Beliefs
    gpu_types: Mapping[str, Sequence[str]]  # of each pool

    def types(self, job: TraceJob) -> Sequence[str]:
        """GPU types of its pool."""
        return self.gpu_types.get(job.spec.pool, ())


def goes_by_length(policy: Composed) -> bool:
    """Whether lengths decide: in the order, in turns or in what may pass the first."""
    by_order = isinstance(policy.order, Shortest | LeastRemaining | WorstFinish)
    return by_order or policy.turns.rule is TurnRule.SRTF or any(isinstance(one, Backfill) for one in policy.admits)


def has_length(job: TraceJob, truth: Truth) -> bool:
    """Whether it is told how long a job runs."""
    limits = job.spec.steps_total, job.spec.steps_limit, job.spec.time_limit_s
    known = any(limit is not None for limit in limits)
    return known or truth.beliefs.run_s(job.spec, truth.types(job)) is not None


def has_memory(job: TraceJob, truth: Truth) -> bool:
    """Whether what a job holds is told, or shown by the world."""
    told = job.memory is not None or job.spec.gpus == 0
    return told or any(truth.world.memory(job, kind) is not None for kind in truth.types(job))


def has_occupancy(job: TraceJob, truth: Truth) -> bool:
    """The same of what part of a GPU it keeps busy."""
    return not job.spec.gpus or any(truth.world.occupancy_ratio(job, kind) is not None for kind in truth.types(job))


NEEDS: Final[Mapping[str, tuple[Callable[[Composed], bool], Callable[[TraceJob, Truth], bool]]]] = {
    "length": (goes_by_length, has_length),
    "memory": (lambda policy: any(isinstance(one, InLane) and not one.is_idle for one in policy.sources), has_memory),
    "occupancy": (lambda policy: any(isinstance(one, BesideLightest) for one in policy.sources), has_occupancy),
    "sizes": (
        lambda policy: (
            isinstance(policy.sizes, FairThroughput)
            or (isinstance(policy.sizes, PricedSizes) and policy.sizes.variance_max < 1)
        ),
        lambda job, _: bool(job.spec.sizes),
    ),
    "cores": (
        lambda policy: any(
            isinstance(one, ReclaimCores) or (isinstance(one, ReclaimLent) and one.lending.arrays)
            for one in policy.sources
        ),
        lambda job, _: job.spec.cores > 0,
    ),
    "owner": (
        lambda policy: (
            isinstance(policy.order, LeastShare | SmallestPart | WorstFinish)
            or (isinstance(policy.order, ByShadowPrice) and policy.order.objective in FAIR)
        ),
        lambda job, _: bool(job.spec.user),
    ),
}
"""Which policies are defined by each, and whether it is known of a job; `prose.LACKED` says what becomes of others."""


def lacking(policy: Policy, jobs: Sequence[TraceJob], truth: Truth) -> dict[str, int]:
    """Of how many jobs a policy does not know what it is defined by; what is known of all is left out."""
    defined = [name for name, (is_so, _) in NEEDS.items() if isinstance(policy, Composed) and is_so(policy)]
    found = {name: sum(not NEEDS[name][1](job, truth) for job in jobs) for name in defined}
    return {name: many for name, many in found.items() if many}
