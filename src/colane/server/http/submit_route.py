"""The routes by which jobs are submitted, one or many: FastAPI takes half of a job's time."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from fastapi import Request
from starlette.types import Scope

from colane.api.job_request import JobRequest
from colane.api.jobs import JobIdAnswer, JobIdsAnswer
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.http.batch_body import WHOLE_BYTES_MAX, parse_batch, parse_one
from colane.server.http.door import replay
from colane.server.http.requests import KEY_HEADER, KEY_LENGTH_MAX, asked, change_once
from colane.server.http.short_route import ShortRoute


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
