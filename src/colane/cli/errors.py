"""What a user reads when something goes wrong: one line, exit code 2 for misuse, 1 for failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from typer import TyperException

from colane.client.errors import BadUrl, Refused, SchedulerError

MISUSE: Final = 2
FAILURE: Final = 1
INTERRUPTED: Final = 130  # what a shell reports of a program that died of SIGINT
FAILED_AT_SERVER: Final = 500
"""HTTP statuses from here on say that the scheduler could not; those of 4xx that it will not."""


class MisuseError(TyperException):
    """The user asked for something that makes no sense; the message names what and the fix."""

    exit_code = MISUSE


class FailureError(TyperException):
    """It was asked for properly and went wrong all the same."""

    exit_code = FAILURE


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Say which file or directory cannot be written, where one cannot."""
    try:
        yield
    except OSError as error:
        raise FailureError(f"{what} cannot be written: {error.strerror}") from error


def from_scheduler(error: SchedulerError) -> TyperException:
    """Return what the scheduler's refusal or silence means here: a status of 4xx is the user's own."""
    if isinstance(error, BadUrl):
        return MisuseError(str(error))
    if not isinstance(error, Refused) or error.status >= FAILED_AT_SERVER:
        return FailureError(str(error))
    return MisuseError("; ".join(one_line(str(problem)) for problem in error.problems))


def one_line(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())
