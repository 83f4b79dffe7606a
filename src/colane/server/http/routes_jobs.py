"""Jobs: submit, show, cancel, why, log, launch."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Scope

from colane.api.job_request import ChangeBody, JobRequest, ResumeBody, SuspendBody
from colane.api.jobs import JobIdAnswer, JobIdsAnswer, JobObject, JobRequestObject, WhyAnswer
from colane.api.nodes import LaunchObject
from colane.api.plans import INDEX_PATTERN, PlanAnswer, StartAnswer, SubmittedAnswer
from colane.api.stacks import StacksAnswer
from colane.api.terminals import TerminalBody
from colane.model.field_values import EXACT_MAX
from colane.model.job import JobId, JobState
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.http.agent_routes import NOT_KEPT, LaunchRoute
from colane.server.http.batch_body import WHOLE_BYTES_MAX, parse_batch, parse_one
from colane.server.http.door import replay
from colane.server.http.refusals import REFUSALS, DeclaredRoute, answered
from colane.server.http.requests import (
    KEY_HEADER,
    KEY_LENGTH_MAX,
    IdempotencyKey,
    IsKnown,
    JobIdPath,
    TheCaller,
    TheChange,
    TheService,
    asked,
    change_once,
    is_answered,
)
from colane.server.http.short_route import ShortRoute
from colane.server.http.streams import json_list
from colane.server.planning.otherwise import Forced
from colane.server.views.logs import CHUNK_BYTES, NEXT_OFFSET_HEADER, LogPlace, Reading, read_range, read_through
from colane.server.views.stacks import ask_all
from colane.server.writer import changes
from colane.verbs.of_jobs import CANCEL, JOB_VERBS, Deed, JobVerb

PLAIN: Final = "text/plain; charset=utf-8"
LOG_BYTES_MAX: Final = 8 * 2**20  # bytes of a log in one answer; the header names the offset to go on from

# -- The routes by which jobs are submitted, one or many: FastAPI takes half of a job's time.


class SubmitRoute(ShortRoute):
    """Of one job; see `ShortRoute`."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[JobIdAnswer] | None:
        if not _is_plain(scope):
            return None
        try:
            job = parse_one(body)
        except RefusedError:
            if len(body) > WHOLE_BYTES_MAX:
                raise
            return None
        return submit_one(_request(scope, body), job, _key(scope))


class SubmitBatchRoute(ShortRoute):
    """Of many; see `ShortRoute`."""

    def short(self, scope: Scope, body: bytes) -> Awaitable[JobIdsAnswer] | None:
        return submit_all(_request(scope, body), body, _key(scope)) if _is_plain(scope) else None


async def submit_one(
    request: Request, job: JobRequest, key: str | None = None, if_plan: str | None = None
) -> JobIdAnswer:
    """Append a job to the queue's end, at most once for a key, and only while a plan holds where one is named.

    Raises:
        RefusedError: Why it is not taken.
    """
    service, caller = asked(request)
    families = await service.submissions.families([job], caller)
    prepare = service.submissions.submit_one(job, caller, families)
    demand = None if if_plan is None else service.forecasts.only_if(if_plan, [job], caller, families)
    return await change_once(request, service, key, prepare, demand)


async def submit_all(request: Request, body: bytes, key: str | None = None, if_plan: str | None = None) -> JobIdsAnswer:
    """Append jobs to the queue's end, all or none; see `submit_one`.

    Raises:
        RefusedError: Why they are not taken.
    """
    service, caller = asked(request)
    jobs = await parse_batch(body)
    families, judged = await service.submissions.judged(jobs, caller)
    if judged is not None and if_plan is None:
        prepare_slices = service.submissions.submit_in_slices(jobs, caller, families, judged)

        async def prepare_large(turn: Turn) -> JobIdsAnswer:
            return {"ids": [*await prepare_slices(turn)]}

        answer = await change_once(request, service, key, prepare_large)
        await service.driver.entered(answer["ids"])
        return answer
    prepare = service.submissions.submit(jobs, caller, families, judged)
    demand = None if if_plan is None else service.forecasts.only_if(if_plan, jobs, caller, families)

    def prepare_batch(turn: Turn) -> JobIdsAnswer:
        return {"ids": [*prepare(turn)]}

    return await change_once(request, service, key, prepare_batch, demand)


