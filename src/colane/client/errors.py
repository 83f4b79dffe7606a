"""What can go wrong between a client and the scheduler; each message is one line that names the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colane.model.problem import Problem


class SchedulerError(Exception):
    """The scheduler was not reached, or refused."""

    status: int = 0  # HTTP status of the answer, 0 where there was none


class BadUrl(SchedulerError):  # noqa: N818 - as the next
    """What should say where the scheduler is says no such thing."""


class SchedulerUnreachable(SchedulerError):  # noqa: N818 - a state of the world, named as it is said
    """There was no answer.

    Attributes:
        url: Where none was.
        was_sent: Whether the request may have arrived.
    """

    def __init__(self, url: str, cause: str, *, was_sent: bool = False) -> None:
        super().__init__(f"no scheduler answers at {url} ({cause}); start one with 'colane up', or set COLANE_URL")
        self.url = url
        self.was_sent = was_sent


class Refused(SchedulerError):  # noqa: N818 - as above
    """The scheduler answered that it will not.

    Attributes:
        problems: What is wrong.
        lease_s: To an agent: its jobs go on for so long all the same; None where nothing is said of it.
    """

    lease_s: float | None = None

    def __init__(self, status: int, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.status = status
        self.problems = tuple(problems)


class RemoteError(Exception):
    """A function has raised what cannot be sent back.

    Attributes:
        kind: Name of its class.
        trace: Where it was raised, as Python prints it.
    """

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(kind, text, trace)
        self.kind = kind
        self.trace = trace

    def __str__(self) -> str:
        """In one line."""
        return f"{self.kind}: {self.args[1]}"


def refused(status: int, body: Any) -> Refused:  # noqa: ANN401 - whatever JSON the answer holds
    """Return the error of an answer; `body` is its JSON, None when it has none."""
    detail = body.get("detail") if isinstance(body, dict) else None
    if isinstance(detail, list):
        problems = [Problem(str(each.get("field", "")), str(each.get("message", each))) for each in detail]
    else:
        problems = [Problem("", str(detail) if detail else f"the scheduler answered with status {status}")]
    return Refused(status, problems)
