"""`colane usage`: what each user has used."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn
from colane.model.quantities import parse_duration_s
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.records import UsageObject

SINCE: Final = "30d"
HOUR_S: Final = 3600.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("usage", epilog="Example: [bold]colane usage --since 7d[/bold]")(usage)


def usage(
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Of jobs that ended within this time.")] = SINCE,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """Say what each user has used: jobs that ended, GPU hours, and what each user has now.

    Below stand budgets (gpu_hours_per_month of --limits), of all jobs, and what is left of them in this month.

    GPU hours are those of all attempts of these jobs, and of jobs that live. GPU USED is the part of the time of their
    GPUs in which the last 300 jobs ran kernels, or on cpu devices used their cores.
    """
    try:
        since_s = time.time() - parse_duration_s(since)
    except ValueError as error:
        raise MisuseError(f"--since: {error}") from error
    with jobs.client() as scheduler:
        rows = scheduler.usage(since_s)
        budgets = [] if as_json or template is not None else jobs.budgets_of(scheduler)
    if printed(template, as_json, rows):
        return
    headings = ("USER", "GPU HOURS", "GPU USED", "ENDED", "FAILED", "RUNNING", "GPUS", "WAITING")
    columns = [ScreenColumn(heading, is_number=heading != "USER") for heading in headings]
    output.print_table(
        columns, [[one["user"], f"{one['gpu_s'] / HOUR_S:.2f}", _used(one), *map(str, _counts(one))] for one in rows]
    )
    for budget in budgets:
        used_s, gpu_s = budget["used_gpu_s"], budget["gpu_s"]
        month = time.strftime("%B", time.gmtime(budget["until_s"] - 1))
        state = "used up: no job starts" if used_s >= gpu_s else f"{(gpu_s - used_s) / HOUR_S:.1f} left"
        said = f"{used_s / HOUR_S:.1f} of {gpu_s / HOUR_S:g} GPU hours of {month} (UTC), {state}"
        output.say(f"{budget['name']}: {said}")


def _used(one: UsageObject) -> str:
    """Part of the time of their GPUs in which the user's jobs used them; an older scheduler does not tell."""
    ratio = one.get("gpu_busy_ratio")
    return output.UNKNOWN if ratio is None else percent(ratio)


def _counts(one: UsageObject) -> tuple[int, ...]:
    return one["jobs"], one["failed"], one["running"], one["gpus"], one["waiting"]
