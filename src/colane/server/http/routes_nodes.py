"""Nodes: registered, shown and reported on by their agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from colane.api.nodes import (
    AgentSettingsAnswer,
    DrainedAnswer,
    FinishedAnswer,
    FinishedJobsAnswer,
    NodeObject,
    PoolObject,
    QosObject,
    RemovedNodesAnswer,
    ReservedObject,
    UndrainedAnswer,
    UnreservedAnswer,
)
from colane.api.wire_nodes import DrainBody, FinishedBodies, FinishedBody, NodeBody, ReportBody, ReserveBody
from colane.listening.standing import standing_of
from colane.model.hardware import Drain
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers.nodes import reserve_nodes, reserved, unreserve_nodes
from colane.server.http.agent_routes import (
    FinishedJobsRoute,
    FinishedRoute,
    RegisterRoute,
    finished,
    finished_together,
    registered,
)
from colane.server.http.door import CALLER
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered, verb_route
from colane.server.http.requests import TheCaller, TheChange, TheService, asked
from colane.server.http.short_route import ShortRoute
from colane.server.nodes import draining
from colane.server.service import Service
from colane.server.writer import changes
from colane.verbs.of_others import DRAIN, REMOVE_NODE, REMOVE_NODES, RESERVE, UNDRAIN, UNRESERVE

# -- The route of agents' reports, which come by the hundred a second: FastAPI takes a third of a report's time.

NODE_NAME_MAX: Final = 100


class ReportRoute(ShortRoute):
    """A `ShortRoute` for reports."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[NodeObject] | None:
        name: str = scope["path_params"]["name"]
        report = self.said(ReportBody.model_validate_json, body)
        return None if report is None or len(name) > NODE_NAME_MAX else _taken(scope, name, report)


async def _taken(scope: Scope, name: str, report: ReportBody) -> NodeObject:
    """Take a report in, as long as its agent waits for the answer.

    One that has given up reports anew. Were both worked at, a scheduler that is too slow for all agents once would work
    for no client from then on.

    Raises:
        ClientDisconnect: It has given up.
    """
    service: Service = scope["app"].state.service
    caller: Caller = scope["state"][CALLER]
    caller.demand_node(name)
    standing = standing_of(scope)
    standing.waits = asyncio.current_task()
    try:
        return await service.nodes.report(name, report)
    except asyncio.CancelledError as error:
        if standing.is_gone:
            raise ClientDisconnect from error
        raise
    finally:
        standing.waits = None


router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
NamePath = Annotated[str, Path(min_length=1, max_length=NODE_NAME_MAX, description="Name of a node")]


# What agents ask again and again stands first: routes are tried in order.


async def report(request: Request, name: NamePath, body: ReportBody) -> JSONResponse:
    """Take in what an agent observes and return the node: heartbeat and reconcile in one."""
    service, caller = asked(request)
    caller.demand_node(name)
    return JSONResponse(await service.nodes.report(name, body))


router.add_api_route(
    "/node/{name}/report", report, methods=["POST"], responses=answered(NodeObject), route_class_override=ReportRoute
)


async def finished_job(request: Request, body: FinishedBody) -> JSONResponse:
    """Take in how an attempt ended; 200 also when it is no longer believed."""
    return JSONResponse(await finished(*asked(request), body))


router.add_api_route(
    "/finished_job",
    finished_job,
    methods=["POST"],
    responses=answered(FinishedAnswer),
    route_class_override=FinishedRoute,
)


async def finished_jobs(request: Request, body: FinishedBodies) -> JSONResponse:
    """Take in how several attempts of one node ended, all or none, in one turn and one commit."""
    return JSONResponse(await finished_together(*asked(request), body))


router.add_api_route(
    "/finished_jobs",
    finished_jobs,
    methods=["POST"],
    responses=answered(FinishedJobsAnswer),
    route_class_override=FinishedJobsRoute,
)


async def register(request: Request, body: NodeBody) -> JSONResponse:
    """Register a node; registering it again is an update. Another live agent of the same name is refused."""
    return JSONResponse(await registered(*asked(request), body))


router.add_api_route(
    "/node", register, methods=["POST"], responses=answered(NodeObject), route_class_override=RegisterRoute
)


@router.get("/agent_settings", responses=answered(AgentSettingsAnswer))
async def agent_settings(service: TheService, caller: TheCaller) -> JSONResponse:  # noqa: ARG001 - it needs a token
    """Return what agents are set to where nothing else is said to them, by names of settings, and their lease."""
    config = service.config
    answer: AgentSettingsAnswer = {"settings": dict(config.agents), "lease_s": config.node_timeout_s}
    return JSONResponse(answer)


