"""What jobs of a trace wait for: others of it, by the names it gives them, as `ok:prepare,start:server`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId
from colane.model.phases import DependsOn

_KINDS: Final = {each.value: each for each in DependsOn}


class TraceCondition(NamedTuple):
    """What another job of the trace must have done.

    Attributes:
        on: That. In a simulation every job does what it did where it was recorded, so that an end is an end.
        name: The other job.
    """

    on: DependsOn
    name: str


def parse_conditions(text: str) -> list[TraceCondition]:
    """Return the conditions that a cell names.

    Raises:
        ValueError: It names none.
    """
    found = []
    for part in text.split(",") if text.strip() else ():
        kind, colon, name = part.strip().partition(":")
        if not colon or kind not in _KINDS or not name:
            known = ", ".join(_KINDS)
            raise ValueError(f"must be conditions as ok:NAME with commas between them ({known}), got {part[:40]!r}")
        found.append(TraceCondition(_KINDS[kind], name))
    return found


def conditions_of(job: TraceJob, ids: Mapping[str, JobId]) -> Iterator[tuple[DependsOn, JobId]]:
    """Yield what a job waits for; of jobs that were left out it does not wait."""
    for on, name in parse_conditions(job.after):
        if name in ids:
            yield on, ids[name]


def problem(job: TraceJob, ids: Mapping[str, JobId]) -> str | None:
    """Return what is wrong with what a job waits for; None where nothing is."""
    for _, name in parse_conditions(job.after):
        other = ids.get(name)
        if other is None:
            return f"there is no job {name!r}"
        if other >= job.id:
            return f"job {name!r} is not submitted before it"
    return None
