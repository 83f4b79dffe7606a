"""`colane trace`: judge a workload before a run, and write it as Colane's own CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import FAILURE, MisuseError, writing
from colane.cli.output import ScreenColumn
from colane.model.words import count

if TYPE_CHECKING:
    from colane.lab.traces.check import Finding
    from colane.lab.traces.clusters import Cluster
    from colane.lab.traces.workload import Workload

Trace = Annotated[str, typer.Argument(metavar="FILE|GENERATOR", help="A trace, or a generator such as sweep:jobs=300.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", show_default="guessed", help="Format of the trace.")
]
Tables = Annotated[
    Path | None,
    typer.Option(
        "--tables",
        metavar="DIR|FILE",
        envvar="COLANE_DATA",
        show_default="none",
        help="Measured tables, by which Pollux's jobs have lengths and generators their models.",
    ),
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(
        "--outcome", metavar="WORD", show_default="all", help="Only jobs that ended so, in the trace's words."
    ),
]
TraceColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="FIELD=COLUMN,...",
        show_default=False,
        help="Which columns of any table are what: submit, gpus, and duration or start and end, as in "
        "submit=Submit,duration=Elapsed,gpus=AllocGPUS.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of a generator.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    example = "Example: [bold]colane trace check jobs.csv --cluster philly[/bold]"
    group = typer.Typer(no_args_is_help=True, help="Judge and convert traces of jobs.", epilog=example)
    group.command("check", epilog=example)(check)
    group.command("convert", epilog="Example: [bold]colane trace convert cluster_log.csv jobs.csv[/bold]")(convert)
    app.add_typer(group, name="trace")


def check(  # noqa: PLR0913, PLR0917 - an argument for each of its options
    trace: Trace,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Also: which jobs fit, what load.")
    ] = None,
    multi_node: Annotated[
        bool, typer.Option("--multi-node", help="Let jobs larger than any node of their pool lie on several.")
    ] = False,
    trace_format: Format = None,
    columns: TraceColumns = None,
    outcome: Outcomes = None,
    tables: Tables = None,
    seed: Seed = 0,
    as_json: output.Json = False,
) -> None:
    """Judge a trace before a run, and say what it holds.

    Told: bad rows, columns not used, units, GPUs, durations, outcomes, jobs that no node can hold, offered load. Exit
    code 1 when something is wrong with the trace itself.
    """
    machines = _cluster(cluster)
    if multi_node and machines is None:
        raise MisuseError("--multi-node: which jobs are larger than a node? name the machines with --cluster")
    from colane.lab.traces.check import check_trace  # noqa: PLC0415 - imported late
    from colane.lab.traces.workload import spread_large  # noqa: PLC0415

    read_as = format_of(trace_format, columns)
    workload = _ended(_workload(trace, read_as, seed, machines, tables, skip_bad_rows=True), outcome)
    if multi_node and machines is not None:
        workload = spread_large(workload, machines.gpus_max)
    findings = check_trace(workload, machines)
    _print(workload, findings, as_json=as_json)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(FAILURE)


def convert(
    trace: Trace,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="CSV file to write.")],
    trace_format: Format = None,
    columns: TraceColumns = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out.")] = False,
    outcome: Outcomes = None,
    tables: Tables = None,
    seed: Seed = 0,
) -> None:
    """Write a trace as Colane's own CSV, every column with its unit."""
    from colane.lab.traces.readers import colane_csv  # noqa: PLC0415 - imported late

    read_as = format_of(trace_format, columns)
    workload = _ended(_workload(trace, read_as, seed, None, tables, skip_bad_rows=skip_bad_rows), outcome)
    if out.exists() and Path(trace).exists() and out.samefile(trace):
        raise MisuseError(f"{out}: is the trace itself; name another file to write")
    with writing(f"{out}:"):
        colane_csv.write(workload, out)
    for said in workload.said:
        output.note(said)
    output.say(f"{count(len(workload.jobs), 'job')} of format {workload.format} written to {out}")


def _cluster(name: str | None) -> Cluster | None:
    if name is None:
        return None
    from colane.lab.traces import clusters  # noqa: PLC0415 - imported late

    try:
        return clusters.load(name)
    except ValueError as error:
        raise MisuseError(f"--cluster: {error}") from error


def _ended(workload: Workload, outcomes: list[str] | None) -> Workload:
    from colane.lab.traces.workload import only_outcomes  # noqa: PLC0415 - imported late

    try:
        return workload if outcomes is None else only_outcomes(workload, outcomes)
    except ValueError as error:
        raise MisuseError(f"--outcome: {error}") from error


def format_of(trace_format: str | None, columns: str | None) -> str | None:
    """The format of a trace as readers take it. Raises MisuseError: both are given."""
    if columns is None:
        return trace_format
    if trace_format is not None:
        raise MisuseError("--columns: says what the columns are, as --format does; leave one of them out")
    return f"columns:{columns}"


def _workload(
    trace: str, read_as: str | None, seed: int, cluster: Cluster | None, tables: Path | None, *, skip_bad_rows: bool
) -> Workload:
    from colane.lab.simulate.generators import is_generator, make_workload  # noqa: PLC0415 - imported late
    from colane.lab.simulate.request import SAMPLE  # noqa: PLC0415
    from colane.lab.simulate.table_files import need_tables, with_known_lengths  # noqa: PLC0415
    from colane.lab.traces import read  # noqa: PLC0415

    try:
        if tables is not None:
            need_tables(tables)
        if is_generator(trace):
            return make_workload(trace, seed=seed, gpus=cluster.gpus if cluster else 1, tables=tables)
        if trace == SAMPLE:
            return read.sample()
        workload = read.read(trace, read_as, skip_bad_rows=skip_bad_rows, keep_cpu_only=True)
        return with_known_lengths(workload, tables)
    except ValueError as error:
        raise MisuseError(str(error)) from error


def _print(workload: Workload, findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        found = [{"level": str(f.level), "code": f.code, "message": f.message, "count": f.count} for f in findings]
        output.print_json({"trace": workload.name, "format": workload.format, "findings": found})
        return
    guessed = ", as its content suggests" if workload.guessed else ""
    output.say(f"{workload.name}: {count(f'{len(workload.jobs):,}', 'job')}, read as {workload.format}{guessed}")
    rows = [(str(finding.level), finding.code, finding.message) for finding in findings]
    output.print_table([ScreenColumn("Level"), ScreenColumn("Code"), ScreenColumn("Finding")], rows)
