"""Tokens: made by their holders' machines, so that the scheduler never sees one before it is used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse

from colane.api.records import RevokedAnswer, TokenAnswer, TokenObject
from colane.api.wire import TokenBody
from colane.server.ground.access import ID_DIGITS
from colane.server.handlers import tokens as credentials
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered, verb_route
from colane.server.http.requests import TheCaller, TheChange, TheService
from colane.verbs.of_others import MAKE_TOKEN, REVOKE_TOKEN

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
TokenId = Annotated[str, Path(pattern=f"^[0-9a-f]{{{ID_DIGITS}}}$", description="Id of a token, as it is listed")]


@verb_route(router, MAKE_TOKEN, TokenAnswer)
async def make_token(change: TheChange, body: TokenBody) -> JSONResponse:
    """Let a token count."""
    made = credentials.judged(body.user, body.node, body.role, change.caller)
    return await change.done(lambda turn: {"id": credentials.make(turn, body.digest, made, change.caller)})


@router.get("/tokens", responses=answered(list[TokenObject]))
async def tokens(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return what is known of the tokens that are the caller's to revoke, oldest first."""
    return JSONResponse(credentials.shown(service.read_model, caller))


@verb_route(router, REVOKE_TOKEN, RevokedAnswer)
async def revoke_token(change: TheChange, token: TokenId) -> JSONResponse:
    """Let a token count no longer."""
    return await change.done(lambda turn: credentials.revoke(turn, token, change.caller), {"revoked": token})
