"""What every route may answer that is not what was asked for, as the OpenAPI says it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel


class ProblemBody(BaseModel):
    """One thing wrong with a request."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """Every error."""

    detail: list[ProblemBody] | str


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorBody, "description": text}
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
