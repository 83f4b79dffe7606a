"""Jobs: submit, show, cancel, why, log, launch."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from colane.api.job_request import ChangeBody, JobRequest, ResumeBody, SuspendBody
from colane.api.jobs import JobIdAnswer, JobIdsAnswer, JobObject, JobRequestObject, WhyAnswer
from colane.api.nodes import LaunchObject
from colane.api.plans import INDEX_PATTERN, PlanAnswer, StartAnswer
from colane.api.stacks import StacksAnswer
from colane.model.field_values import EXACT_MAX
from colane.model.job import JobId, JobState, SuspendVia
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.http.agent_routes import NOT_KEPT, LaunchRoute
from colane.server.http.batch_body import parse_batch
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered
from colane.server.http.requests import (
    IdempotencyKey,
    IsKnown,
    JobIdPath,
    TheCaller,
    TheService,
    asked,
    change_once,
    is_answered,
)
from colane.server.http.streams import json_list
from colane.server.http.submit_route import SubmitBatchRoute, SubmitRoute, submit_all, submit_one
from colane.server.views.logs import NEXT_OFFSET_HEADER, LogPlace, Reading, read_range, read_through
from colane.server.views.stacks import ask_all
from colane.server.writer import changes

LOG_BYTES_MAX: Final = 8 * 2**20
"""Bytes of a log in one answer; the header names the offset to go on from."""

router = APIRouter(responses=REFUSALS, route_class=DeclaredRoute)
By = Annotated[
    str | None,
    Query(
        max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$", description="What an operator's request comes of, for the story"
    ),
]
Elements = Annotated[
    str | None, Query(max_length=1_000, description="Of an array, only the elements with these indexes, as 3,7-9")
]
After = Annotated[int, Query(ge=0, le=EXACT_MAX, description="Only ids above this")]
Limit = Annotated[int | None, Query(ge=1, le=EXACT_MAX, description="At most so many")]
IfPlan = Annotated[
    str | None,
    Query(pattern=INDEX_PATTERN, max_length=64, description="Only while a plan of these jobs (`/plan`) still holds"),
]
JSON: Final = "application/json"


def _said(request: Request, caller: Caller, by: str | None) -> str:
    """The caller, as the story names it, and the program it acts through: only an operator may give another name.

    Raises:
        RefusedError: 422, no program is called so.
    """
    through = request.headers.get(THROUGH)
    if through is not None and not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", through):
        raise RefusedError.because(422, "must be the name of a program: small letters, digits and dashes", THROUGH)
    name = by if by is not None and caller.may_all else caller.name
    return name if through is None else f"{name} through {through}"


THROUGH: Final = "Colane-Through"
"""A header that names the program through which a caller changes a job."""


_BATCH_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "anyOf": [
                        {"type": "array", "items": {"$ref": "#/components/schemas/JobRequest"}},
                        {
                            "type": "object",
                            "required": ["jobs"],
                            "additionalProperties": False,
                            "properties": {
                                "jobs": {"type": "array", "items": {"$ref": "#/components/schemas/JobRequest"}}
                            },
                        },
                    ]
                }
            }
        },
    }
}


async def submit_batch(
    request: Request,
    idempotency_key: IdempotencyKey = None,
    if_plan: IfPlan = None,
) -> JSONResponse:
    """Append jobs to the queue's end, all or none; the answer names their ids in order."""
    return JSONResponse(await submit_all(request, await request.body(), idempotency_key, if_plan))


router.add_api_route(
    "/jobs",
    submit_batch,
    methods=["POST"],
    openapi_extra=_BATCH_BODY,
    responses=answered(JobIdsAnswer),
    route_class_override=SubmitBatchRoute,
)


@router.post("/plan", openapi_extra=_BATCH_BODY, responses=answered(PlanAnswer))
async def plan(request: Request, service: TheService, caller: TheCaller) -> JSONResponse:
    """Say what would become of jobs if they were submitted now; takes what `/jobs` takes, and changes nothing."""
    jobs = await parse_batch(await request.body())
    return JSONResponse(await service.forecasts.plan(jobs, caller))


