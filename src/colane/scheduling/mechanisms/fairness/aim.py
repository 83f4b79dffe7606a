"""The result of a round: which jobs take part in it, what each could have, and where each is to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId, JobState

Site = tuple[str, str]  # a node and a GPU type


class TypeRequest(NamedTuple):
    """A job for a GPU type; smaller keys go first. `speed` is comparable over the types of one job."""

    key: tuple[float, ...]
    job: JobId
    gpu_type: str
    speed: float


class Members:
    """Jobs of a pool that take part in a round, and what they may have.

    Attributes:
        waiting: May start.
        going: Are being stopped, to wait again.
        movable: Run, and may be stopped.
        gpus: How many GPUs of each type they have, or could have, on each node.
    """

    def __init__(self, draft: Draft, pool: str, round_s: float) -> None:
        self.waiting: list[Job] = []
        self.going: list[Job] = []
        self.movable: list[Job] = []
        for job in draft.view.jobs.values():
            if job.spec.pool == pool and job.spec.gpus and not job.home and job.spec.measurement_group is None:
                self._sort_in(job, round_s)
        self.gpus: dict[Site, int] = {}
        for node in draft.view.nodes.values():
            for kind in node.free if node.node.pool == pool else ():
                self.gpus[node.node.name, kind] = draft.free_count(node, kind)
        self._add_theirs(draft)

    def _sort_in(self, job: Job, round_s: float) -> None:
        if job.is_waiting:
            self.waiting.append(job)
        elif job.placement is not None and job.is_leaving:
            if job.ending is JobState.QUEUED and job.resizes_to is None:
                self.going.append(job)
        elif job.state is JobState.RUNNING and job.effective.preemptible and not job.suspended and _began(job, round_s):
            self.movable.append(job)

    def _add_theirs(self, draft: Draft) -> None:
        """GPUs that only they have."""
        theirs = [*self.going, *self.movable]
        members = {job.id for job in theirs}
        for job in theirs:
            for gpu in job.gpus_held:
                load = draft.view.gpu(gpu)
                if load.jobs[0] == job.id and members.issuperset(load.jobs) and load.is_usable:
                    self.gpus[gpu.node, load.gpu.type] += 1

    @property
    def all(self) -> Sequence[Job]:
        """All of them."""
        return (*self.waiting, *self.going, *self.movable)


class Aim(NamedTuple):
    """What a round comes to."""

    members: Members  # jobs that take part
    requests: Sequence[TypeRequest]  # in order
    types: Mapping[JobId, str]  # GPU types of those that are to run
    until_s: float  # when the round ends


def _began(job: Job, round_s: float) -> bool:
    """Whether its present attempt began before this round."""
    return job.start_s is not None and job.start_s < round_s
