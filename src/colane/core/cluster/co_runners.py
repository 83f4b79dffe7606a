"""Which jobs run on the GPUs of a job."""

from __future__ import annotations

from typing import NamedTuple

from colane.core.cluster.state import ClusterState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.perf.rate import Rate


class CoRunners(NamedTuple):
    """How a job shares its GPUs. Slowdowns are step time now / step time alone, at least 1 where predicted."""

    lane_mates: tuple[JobId, ...]  # jobs in its lanes, which take turns with it
    others: tuple[JobId, ...]  # jobs in other lanes of its GPUs, which run at the same time
    share_ratio: float | None  # part of its lanes' time that it may ask for; None where the rule promises none
    predicted: float | None  # slowdown it is predicted to have; None where the turn rule may keep it waiting for long
    measured: float | None  # slowdown it has; None while too few steps were seen, or its time alone is unknown


class Pacing(NamedTuple):
    """How fast a live job is believed to go."""

    rate: Rate  # as it runs; of one that has no GPUs, as it would alone
    co_runners: CoRunners | None  # how it shares its GPUs, None when it shares none
    # fewest cores with which it is as fast as with any that was tried; None while too few were
    cores_useful: int | None = None


def shared_gpus(state: ClusterState, job: Job) -> list[GpuId]:
    """GPUs of a job on which others are, too."""
    return [gpu for gpu in job.gpus_held if len(state.gpus[gpu].bookings) > 1]
