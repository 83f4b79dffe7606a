"""Why a job starts where it does by its utility, or is postponed."""

from __future__ import annotations

from colane.core.cluster.draft import Draft
from colane.core.cluster.state import NodeState
from colane.model.job import JobSpec
from colane.model.reason import Reason, Why
from colane.perf.topology import shape_of_node
from colane.scheduling.mechanisms.topology.sites import residents
from colane.scheduling.mechanisms.topology.utility_placer import BestRefused, UtilityPlace


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
