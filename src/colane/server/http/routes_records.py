"""What has happened and what is known: finished jobs, profiles, measurements, events, health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from sse_starlette import EventSourceResponse

from colane.api.jobs import JobIdAnswer, JobObject, ListingAnswer
from colane.api.of_record import MeasurementObject, ProfileObject
from colane.api.records import (
    AdoptedAnswer,
    DeclaredAnswer,
    ForgottenAnswer,
    HandedOverAnswer,
    HealthAnswer,
    ReloadedAnswer,
    RemovedAnswer,
    RevokedAnswer,
    TokenAnswer,
    TokenObject,
    UsageObject,
)
from colane.api.wire import AdoptBody, ProfileBody, TokenBody
from colane.model.field_values import EXACT_MAX
from colane.server.ground.access import ID_DIGITS
from colane.server.ground.problems import RefusedError
from colane.server.handlers import tokens as credentials
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered, verb_route
from colane.server.http.requests import IsKnown, TheCaller, TheChange, TheService
from colane.server.http.streams import GRACE_S, PING_S, json_items, json_list, sse_lines
from colane.server.store.store import MEASUREMENTS, PROFILES, AuditLine
from colane.server.views import listing as shown
from colane.server.views.listing import Wanted
from colane.server.views.used import busy_ratios, usage
from colane.server.writer import changes
from colane.server.writer.feed import lines_for
from colane.verbs.of_others import (
    ADOPT_STORE,
    DECLARE_PROFILE,
    FORGET_PROFILES,
    HAND_OVER,
    MAKE_TOKEN,
    RELOAD,
    REMOVE_FINISHED,
    REVOKE_TOKEN,
)

LABEL_FILTERS_MAX: Final = 16
LISTED_MAX: Final = 10_000

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
JSON: Final = "application/json"


@router.get("/finished_jobs", responses=answered(list[JobObject]))
async def finished_jobs(
    service: TheService,
    caller: TheCaller,
    after: Annotated[int, Query(ge=0, le=EXACT_MAX, description="Only ids above this")] = 0,
    limit: Annotated[int | None, Query(ge=1, le=EXACT_MAX)] = None,
    label: Annotated[list[str] | None, Query(max_length=LABEL_FILTERS_MAX, description="name=value")] = None,
) -> StreamingResponse:
    """Return records of finished jobs in order of id."""
    labels = dict(_split_label(text) for text in label or ())
    wanted = Wanted(0, labels=labels, sight=service.sight(caller))
    return StreamingResponse(json_list(islice(shown.finished(service.store, wanted, after), limit)), media_type=JSON)


def _split_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise RefusedError.because(422, f"must be name=value, got {text[:60]!r}", "label")
    return name, value


@router.get("/listing", responses=answered(ListingAnswer))
async def listing(
    service: TheService,
    caller: TheCaller,
    limit: Annotated[int, Query(ge=1, le=LISTED_MAX, description="Of those that run, wait, and have ended")] = 100,
    ended: Annotated[bool, Query(description="Also the last that have ended")] = False,
    user: Annotated[str | None, Query(max_length=200)] = None,
    label: Annotated[list[str] | None, Query(max_length=LABEL_FILTERS_MAX, description="name=value")] = None,
    elements: Annotated[bool, Query(description="Elements of arrays as jobs of their own")] = False,
) -> StreamingResponse:
    """Return the jobs that a screen shows, with present reasons of the first in line, and how many are left out."""
    labels = dict(_split_label(text) for text in label or ())
    wanted = Wanted(limit, ended, user, labels, service.sight(caller), elements)
    found = await shown.listing(service.store, service.driver, wanted)

    async def text() -> AsyncIterator[bytes]:
        yield b'{"jobs":['
        async for part in json_items(found["jobs"]):
            yield part
        yield b'],"left_out":%s}' % json.dumps(found["left_out"]).encode()

    return StreamingResponse(text(), media_type=JSON)


@router.get("/last_job", responses=answered(JobIdAnswer))
async def last_job(
    service: TheService,
    caller: TheCaller,
    back: Annotated[int, Query(ge=0, le=shown.BACK_MAX, description="So many jobs before it")] = 0,
) -> JobIdAnswer:
    """Return the id of the job, or the array, that the caller submitted last."""
    user, known = caller.submits_as(""), service.driver.read_model.jobs.values()
    live = [job.id for job in known if job.spec.user == user and job.element is None]
    try:
        return {"id": await asyncio.to_thread(shown.last_of, user, live, service.store, back)}
    except ValueError as error:
        raise RefusedError.because(404, str(error)) from error


@verb_route(router, REMOVE_FINISHED, RemovedAnswer)
async def remove_finished(change: TheChange) -> JSONResponse:
    """Forget all finished jobs."""
    return await change.done(changes.remove_finished, {"removed": True}, REMOVE_FINISHED)


@router.get("/profiles", responses=answered(list[ProfileObject]))
async def profiles(service: TheService, caller: TheCaller) -> StreamingResponse:
    """Return all profiles, each value with source and samples."""
    service.sight(caller).demand_whole("profiles")
    rows = await asyncio.to_thread(service.store.read_all, PROFILES)
    return StreamingResponse(json_list(dict(body) for _, body in rows), media_type=JSON)


@verb_route(router, DECLARE_PROFILE, DeclaredAnswer)
async def declare_profile(change: TheChange, body: ProfileBody) -> JSONResponse:
    """Take in a declared profile."""
    return await change.done(lambda turn: changes.declare(turn, body), {"declared": True}, DECLARE_PROFILE)


@verb_route(router, FORGET_PROFILES, ForgottenAnswer)
async def forget_profiles(
    change: TheChange,
    family: Annotated[
        str, Query(min_length=1, max_length=200, description="All of whose profiles and sets are removed")
    ],
) -> JSONResponse:
    """Forget what is known of a family."""
    return await change.done(lambda turn: {"forgotten": changes.forget_family(turn, family, change.caller)})


@router.get("/measurements", responses=answered(list[MeasurementObject]))
async def measurements(service: TheService, caller: TheCaller) -> StreamingResponse:
    """Return all sets of jobs that were measured together, oldest first."""
    service.sight(caller).demand_whole("measurements")
    rows = await asyncio.to_thread(service.store.read_all, MEASUREMENTS)
    return StreamingResponse(json_list(dict(body) for _, body in rows), media_type=JSON)


@router.get("/events", response_class=EventSourceResponse)
async def events(
    service: TheService,
    caller: TheCaller,
    is_known: IsKnown,
    after: Annotated[int | None, Query(ge=0, le=EXACT_MAX, description="Number to resume behind")] = None,
    until: Annotated[int | None, Query(ge=0, le=EXACT_MAX, description="Number with which to end")] = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,16}$")] = None,
) -> EventSourceResponse:
    """Stream every change as server-sent events, from now on or from behind a number, without end or up to one."""
    start = service.feed.last_number if after is None else after
    if last_event_id is not None:
        start = int(last_event_id)
    sight = service.sight(caller)

    async def choose(lines: list[AuditLine]) -> list[AuditLine]:
        found = (sight, lines, service.read_model, service.store)
        return lines if sight.is_whole else await asyncio.to_thread(lines_for, *found)

    lines = sse_lines(service.feed, start, choose, is_known, until)
    return EventSourceResponse(lines, ping=PING_S, shutdown_grace_period=GRACE_S)


@router.get("/usage", responses=answered(list[UsageObject]))
async def users(
    service: TheService,
    caller: TheCaller,
    since_s: Annotated[float, Query(ge=0, le=1e12, description="Of jobs that ended at this unix time or later")] = 0.0,
) -> JSONResponse:
    """Return what users have had since then and have now, the largest first."""
    found = await asyncio.to_thread(usage, service.store, service.read_model, since_s, service.driver.now())
    sight = service.sight(caller)
    own = [one for one in found if sight.has(one["user"])]
    busy = await busy_ratios(service.store, service.read_model, service.samples, since_s, service.driver.now())
    return JSONResponse([{**one, "gpu_busy_ratio": busy.get(one["user"])} for one in own])


@router.get("/health", responses=answered(HealthAnswer) | answered(HealthAnswer, 503))
async def health(request: Request, service: TheService) -> JSONResponse:
    """Return the service's state in numbers; needs no token. 503 while nothing can be written.

    While a user's policy fails, all but deciding goes on, and records that cannot be read are done without where that
    is safe: `degraded`, and `detail` says why.
    """
    body: HealthAnswer = {**service.health.answer(), "version": request.app.version}
    return JSONResponse(body, 503 if body["status"] == "store-unavailable" else 200)


@verb_route(router, HAND_OVER, HandedOverAnswer)
async def hand_over(service: TheService, caller: TheCaller) -> JSONResponse:
    """End for a standby to lead."""
    caller.demand_operator(HAND_OVER.operators)
    if not service.config.leader_lease_s:
        text = "no other may lead on this scheduler's store: it is a file, or it was started with --leader-lease off"
        raise RefusedError.because(409, text)
    service.hands_over.set()
    answer: HandedOverAnswer = {"handed_over": service.history.current.number}
    return JSONResponse(answer)


@verb_route(router, RELOAD, ReloadedAnswer)
async def reload(service: TheService, caller: TheCaller) -> JSONResponse:
    """Read files again."""
    caller.demand_operator(RELOAD.operators)
    return JSONResponse(await service.reload(caller))


@router.get("/store/behind", responses=answered(AdoptedAnswer))
async def store_behind(service: TheService, caller: TheCaller) -> JSONResponse:
    """Say how many events the store lacks that agents have heard of, on which nodes, and which jobs run there."""
    caller.demand_operator("be told what the store lacks")
    return JSONResponse(service.leading.lacked())


@router.get("/state", response_class=Response)
async def state(service: TheService, caller: TheCaller) -> Response:
    """Return how all stands, for `colane simulate` of the same version to go on from."""
    service.sight(caller).demand_whole("states")
    return Response(await service.forecasts.standing(), media_type="application/octet-stream")


@verb_route(router, ADOPT_STORE, AdoptedAnswer)
async def store_adopt(service: TheService, caller: TheCaller, body: AdoptBody) -> JSONResponse:
    """Go on from a store that lacks changes."""
    caller.demand_operator(ADOPT_STORE.operators)
    return JSONResponse(await service.leading.adopt(body.lost, caller))


# -- Tokens: made by their holders' machines, so that the scheduler never sees one before it is used.


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
