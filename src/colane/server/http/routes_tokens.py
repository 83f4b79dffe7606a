"""Tokens: made by their holders' machines, so that the scheduler never sees one before it is used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse

from colane.api.records import RevokedAnswer, TokenAnswer, TokenObject
from colane.api.wire import TokenBody
from colane.server.board.turn import Turn
from colane.server.ground.access import ID_DIGITS
from colane.server.handlers import tokens as credentials
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered, verb_route
from colane.server.http.requests import IdempotencyKey, TheCaller, TheService, change_once
from colane.verbs.of_others import MAKE_TOKEN, REVOKE_TOKEN

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
TokenId = Annotated[str, Path(pattern=f"^[0-9a-f]{{{ID_DIGITS}}}$", description="Id of a token, as it is listed")]


@verb_route(router, MAKE_TOKEN, TokenAnswer)
async def make_token(
    request: Request, service: TheService, caller: TheCaller, body: TokenBody, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Let a token count."""
    made = credentials.judged(body.user, body.node, body.role, caller)

    def prepare(turn: Turn) -> TokenAnswer:
        return {"id": credentials.make(turn, body.digest, made, caller)}

    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.get("/tokens", responses=answered(list[TokenObject]))
async def tokens(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return what is known of the tokens that are the caller's to revoke, oldest first."""
    return JSONResponse(credentials.shown(service.read_model, caller))


@verb_route(router, REVOKE_TOKEN, RevokedAnswer)
async def revoke_token(
    request: Request, service: TheService, caller: TheCaller, token: TokenId, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Let a token count no longer."""

    def prepare(turn: Turn) -> RevokedAnswer:
        credentials.revoke(turn, token, caller)
        return {"revoked": token}

    return JSONResponse(await change_once(request, service, idempotency_key, prepare))
