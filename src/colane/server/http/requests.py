"""What routes share: the service, ids, idempotent changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, NamedTuple, cast

from fastapi import Depends, Header, Path, Request
from fastapi.responses import JSONResponse

from colane.model.field_values import EXACT_MAX
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.http.door import CALLER, IS_KNOWN
from colane.server.service import Service
from colane.server.store.store import IDEMPOTENCY
from colane.server.writer.driver import Demand
from colane.server.writer.idempotency import Answer, fingerprint, once
from colane.verbs.of_others import Verb


async def the_service(request: Request) -> Service:
    """Return the service of the application; async, since FastAPI would run a plain function in a thread."""
    return cast("Service", request.app.state.service)


async def the_caller(request: Request) -> Caller:
    """Return the caller, as the door has found it."""
    return cast("Caller", getattr(request.state, CALLER))


async def is_known(request: Request) -> Callable[[], bool]:
    """Return what tells whether the caller's token is still good: it is asked while an answer goes on."""
    return cast("Callable[[], bool]", getattr(request.state, IS_KNOWN))


def asked(request: Request) -> tuple[Service, Caller]:
    """Return the service and the caller, for routes that agents ask all the time: FastAPI takes longer to find them."""
    return request.app.state.service, request.scope["state"][CALLER]


TheService = Annotated[Service, Depends(the_service)]
TheCaller = Annotated[Caller, Depends(the_caller)]
IsKnown = Annotated[Callable[[], bool], Depends(is_known)]
JobIdPath = Annotated[int, Path(ge=1, le=EXACT_MAX, description="Id of a job")]
KEY_HEADER: Final = b"idempotency-key"
KEY_LENGTH_MAX: Final = 200
IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=KEY_LENGTH_MAX, description="The same key gives the first answer again")
]


def _key_of(caller: Caller, key: str) -> str:
    return f"{caller}: {key}"  # a caller is never given the answer to another's key


async def is_answered(service: Service, caller: Caller, key: str | None) -> bool:
    """Whether a change under a key has been carried out, of one that takes several turns and is noted by the last.

    Raises:
        StoreError: The store cannot be read.
    """
    if key is None:
        return False
    return await asyncio.to_thread(service.store.get, IDEMPOTENCY, _key_of(caller, key)) is not None


async def change_once(
    request: Request,
    service: Service,
    key: str | None,
    prepare: Callable[[Turn], Answer | Awaitable[Answer]],
    demand: Demand | None = None,
) -> Answer:
    """Carry out a change at most once for a key and return its (first) answer; `demand` must hold in its turn.

    Raises:
        RefusedError: What the change refuses; 422 when the key was used for another request; 503.
    """
    if key is not None:
        key = _key_of(await the_caller(request), key)
        mark = fingerprint(request.method, str(request.url.path), await request.body())
        return await service.driver.change(once(key, mark, prepare), reads=[(IDEMPOTENCY, key)], demand=demand)
    return await service.driver.change(prepare, demand=demand)


class AskedChange(NamedTuple):
    """A change that is asked for, by one caller, and the key under which it is made once."""

    request: Request
    service: Service
    caller: Caller
    key: str | None

    async def done(
        self, prepare: Callable[[Turn], Any], answer: Answer | None = None, verb: Verb | None = None
    ) -> JSONResponse:
        """Carry it out and answer: what is given, else what `prepare` returns; some verbs are for operators alone."""
        if verb is not None and verb.operators:
            self.caller.demand_operator(verb.operators)

        def prepared(turn: Turn) -> Any:  # noqa: ANN401 - an answer, or what comes to one
            found = prepare(turn)
            return found if answer is None else answer

        return JSONResponse(await change_once(self.request, self.service, self.key, prepared))


async def the_change(
    request: Request, service: TheService, caller: TheCaller, idempotency_key: IdempotencyKey = None
) -> AskedChange:
    """Return what is asked for."""
    return AskedChange(request, service, caller, idempotency_key)


TheChange = Annotated[AskedChange, Depends(the_change)]
