"""What routes answer, as the OpenAPI says it: what was asked for, and what each may answer instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute

from colane.api.errors import ErrorAnswer
from colane.verbs.of_others import Verb

Route = TypeVar("Route", bound=Callable[..., Any])

REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "The body is not JSON",
        401: "A token is needed",
        403: "Not the caller's to do",
        404: "There is no such thing",
        408: "The body does not come",
        409: "Conflict",
        410: "It cannot be had any more",
        413: "The body is too large",
        415: "Content-Type is not application/json",
        421: "Addressed to another host",
        422: "A field is wrong",
        429: "More than the user may have",
        502: "An agent does not answer",
        503: "The store cannot be written",
    }.items()
}


def answered(kind: object, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return what a route is declared with: the type of what it answers, where all is well or with another status.

    It is said, and not checked at run time: the type checker has done so, and `tests/server/harness.py` does for every
    answer in a test.
    """
    return {status: {"model": kind}}


class DeclaredRoute(APIRoute):
    """A route whose declared answers become schemas where the OpenAPI is asked for, and not at each start.

    63 routes of 15 answers each took 0.45 s of the 1.63 s of a core that importing the scheduler takes.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **how: Any,  # noqa: ANN401 - whatever FastAPI lets a route be declared with
    ) -> None:
        super().__init__(path, endpoint, **how)
        self.responses = responses or {}
        self._how = how

    def described(self) -> APIRoute:
        """Return the route as FastAPI describes it, with its answers."""
        return APIRoute(self.path, self.endpoint, responses=self.responses, **self._how)


def verb_route(router: APIRouter, verb: Verb, answer: object) -> Callable[[Route], Route]:
    """Return what makes a function the route of a verb, as its row says."""
    return router.api_route(
        verb.path, methods=[verb.method], name=verb.name, description=verb.does, responses=answered(answer)
    )
