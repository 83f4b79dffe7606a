"""`colane why`: why a job is where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import typer

from colane.cli import output
from colane.cli.formatting import Format, print_formatted
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused, SchedulerError

if TYPE_CHECKING:
    from colane.api.jobs import JobObject, WhyAnswer
    from colane.api.plans import StartAnswer
    from colane.client.client import Client

FAILED: Final = frozenset({"failed", "out-of-memory"})
NAMED_MAX: Final = 10
"""Jobs in the way, or co-runners, that are described."""
LAST_LINES: Final = 5
LAST_BYTES: Final = 4096
"""Of the end of a failed job's log."""
DOUBTED: Final = (
    "its declared total of steps is not believed, and it counts as a job of unknown length: it has made more steps "
    "than that, or other jobs of its owner have; five jobs in a row that keep to theirs mend it"
)
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
"""How a job's log says colours to a terminal."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why", epilog="Example: [bold]colane why 7[/bold]")(explain)


def explain(job: jobs.JobArgument, as_json: output.Json = False, template: Format = None) -> None:
    """Say why a job waits, runs or has ended, and list the jobs in its way or its co-runners.

    Of one that waits: in about how long it would start, where that is known. Of a running one: its co-runners, its
    share of the lane, which jobs go before it and why. Of one that failed: the last lines it printed.
    """
    with jobs.client() as scheduler:
        job_id = jobs.id_of(scheduler, job)
        reason = scheduler.why(job_id)
        asked = scheduler.job(job_id)
        state = asked["state"]
        named = reason["jobs"][:NAMED_MAX]
        others = {other: _live(scheduler, other) for other in named}
        last = _last_lines(scheduler, job_id) if state in FAILED else []
        start = _start(scheduler, job_id) if state == "queued" else None
    starts_in_s = None if start is None else start["starts_in_s"]
    whole = {"id": job_id, "state": state, **reason, "starts_in_s": starts_in_s, "last_lines": last}
    if template is not None:
        print_formatted(template, [whole])
        return
    if as_json:
        output.print_json(whole)
        return
    for line in _sentences(jobs.name_of(asked), state, reason):
        output.say(line)
    if start is not None and starts_in_s:
        output.say(f"  {start['sentence']}")
    if asked.get("constraints", {}).get("steps_total_doubted"):
        output.say(f"  {DOUBTED}")
    live = [other for other in others.values() if other is not None]
    names = dict(zip((other["id"] for other in live), jobs.names_apart([*live, asked]), strict=False))
    for other in named:
        output.say(f"  {_describe(other, others[other], names.get(other, ''))}")
    if len(reason["jobs"]) > NAMED_MAX:
        output.say(f"  and {len(reason['jobs']) - NAMED_MAX} more jobs")
    for line in last:
        output.say(f"  | {line}")


def _sentences(name: str, state: str, reason: WhyAnswer) -> Iterator[str]:
    """Yield first how it stands now, and then what brought it there."""
    now = reason.get("now") or []
    yield f"job {name} is {state}: {now[0] if now else reason['sentence']}"
    yield from (f"  {sentence}" for sentence in now[1:])
    if now:
        yield f"  last change: {reason['sentence']}"


def _start(scheduler: Client, job: int) -> StartAnswer | None:
    """Return when a job that waits would start; None where there is no answer, as of an older scheduler."""
    try:
        return scheduler.start_of(job)
    except SchedulerError:
        return None


def _live(scheduler: Client, job: int) -> JobObject | None:
    """Return a job that has not ended."""
    try:
        found = scheduler.job(job)
    except Refused:
        return None
    return None if jobs.has_ended(found) else found


def _last_lines(scheduler: Client, job: int) -> list[str]:
    """Return the end of a job's log, where its error stands; nothing where the log is gone."""
    try:
        part = scheduler.log(job, -LAST_BYTES, LAST_BYTES)
    except SchedulerError:
        return []
    text = COLOURS.sub("", part.data.decode(errors="replace"))
    lines = [line.rstrip() for line in text.splitlines()]
    return [line for line in lines if line][-LAST_LINES:]


def _describe(job_id: int, job: JobObject | None, name: str) -> str:
    if job is None:
        return f"job {job_id} has ended meanwhile"
    where = f" on {', '.join(job['gpus'])}" if job["gpus"] else ""
    eta_s = jobs.eta_s(job)
    left = f", about {output.duration(eta_s)} left" if eta_s is not None else ""
    return f"job {jobs.name_of(job)} ({name}, {job['user'] or 'no user'}): {job['state']}{where}{left}"
