"""Free GPUs of the type on which a job is fastest, well connected where it has several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from colane.core.load import GpuLoad
from colane.core.situations import distance_of, situation_alone
from colane.model.job import Job, JobSpec
from colane.policies.parts import Classes, Desk, Offer, Order, Rank
from colane.policies.sources.connected import Connected, ConnectedFinder
from colane.policies.sources.free import Free, FreeFinder, any_free
from colane.policies.usual import UsualFinder


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
        self._connected = ConnectedFinder(Connected(), desk)

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        source = self._free if spec.gpus == 1 else self._connected
        seen: set[str] = set()
        for offer in source.offers(job, spec):
            kind = offer.gpus[0].gpu.type
            if kind not in seen:
                seen.add(kind)
                offer.ratio = self._ratio(spec, offer)
                yield offer
            if len(seen) == len(self._draft.view.gpu_types(spec.pool, spec.gpu_type)):
                return

    def _ratio(self, spec: JobSpec, offer: Offer) -> float:
        gpus = [load.id for load in offer.gpus]
        distance = distance_of(self._draft.view.nodes, gpus) if len(gpus) > 1 else None
        return self._draft.beliefs.rate(spec, situation_alone(offer.gpus, distance=distance)).ratio

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        """See `Finder`."""
        self._connected.changed(gpus)

    def worth(self, classes: Classes) -> Classes:
        """See `Finder`."""
        return self._free.worth(classes)

    def has_hope(self, rank: Rank) -> bool:
        """See `Finder`."""
        return self._free.has_hope(rank)
