"""What routes answer, as the OpenAPI says it: what was asked for, and what each may answer instead."""

from __future__ import annotations

from typing import Any, Final

from colane.api.errors import ErrorAnswer

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
