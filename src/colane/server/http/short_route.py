"""Routes that are asked hundreds of times a second: what is valid takes a short way through them.

The body is read and judged in one go, and its answer written in one; FastAPI takes longer for the same than the
scheduler does for what is asked. Whatever is not valid goes FastAPI's way, so that it is refused in the words of every
other route.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, ClassVar, Final

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from colane.server.http.door import replay
from colane.server.http.refusals import DeclaredRoute

JSON: Final = (b"content-type", b"application/json")


class ShortRoute(DeclaredRoute):
    """A route with a short way for what is valid."""

    told: ClassVar[tuple[tuple[bytes, bytes], ...]] = ()  # headers of its answers, beside their type and length

    def short(self, scope: Scope, body: bytes) -> Awaitable[Any] | None:
        """Return what comes to an answer; None where the request is to go FastAPI's way.

        Raises (from what is returned):
            RefusedError: What its caller may not say, or the service refuses.
        """
        raise NotImplementedError

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, which the door gives in one piece."""
        message = await receive()
        is_whole = scope["method"] in (self.methods or ()) and message["type"] == "http.request"
        coming = self.short(scope, message.get("body", b"")) if is_whole else None
        if coming is None:
            await super().handle(scope, replay([message], receive), send)
            return
        data = to_json(await coming)
        headers = [JSON, (b"content-length", b"%d" % len(data)), *self.told]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})