def _is_plain(scope: Scope) -> bool:
    """Whether a request names no plan, and either no key or one that may be."""
    keys = _keys(scope)
    return not scope["query_string"] and (not keys or (len(keys) == 1 and 0 < len(keys[0]) <= KEY_LENGTH_MAX))


def _key(scope: Scope) -> str | None:
    keys = _keys(scope)
    return keys[0].decode("latin-1") if keys else None


def _keys(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == KEY_HEADER]


def _request(scope: Scope, body: bytes) -> Request:
    return Request(scope, replay([{"type": "http.request", "body": body}], _ended))


async def _ended() -> dict[str, Any]:
    return {"type": "http.disconnect"}


# -- The routes.

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
TellsStart = Annotated[bool, Query(alias="start", description="Also say when it starts, as `/job/ID/start` does")]
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


THROUGH: Final = "Colane-Through"  # a header that names the program through which a caller changes a job


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
    request: Request, idempotency_key: IdempotencyKey = None, if_plan: IfPlan = None
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
    change: TheChange,
    user: Annotated[str | None, Query(max_length=200, description="Only this user's")] = None,
    by: By = None,
) -> JSONResponse:
    """Cancel all queued jobs of the caller; for an operator, of all users, or of one."""
    service, caller = change.service, change.caller
    said, queued = _said(change.request, caller, by), changes.queued_of(service.read_model, caller, user)
    is_again = await is_answered(service, caller, change.key)
    left = queued if is_again else await service.job_changes.cancel_many(queued, said)
    return await change.done(lambda turn: changes.cancel_queued(turn, left, said), {"ids": [*queued]})


async def submit(
    request: Request,
    body: JobRequest,
    idempotency_key: IdempotencyKey = None,
    if_plan: IfPlan = None,
    tells_start: TellsStart = False,
) -> JSONResponse:
    """Append a job to the queue's end."""
    answer: SubmittedAnswer = {"id": (await submit_one(request, body, idempotency_key, if_plan))["id"]}
    if tells_start:
        service, caller = asked(request)
        answer["start"] = None
        with suppress(RefusedError):  # it has ended meanwhile
            answer["start"] = await service.forecasts.start_of(JobId(answer["id"]), caller, changes=False)
    return JSONResponse(answer)


router.add_api_route(
    "/job", submit, methods=["POST"], responses=answered(SubmittedAnswer), route_class_override=SubmitRoute
)


@router.get("/job/{number}", responses=answered(JobObject))
async def show(service: TheService, caller: TheCaller, number: JobIdPath) -> JSONResponse:
    """Return a job, live or ended."""
    return JSONResponse(await service.jobs.job(JobId(number), caller))


_BODIES: Final[Mapping[Deed, tuple[Any, Any]]] = {
    Deed.CHANGE: (ChangeBody, Parameter.empty),
    Deed.SUSPEND: (SuspendBody | None, None),
    Deed.RESUME: (ResumeBody | None, None),
}
"""Of verbs that have arguments: their type, and what they are where none is sent."""


def _route_of(verb: JobVerb) -> Callable[..., Awaitable[JSONResponse]]:
    """Return the route of a verb, with what its row says for parameters."""

    async def act(
        change: TheChange,
        number: JobIdPath,
        by: By = None,
        **given: Any,  # noqa: ANN401 - judged by the types that the signature below names
    ) -> JSONResponse:
        of_jobs = change.service.job_changes
        doing = of_jobs.cancel if verb is CANCEL else partial(of_jobs.of, verb)
        said = _said(change.request, change.caller, by)
        return await change.done(doing(JobId(number), change.caller, said, *given.values()))

    known = {name: each for name, each in signature(act, eval_str=True).parameters.items() if name != "given"}
    further = {"elements": (Elements, None)} if "elements" in verb.in_query else {}
    if verb.deed in _BODIES:
        further["body"] = _BODIES[verb.deed]
    own = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in further.items()
    ]
    act.__signature__ = Signature([*known.values(), *own])  # type: ignore[attr-defined]
    return act


