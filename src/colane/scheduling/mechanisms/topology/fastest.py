"""Free GPUs of the type on which a job is fastest, well connected where it has several.

Where it is known how jobs disturb neighbours on their sockets, or a job asks for a least utility, a job of one GPU is
placed like one of several: by utility, and it waits while that is below its own least one, or would be a neighbour's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import distance_of, situation_alone
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Classes, Desk, Offer, Order, Rank
from colane.scheduling.engine.usual import UsualFinder
from colane.scheduling.engine.waiting import Waits
from colane.scheduling.mechanisms.topology.connected import Connected, ConnectedFinder
from colane.scheduling.mechanisms.topology.free import Free, FreeFinder, any_free
from colane.scheduling.mechanisms.topology.free_gpus import on_node


@dataclass(frozen=True, slots=True)
class Fastest:
    """See the module."""

    def bind(self, desk: Desk) -> FastestFinder | None:
        """See `Source` and `Free.bind`."""
        return FastestFinder(desk) if desk.explains or any_free(desk) else None

    def spares_s(self, _order: Order) -> float:
        """Nobody is stopped."""
        return inf


class FastestFinder(UsualFinder):
    """Of each type one place is offered: the first free GPU, or for several GPUs those of highest utility."""

    def __init__(self, desk: Desk) -> None:
        self.only_free = True
        self._draft = desk.draft
        self._free = FreeFinder(Free(), desk)
        self._waits = Waits(desk.draft, desk.pool, desk.queue)
        self._connected = ConnectedFinder(Connected(postpones=True), desk)
        self._knows_neighbours = len(desk.draft.beliefs.neighbours) > 0

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        types, self.single = self._draft.view.gpu_types(spec.pool, spec.gpu_type), False
        for kind in types:
            if spec.gpus <= self._draft.free((spec.pool, kind)).most_free or spec.multi_node:
                offer = self._first(job, spec if len(types) == 1 else replace(spec, gpu_type=kind))
                if offer is not None:
                    offer.ratio = speed_on(self._draft, spec, offer.gpus)
                    yield offer

    def _first(self, job: Job, spec: JobSpec) -> Offer | None:
        if spec.gpus == 1 and not spec.utility_min and not self._knows_neighbours:
            if self._waits.outstays(job):
                return self._not_awaited(job, spec)
            return next(self._free.offers(job, spec), None)
        offer = next(self._connected.offers(job, spec), None)
        self.single = self.single or self._connected.single
        return offer

    def _not_awaited(self, job: Job, spec: JobSpec) -> Offer | None:
        """The first free GPU to which nobody as urgent who is parked is bound."""
        draft = self._draft

        def awaited_last(gpus: Sequence[GpuLoad]) -> list[GpuLoad]:
            return sorted(gpus, key=lambda load: (self._waits.is_awaited(load.id, job), load.gpu.is_disturbed, load.id))

        for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
            for order in draft.free((spec.pool, kind)).nodes_with(1):
                gpus = on_node(draft, spec, kind, draft.view.node_at(order), awaited_last)
                if gpus is not None and not self._waits.is_awaited(gpus[0].id, job):
                    return Offer(gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        return None

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """See `Finder`."""
        return self._connected.refusal(job, spec)

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """See `Finder`."""
        self._connected.changed(gpus)

    def worth(self, classes: Classes) -> Classes:
        """See `Finder`."""
        return self._free.worth(classes)

    def has_hope(self, rank: Rank) -> bool:
        """See `Finder`."""
        return self._free.has_hope(rank)


def speed_on(draft: Draft, spec: JobSpec, gpus: Sequence[GpuLoad]) -> float:
    """Speed of a job that has these GPUs for itself, over that in its reference."""
    distance = distance_of(draft.view.nodes, [load.id for load in gpus]) if len(gpus) > 1 else None
    return draft.beliefs.rate(spec, situation_alone(gpus, distance=distance)).ratio
