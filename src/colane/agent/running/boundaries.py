"""What one job's directory, page or process makes raise stays with that job.

It is logged once, said of the node until it is over, and the agent goes on with all others. Only `AgentError` ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from colane.agent.errors import AgentError
from colane.agent.reconcile import DesiredJob, Key

T = TypeVar("T")

log = logging.getLogger(__name__)

SAID_CHARS: Final = 200


class Boundaries:
    """Where the faults of jobs end."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._aside: dict[str, set[Key]] = {}

    @contextmanager
    def around(self, what: str) -> Iterator[None]:
        """Keep what is raised in here from everything else; `what` names it for people."""
        try:
            yield
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._note(what, error)
        else:
            self._said.pop(what, None)

    def ask(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        """Return the answer, or what stands in its place where it raises."""
        with self.around(what):
            return question()
        return otherwise

    def each(self, what: str, follow: Callable[[list[DesiredJob]], None], jobs: Iterable[DesiredJob]) -> None:
        """Have a part of the agent follow all jobs but those for which it raises: these are set aside."""
        jobs = list(jobs)
        aside = self._aside.get(what, set()) & {job.key for job in jobs}
        if not aside and (error := _raised(follow, jobs)) is None:
            self._aside.pop(what, None)
            return
        well = []
        for job in jobs:
            error = _raised(follow, [job])
            if error is None:
                well.append(job)
                self._said.pop(f"{what} of job {job.key}", None)
            else:
                self._note(f"{what} of job {job.key}", error)
        self._aside[what] = {job.key for job in jobs if job not in well}
        with self.around(what):
            follow(well)

    def keep(self, keys: Iterable[Key]) -> None:
        """Of jobs that are gone there is nothing to say."""
        known = {f"job {key}" for key in keys}
        self._said = {what: said for what, said in self._said.items() if "job " not in what or _job_of(what) in known}

    def messages(self) -> tuple[str, ...]:
        """What is wrong now."""
        return tuple(f"{what}: {said}" for what, said in sorted(self._said.items()))

    def _note(self, what: str, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"[:SAID_CHARS]
        if self._said.get(what) != said:
            log.error("%s is set aside", what, exc_info=error)
        self._said[what] = said


def _raised(follow: Callable[[list[DesiredJob]], None], jobs: list[DesiredJob]) -> Exception | None:
    try:
        follow(jobs)
    except AgentError:
        raise
    except Exception as error:  # noqa: BLE001 - see `Boundaries`
        return error
    return None


def _job_of(what: str) -> str:
    return "job " + what.rpartition("job ")[2]
