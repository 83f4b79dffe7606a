"""`colane events`: what has happened, and what happens, a line each."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.completing import complete_jobs
from colane.cli.formatting import Format, print_formatted
from colane.cli.jobs import objects as jobs

if TYPE_CHECKING:
    from colane.api.events import AttemptEndedEventObject, JobEventObject
    from colane.client.client import Client, Event

LAST: Final = 20
LOOKED_THROUGH: Final = 20_000  # for those of some jobs
UNTOLD: Final = frozenset({"decision"})  # each is a job's own change as well; programs have them with --json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("events", epilog="Example: [bold]colane events -f --job 7[/bold]")(events)


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, help="So many of those before; of --job, among the last 20,000.")
    ] = LAST,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, show_default="none", help="All behind this number, in place of --last."),
    ] = None,
    job: Annotated[
        list[jobs.JobName] | None,
        typer.Option(
            "--job",
            metavar="JOB",
            parser=jobs.parse_job_name,
            autocompletion=complete_jobs,
            show_default="all",
            help="Only of this job; may be repeated.",
        ),
    ] = None,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """Print what has happened to jobs and nodes, a line each, oldest first; with -f also what happens from now on.

    With --json a line is an object with number, kind and facts: what a program reads to follow the scheduler without
    asking again and again. It goes on behind the last number it has seen with --after.
    """
    with jobs.client() as scheduler:
        wanted = jobs.ids_of(scheduler, job or ())
        is_for_people = template is None and not as_json

        def is_wanted(event: Event) -> bool:
            is_of_jobs = not wanted or event.body.get("job") in wanted
            return is_of_jobs and not (is_for_people and event.kind in UNTOLD)

        looked_through = last if not wanted else max(last, LOOKED_THROUGH)
        for event in _chosen(scheduler, is_wanted, follow=follow, last=last, after=after, back=looked_through):
            whole = {"number": event.number, "kind": event.kind, **event.body}
            if template is not None:
                print_formatted(template, [whole], _fields())
            elif as_json:
                output.say(json.dumps(whole))
            else:
                at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.body["at_s"]))
                output.say(f"{at}  {_text(event)}")


def _fields() -> set[str]:
    """Names of fields that events of whatever kind have."""
    from colane.api.events import EVENTS  # noqa: PLC0415 - for a template alone

    return {name for kind in EVENTS.values() for name in kind.__annotations__}


def _chosen(
    scheduler: Client, is_wanted: Callable[[Event], bool], *, follow: bool, last: int, after: int | None, back: int
) -> Iterator[Event]:
    """Yield what was behind a number, or else the last of the newest `back`, and then what happens."""
    newest = int(scheduler.health()["events"])
    start = max(0, newest - back) if after is None else after
    before: deque[Event] = deque(maxlen=last)
    for event in scheduler.events(start, until=newest) if start < newest else ():
        if is_wanted(event) and after is None:
            before.append(event)
        elif is_wanted(event):
            yield event
        if event.number >= newest:  # an older scheduler goes on
            break
    yield from before
    if follow:
        yield from filter(is_wanted, scheduler.events(max(newest, start)))


def _text(event: Event) -> str:
    if event.kind == "job":
        change: JobEventObject = event.body
        return (
            f"job {change.get('element') or change['job']} ({change['name']}) {change['state']}: {change['sentence']}"
        )
    if event.kind == "attempt-ended":
        end: AttemptEndedEventObject = event.body
        return f"job {end['job']}: attempt {end['attempt']} on {end['node']} {end['outcome']}"
    told = ", ".join(f"{name} {_value(value)}" for name, value in event.body.items() if name != "at_s" and value != "")
    return f"{event.kind.replace('-', ' ')}: {told}"


def _value(value: Any) -> str:  # noqa: ANN401 - whatever JSON it is
    if isinstance(value, list):
        return " ".join(map(_value, value)) or "none"
    return json.dumps(value) if isinstance(value, dict) else str(value)
