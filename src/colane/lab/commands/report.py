"""`colane report`: tables and plots of finished jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError, writing
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn

if TYPE_CHECKING:
    from colane.client.client import Client
    from colane.lab.report.records import RunGroup
    from colane.lab.report.tables import Table
    from colane.lab.report.writer import Report, ReportChapter

CHANGES: Final = {
    "makespan_s": "makespan_percent",
    "run_span_mean_s": "run_span_percent",
    "jct_mean_s": "jct_percent",
    "queue_mean_s": "queue_percent",
}
"""Columns of the groups whose change from the first group is known, and the column of the comparison."""

FORESEEN_COLUMNS: Final = ("run", "method", "quotes", "holds", "score", "error", "known_holds")
SET_COLUMNS: Final = ("set", "sharing", "times", "delta", "verdict")  # what a terminal has room for; the page has more


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", epilog="Example: [bold]colane report --label run --out my-report[/bold]")(report)


def report(
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            "-l",
            metavar="NAME",
            show_default=False,
            help="Compare the jobs by the values of this label; without it by the policy that ran them.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME=VALUE", help="Only jobs with this label.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the files.")] = Path("colane-report"),
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Colane report",
    as_json: output.Json = False,
) -> None:
    """Make tables and plots of finished jobs: report.html, summary.json, jobs.csv and PNG files.

    The group whose jobs were submitted first is the baseline the others are compared with.
    """
    wanted = jobs.parse_labels(only, "--only")
    if label is not None and "=" in label:
        raise MisuseError(f"--label: is the name of a label here; did you mean --only {label}?")
    with jobs.client() as scheduler:
        made = make_report(scheduler, label, wanted, out, title)
    if as_json:
        output.say(made.summary_json.read_text(encoding="utf-8").rstrip())
        return
    print_report(made)


def make_report(
    scheduler: Client,
    label: str | None,
    wanted: Mapping[str, str],
    out: Path,
    title: str,
    chapter: ReportChapter | None = None,
) -> Report:
    """Ask the scheduler for finished jobs and write the report of them.

    Raises FailureError: there are none, one cannot be read, or the directory cannot be written.
    """
    from colane.client.knowledge import read_measurements, read_profiles  # noqa: PLC0415 - as below
    from colane.lab.report.foreseen import foreseen_table, shared_table  # noqa: PLC0415 - as below
    from colane.lab.report.writer import build  # noqa: PLC0415 - matplotlib comes with it

    items = list(scheduler.finished_jobs(labels=wanted))
    if not items:
        raise FailureError("report: no job has ended yet" + (" with these labels" if wanted else ""))
    try:
        groups = grouped(items, scheduler.nodes(), label)
        profiles = list(read_profiles(scheduler).values())
        sets = read_measurements(scheduler)
        with writing(f"--out: {out}"):
            told = [foreseen_table(scheduler.health().get("foreseen", ())), shared_table(scheduler.shared())]
            return build(groups, sets, out, title=title, profiles=profiles, chapter=chapter, told=told)
    except ValueError as error:
        raise FailureError(f"report: {error}") from error


def grouped(items: list[Any], nodes: list[Any], label: str | None) -> tuple[RunGroup, ...]:
    """Return finished jobs, as the scheduler gives them, by the values of a label; without one by their policy.

    Raises MisuseError: none has that label. Raises ValueError: one cannot be read.
    """
    from colane.lab.report import parsing, records  # noqa: PLC0415 - as above

    parsed, devices = parsing.parse_records(items), parsing.devices_of_nodes(nodes)
    if label is None:
        return records.group_by_policy(parsed, devices)
    known = sorted({name for record in parsed for name in record.labels})
    if label not in known:
        there = f"there are {', '.join(known)}" if known else "none has any"
        raise MisuseError(f"--label: no finished job has a label {label!r}; {there}")
    return records.group_by_label(parsed, label, devices)


def print_report(made: Report) -> None:
    """Print the tables of results, what they say, and where the files are."""
    tables = {table.key: table for table in made.tables}
    if "mixed" in tables:
        _print_columns(tables["mixed"], _keys(tables["mixed"]))
    _print_groups(tables["groups"], tables["comparisons"])
    if tables["measured_sets"].rows:
        _print_columns(tables["measured_sets"], SET_COLUMNS)
    for key in ("foreseen", "shared"):
        if key in tables and tables[key].rows:
            _print_columns(tables[key], FORESEEN_COLUMNS if key == "foreseen" else _keys(tables[key]))
    for sentence in (*made.sentences, *made.notes):
        output.say(sentence)
    output.say()
    output.say(f"numbers: {made.summary_json}, {made.jobs_csv}")
    output.say(f"figures: {len(made.figures)} PNG files in {made.html.parent}")
    output.say(f"report: {made.html}")


def _print_groups(groups: Table, comparisons: Table) -> None:
    """Print a line for each metric and a column for each group: there are many of the one and few of the other."""
    names, *metrics = zip(*groups.texts(), strict=True)
    changes = {row[0]: dict(zip(_keys(comparisons), row, strict=True)) for row in comparisons.texts()}
    rows = []
    for column, cells in zip(groups.columns[1:], metrics, strict=True):
        known = (changes.get(name, {}).get(CHANGES.get(column.key, "")) for name in names)
        rows.append([column.heading, *(f"{cell} ({c})" if c else cell for cell, c in zip(cells, known, strict=True))])
    output.print_table([ScreenColumn(""), *(ScreenColumn(name, is_number=True) for name in names)], rows, groups.title)
    output.say()


def _keys(table: Table) -> list[str]:
    return [column.key for column in table.columns]


def _print_columns(table: Table, keys: Sequence[str]) -> None:
    places = [_keys(table).index(key) for key in keys]
    chosen = [table.columns[place] for place in places]
    columns = [ScreenColumn(each.heading, each.is_number, may_fold=not each.is_number) for each in chosen]
    output.print_table(columns, [[row[place] for place in places] for row in table.texts()], table.title)
    output.say()
