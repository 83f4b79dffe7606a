"""Holds every answer against the type that its route declares: no key is missing, misspelt or undeclared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ConfigDict, TypeAdapter

from colane.api.errors import ErrorAnswer
from colane.api.events import EVENTS
from colane.api.jobs import EndingObject, JobObject
from colane.model.job import ENDED
from colane.server.store.store import UNREADABLE_LINE, AuditLine

OTHER_THAN_JSON = {("GET", "/job/{number}/log"), ("GET", "/events"), ("GET", "/live"), ("GET", "/metrics")} | {
    ("GET", "/state"),
    ("GET", "/whatif"),
    ("POST", "/job/{number}/terminal"),
}
"""Routes whose answer is a text, bytes or a stream."""


def declared(app: FastAPI) -> dict[tuple[str, str], Any]:
    """Return the type of the answer of each route that declares one, by method and path."""
    return {
        (method, route.path): route.responses[200]["model"]
        for route in app.routes
        if isinstance(route, APIRoute) and 200 in route.responses
        for method in route.methods or ()
    }


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what reads a list of one such answer, strictly: a type of its own takes no configuration, a list does."""
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid", strict=True))


def judge(kind: Any, content: bytes) -> None:
    """Raise pydantic's ValidationError where an answer is not what was declared."""
    (answer,) = adapter(kind).validate_json(b"[" + content + b"]")
    for job in answer if kind == list[JobObject] else [answer] if kind is JobObject else ():
        has = EndingObject.__optional_keys__ & job.keys()
        assert has == (EndingObject.__optional_keys__ if job["state"] in ENDED else set()), job


def judge_events(lines: Iterable[AuditLine]) -> None:
    """Raise where an event is not of its kind's type."""
    for line in lines:
        if line.kind != UNREADABLE_LINE:
            judge(EVENTS[line.kind], json.dumps(line.body).encode())


class AnswerJudge:
    """A hook of a client: judges each answer as it comes, and keeps which routes were judged."""

    def __init__(self, app: FastAPI) -> None:
        self._routes = [route for route in app.routes if isinstance(route, APIRoute)]
        self.judged: set[tuple[str, str]] = set()

    async def __call__(self, response: httpx.Response) -> None:
        route, status = self._route(response.request), response.status_code
        kind = None if route is None else route.responses.get(status, {}).get("model")
        if status >= 400 and kind is None:
            kind = ErrorAnswer
        if kind is not None and response.headers.get("content-type") == "application/json":
            judge(kind, await response.aread())
            if route is not None and status == 200:
                self.judged.add((response.request.method, route.path))

    def _route(self, request: httpx.Request) -> APIRoute | None:
        path, method = request.url.path, request.method
        fitting = (one for one in self._routes if method in (one.methods or ()) and one.path_regex.match(path))
        return next(fitting, None)


def lasting(answer: Any) -> Any:
    """An answer without what is told of jobs at this moment: that goes by the clock."""
    if isinstance(answer, list):
        return [lasting(each) for each in answer]
    return {k: lasting(v) for k, v in answer.items() if k != "facts"} if isinstance(answer, dict) else answer
