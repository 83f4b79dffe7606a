"""The route of agents' reports, which come by the hundred a second: FastAPI takes a third of a report's time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from colane.api.nodes import NodeObject
from colane.api.wire_nodes import ReportBody
from colane.listening.standing import standing_of
from colane.server.ground.access import Caller
from colane.server.http.door import CALLER
from colane.server.http.short_route import ShortRoute
from colane.server.service import Service

NODE_NAME_MAX: Final = 100


class ReportRoute(ShortRoute):
    """A `ShortRoute` for reports."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[NodeObject] | None:
        name: str = scope["path_params"]["name"]
        try:
            report = ReportBody.model_validate_json(body)
        except ValidationError:
            return None
        return None if len(name) > NODE_NAME_MAX else _taken(scope, name, report)


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