@router.get("/jobs", responses=answered(list[JobObject]))
async def queued_jobs(
    service: TheService, caller: TheCaller, after: After = 0, limit: Limit = None
) -> StreamingResponse:
    """Return queued jobs in order, all or a page."""
    return StreamingResponse(json_list(service.jobs.live_jobs(caller, JobState.QUEUED, after, limit)), media_type=JSON)


@router.delete("/jobs", responses=answered(JobIdsAnswer))
async def cancel_queued(
    request: Request, service: TheService, caller: TheCaller, idempotency_key: IdempotencyKey = None, by: By = None
) -> JSONResponse:
    """Cancel all queued jobs of the caller; for an operator, of all users."""
    said, queued = _said(request, caller, by), changes.queued_of(service.read_model, caller)
    is_again = await is_answered(service, caller, idempotency_key)
    left = queued if is_again else await service.job_changes.cancel_many(queued, said)

    def prepare(turn: Turn) -> JobIdsAnswer:
        changes.cancel_queued(turn, left, said)
        return {"ids": [*queued]}

    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


async def submit(
    request: Request,
    body: JobRequest,
    idempotency_key: IdempotencyKey = None,
    if_plan: IfPlan = None,
) -> JSONResponse:
    """Append a job to the queue's end."""
    return JSONResponse(await submit_one(request, body, idempotency_key, if_plan))


router.add_api_route(
    "/job", submit, methods=["POST"], responses=answered(JobIdAnswer), route_class_override=SubmitRoute
)


