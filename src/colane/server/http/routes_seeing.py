"""What page, `colane top` and `/metrics` share: the cluster in numbers, and where jobs were."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from sse_starlette import EventSourceResponse

from colane.api.seeing import (
    ActCostObject,
    BudgetObject,
    CoRunnersAnswer,
    EfficiencyAnswer,
    EndedAnswer,
    MovesAnswer,
    OverviewAnswer,
    SharedDayObject,
    TimelineAnswer,
    UsageDayObject,
    UserUsedObject,
    UserWaitObject,
)
from colane.core.usage import month_of
from colane.model.field_values import EXACT_MAX
from colane.model.job import JobId, JobState
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered
from colane.server.http.requests import JobIdPath, TheCaller, TheService
from colane.server.http.routes_samples import LAST_MAX_S, Until
from colane.server.http.streams import GRACE_S, PING_S
from colane.server.metrics.text import OPEN, PLAIN
from colane.server.views.timeline import DAY_S, marks_view, moves_around, timeline, usage_days
from colane.server.views.used import ended_jobs, used_of_asked

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
TOLD_MAX: Final = 10_000
LastDay = Annotated[float, Query(gt=0, le=LAST_MAX_S, description="The last so many seconds")]
Days = Annotated[int, Query(ge=1, le=400, description="Today and so many days before, less one")]


@router.get("/overview", responses=answered(OverviewAnswer))
async def overview(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return the cluster in numbers, why jobs wait, what is kept for which, and what needs a look."""
    return JSONResponse(service.overviews.make(service.sight(caller)))


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics_text(
    service: TheService, caller: TheCaller, accept: Annotated[str, Header(max_length=1000)] = ""
) -> Response:
    """Return what Prometheus reads, as OpenMetrics where that is asked for."""
    is_open = "application/openmetrics-text" in accept
    text = service.metrics.text(service.sight(caller), is_open=is_open)
    return Response(text, media_type=OPEN if is_open else PLAIN)


@router.get("/timeline", responses=answered(TimelineAnswer))
async def of_all(
    service: TheService,
    caller: TheCaller,
    last_s: LastDay = DAY_S,
    until_s: Until = None,
    limit: Annotated[int, Query(ge=1, le=TOLD_MAX, description="Jobs")] = 1000,
    node: Annotated[str, Query(max_length=200, description="Only devices of this node")] = "",
) -> JSONResponse:
    """Return which jobs held which devices in a time, the youngest first."""
    now_s = service.driver.now()
    end_s = now_s if until_s is None else min(until_s, now_s)
    sight = service.sight(caller)
    marks = marks_view(service.marks.between(end_s - last_s, end_s), service.read_model, sight)
    found = (service.store, service.read_model, sight, end_s - last_s, end_s, limit, marks, node)
    return JSONResponse(await asyncio.to_thread(timeline, *found))


