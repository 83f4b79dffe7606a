"""Well connected GPUs: the free ones on which a job lies best (paper C, sections 4.2 to 4.4), or is fastest.

Utility falls with the distance between a job's GPUs, with the interference of neighbours on the same sockets, and with
the GPUs left free beside it. Where it is known how jobs disturb neighbours on their sockets, or a job asks for a least
utility, a job of one GPU is placed like one of several: it waits while its utility is below its own least one, or a
neighbour's would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import distance_of, situation_alone
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.perf.topology import shape_of_node
from colane.perf.utility import NEUTRAL, Measure, Weights
from colane.scheduling.engine.contracts import Candidate, Classes, Order, Outlook, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, SourceDefaults
from colane.scheduling.engine.waiting import Waits
from colane.scheduling.mechanisms.topology.free import BoundFree, Free, NodesBy, any_free, on_node
from colane.scheduling.mechanisms.topology.node_fit import exact
from colane.scheduling.mechanisms.topology.sites import residents
from colane.scheduling.mechanisms.topology.utility_placer import (
    BestPlaces,
    BestRefused,
    Search,
    UtilityPlace,
    least_utility,
)


class BoundConnected(BoundSourceDefaults):
    """`placement.Connected` for one plan."""

    def __init__(
        self,
        context: SchedulingContext,
        search: Search = exact,
        weights: Weights = NEUTRAL,
        measure: Measure = Measure.EXCESS,
        *,
        postpones: bool,
        protects_neighbours: bool = True,
    ) -> None:
        self._context = context
        self._draft = context.draft
        self._postpones = postpones
        self._free = BoundFree(Free(), context)
        self._places = BestPlaces(
            context.draft, context.pool, search, weights,
            protects_neighbours=postpones and protects_neighbours, measure=measure,
        )  # fmt: skip

    @property
    def outlook(self) -> Outlook:
        return self._free.outlook

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        least = least_utility(self._context, job) if self._postpones else 0.0
        place = self._places.best(spec, least)
        self.single = place is None and self._places.refused.has_room
        if place is not None:
            yield Candidate(place.loads, best_utility(self._draft, place))
        elif self.single and self._context.max_wait_s < inf:
            self._draft.plan_again(self._context.pool, self._context.overdue_s(job))

    def may_help(self, classes: Classes) -> Classes:
        return self._free.may_help(classes)

    def refusal(self, _job: Job, spec: JobSpec) -> Reason | None:
        """Why it waits although there is room."""
        refused = self._places.refused
        return postponed(self._draft, refused, spec) if refused.has_room else None


# -- of the type on which it is fastest


@dataclass(frozen=True, slots=True)
class Fastest(SourceDefaults):
    """Free GPUs of the type on which a job is fastest, well connected where it has several (see the module)."""

    nodes: NodesBy = NodesBy.FIRST  # which node is taken, but for its connections where it is not by `arrays`

    def bind(self, context: SchedulingContext) -> BoundFastest | None:
        """For one plan."""
        return BoundFastest(context, self.nodes) if context.explains or any_free(context) else None

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job is stopped."""
        return inf


class BoundFastest(BoundSourceDefaults):
    """Of each type one place is offered: the first free GPU, or for several GPUs those of highest utility."""

    def __init__(self, context: SchedulingContext, nodes: NodesBy = NodesBy.FIRST) -> None:
        self._draft = context.draft
        self._free = BoundFree(Free(nodes), context)
        self._in_arrays = nodes is NodesBy.ARRAYS
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
        if (spec.gpus == 1 or self._in_arrays) and not spec.utility_min and not self._knows_neighbours:
            if spec.gpus == 1 and self._waits.outstays(job):
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


# -- why a job starts there, or is postponed


def best_utility(draft: Draft, place: UtilityPlace) -> Reason:
    """Why it starts there."""
    parts = place.everywhere
    facts: dict[str, str | int | float] = {
        "gpus": " ".join(f"{part.node.node.name}/{_numbers(part.gpus)}" for part in parts),
        "utility": place.fit.job,
        "where": _sockets(*parts[0]) if len(parts) == 1 else f"{len(parts)} nodes",
    }
    beside = {job for part in parts for job in _beside(draft, *part)}
    return Reason(Why.BEST_UTILITY, facts, tuple(sorted(beside)))


def postponed(draft: Draft, refused: BestRefused, spec: JobSpec) -> Reason:
    """Why it waits although there is room."""
    harmed, node, fit = refused.harmed, refused.node, refused.fit
    if harmed is not None:
        return Reason(Why.WOULD_HARM, {"utility": harmed.utility, "least": harmed.least}, (harmed.job,))
    if node is None or fit is None:
        raise AssertionError("nothing was found, so nothing was postponed")
    beside = _beside(draft, node, fit.gpus)
    facts: dict[str, str | int | float] = {
        "best": fit.job,
        "least": spec.utility_min,
        "because": _because(node, fit.gpus, beside),
    }
    return Reason(Why.POSTPONED, facts, beside or tuple(one.job for one in residents(draft, node)))


def _because(node: NodeState, gpus: tuple[int, ...], beside: tuple[int, ...]) -> str:
    """What is wrong with the best GPUs."""
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    verb = "is" if len(gpus) == 1 else "are"
    where = f"{noun} {_numbers(gpus)} of {node.node.name} {verb} on {_sockets(node, gpus)}"
    return f"{where} with other jobs" if beside and len(gpus) == 1 else where


def _numbers(gpus: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(gpus)))


def _sockets(node: NodeState, gpus: tuple[int, ...]) -> str:
    count = shape_of_node(node.node).sockets_of(gpus).bit_count()
    return {1: "one socket", 2: "two sockets"}.get(count, f"{count} sockets")


def _beside(draft: Draft, node: NodeState, gpus: tuple[int, ...]) -> tuple[int, ...]:
    """Jobs on the sockets of these GPUs."""
    shape = shape_of_node(node.node)
    mine = shape.sockets_of(gpus)
    return tuple(one.job for one in residents(draft, node) if shape.sockets_of(one.gpus) & mine)
