"""How fast an elastic job is believed to go at each of its sizes."""

from __future__ import annotations

from typing import NamedTuple

from colane.core.cluster.state import ClusterState
from colane.model.job import Job
from colane.perf.composing import weakest
from colane.perf.rate import RateSource, Situation


class SizedSpeed(NamedTuple):
    """How fast a job is believed to go alone with one of the numbers of GPUs that it can run on."""

    gpus: int  # so many
    steps_per_s: float | None  # None while unknown
    # batches per second against those with the GPUs that it has, or asked for while it has none; None while either is
    # unknown
    speedup: float | None
    source: RateSource  # what that rests on


def speeds_at_sizes(state: ClusterState, job: Job) -> list[SizedSpeed]:
    """How fast a job of several sizes is believed to go at each, alone and as well connected as can be."""
    sizes = job.effective.sizes
    if not sizes:
        return []
    held = [state.gpus[gpu].gpu.type for gpu in job.gpus_held if gpu in state.gpus]
    gpu_type = held[0] if held else job.spec.gpu_type or ""
    present = job.gpu_count if held else job.effective.gpus
    rates = {gpus: state.beliefs.rate(job.effective, Situation(gpu_type, gpus)) for gpus in {*sizes, present}}
    batches = {
        gpus: (rate.steps_per_s or 0.0) * (gpus if job.spec.batch_per_gpu else 1) for gpus, rate in rates.items()
    }
    found = list[SizedSpeed]()
    for gpus in sizes:
        source = weakest((rates[present].factors.size, rates[gpus].factors.size)).source
        speedup = batches[gpus] / batches[present] if batches[gpus] and batches[present] else None
        found.append(SizedSpeed(gpus, rates[gpus].steps_per_s, speedup, source))
    return found
