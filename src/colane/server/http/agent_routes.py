"""The routes that agents ask for each job, and by which they join: a thousand of them may return at once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import ClassVar, Final

from pydantic import TypeAdapter
from starlette.types import Scope

from colane.api.nodes import FinishedAnswer, FinishedJobsAnswer, LaunchObject, NodeObject
from colane.api.wire_nodes import FinishedBodies, FinishedBody, NodeBody
from colane.model.field_values import EXACT_MAX
from colane.model.job import JobId
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.http.door import CALLER
from colane.server.http.short_route import ShortRoute
from colane.server.service import Service

DIGITS_MAX: Final = len(str(EXACT_MAX))
NOT_KEPT: Final = {"Cache-Control": "no-store"}
_ENDS: Final = TypeAdapter[list[FinishedBody]](FinishedBodies)


class FinishedRoute(ShortRoute):
    """Of ends of attempts; see `ShortRoute`."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[FinishedAnswer] | None:
        told = self.said(FinishedBody.model_validate_json, body)
        return None if told is None else finished(*_asked(scope), told)


class FinishedJobsRoute(ShortRoute):
    """Of several ends at once; see `ShortRoute`."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[FinishedJobsAnswer] | None:
        told = self.said(_ENDS.validate_json, body)
        return None if told is None else finished_together(*_asked(scope), told)


class RegisterRoute(ShortRoute):
    """Of nodes that join; see `ShortRoute`."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[NodeObject] | None:
        told = self.said(NodeBody.model_validate_json, body)
        return None if told is None else registered(*_asked(scope), told)


class LaunchRoute(ShortRoute):
    """Of what a job is started with; see `ShortRoute`."""

    told: ClassVar[tuple[tuple[bytes, bytes], ...]] = tuple(
        (name.lower().encode(), value.encode()) for name, value in NOT_KEPT.items()
    )

    def short(self, scope: Scope, body: bytes) -> Awaitable[LaunchObject] | None:
        number: str = scope["path_params"]["number"]
        if body or not (number.isascii() and number.isdecimal() and len(number) <= DIGITS_MAX):
            return None
        if not 1 <= int(number) <= EXACT_MAX:
            return None
        service, caller = _asked(scope)
        return service.nodes.launch(JobId(int(number)), caller)


async def finished(service: Service, caller: Caller, body: FinishedBody) -> FinishedAnswer:
    """Take in how an attempt ended.

    Raises:
        RefusedError: 403, of a node that is not the caller's; what the service refuses.
    """
    caller.demand_node(body.node)
    (believed,) = await service.nodes.finished([body])
    return {"believed": believed, **service.leading.standing_of(body.node)}


async def finished_together(service: Service, caller: Caller, bodies: Sequence[FinishedBody]) -> FinishedJobsAnswer:
    """Take in how several attempts of one node ended: all or none.

    Raises:
        RefusedError: 403, of a node that is not the caller's; 422, of several nodes; what the service refuses.
    """
    node = bodies[0].node
    caller.demand_node(node)
    for number, body in enumerate(bodies):
        if body.node != node:
            told = f"must be {node!r}, as that of the first: ends of one node are told together"
            raise RefusedError.because(422, told, f"{number}.node")
    return {"believed": await service.nodes.finished(bodies), **service.leading.standing_of(node)}


async def registered(service: Service, caller: Caller, body: NodeBody) -> NodeObject:
    """Take a node in, and return it.

    Raises:
        RefusedError: 403, it is not the caller's; what the service refuses.
    """
    caller.demand_node(body.name)
    await service.driver.change(service.nodes.register(body))
    return service.nodes.node(body.name)


def _asked(scope: Scope) -> tuple[Service, Caller]:
    return scope["app"].state.service, scope["state"][CALLER]
