"""A job beside others on one GPU, by the same utility: interference is the larger of bus and GPU (papers A and C)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Why
from colane.perf.rate import Prediction, Rate
from colane.perf.topology import comm_of
from colane.perf.utility import NEUTRAL, Weights, gpu_harm, job_utility
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.engine.usual import UsualSource
from colane.scheduling.mechanisms.sharing.beside import is_known, rate_beside, share_reason
from colane.scheduling.mechanisms.sharing.beside_servers import ServersElse
from colane.scheduling.mechanisms.sharing.sharing_places import is_late, may_join, may_share
from colane.scheduling.mechanisms.topology.node_fit import Fit, judge
from colane.scheduling.mechanisms.topology.sites import question, site_of
from colane.scheduling.mechanisms.topology.utility_placer import least_utility

LOOKED_AT_MAX = 64  # GPUs looked at for one job, lightest first

SPEEDUP_MIN = 1.0
"""Jobs share when all together are predicted to be no slower than one after another (paper A, section 4.1)."""


class LeastOf(NamedTuple):
    """Least utilities."""

    own: float  # of the newcomer
    others: bool  # whether those it joins may not fall below their own either


class SharedPlace(NamedTuple):
    """A GPU a job may join."""

    load: GpuLoad  # with its jobs
    prediction: Prediction  # speed-up of all together
    fit: Fit  # utilities


@dataclass(frozen=True, slots=True)
class BesideByUtility(UsualSource):
    """Next to others where that pays, by the same utility as free GPUs; no job may fall below its own least."""

    jobs_per_gpu_max: int = 2  # jobs on one GPU at most; 1 shares none
    weights: Weights = NEUTRAL  # of the utility's terms
    postpones: bool = False  # whether least utilities count

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing."""
        return self.jobs_per_gpu_max <= 1

    def bind(self, context: SchedulingContext) -> BoundUtility | None:
        return None if self.is_idle else BoundUtility(self, context)


class BoundUtility(ServersElse):
    """`BesideByUtility` for one plan."""

    def __init__(self, source: BesideByUtility, context: SchedulingContext) -> None:
        self.has_grown = True
        super().__init__(context)
        self._context = context
        self._source = source

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        source, draft = self._source, self._context.draft
        least = least_utility(self._context, job) if source.postpones else 0.0
        asks = LeastOf(least, others=source.postpones and not self._context.is_overdue(job))
        best = best_sharing(draft, spec, asks, source.jobs_per_gpu_max, source.weights)
        if best is not None:
            reason = share_reason(Why.SHARES, best.load, best.prediction, SPEEDUP_MIN)
            yield Candidate((best.load,), reason)
        elif self._servers is not None:
            yield from self._servers.candidates(job, spec)


def best_sharing(
    draft: Draft, spec: JobSpec, least: LeastOf, jobs_per_gpu_max: int, weights: Weights = NEUTRAL
) -> SharedPlace | None:
    """The co-runners with which a job and the cluster fare best; None where no job gains or one falls too low.

    Args:
        draft: Where decisions are made.
        spec: A job of one GPU that may share.
        least: Utilities that are asked for.
        jobs_per_gpu_max: Jobs on a GPU at most.
        weights: Of the utility's terms.
    """
    found = [
        co_runners
        for co_runners in _sharing_values(draft, spec, jobs_per_gpu_max, weights)
        if co_runners.fit.job >= least.own
    ]
    spared = [co_runners for co_runners in found if not least.others or not _harms(draft, co_runners, weights)]
    return max(spared, key=lambda co_runners: (co_runners.fit.system, co_runners.fit.job), default=None)


def _sharing_values(draft: Draft, spec: JobSpec, jobs_per_gpu_max: int, weights: Weights) -> Iterator[SharedPlace]:
    if not may_share(spec) or jobs_per_gpu_max < 2:
        return
    for kind in draft.view.gpu_types_for(spec):
        if not is_known(draft, spec, kind):
            continue
        memory = draft.beliefs.terms(spec, kind).memory
        for load in islice(draft.open_gpus((spec.pool, kind), jobs_per_gpu_max - 1), LOOKED_AT_MAX):
            if memory is None or sum(memory) > load.left_bytes or not may_join(draft, load, spec):
                continue
            if is_late(draft, load, spec):
                continue
            rate = rate_beside(draft, spec, load)
            if rate.together is not None and rate.together.pays(SPEEDUP_MIN):
                yield SharedPlace(load, rate.together, _judge(draft, spec, load, rate, weights))


def _judge(draft: Draft, spec: JobSpec, load: GpuLoad, rate: Rate, weights: Weights) -> Fit:
    """Utility on that GPU, neighbours on its socket included."""
    beliefs, gpu = draft.beliefs, load.id.number
    site, key = site_of(draft, draft.view.nodes[load.id.node], (gpu,)), beliefs.terms(spec, load.gpu.type).key
    shared = gpu_harm(rate, beliefs.neighbours.worst) or 0.0
    return judge(question(beliefs, site, key, 1, comm_of(spec), weights, shared=shared), (gpu,))


def _harms(draft: Draft, co_runners: SharedPlace, weights: Weights) -> bool:
    """Whether one of those it joins would fall below its own least utility."""
    for job in co_runners.load.jobs:
        spec = draft.view.job(job).effective
        if spec.utility_min and _utility_of(draft, spec, co_runners, weights) < spec.utility_min:
            return True
    return False


def _utility_of(draft: Draft, spec: JobSpec, co_runners: SharedPlace, weights: Weights) -> float:
    """Of a job that is joined, by its own slowdown there; the newcomer's where no more is predicted than a sum."""
    slowed = co_runners.prediction.of(draft.beliefs.terms(spec, co_runners.load.gpu.type).key)
    if slowed is None:
        return co_runners.fit.job
    return job_utility(0.0, min(1.0, (slowed.slowdown - 1.0) / draft.beliefs.neighbours.worst), weights)
