"""Reserving nodes: who may use them from when to when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from math import inf

from colane.api.nodes import ReservationObject, ReservedObject
from colane.api.wire_nodes import ReserveBody
from colane.core.events import NodeReserved
from colane.model.hardware import KeptFor, nodes_named
from colane.server.board.read_model import NodeRecord
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.submitting.admission import begin_hold
from colane.server.submitting.asked_conditions import time_text


def reserve(turn: Turn, body: ReserveBody, by: str) -> ReservedObject:
    """Keep nodes for users. Raises RefusedError: 404, 409, 422."""
    try:
        nodes = list(dict.fromkeys(nodes_named(body.nodes)))
    except ValueError as error:
        raise RefusedError.because(422, str(error), "nodes") from error
    times = {name: begin_hold(text, turn.now_s, name) for name, text in (("from", body.from_), ("to", body.to))}
    from_s, to_s = ((hold.until_s if hold is not None else None) or turn.now_s for hold in times.values())
    if to_s <= max(from_s, turn.now_s):
        raise RefusedError.because(422, f"must be later than from, {time_text(from_s)}, got {body.to}", "to")
    if unknown := [name for name in nodes if name not in turn.read_model.nodes or name in turn.removed_nodes]:
        raise RefusedError.because(404, f"there is no node {unknown[0]!r}; colane nodes lists those there are", "nodes")
    present = {each["name"] for each in reserved(turn.read_model.nodes.values(), turn.now_s, turn)}
    name = body.name or next(word for i in count(1) if (word := f"{body.users[0]}-{i}") not in present)
    if name in present:
        raise RefusedError.because(409, f"there is a reservation {name!r}: choose another name, or cancel it", "name")
    made = KeptFor(name, tuple(dict.fromkeys(body.users)), from_s, to_s, by)
    for node in nodes:
        for one in turn.reservations_of(turn.read_model.nodes[node].node):
            if one.from_s < to_s and from_s < one.to_s:
                text = f"{node} is kept for {one.told} from {time_text(one.from_s)} to {time_text(one.to_s)}"
                raise RefusedError.because(409, f"{text}: choose another time, or cancel that", "nodes")
        if not body.ignore_jobs:
            demand_ended(turn, node, made)
    for node in nodes:
        _say(turn, node, [*turn.reservations_of(turn.read_model.nodes[node].node), made])
    return _shown(made, nodes)


def demand_ended(turn: Turn, node: str, made: KeptFor) -> None:
    """Refuse what would find jobs of others there. Raises RefusedError: 409."""
    for job in turn.read_model.jobs.values():
        promised = job.constraints.promised if job.placement is None and job.spec.user not in made.users else None
        due_s = job.due_s or inf
        if promised is not None and node in {gpu.node for gpu in promised.gpus} and due_s > made.from_s:
            fix = "reserve other nodes, or from then on, or with ignore_jobs (--ignore-jobs)"
            text = f"job {job.id} of {job.spec.user} was promised GPUs of {node} until {time_text(due_s)}: {fix}"
            raise RefusedError.because(409, text, "nodes")
        limit_s = job.effective.time_limit_s
        end_s = inf if limit_s is None else (turn.now_s if job.start_s is None else job.start_s) + limit_s
        is_there = job.placement is not None and node in job.placement.nodes and job.spec.user not in made.users
        if is_there and end_s > made.from_s:
            end = "has no time limit" if end_s == inf else f"may run there until {time_text(end_s)}"
            fix = "limit its time (colane change), requeue it, or reserve with ignore_jobs (--ignore-jobs)"
            raise RefusedError.because(409, f"job {job.id} of {job.spec.user} on {node} {end}: {fix}", "nodes")


def unreserve(turn: Turn, name: str) -> None:
    """Keep nodes no longer. Raises RefusedError: 404."""
    found = False
    for record in turn.read_model.nodes.values():
        known = turn.reservations_of(record.node)
        left = [one for one in known if one.name != name]
        if len(left) < len(known):
            found = True
            _say(turn, record.node.name, left)
    if not found:
        raise RefusedError.because(404, f"there is no reservation {name!r}; colane reserve lists those there are")


def _say(turn: Turn, node: str, reservations: Sequence[KeptFor]) -> None:
    """What a node is reserved for from now on; what is over is forgotten."""
    left = tuple(sorted([one for one in reservations if one.to_s > turn.now_s], key=lambda one: one.from_s))
    turn.reserved[node] = left
    turn.events.append(NodeReserved(node, left))
    kept = [_whole(one) for one in left]
    turn.record("node-reserved", node=node, reservations=[one.name for one in left], kept=kept)


def _whole(one: KeptFor) -> ReservationObject:
    return {"name": one.name, "users": list(one.users), "from_s": one.from_s, "to_s": one.to_s, "by": one.by}


def _shown(one: KeptFor, nodes: list[str]) -> ReservedObject:
    return {**_whole(one), "nodes": nodes}


def reserved(nodes: Iterable[NodeRecord], now_s: float, turn: Turn | None = None) -> list[ReservedObject]:
    """Return the reservations that are not over, with their nodes, in order of time."""
    found: dict[str, ReservedObject] = {}
    for record in nodes:
        node = record.node
        for one in node.reservations if turn is None else turn.reservations_of(node):
            if one.to_s > now_s:
                made = found.setdefault(one.name, _shown(one, []))
                made["nodes"].append(node.name)
    return sorted(found.values(), key=lambda one: (one["from_s"], one["name"]))
