"""What is wrong with a request, field by field, in words that name the fix."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from colane.api.errors import ErrorAnswer
from colane.api.plans import INDEX_PATTERN
from colane.model.field_values import NO_CONTROLS
from colane.model.problem import Problem
from colane.model.versions import own_version

PROBLEMS_MAX: Final = 20  # a batch that is wrong throughout is not answered with ten thousand problems

GOT_LENGTH_MAX: Final = 60  # a message quotes at most this much of what was given, so that it stays one line

SECRET_FIELDS: Final = frozenset({"env", "command"})  # fields whose values no message quotes


_WHOLE_MESSAGES: Final = {
    "missing": "is required",
    "json_invalid": "the body is not valid JSON: {error}",
    "value_error": "{error}",
}
"""Messages by pydantic's error types, with its context; these say enough without the value."""

_MESSAGES: Final = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must not be empty",
    "finite_number": "must be a finite number",
    "string_unicode": "holds bytes that are no UTF-8 text: rename it",
    "too_long": "must have at most {max_length} entries, it has {actual_length}",
}
"""The same; these end with what was given."""


_PATTERNS: Final = {
    NO_CONTROLS: "must hold no control characters",
    INDEX_PATTERN: "must be what a plan has ended with, as 812-3fa9c1d2e4f5",
}
"""What patterns that people meet mean."""


class RefusedError(Exception):
    """A request that is not carried out; nothing was changed.

    Attributes:
        status: HTTP status: 4xx for what the caller can mend, 500 and 503 for the store.
        problems: What is wrong.
        lease_s: To an agent: its jobs go on for so long; None where nothing is said of it.
    """

    lease_s: float | None = None

    def __init__(self, status: int, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.status = status
        self.problems = tuple(problems)

    @classmethod
    def because(cls, status: int, message: str, field: str = "") -> RefusedError:
        """Return a refusal with one problem."""
        return cls(status, [Problem(field, message)])

    def body(self) -> ErrorAnswer:
        """Return the JSON answer: a list of field and message, a string where no field is to blame."""
        if any(problem.field for problem in self.problems):
            return {"detail": [{"field": one.field, "message": one.message} for one in self.problems]}
        return {"detail": "; ".join(problem.message for problem in self.problems)}


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return "did you mean a or b? ", empty when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=2)
    return f"did you mean {' or '.join(near)}? " if near else ""


def from_pydantic(errors: Iterable[Mapping[str, Any]], known_fields: Iterable[str] = ()) -> list[Problem]:
    """Translate pydantic's first errors; several for one field (a union's branches) become one."""
    found: dict[str, Problem] = {}
    for error in errors:
        location = error["loc"]
        path = [part for part in location if part not in {"body", "query", "path", "header"}]
        text = ""
        for part in path:
            if isinstance(part, int):
                text += f"[{part}]" if text else f"jobs[{part}]"
            else:
                text += f".{part}" if text else part
        field = text
        if field not in found:
            found[field] = Problem(field, _message(error, known_fields))
        if len(found) >= PROBLEMS_MAX:
            break
    return list(found.values())


def _message(error: Mapping[str, Any], known_fields: Iterable[str]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        near = near_matches(str(error["loc"][-1]), known_fields).rstrip()
        return f"is not a known field{f'; {near}' if near else f' of this scheduler, Colane {own_version()}'}"
    if kind in _WHOLE_MESSAGES:
        return _WHOLE_MESSAGES[kind].format(**context)
    if kind == "string_pattern_mismatch" and context["pattern"] in _PATTERNS:
        return _PATTERNS[context["pattern"]] + _got(error)
    if kind in _MESSAGES:
        return _MESSAGES[kind].format(**context) + _got(error)
    return re.sub(r"^\w+ should", "must", str(error["msg"])) + _got(error)


def _got(error: Mapping[str, Any]) -> str:
    given = error.get("input")
    if SECRET_FIELDS & set(error["loc"]) or not isinstance(given, str | int | float | bool):
        return ""
    if isinstance(given, float) and not math.isfinite(given):
        return ", got a number that is not finite"
    text = repr(given) if isinstance(given, str) else f"{given}"
    return f", got {text if len(text) <= GOT_LENGTH_MAX else text[:GOT_LENGTH_MAX] + '...'}"