@router.get("/nodes", responses=answered(list[NodeObject]))
async def nodes(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return all nodes, lost ones included, in order of first registration."""
    return JSONResponse([service.nodes.node(name, caller) for name in list(service.read_model.nodes)])


@router.get("/pools", responses=answered(list[PoolObject]))
async def pools(service: TheService, caller: TheCaller) -> JSONResponse:  # noqa: ARG001 - it needs a token
    """Return what the jobs of each pool may be that has nodes or rules, in order of name."""
    rules = service.config.pools
    there = {record.node.pool for record in service.read_model.nodes.values()}
    return JSONResponse(rules.told(sorted(there.union(rules.by_pool))))


@router.get("/qos", responses=answered(list[QosObject]))
async def qos(service: TheService, caller: TheCaller) -> JSONResponse:  # noqa: ARG001 - it needs a token
    """Return how jobs may be served, by name: as Colane has it, and the operator's own."""
    return JSONResponse(service.config.pools.ways())


@verb_route(router, REMOVE_NODES, RemovedNodesAnswer)
async def remove_nodes(change: TheChange) -> JSONResponse:
    """Forget all nodes."""
    return await change.done(lambda turn: _removed(turn, changes.remove_nodes(turn)), verb=REMOVE_NODES)


@router.get("/node/{name}", responses=answered(NodeObject))
async def node(service: TheService, caller: TheCaller, name: NamePath) -> JSONResponse:
    """Return a node with the whole desired state of its jobs."""
    return JSONResponse(service.nodes.node(name, caller))


def _removed(turn: Turn, names: list[str]) -> RemovedNodesAnswer:
    waited = [name for name in names if not turn.read_model.nodes[name].node.agent_id]
    return {"removed": names, "without_agent": waited} if waited else {"removed": names}


@verb_route(router, REMOVE_NODE, RemovedNodesAnswer)
async def remove_node(
    change: TheChange,
    name: NamePath,
    gone: Annotated[bool, Query(description="Nothing runs there any more, though it was heard of just now")] = False,
) -> JSONResponse:
    """Forget a node."""

    def prepare(turn: Turn) -> RemovedNodesAnswer:
        changes.remove_node(turn, name, reports=change.service.liveness.is_heard(name) and not gone)
        return _removed(turn, [name])

    return await change.done(prepare, verb=REMOVE_NODE)


@verb_route(router, DRAIN, DrainedAnswer)
async def drain(change: TheChange, name: NamePath, body: DrainBody | None = None) -> JSONResponse:
    """Drain a node."""
    asked = body or DrainBody()

    def prepare(turn: Turn) -> None:
        deadline_s = None if asked.deadline_s is None else turn.now_s + asked.deadline_s
        draining.drain(turn, name, Drain(change.caller.name, asked.reason, turn.now_s, deadline_s))

    return await change.done(prepare, {"drained": [name]}, DRAIN)


@verb_route(router, UNDRAIN, UndrainedAnswer)
async def undrain(change: TheChange, name: NamePath) -> JSONResponse:
    """End the drain of a node."""
    return await change.done(lambda turn: draining.drain(turn, name, None), {"undrained": [name]}, UNDRAIN)


@router.get("/reservations", responses=answered(list[ReservedObject]))
async def reservations(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return for which users nodes are kept, and from when to when; what is over is left out."""
    del caller
    return JSONResponse(reserved(service.read_model.nodes.values(), service.driver.now()))


@verb_route(router, RESERVE, ReservedObject)
async def reserve(change: TheChange, body: ReserveBody) -> JSONResponse:
    """Reserve nodes."""
    return await change.done(lambda turn: reserve_nodes(turn, body, change.caller.name), verb=RESERVE)


@verb_route(router, UNRESERVE, UnreservedAnswer)
async def unreserve(change: TheChange, name: NamePath) -> JSONResponse:
    """End a reservation."""
    answer = {"unreserved": name}
    return await change.done(lambda turn: unreserve_nodes(turn, name), answer, UNRESERVE)


@router.put("/node/{name}", responses=answered(NodeObject))
async def update(service: TheService, caller: TheCaller, name: NamePath, body: NodeBody) -> JSONResponse:
    """Replace a node's description."""
    caller.demand_node(name)
    if body.name != name:
        raise RefusedError.because(422, f"must be {name!r} as in the path, got {body.name!r}", "name")
    service.nodes.node(name)
    await service.driver.change(service.nodes.register(body))
    return JSONResponse(service.nodes.node(name))