@router.get("/job/{number}", responses=answered(JobObject))
async def show(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return a job, live or ended."""
    return JSONResponse(await service.jobs.job(JobId(number), caller))


@router.delete("/job/{number}", responses=answered(JobIdAnswer))
async def cancel(
    request: Request,
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    idempotency_key: IdempotencyKey = None,
    by: By = None,
    elements: Elements = None,
) -> JSONResponse:
    """Cancel a job: a queued one ends now, a running one when its process is gone; of an array, all or some."""
    prepare = service.job_changes.cancel(JobId(number), caller, _said(request, caller, by), elements)
    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.post("/job/{number}/requeue", responses=answered(JobIdAnswer))
async def requeue(
    request: Request,
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    idempotency_key: IdempotencyKey = None,
    by: By = None,
) -> JSONResponse:
    """Take a running job off its GPUs, once it has saved its state if it has said how; it is queued again."""
    prepare = service.job_changes.requeue(JobId(number), caller, _said(request, caller, by))
    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.post("/job/{number}/change", responses=answered(JobIdAnswer))
async def change(
    request: Request,
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    body: ChangeBody,
    idempotency_key: IdempotencyKey = None,
    by: By = None,
) -> JSONResponse:
    """Give a live job another time limit, or an array another number of elements that run at once; null for none."""
    prepare = service.job_changes.change_limits(JobId(number), caller, _said(request, caller, by), body)
    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.post("/job/{number}/suspend", responses=answered(JobIdAnswer))
async def suspend(
    request: Request,
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    idempotency_key: IdempotencyKey = None,
    by: By = None,
    body: SuspendBody | None = None,
) -> JSONResponse:
    """Suspend a job: a queued one does not start, a running one waits at a step boundary and keeps its memory.

    With `to_host` its GPU memory is moved to the host besides; its GPU is free for others until it is resumed.
    """
    via = SuspendVia.HOST if body is not None and body.to_host else SuspendVia.LANE
    prepare = service.job_changes.suspend(JobId(number), caller, _said(request, caller, by), via)
    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.post("/job/{number}/resume", responses=answered(JobIdAnswer))
async def resume(
    request: Request,
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    idempotency_key: IdempotencyKey = None,
    by: By = None,
    body: ResumeBody | None = None,
) -> JSONResponse:
    """Let a suspended job go on, one that waits not before `at`; any other stays as it is."""
    prepare = service.job_changes.resume(
        JobId(number), caller, _said(request, caller, by), None if body is None else body.at
    )
    return JSONResponse(await change_once(request, service, idempotency_key, prepare))


@router.get("/job/{number}/why", responses=answered(WhyAnswer))
async def why(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return why a job waits, runs or has ended, in one sentence with its numbers."""
    return JSONResponse(await service.jobs.why(JobId(number), caller))


@router.get("/job/{number}/stacks", responses=answered(StacksAnswer))
async def stacks(
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    text: Annotated[bool, Query(description="Whether the stacks come along, and not only where processes are")] = True,
) -> JSONResponse:
    """Return where the processes of a running job are in their code: to its owner, asked of them now."""
    attempt, nodes = await service.attempts.locate_processes(JobId(number), caller)
    answer = await ask_all(service.http, JobId(number), attempt, nodes)
    if not text:
        answer["processes"] = [{**one, "text": ""} for one in answer["processes"]]
    return JSONResponse(answer)


@router.get("/job/{number}/start", responses=answered(StartAnswer))
async def start(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return in about how many seconds a job that waits would start, by what is known of those that run."""
    return JSONResponse(await service.forecasts.start_of(JobId(number), caller))


async def launch(request: Request, number: JobIdPath) -> JSONResponse:
    """Return what the agent needs to start a job; the only answer that holds an environment or a secret."""
    service, caller = asked(request)
    return JSONResponse(await service.nodes.launch(JobId(number), caller), headers=NOT_KEPT)


router.add_api_route(
    "/job/{number}/launch",
    launch,
    methods=["GET"],
    responses=answered(LaunchObject),
    route_class_override=LaunchRoute,
)


@router.get("/job/{number}/request", responses=answered(JobRequestObject))
async def request_of(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return the request by which a job like this one is submitted, without an environment: to its owner alone."""
    body = await service.jobs.request_of(JobId(number), caller)
    return JSONResponse(body, headers=NOT_KEPT)


@router.get("/job/{number}/log", response_class=Response)
async def read(  # noqa: PLR0913, PLR0917 - what may be asked for
    service: TheService,
    caller: TheCaller,
    is_known: IsKnown,
    number: JobIdPath,
    offset: Annotated[int, Query(ge=-EXACT_MAX, le=EXACT_MAX, description="From the end when negative")] = 0,
    limit: Annotated[int, Query(ge=1, le=LOG_BYTES_MAX)] = LOG_BYTES_MAX,
    follow: Annotated[bool, Query(description="Stream on until the job, or the attempt asked for, has ended")] = False,
    attempt: Annotated[int | None, Query(ge=1, le=EXACT_MAX, description="Of this attempt; else of the latest")] = None,
    joined: Annotated[
        bool, Query(description="Stream the logs of all attempts, from the one asked for or the first")
    ] = False,
) -> Response:
    """Return a range of the log of an attempt, or stream it, or those of several attempts with a line between two.

    `limit` is of ranges alone. A log that is followed goes on with further attempts where no attempt is asked for.
    """
    plain = "text/plain; charset=utf-8"
    if not (follow or joined):
        place = await service.attempts.locate_log(JobId(number), caller, attempt)
        chunk = await read_range(service.http, place, offset, limit)
        return Response(chunk.data, media_type=plain, headers={NEXT_OFFSET_HEADER: str(chunk.next_offset)})

    async def locate(wanted: int | None) -> LogPlace:
        if not is_known():
            raise RefusedError.because(401, "the token that this log was asked for with was revoked")
        return await service.attempts.locate_log(JobId(number), caller, wanted)

    first = attempt if attempt is not None or not joined else 0
    reading = Reading(first, offset, is_joined=joined or attempt is None, follows=follow)
    stream = read_through(service.http, locate, reading, service.stopping)
    return StreamingResponse(await _started(stream), media_type=plain)


async def _started(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first piece now, so that what goes wrong at once is an answer and not a broken stream."""
    first = await anext(stream, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        try:
            async for data in stream:
                yield data
        except RefusedError as refused:
            yield f"\n[{refused}]\n".encode()

    return whole()


@router.get("/live_jobs", responses=answered(list[JobObject]))
async def live_jobs(service: TheService, caller: TheCaller, after: After = 0, limit: Limit = None) -> StreamingResponse:
    """Return jobs that have not ended, with progress, all or a page."""
    return StreamingResponse(json_list(service.jobs.live_jobs(caller, None, after, limit)), media_type=JSON)
