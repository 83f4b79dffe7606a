"""The answer of whatever is refused or fails."""

from __future__ import annotations

from typing_extensions import TypedDict


class ProblemObject(TypedDict):
    """One thing wrong with a request."""

    field: str
    message: str


class ErrorAnswer(TypedDict):
    """Every error: what is wrong field by field, or in one text where no field is to blame."""

    detail: list[ProblemObject] | str
