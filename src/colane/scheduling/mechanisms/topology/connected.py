"""Well connected GPUs: the free ones on which a job lies best (paper C, sections 4.2 to 4.4).

Utility falls with the distance between a job's GPUs, with the interference of neighbours on the same sockets, and with
the GPUs left free beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.perf.topology import shape_of_node
from colane.perf.utility import NEUTRAL, Measure, Weights
from colane.scheduling.engine.contracts import Candidate, Classes, Outlook, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults
from colane.scheduling.mechanisms.topology.free import BoundFree, Free
from colane.scheduling.mechanisms.topology.node_fit import exact
from colane.scheduling.mechanisms.topology.sites import residents
from colane.scheduling.mechanisms.topology.utility_placer import BestPlaces, BestRefused, Search, UtilityPlace


class BoundConnected(BoundSourceDefaults):
    """See the module, and for what is asked `placement.Connected`."""

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
            yield Candidate(place.loads, best_utility(self._draft, place), utility=place.fit.system)
        elif self.single and self._context.max_wait_s < inf:
            self._draft.plan_again(self._context.pool, self._context.overdue_s(job))

    def may_help(self, classes: Classes) -> Classes:
        return self._free.may_help(classes)

    def refusal(self, _job: Job, spec: JobSpec) -> Reason | None:
        """Why it waits although there is room."""
        refused = self._places.refused
        return postponed(self._draft, refused, spec) if refused.has_room else None


def least_utility(context: SchedulingContext, job: Job) -> float:
    """Least utility a job asks for now."""
    return 0.0 if context.is_overdue(job) else job.spec.utility_min


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
