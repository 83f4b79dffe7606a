"""Consolidates jobs that run over several nodes on one, once it has enough free GPUs for all of their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import stopped_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobState
from colane.model.reason import Reason, Why
from colane.model.resources import host_needs
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import JobsOfKind, ran_since_s
from colane.scheduling.engine.times import Expected
from colane.scheduling.engine.usual import UsualMoving

STOP_S: Final = 1.0
"""What saving the state and stopping is believed to cost beside the launch, where nothing was seen."""


@dataclass(frozen=True, slots=True)
class Consolidation(UsualMoving):
    """Moves a job over several nodes to one, where it is faster.

    Attributes:
        consolidates: Whether any job is consolidated.
        moves: Whether running jobs are moved at all.
        faster_min: By what factor a job must be faster there at least.
    """

    consolidates: bool = True
    moves: bool = True
    faster_min: float = 1.1

    def plan(self, context: SchedulingContext) -> None:
        """Move the jobs it saves most time, as long as there is room for one."""
        if (
            self.consolidates
            and self.moves
            and (scattered := context.draft.view.derived(ScatteredJobs).of(context.pool))
        ):
            context.draft.plan_while_idle(context.pool)
            consolidator = _Consolidator(self, context)
            for job_id in sorted(scattered):
                consolidator.look(context.draft.view.job(job_id))
            consolidator.carry_out()


class _Saving(NamedTuple):
    """A job that is better off on one node, and how much sooner it ends there."""

    saved_s: float
    job: Job
    faster: float


class _Consolidator:
    def __init__(self, settings: Consolidation, context: SchedulingContext) -> None:
        self._settings = settings
        self._draft = context.draft
        self._pool = context.pool
        self._quantum_s = context.queue.quantum_s
        self._expected = Expected(context.draft, context.pool)
        self._found: list[_Saving] = []

    def look(self, job: Job) -> None:
        """Remember a job that may be moved, has a place, and ends sooner there."""
        loads = self._place(job) if self._may_go(job) else None
        if loads is None:
            return
        faster = self._faster(job)
        left_s = self._expected.rest_s(job)
        saved_s = left_s * (1 - 1 / faster) - stopped_s(self._draft.view, job) - STOP_S
        if faster >= self._settings.faster_min and saved_s > 0:
            self._found.append(_Saving(saved_s, job, faster))

    def carry_out(self) -> None:
        """Those that gain most first; one takes a place that was another's, too."""
        for saving in sorted(self._found, key=_most_first):
            loads = self._place(saving.job)
            if loads is not None:
                facts: dict[str, str | int | float] = {
                    "nodes": len({gpu.node for gpu in saving.job.gpus_held}),
                    "node": loads[0].id.node,
                    "faster": saving.faster,
                }
                self._draft.resize(saving.job, loads, Reason(Why.CONSOLIDATED, facts))

    def _may_go(self, job: Job) -> bool:
        draft = self._draft
        if not draft.is_undecided(job.id) or ran_since_s(job) + self._quantum_s > draft.now_s:
            return False
        return next(self._nodes(job), None) is not None and all(map(self._has_alone, job.gpus_held))

    def _has_alone(self, gpu: GpuId) -> bool:
        return len(self._draft.load(gpu).bookings) == 1

    def _place(self, job: Job) -> list[GpuLoad] | None:
        """Its own and free GPUs of one node; None where none has cores and host memory, too, for all ranks."""
        draft, spec, gpus = self._draft, job.effective, job.gpu_count
        for node in self._nodes(job):
            there = [draft.load(gpu) for gpu in job.gpus_held if gpu.node == node.node.name]
            free = [load for load in draft.free_gpus(node, self._type_of(job)) if draft.fits_alone(load, spec)]
            need = host_needs(spec, gpus) - host_needs(spec, len(there))
            if len(there) + len(free) >= gpus and need <= draft.host_free(node):
                return sorted([*there, *free[: gpus - len(there)]], key=_id_of)
        return None

    def _nodes(self, job: Job) -> Iterator[NodeState]:
        """Nodes with enough of its own and free GPUs: its own first, those with most ranks; then the fullest."""
        draft, view, gpu_type = self._draft, self._draft.view, self._type_of(job)
        ranks = Counter([gpu.node for gpu in job.gpus_held])
        for name, own in sorted(ranks.items(), key=_most_ranks_first):
            node = view.nodes[name]
            if node.node.takes_jobs and own + draft.free_count(node, gpu_type) >= job.gpu_count:
                yield node
        free = draft.free((self._pool, gpu_type))
        for count in range(job.gpu_count, free.most_free + 1):
            for order in free.nodes_with_exactly(count):
                node = view.node_at(order)
                if node.node.name not in ranks:
                    yield node

    def _type_of(self, job: Job) -> str:
        return self._draft.view.gpu(job.gpus_held[0]).gpu.type

    def _faster(self, job: Job) -> float:
        """How many times as fast it is on one node: as it was seen, else as jobs are taken to be."""
        together, apart = [
            self._draft.beliefs.rate(job.effective, Situation(self._type_of(job), job.gpu_count, spans=spans))
            for spans in (False, True)
        ]
        return together.ratio / apart.ratio


def _id_of(load: GpuLoad) -> GpuId:
    return load.id


def _most_ranks_first(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


def _most_first(saving: _Saving) -> tuple[float, int]:
    return -saving.saved_s, saving.job.id


# -- jobs over several nodes


class ScatteredJobs(JobsOfKind):
    """Jobs over several nodes that can be stopped, by pool, kept from plan to plan; not those that must be so."""

    def belongs(self, job: Job) -> bool:
        spec, placement = job.effective, job.placement
        if not spec.multi_node or spec.gpus_per_node or not spec.preemptible or job.state is not JobState.RUNNING:
            return False
        return placement is not None and not job.home and not job.parked and len(placement.nodes) > 1
