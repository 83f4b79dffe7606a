"""`colane why`: why a job is where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused, SchedulerError
from colane.client.told import facts_of
from colane.model.limits import POOLS_LABEL
from colane.model.phases import is_in
from colane.model.words import count

if TYPE_CHECKING:
    from colane.api.jobs import JobObject, WhyAnswer
    from colane.api.plans import StartAnswer
    from colane.api.stacks import StacksAnswer
    from colane.client.client import Client

FAILED: Final = frozenset({"failed", "out-of-memory"})
NAMED_MAX: Final = 10  # jobs in the way, or co-runners, that are described
FIRST_STEP_MAX_S: Final = 60.0
"""A job that has made no step for so long after its start is worth a look: most have loaded their libraries by then."""
LAST_LINES: Final = 5
LAST_BYTES: Final = 4096  # of the end of a failed job's log
DOUBTED: Final = (
    "its declared total of steps is not believed, and it counts as a job of unknown length: it has made more steps "
    "than that, or other jobs of its owner have; five jobs in a row that keep to theirs mend it"
)
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")  # how a job's log says colours to a terminal


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why", epilog="Example: [bold]colane why 7[/bold]")(explain)


Stacks = Annotated[
    bool, typer.Option("--stacks", help="Of a job that runs, show the Python stacks of all threads of its processes.")
]


NotOn = Annotated[
    str, typer.Option("--not-on", metavar="NODE[/GPU]", help="Of a job that waits: why not there.", show_default=False)
]
NotNow = Annotated[bool, typer.Option("--not-now", help="Of a job that waits: why not now, before all others.")]
Instead = Annotated[
    str | None, typer.Option("--instead", metavar="JOB", help="Of a job that waits: why not in the place of this one.")
]


def explain(
    job: jobs.JobArgument,
    stacks: Stacks = False,
    not_on: NotOn = "",
    not_now: NotNow = False,
    instead: Instead = None,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """Say why a job waits, runs or has ended, and list the jobs in its way or its co-runners.

    Of one that waits: in about how long it would start, where that is known. Of a running one: its co-runners, its
    share of the lane, which jobs go before it and why; of one that makes no steps, which rank waits where. Of one that
    failed: the last lines it printed. With --not-on, --not-now or --instead the policy is asked with that forced, and
    told is by what that differs from its own plan.
    """
    with jobs.client() as scheduler:
        job_id = jobs.id_of(scheduler, job)
        other = None if instead is None else jobs.id_of(scheduler, jobs.parse_job_name(instead))
        reason = scheduler.why(job_id, not_on=not_on, not_now=not_now, instead=other)
        asked = scheduler.job(job_id)
        state = asked["state"]
        named = reason["jobs"][:NAMED_MAX]
        others = {other: _live(scheduler, other) for other in named}
        last = _last_lines(scheduler, job_id) if state in FAILED else []
        start = _start(scheduler, job_id) if state == "queued" else None
        where = scheduler.stacks(job_id) if stacks else _where(scheduler, asked)
    starts_in_s = None if start is None else start["starts_in_s"]
    expected = {} if start is None else {name: start.get(name) for name in ("expected_start", "changes")}
    whole = {"id": job_id, "state": state, **reason, "starts_in_s": starts_in_s, **expected, "last_lines": last}
    whole["stacks"] = where
    if printed(template, as_json, [whole], whole):
        return
    for line in _sentences(jobs.name_of(asked), facts_of(asked)["word"] or state, reason):
        output.say(line)
    if chosen := asked["labels"].get(POOLS_LABEL):
        output.say(f"  it may start in {chosen}")
    for sentence in reason.get("otherwise") or ():
        output.say(f"  {sentence}")
    for sentence in () if where is None else where["sentences"]:
        output.say(f"  {sentence}")
    for sentence in () if start is None else _of_start(start):
        output.say(f"  {sentence}")
    if asked.get("constraints", {}).get("steps_total_doubted"):
        output.say(f"  {DOUBTED}")
    _show_others(others, asked, len(reason["jobs"]) - len(named))
    for line in last:
        output.say(f"  | {line}")
    if where is not None and stacks:
        _show_stacks(where)


def _show_others(others: Mapping[int, JobObject | None], asked: JobObject, left_out: int) -> None:
    live = [other for other in others.values() if other is not None]
    names = dict(zip((other["id"] for other in live), jobs.names_apart([*live, asked]), strict=False))
    for number, other in others.items():
        output.say(f"  {_describe(number, other, names.get(number, ''))}")
    if left_out:
        output.say(f"  and {count(left_out, 'more job')}")


def _sentences(name: str, state: str, reason: WhyAnswer) -> Iterator[str]:
    """Yield first how it stands now, and then what brought it there."""
    now = reason.get("now") or []
    yield f"job {name} {is_in(state)}: {now[0] if now else reason['sentence']}"
    yield from (f"  {sentence}" for sentence in now[1:])
    if now:
        yield f"  last change: {reason['sentence']}"


def _of_start(start: StartAnswer) -> Iterator[str]:
    """Yield when it would start, and with what needs at once; an older scheduler tells less."""
    if start["starts_in_s"] != 0:
        yield start["sentence"]
    if least := [one["option"] for one in start.get("changes") or ()]:
        yield f"it would start at once with {', or with '.join(least)}"


def _where(scheduler: Client, job: JobObject) -> StacksAnswer | None:
    """Return where the processes of a job are that makes no steps; None of others, and where it cannot be told."""
    sample, start_s = job.get("progress"), job["start_s"]
    is_first_late = (
        sample is not None
        and sample["last_step_s"] is None
        and start_s is not None
        and sample["at_s"] - start_s >= FIRST_STEP_MAX_S
    )
    if not (job.get("stalled") or is_first_late):
        return None
    try:
        found = scheduler.stacks(job["id"], text=False)
    except SchedulerError:
        return None
    return found if found["processes"] else None


def _show_stacks(where: StacksAnswer) -> None:
    for one in where["processes"]:
        who = "" if one["rank"] is None else f"rank {one['rank']}, "
        output.say(f"\n{who}process {one['pid']} on {one['node']} {one['sentence']}")
        output.say(one["text"].rstrip())


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
    word, left_s = facts_of(job)["word"] or job["state"], facts_of(job)["left_s"]
    left = f", about {output.duration(left_s)} left" if left_s is not None else ""
    return f"job {jobs.name_of(job)} ({name}, {job['user'] or 'no user'}): {word}{where}{left}"
