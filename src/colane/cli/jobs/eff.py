"""`colane eff`: how much of what it asked for a job has used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import typer

from colane.cli import output
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.seeing import EfficiencyAnswer, UsedOfAskedObject

NAMES: Final = {
    "gpu": "GPU",
    "gpu-memory": "GPU memory",
    "cores": "cores",
    "host-memory": "host memory",
    "time": "time limit",
}
"""What is compared, as people call it."""

COLUMNS: Final = (
    ScreenColumn("OF"),
    ScreenColumn("USED", is_number=True),
    ScreenColumn("ASKED", is_number=True),
    ScreenColumn("PART", is_number=True),
    ScreenColumn(""),
)
BAR: Final = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("eff", epilog="Example: [bold]colane eff 7[/bold]")(eff)


def eff(job: jobs.JobArgument, as_json: output.Json = False, template: Format = None) -> None:
    """Say how much of what it asked for a job has used, live or ended, and what to ask for instead.

    Of GPUs and cores the mean since its first start, of memory the most. A job that asked for no GPU memory is
    compared with what its GPUs have. A - is not known, or was not asked for. --format prints a line for each row of
    "rows" of --json.
    """
    with jobs.client() as scheduler:
        found = scheduler.efficiency(jobs.id_of(scheduler, job))
    if printed(template, as_json, [{"id": found["id"], **row} for row in found["rows"]], found):
        return
    output.print_table(COLUMNS, [_row(row) for row in found["rows"]])
    for line in told(found):
        output.say(line)


def told(found: EfficiencyAnswer) -> Iterator[str]:
    """Yield the notes, each with the option to change."""
    if found["is_short"]:
        yield f"it has run for {output.duration(found['ran_s'])}: too short a time to say what to change"
    for note in found["notes"]:
        yield note["sentence"] + (f" ({note['flag']})" if note["flag"] else "")


def summary(found: EfficiencyAnswer) -> str:
    """Return what was used of what was asked in one line; empty where nothing is known."""
    known = ((NAMES.get(row["what"], row["what"]), row["ratio"]) for row in found["rows"])
    return ", ".join(f"{name} {percent(ratio)}" for name, ratio in known if ratio is not None)


def _row(row: UsedOfAskedObject) -> list[str]:
    ratio = row["ratio"]
    part = output.UNKNOWN if ratio is None else percent(ratio)
    return [
        NAMES.get(row["what"], row["what"]),
        _amount(row["used"], row),
        _amount(row["asked"], row),
        part,
        _bar(ratio),
    ]


def _bar(ratio: float | None) -> str:
    full = 0 if ratio is None else round(min(1.0, max(0.0, ratio)) * BAR)
    return "" if ratio is None else "#" * full + "." * (BAR - full)


def _amount(value: float | None, row: UsedOfAskedObject) -> str:
    if row["unit"] == "bytes":
        return output.size(value)
    return output.duration(value) if row["unit"] == "s" else output.number(value)
