"""Free GPUs of the type on which a job is fastest, well connected where it has several.

Where it is known how jobs disturb neighbours on their sockets, or a job asks for a least utility, a job of one GPU is
placed like one of several: by utility, and it waits while that is below its own least one, or would be a neighbour's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import distance_of, situation_alone
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, Order, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, DraftingSource
from colane.scheduling.engine.waiting import Waits
from colane.scheduling.mechanisms.topology.connected import BoundConnected
from colane.scheduling.mechanisms.topology.free import BoundFree, Free, any_free, on_node


@dataclass(frozen=True, slots=True)
class Fastest(DraftingSource):
    """See the module."""

    def bind(self, context: SchedulingContext) -> BoundFastest | None:
        """See `Source` and `Free.bind`."""
        return BoundFastest(context) if context.explains or any_free(context) else None

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job is stopped."""
        return inf


class BoundFastest(BoundSourceDefaults):
    """Of each type one place is offered: the first free GPU, or for several GPUs those of highest utility."""

    def __init__(self, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._free = BoundFree(Free(), context)
        self._waits = Waits(context.draft, context.pool, context.queue)
        self._connected = BoundConnected(context, postpones=True)
        self._knows_neighbours = len(context.draft.beliefs.neighbours) > 0

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        types, self.single = self._draft.view.gpu_types_for(spec), False
        for kind in types:
            if spec.gpus <= self._draft.free((spec.pool, kind)).most_free or spec.multi_node:
                candidate = self._first(job, spec if len(types) == 1 else replace(spec, gpu_type=kind))
                if candidate is not None:
                    candidate.ratio = speed_on(self._draft, spec, candidate.gpus)
                    yield candidate

    def _first(self, job: Job, spec: JobSpec) -> Candidate | None:
        if spec.gpus == 1 and not spec.utility_min and not self._knows_neighbours:
            if self._waits.outstays(job):
                return self._not_awaited(job, spec)
            return next(self._free.candidates(job, spec), None)
        candidate = next(self._connected.candidates(job, spec), None)
        self.single = self.single or self._connected.single
        return candidate

    def _not_awaited(self, job: Job, spec: JobSpec) -> Candidate | None:
        """The first free GPU to which no parked job as urgent is bound."""
        draft = self._draft

        def awaited_last(gpus: Sequence[GpuLoad]) -> list[GpuLoad]:
            return sorted(gpus, key=lambda load: (self._waits.is_awaited(load.id, job), load.gpu.is_disturbed, load.id))

        for kind in draft.view.gpu_types_for(spec):
            for order in draft.free((spec.pool, kind)).nodes_with(1):
                gpus = on_node(draft, spec, kind, draft.view.node_at(order), awaited_last)
                if gpus is not None and not self._waits.is_awaited(gpus[0].id, job):
                    return Candidate(gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        return None

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        return self._connected.refusal(job, spec)

    def may_help(self, classes: Classes) -> Classes:
        return self._free.may_help(classes)


def speed_on(draft: Draft, spec: JobSpec, gpus: Sequence[GpuLoad]) -> float:
    """Speed of a job that has these GPUs for itself, over that in its reference."""
    distance = distance_of(draft.view.nodes, [load.id for load in gpus]) if len(gpus) > 1 else None
    return draft.beliefs.rate(spec, situation_alone(gpus, distance=distance)).ratio
