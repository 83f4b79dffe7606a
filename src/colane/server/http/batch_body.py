"""The body of a batch, read a few jobs at a time: thousands would hold the event loop for a tenth of a second."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from json import JSONDecoder
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from colane.api.job_request import BATCH_JOBS_MAX, Batch, JobRequest
from colane.model.job_fields import ENV_VARIABLES_MAX
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError, from_pydantic
from colane.server.ground.yielding import ITEMS_AT_ONCE

WHOLE_BYTES_MAX: Final = 2**16  # a body no larger than this is read in one go, in some milliseconds

_LIST: Final = TypeAdapter(Annotated[list[JobRequest], Field(max_length=BATCH_JOBS_MAX)])
_SLICE: Final = TypeAdapter(list[JobRequest])


def at_most(number: int) -> TypeAdapter[list[None]]:
    """Return what counts jobs, and refuses more than that."""
    return TypeAdapter(Annotated[list[None], Field(max_length=number)])


_NUMBER: Final = at_most(BATCH_JOBS_MAX)
_BEGIN: Final = re.compile(r'[ \t\n\r]*(?P<object>\{[ \t\n\r]*"jobs"[ \t\n\r]*:[ \t\n\r]*)?\[[ \t\n\r]*')
_BETWEEN: Final = re.compile(r"[ \t\n\r]*(?P<sign>[,\]])[ \t\n\r]*")
_MEMBERS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|,', re.DOTALL)
_END: Final = {True: re.compile(r"\}[ \t\n\r]*"), False: re.compile("")}
Errors = list[dict[str, Any]]


ERRORS_MAX: Final = 200  # of some jobs together: where there are more, they are looked at one by one
MEMBERS_MAX: Final = 6 * ENV_VARIABLES_MAX
"""Of a job: texts and commas. With as many words and variables as one may have it has less than 6 for each."""


class _OtherFormError(ValueError):
    """A body that cannot be cut into its jobs."""


async def parse_batch(body: bytes) -> list[JobRequest]:
    """Return the requests of a batch in either form; others go on while a long one is read.

    Raises:
        RefusedError: 400, not JSON; 422, a field is wrong.
    """
    if len(body) <= WHOLE_BYTES_MAX:
        return _whole(body)
    found, errors, parts = list[JobRequest](), Errors(), list[list[str]]()
    try:
        texts = _items(body.decode())
        while part := list(islice(texts, ITEMS_AT_ONCE)):
            parts.append(part)
            await asyncio.sleep(0)
        for at, part in enumerate(parts):
            errors += _added(found, part, at * ITEMS_AT_ONCE)
            if len(errors) >= PROBLEMS_MAX:
                break
            await asyncio.sleep(0)
    except (ValueError, RecursionError):  # of JSON that is none, or in a form of which pydantic is to say what is wrong
        return _whole(body)
    if errors:
        raise refused_of(errors)
    return found


def _items(text: str) -> Iterator[str]:
    """Yield the texts of the jobs of a batch, which need not be valid.

    Raises:
        ValueError: It is no list of JSON values, and no object with that alone.
    """
    begin = _BEGIN.match(text)
    if begin is None:
        raise _OtherFormError
    at, scan, is_last, number = begin.end(), JSONDecoder().raw_decode, False, 0
    while not is_last:
        end = scan(text, at)[1]
        between = _BETWEEN.match(text, end)
        if between is None:
            raise _OtherFormError
        number += 1
        if number > BATCH_JOBS_MAX:
            try:
                _NUMBER.validate_python([None] * number)
            except ValidationError as error:
                raise refused_of(list(error.errors(include_url=False))) from error
        one = text[at:end]
        _demand_modest(one)
        yield one
        at, is_last = between.end(), between["sign"] == "]"
    if _END[begin["object"] is not None].fullmatch(text, at) is None:
        raise _OtherFormError


def _added(found: list[JobRequest], texts: list[str], first: int) -> Errors:
    """Add the jobs of a part of a batch, which begins at a place of the whole; return what is wrong with them.

    Raises:
        ValueError: It is no JSON, which the whole is to tell.
    """
    text = f"[{','.join(texts)}]"
    try:
        found += _SLICE.validate_json(text)
    except ValidationError as error:
        if error.error_count() > ERRORS_MAX and len(texts) > 1:
            return _one_by_one(found, texts, first)
        errors: list[Any] = list(error.errors(include_url=False))
        if any(each["type"] == "json_invalid" for each in errors):
            raise
        return [{**each, "loc": (first + each["loc"][0], *each["loc"][1:])} for each in errors]
    return []


def _one_by_one(found: list[JobRequest], texts: list[str], first: int) -> Errors:
    errors = Errors()
    for number, text in enumerate(texts, start=first):
        errors += _added(found, [text], number)
        if len(errors) >= PROBLEMS_MAX:
            break
    return errors


def parse_one(body: bytes) -> JobRequest:
    """Return the request of one job, as `parse_batch` those of many."""
    _demand_modest(body.decode(errors="replace"))
    try:
        return JobRequest.model_validate_json(body)
    except ValidationError as error:
        raise refused_of(list(error.errors(include_url=False))) from error


def _whole(body: bytes) -> list[JobRequest]:
    try:
        if body.lstrip()[:1] == b"[":
            return _LIST.validate_json(body)
        return Batch.model_validate_json(body).jobs
    except ValidationError as error:
        if len(body) > WHOLE_BYTES_MAX and error.error_count() > ENV_VARIABLES_MAX:
            text = "the body must be a list of jobs, or an object with that alone, as jobs"
            raise RefusedError.because(422, text) from error
        raise refused_of(list(error.errors(include_url=False))) from error


def _demand_modest(text: str) -> None:
    """Refuse a job with more members than one can have, before each of them is found wrong, which takes seconds."""
    if len(text) > WHOLE_BYTES_MAX and next(islice(_MEMBERS.finditer(text), MEMBERS_MAX, None), None) is not None:
        message = f"a job has more than {ENV_VARIABLES_MAX} words of a command, variables or fields"
        raise RefusedError.because(422, message)


def refused_of(errors: Sequence[Any]) -> RefusedError:
    """Return the refusal of a body, in the words of whatever reads it."""
    status = 400 if any(each["type"] == "json_invalid" for each in errors) else 422
    return RefusedError(status, from_pydantic(errors, JobRequest.model_fields))