@router.get("/timeline/moves", responses=answered(MovesAnswer))
async def around(
    service: TheService,
    caller: TheCaller,
    at_s: Annotated[float | None, Query(ge=0, le=1e12, description="Unix time; else now")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Before, and after")] = 8,
) -> JSONResponse:
    """Return what became of jobs last until a moment, and what next."""
    moment_s = service.driver.now() if at_s is None else at_s
    found = (service.store, service.read_model, service.sight(caller), moment_s, limit)
    return JSONResponse(await asyncio.to_thread(moves_around, *found))


@router.get("/job/{number}/efficiency", responses=answered(EfficiencyAnswer))
async def of_job(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return how much of what it asked for a job has used, and what it could ask for instead."""
    return JSONResponse(await service.attempts.efficiency(JobId(number), caller))


@router.get("/job/{number}/co_runners", responses=answered(CoRunnersAnswer))
async def beside_job(
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    limit: Annotated[int, Query(ge=1, le=TOLD_MAX, description="Jobs")] = 100,
) -> JSONResponse:
    """Return which jobs were on a job's devices while it was there, and from when to when."""
    return JSONResponse(await service.attempts.co_runners(JobId(number), caller, limit))


@router.get("/job/{number}/cost", responses=answered(ActCostObject))
async def of_act(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return what stopping a live job costs now, and which jobs wait for it by name."""
    return JSONResponse(service.jobs.cost(JobId(number), caller))


@router.get("/usage/days", responses=answered(list[UsageDayObject]))
async def by_day(service: TheService, caller: TheCaller, days: Days = 14) -> JSONResponse:
    """Return what each user had of devices on each day, UTC."""
    now_s = service.driver.now()
    found = (service.store, service.read_model, service.sight(caller), _since(now_s, days), now_s)
    return JSONResponse(await asyncio.to_thread(usage_days, *found))


@router.get("/usage/budgets", responses=answered(list[BudgetObject]))
async def budgets(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return what users and groups have used of the GPU-hours that they may use in this month, UTC."""
    now_s, book = service.driver.now(), service.driver.core.limits
    own = None if service.sight(caller).is_whole else caller.name
    rows = [] if book is None else book.budgets(now_s, own)
    until_s = month_of(now_s)[1]
    found: list[BudgetObject] = [
        {"name": name, "gpu_s": gpu_s, "used_gpu_s": used_s, "until_s": until_s} for name, gpu_s, used_s in rows
    ]
    return JSONResponse(found)


@router.get("/usage/shared", responses=answered(list[SharedDayObject]))
async def shared(service: TheService, caller: TheCaller) -> JSONResponse:
    """Return what sharing did for users on the last days, as it was worked out each night; the last day first."""
    sight = service.sight(caller)
    return JSONResponse(await asyncio.to_thread(service.asides.told, lambda user: user == "all" or sight.has(user)))


Change = Annotated[str | None, Query(max_length=200)]


@router.get("/whatif", response_class=EventSourceResponse)
async def what_if(
    service: TheService,
    caller: TheCaller,
    nodes: Annotated[Change, Query(description="So many nodes more or fewer, as +2 or big:-1")] = None,
    policy: Annotated[Change, Query(description="Another policy, by its name")] = None,
    quota: Annotated[list[str], Query(max_length=20, description="Limits, as ann.gpus=4")] = [],  # noqa: B006 - not kept
    share: Annotated[bool, Query(description="Whether jobs share GPUs where they do now")] = True,
    since: Annotated[
        Change, Query(description="Of the jobs since then, as 7d; else of those that wait and run")
    ] = None,
) -> EventSourceResponse:
    """Stream how far a simulation of the same jobs with a change is, then what it would do to them.

    It is worked out niced on one core, and ended when the connection is closed. Each user has one at a time.
    """
    options = {"nodes": nodes, "policy": policy, "since": since}
    given = {name: [value] for name, value in options.items() if value}
    answers = service.asides.what_if(str(caller), given | {"quota": quota}, shares=share)
    events = ({"data": json.dumps(answer)} async for answer in answers)
    return EventSourceResponse(events, ping=PING_S, shutdown_grace_period=GRACE_S)


def _since(now_s: float, days: int) -> float:
    return now_s - now_s % DAY_S - (days - 1) * DAY_S


@router.get("/usage/used", responses=answered(list[UserUsedObject]))
async def used(service: TheService, caller: TheCaller, days: Days = 28) -> JSONResponse:
    """Return how much of what they asked for users' last jobs have used, and what they could ask for instead."""
    now_s, sight = service.driver.now(), service.sight(caller)
    since_s = _since(now_s, days)
    found = await used_of_asked(service.store, service.read_model, service.samples, sight, since_s, now_s)
    return JSONResponse(found)


@router.get("/usage/waiting", responses=answered(list[UserWaitObject]))
async def waited(service: TheService, caller: TheCaller, days: Days = 28) -> JSONResponse:
    """Return for which reasons users' jobs have waited how long, the longest first."""
    sight = service.sight(caller)
    rows = await service.samples.waited(_since(service.driver.now(), days))
    found: list[UserWaitObject] = [
        {"user": user, "why": why, "waited_s": job_s} for user, why, job_s in rows if sight.has(user)
    ]
    return JSONResponse(found)


@router.get("/usage/ended", responses=answered(EndedAnswer))
async def ended(
    service: TheService,
    caller: TheCaller,
    days: Days = 7,
    limit: Annotated[int, Query(ge=0, le=1000, description="Jobs told one by one")] = 100,
    first: Annotated[int, Query(ge=0, le=EXACT_MAX, description="Jobs before these")] = 0,
    state: Annotated[JobState | None, Query(description="Only jobs that ended so are told one by one")] = None,
) -> JSONResponse:
    """Return how the jobs that ended fared: how they ended, how long they waited and took."""
    only = "" if state is None else state.value
    found = (service.store, service.sight(caller), _since(service.driver.now(), days), limit, first, only)
    return JSONResponse(await asyncio.to_thread(ended_jobs, *found))
