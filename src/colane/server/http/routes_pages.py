"""The pages that people look at: files of the package, and the way in."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from sse_starlette import EventSourceResponse

from colane.api.seeing import PageLinkAnswer, RowsAnswer, UnchangedAnswer
from colane.model.field_values import EXACT_MAX
from colane.scheduling.registry import NAMES
from colane.server.http.door import IS_KNOWN
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered
from colane.server.http.requests import IsKnown, TheCaller, TheService
from colane.server.http.sessions import COOKIE, SESSION_S, Sessions
from colane.server.http.streams import GRACE_S, PING_S
from colane.server.views.live import ScreenWanted, live, screen
from colane.server.views.rows import RowsWanted, SortKey
from colane.verbs.of_jobs import JOB_VERBS
from colane.verbs.of_others import DRAIN, UNDRAIN

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
ROWS_MAX: Final = 500
TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".md": "text/plain",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


BUTTONS: Final = [
    {
        "verb": row.deed,
        "method": row.method,
        "suffix": row.suffix,
        "label": row.label,
        "past": row.past,
        "waiting_label": row.waiting_label,
        "loses": row.loses,
    }
    for row in JOB_VERBS.values()
    if row.label
]
"""What the page does to jobs, in the order of its buttons from the right."""


@cache
def _file(name: str) -> bytes | None:
    if name == "verbs.js":
        of_nodes = {row.name: {"method": row.method, "path": row.path, "label": row.label} for row in (DRAIN, UNDRAIN)}
        told = {"ROWS": BUTTONS, "OF_NODES": of_nodes, "POLICIES": list(NAMES)}
        return "".join([f"export const {word} = {json.dumps(value)};\n" for word, value in told.items()]).encode()
    known = {each.name: each for each in (files("colane.server.web") / "static").iterdir()}
    return known[name].read_bytes() if name in known else None


def _answer(name: str) -> Response:
    found, kind = _file(name), TYPES.get(name[name.rfind(".") :])
    if found is None or kind is None:
        return JSONResponse({"detail": "Not Found"}, 404)
    return Response(found, media_type=kind, headers=HEADERS)


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page; which view it shows is in the part of its address that stays in the browser."""
    return _answer("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """Return a file of the page."""
    return _answer(name)


@router.post("/page_link", responses=answered(PageLinkAnswer))
async def page_link(request: Request, caller: TheCaller) -> JSONResponse:
    """Return a path that signs a browser in as the caller, once."""
    sessions: Sessions = request.app.state.sessions
    found: PageLinkAnswer = {"path": f"/sign_in?code={sessions.link(caller, getattr(request.state, IS_KNOWN))}"}
    return JSONResponse(found)


@router.get("/sign_in", include_in_schema=False)
async def sign_in(request: Request, code: Annotated[str, Query(max_length=100)]) -> Response:
    """Give the browser its cookie, and show the page."""
    sessions: Sessions = request.app.state.sessions
    cookie = sessions.enter(code)
    answer = RedirectResponse("/" if cookie else "/#/signed-out", 303, headers=HEADERS)
    if cookie:
        is_tls = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie, max_age=int(SESSION_S), httponly=True, samesite="strict", secure=is_tls)
    return answer


async def order_wanted(
    sort: Annotated[SortKey, Query(description="In order of this, jobs that run before those that wait")] = SortKey.ID,
    down: Annotated[bool, Query(description="The greatest first")] = False,
) -> tuple[SortKey, bool]:
    """In which order rows stand."""
    return sort, down


async def besides_wanted(
    overview: Annotated[bool, Query(description="Also the overview, as of some seconds ago at most")] = False,
    cells: Annotated[
        bool, Query(description="Also a letter for each device of more than 12 nodes, else its use")
    ] = False,
) -> tuple[bool, bool]:
    """What a screen shows beside rows."""
    return overview, cells


async def rows_wanted(
    order: Annotated[tuple[SortKey, bool], Depends(order_wanted)],
    besides: Annotated[tuple[bool, bool], Depends(besides_wanted)],
    first: Annotated[int, Query(ge=0, le=EXACT_MAX, description="Rows before these")] = 0,
    limit: Annotated[int, Query(ge=0, le=ROWS_MAX, description="At most so many rows")] = 100,
    text: Annotated[str, Query(max_length=200, description="In name, user or reason, or the id")] = "",
    why: Annotated[str, Query(max_length=100, description="Only those that wait for this reason")] = "",
    job: Annotated[list[int] | None, Query(max_length=ROWS_MAX, description="Only these jobs")] = None,
    mine: Annotated[bool, Query(description="Only the caller's")] = False,
) -> ScreenWanted:
    """What a screen shows."""
    chosen = None if job is None else frozenset(job)
    return ScreenWanted(RowsWanted(first, limit, text.casefold(), why, chosen, mine, *order), *besides)


Wanted = Annotated[ScreenWanted, Depends(rows_wanted)]


@router.get("/page_rows", responses=answered(RowsAnswer | UnchangedAnswer))
async def rows(
    service: TheService,
    caller: TheCaller,
    wanted: Wanted,
    seen: Annotated[int | None, Query(ge=0, le=EXACT_MAX, description="Number of the last event then")] = None,
) -> JSONResponse:
    """Return the rows of live jobs that a screen shows; none where nothing has happened since `seen`."""
    if seen == service.feed.last_number:
        return JSONResponse({"event": seen})
    return JSONResponse(screen(service.overviews, service.sight(caller), wanted))


@router.get("/live", response_class=EventSourceResponse)
async def of_screen(service: TheService, caller: TheCaller, wanted: Wanted, is_known: IsKnown) -> EventSourceResponse:
    """Stream what a screen shows: what `/page_rows` answers, then at most each second what of it has changed."""
    sight = service.sight(caller)
    whole = screen(service.overviews, sight, wanted)
    told = live(service.overviews, sight, wanted, whole, is_known)
    return EventSourceResponse(told, ping=PING_S, shutdown_grace_period=GRACE_S)
