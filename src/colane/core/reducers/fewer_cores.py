"""Cores taken from a node by its administrator: the jobs there go on with those that are left of theirs."""

from __future__ import annotations

from dataclasses import replace

from colane.core.lifecycle import noted
from colane.core.reducers.step import Step
from colane.model.hardware import Node
from colane.model.phases import Throttle
from colane.model.placement import Placement
from colane.model.reason import Reason, Why

TAKEN = "its node has lost the others"


def follow(step: Step, node: Node) -> None:
    """Book for each job of a node no more than the cores the node still has; a free one where none of its own is left.

    A job for which there is none at all books none, and shares those near its GPUs as one that asked for none.
    """
    for job_id in list(step.state.nodes[node.name].jobs):
        job = step.state.jobs[job_id]
        placement = job.placement
        if placement is None or job.resizes_to is not None:
            continue
        booked = placement.cores_on(node.name)
        throttle = _left_of(job.throttle, node)
        if set(booked) <= set(node.cores) and throttle == job.throttle:
            continue
        cores = tuple([core for core in booked if core in node.cores]) or _free(step, node)
        facts: dict[str, str | int | float] = {"cores": len(cores), "had": len(booked), "because": TAKEN}
        fewer = noted(job, step.now_s, Reason(Why.CORES_CHANGED, facts))
        fewer.placement, fewer.throttle = _with_cores(placement, node.name, cores), throttle
        step.rebook(fewer)


def _with_cores(placement: Placement, node: str, cores: tuple[int, ...]) -> Placement:
    if node == placement.node:
        return replace(placement, cores=cores)
    elsewhere = tuple([(name, cores if name == node else had) for name, had in placement.cores_elsewhere])
    return replace(placement, cores_elsewhere=elsewhere)


def _left_of(throttle: Throttle | None, node: Node) -> Throttle | None:
    """How a job is held back with what is left; one of which nothing is left is let go."""
    if throttle is None:
        return None
    cores = tuple([core for core in throttle.cores if core in node.cores])
    withheld = tuple([core for core in throttle.withheld if core in node.cores])
    return throttle._replace(cores=cores, withheld=withheld) if cores else None


def _free(step: Step, node: Node) -> tuple[int, ...]:
    booked = step.state.nodes[node.name].cores_booked
    return next(((core,) for core in node.cores if core not in booked), ())
