"""The route of agents' reports, which come by the hundred a second: what is valid takes a short way through it.

The body is read and judged in one go, and its answer written in one; FastAPI takes a third of a report's time for the
same. Whatever is not valid goes FastAPI's way, so that it is refused in the words of every other route.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Message, Receive, Scope, Send

from colane.api.wire_nodes import ReportBody
from colane.server.http.access import Caller
from colane.server.http.door import CALLER, replay
from colane.server.http.refusals import DeclaredRoute
from colane.server.service import Service

NODE_NAME_MAX: Final = 100
JSON: Final = (b"content-type", b"application/json")


class ReportRoute(DeclaredRoute):
    """See the module's docstring."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a report.

        Raises:
            RefusedError: What its caller may not say, or the service refuses.
        """
        message = await receive()
        body, name = _valid(message), scope["path_params"]["name"]
        if scope["method"] != "POST" or body is None or len(name) > NODE_NAME_MAX:
            await super().handle(scope, replay([message], receive), send)
            return
        service: Service = scope["app"].state.service
        caller: Caller = scope["state"][CALLER]
        caller.demand_node(name)
        data = to_json(await service.report(name, body))
        headers = [JSON, (b"content-length", b"%d" % len(data))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})


def _valid(message: Message) -> ReportBody | None:
    """The report, which the door gives in one piece."""
    try:
        return ReportBody.model_validate_json(message.get("body", b""))
    except ValidationError:
        return None