for _verb in JOB_VERBS.values():
    router.add_api_route(
        f"/job/{{number}}{_verb.suffix}",
        _route_of(_verb),
        methods=[_verb.method],
        name=_verb.deed,
        description=_verb.does,
        responses=answered(JobIdAnswer),
    )


@router.get("/job/{number}/why", responses=answered(WhyAnswer))
async def why(
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    not_on: Annotated[str, Query(max_length=300, description="Why not on this node, or GPU as `n1/3`")] = "",
    not_now: Annotated[bool, Query(description="Why not now, before all others")] = False,
    instead: Annotated[int | None, Query(ge=1, le=EXACT_MAX, description="Why not in the place of this job")] = None,
) -> JSONResponse:
    """Return why a job waits, runs or has ended, in one sentence with its numbers, and why not otherwise if asked."""
    answer = await service.jobs.why(JobId(number), caller)
    if not_on or not_now or instead is not None:
        forced = Forced(not_on, None if instead is None else JobId(instead))
        answer["otherwise"] = await service.forecasts.otherwise(JobId(number), caller, forced)
    return JSONResponse(answer)


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
async def start(
    service: TheService,
    caller: TheCaller,
    number: JobIdPath,
    changes: Annotated[bool, Query(description="Whether to look for needs with which it would start at once")] = True,
) -> JSONResponse:
    """Return when a job that waits would start, as an interval, and by what is known of those that run."""
    return JSONResponse(await service.forecasts.start_of(JobId(number), caller, changes=changes))


async def launch(request: Request, number: JobIdPath) -> JSONResponse:
    """Return what the agent needs to start a job; the only answer that holds an environment or a secret."""
    service, caller = asked(request)
    return JSONResponse(await service.nodes.launch(JobId(number), caller), headers=NOT_KEPT)


router.add_api_route(
    "/job/{number}/launch", launch, methods=["GET"], responses=answered(LaunchObject), route_class_override=LaunchRoute
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
    if not (follow or joined):
        place = await service.attempts.locate_log(JobId(number), caller, attempt)

        async def ranged() -> AsyncIterator[Any]:
            async with service.log_readers.ranges[caller.name]:
                data, behind = await read_range(service.http, place, offset, limit)
                yield {NEXT_OFFSET_HEADER: str(behind), "Content-Length": str(len(data))}
                for at in range(0, len(data), CHUNK_BYTES):  # each is sent once the one before is taken
                    yield data[at : at + CHUNK_BYTES]

        pieces = ranged()
        return StreamingResponse(pieces, media_type=PLAIN, headers=await anext(pieces))

    async def locate(wanted: int | None) -> LogPlace:
        if not is_known():
            raise RefusedError.because(401, "the token that this log was asked for with was revoked")
        return await service.attempts.locate_log(JobId(number), caller, wanted)

    first = attempt if attempt is not None or not joined else 0
    reading = Reading(first, offset, is_joined=joined or attempt is None, follows=follow)

    async def stream() -> AsyncIterator[bytes]:
        with service.log_readers.following(caller.name) as again_s:
            async for data in read_through(service.http, locate, reading, service.stopping, again_s):
                yield data

    return StreamingResponse(await _started(stream()), media_type=PLAIN)


@router.post("/job/{number}/terminal", response_class=Response)
async def terminal(service: TheService, caller: TheCaller, number: JobIdPath, body: TerminalBody) -> Response:
    """Type at the terminal of a job (`pty`), and wait for what it shows: its owner alone may."""
    place = await service.attempts.locate_terminal(JobId(number), caller, body.attempt)
    chunk = await service.terminals.at(place, body, caller.name)
    headers = {NEXT_OFFSET_HEADER: str(chunk.next_offset), **NOT_KEPT}
    return Response(chunk.data, media_type="application/octet-stream", headers=headers)


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
