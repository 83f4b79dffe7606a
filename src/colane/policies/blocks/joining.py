"""A job beside others on one GPU, by the same utility: interference is the larger of bus and GPU (papers A and C)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.model.job import JobSpec
from colane.perf.beliefs import Prediction
from colane.perf.topology import comm_of
from colane.perf.utility import NEUTRAL, Weights
from colane.policies.blocks.node_fit import Fit, Neighbour, Question, judge
from colane.policies.blocks.sharing import has_room, is_known, predict
from colane.policies.blocks.sites import SHAPES, residents

LOOKED_AT_MAX = 64
"""GPUs looked at for one job, lightest first."""

SPEEDUP_MIN = 1.0
"""Jobs share when all together are predicted to be no slower than one after another (paper A, section 4.1)."""


class Company(NamedTuple):
    """A GPU a job may join.

    Attributes:
        load: With its jobs.
        prediction: Speed-up of all together.
        fit: Utilities.
    """

    load: GpuLoad
    prediction: Prediction
    fit: Fit


def best_company(
    draft: Draft, spec: JobSpec, least: float, company_max: int, weights: Weights = NEUTRAL
) -> Company | None:
    """The company in which a job and the cluster fare best; None where no job gains or somebody falls too low.

    Args:
        draft: Where decisions are made.
        spec: A job of one GPU that may share.
        least: Least utility it asks for; with one, nobody it joins may fall below his own either.
        company_max: Jobs on a GPU at most.
        weights: Of the utility's terms.
    """
    found = [company for company in _companies(draft, spec, company_max, weights) if company.fit.job >= least]
    spared = [company for company in found if not least or not _harms(draft, company)]
    return max(spared, key=lambda company: (company.fit.system, company.fit.job), default=None)


def _companies(draft: Draft, spec: JobSpec, company_max: int, weights: Weights) -> Iterator[Company]:
    if not spec.share or spec.gpus > 1 or company_max < 2:
        return
    for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
        if not is_known(draft, spec, kind):
            continue
        memory = draft.beliefs.terms(spec, kind).memory
        for load in islice(draft.open_gpus((spec.pool, kind), company_max - 1), LOOKED_AT_MAX):
            if memory is None or sum(memory) > load.left_bytes or not load.admits(spec.circle):
                continue
            if not has_room(draft, load, spec):
                continue
            prediction = predict(draft, spec, load)
            if prediction is not None and prediction.speedup >= SPEEDUP_MIN:
                yield Company(load, prediction, _judge(draft, spec, load, prediction, weights))


def _judge(draft: Draft, spec: JobSpec, load: GpuLoad, prediction: Prediction, weights: Weights) -> Fit:
    """Utility on that GPU, neighbours on its socket included."""
    node = draft.view.nodes[load.id.node]
    shape, beliefs = SHAPES.of(node.node), draft.beliefs.neighbours
    key = draft.beliefs.terms(spec, load.gpu.type).key
    others = (one for one in residents(draft, node) if load.id.number not in one.gpus)
    near = tuple(
        Neighbour(shape.sockets_of(one.gpus), beliefs.harm(key, one.key), beliefs.harm(one.key, key)) for one in others
    )
    shared = gpu_harm(len(load.bookings) + 1, prediction, beliefs.worst)
    gpu = load.id.number
    return judge(Question(shape, 1 << gpu, near, 1, comm_of(spec), weights, shared), (gpu,))


def gpu_harm(jobs: int, prediction: Prediction, worst: float) -> float:
    """Interference on a shared GPU over the worst: k jobs with a speed-up d each take k / d times as long."""
    return min(1.0, max(0.0, jobs / prediction.speedup - 1.0) / worst)


def _harms(draft: Draft, company: Company) -> bool:
    """Whether one of those it joins, slowed like it, would fall below his own least utility."""
    specs = (draft.view.job(job).spec for job in company.load.jobs)
    return any(company.fit.job < spec.utility_min for spec in specs)
