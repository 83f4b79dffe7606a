"""Routes that are asked hundreds of times a second: what is valid takes a short way through them.

The body is read and judged in one go, and its answer written in one; FastAPI takes longer for the same than the
scheduler does for what is asked. Whatever is not valid goes FastAPI's way, so that it is refused in the words of every
other route; a large body does not, where that takes seconds in which no other caller is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from colane.server.http.batch_body import WHOLE_BYTES_MAX, refused_of
from colane.server.http.door import replay
from colane.server.http.refusals import DeclaredRoute

Said = TypeVar("Said")
JSON: Final = (b"content-type", b"application/json")


class ShortRoute(DeclaredRoute):
    """A route with a short way for what is valid."""

    told: ClassVar[tuple[tuple[bytes, bytes], ...]] = ()  # headers of its answers, beside their type and length

    @staticmethod
    def said(read: Callable[[bytes], Said], body: bytes) -> Said | None:
        """Return what a body says; None where FastAPI is to say what is wrong with it.

        Raises:
            RefusedError: It is large, and wrong.
        """
        try:
            return read(body)
        except ValidationError as error:
            if len(body) <= WHOLE_BYTES_MAX:
                return None
            raise refused_of(error.errors(include_url=False)) from error

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
