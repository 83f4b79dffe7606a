"""`colane study`: policies x loads x seeds of one file, cell by cell, resumed where it was interrupted."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import FAILURE, INTERRUPTED, FailureError, MisuseError, writing
from colane.cli.output import ScreenColumn
from colane.model.words import count
from colane.settings.table import ADDRESS

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from colane.lab.studies.file import StudyPlan
    from colane.lab.studies.run import KeptCells, Results
    from colane.lab.studies.work import CellEnd, Worked


class RunsOn(StrEnum):
    """What runs several simulations."""

    LOCAL = "local"
    RAY = "ray"


Engine = Annotated[
    RunsOn,
    typer.Option("--engine", help="Where several simulations run: processes of this machine (local), or Ray's nodes."),
]
RayAddress = Annotated[
    str | None, typer.Option("--address", metavar="HOST:PORT", show_default="none", help="Where Ray's head listens.")
]


def judge_engine(engine: RunsOn, address: str | None, seeds: int | None = None) -> None:
    """Refuse what makes no sense for where runs go.

    Seeds are told of a command that makes several runs by its seeds alone. Raises MisuseError: it makes none.
    """
    if engine is RunsOn.LOCAL:
        if address is not None:
            raise MisuseError("--address: is for --engine ray")
        return
    if seeds == 1:
        raise MisuseError("--engine ray: is for several seeds (--seeds N), as one runs in one process")
    if address is None:
        raise MisuseError("--address: must be given with --engine ray: where Ray's head listens, 127.0.0.1:6379")
    try:
        ADDRESS.read(address)
    except ValueError as error:
        raise MisuseError(f"--address: {error}") from error


Parquet = Annotated[
    bool, typer.Option("--parquet", help="Write tables of jobs as Parquet, too: pip install 'colane[parquet]'.")
]


FigureInch = Annotated[
    float | None,
    typer.Option(
        "--figure-inch", metavar="INCH", min=2.0, max=12.0, show_default="as on a page",
        help="Draw figures so wide, for a paper's column (3.3) as PDF, too.",
    ),
]  # fmt: skip


def check_parquet(out: Path | None) -> None:
    """Refuse before anything runs. Raises MisuseError: what writing it needs is not there."""
    from importlib.util import find_spec  # noqa: PLC0415 - imported late

    if out is None:
        raise MisuseError("--parquet: is written beside the rest: give --out DIR")
    if find_spec("pyarrow") is None:
        raise MisuseError("--parquet: needs PyArrow: pip install 'colane[parquet]'")


def elsewhere(address: str | None) -> Executor | None:
    """Return what runs on Ray; None where runs are this machine's. Raises FailureError: no Ray can be joined there."""
    if address is None:
        return None
    from colane.engines import EngineError  # noqa: PLC0415 - imported late
    from colane.engines.ray_runs import RayExecutor  # noqa: PLC0415

    try:
        return RayExecutor(address)
    except EngineError as error:
        raise FailureError(str(error)) from error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("study", epilog="Example: [bold]colane study study.toml --out results[/bold]")(study)


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The study (docs/how-to/study.md).")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where simulations and tables are kept.")],
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, show_default="one a core", help="So many simulations at a time.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Simulate anew what was kept of other inputs than the study's.")
    ] = False,
    engine: Engine = RunsOn.LOCAL,
    address: RayAddress = None,
    parquet: Parquet = False,
    as_json: output.Json = False,
) -> None:
    """Simulate policies x loads x seeds of a study file and compare them seed by seed.

    Each simulation is kept as soon as it has ended: the same command goes on where it was interrupted.
    """
    from colane.lab.studies.file import read_plan  # noqa: PLC0415 - imported late
    from colane.lab.studies.run import look, results, simulate_missing, write_results  # noqa: PLC0415

    judge_engine(engine, address)
    if parquet:
        check_parquet(out)
    if processes is not None and address is not None:
        raise MisuseError("--processes: are this machine's: leave --engine ray away")
    try:
        plan = read_plan(file)
        found = look(plan, out)
    except ValueError as error:
        raise MisuseError(str(error)) from error
    if found.stale and not again:
        names = ", ".join(Counter(name for differing in found.stale.values() for name in differing))
        raise MisuseError(
            f"--out: {count(len(found.stale), 'simulation')} kept in {out} had other inputs ({names}); "
            "simulate them anew with --again, or name another directory"
        )
    there = elsewhere(address) if found.missing or found.stale else None
    worked = simulate_missing(plan, out, found, processes or os.cpu_count() or 1, _progress(plan, found), there)
    made = results(plan, out, found.inputs)
    with writing(f"--out: {out}"):
        written = write_results(made)
        if parquet:
            from colane.lab.report.simulated_writer import write_parquet  # noqa: PLC0415 - matplotlib comes with it

            write_parquet([path for path in written if path.suffix == ".csv"])
    _print(made, written, as_json=as_json)
    _leave(made, worked)


def _progress(plan: StudyPlan, found: KeptCells) -> Callable[[CellEnd], None]:
    """A line on standard error for each simulation that ends."""
    total, kept = len(plan.cells), len(plan.cells) - len(found.missing) - len(found.stale)
    if kept:
        output.note(f"{kept} of {count(total, 'simulation')} kept before")
    ended = [kept]

    def told(end: CellEnd) -> None:
        if end.wall_s is not None:
            ended[0] += 1
            sys.stderr.write(f"{ended[0]} of {total}: {end.key}, {end.wall_s:.1f} s\n")
            sys.stderr.flush()

    return told


def _print(made: Results, written: list[Path], *, as_json: bool) -> None:
    from colane.lab.report.simulated_compared import difference_shown, shown  # noqa: PLC0415 - imported late
    from colane.lab.studies.run import summary_object  # noqa: PLC0415

    if as_json:
        output.print_json(summary_object(made))
        return
    heads = ("Policy", "Load", "Metric", "Baseline", "Policy's", "Difference", "+-", "Seeds")
    rows = [
        (
            one.policy, f"{one.load:g}", one.metric, shown(one.metric, one.found.base_mean),
            shown(one.metric, one.found.other_mean), difference_shown(one.metric, one.found.difference_mean),
            difference_shown(one.metric, one.found.half_width), str(one.found.seeds),
        )
        for one in made.compared
    ]  # fmt: skip
    if rows:
        columns = [ScreenColumn(head, number > 2) for number, head in enumerate(heads)]
        output.print_table(columns, rows, f"{made.plan.title}: against {made.plan.baseline}")
        output.say()
    for sentence in (*made.sentences, *made.notes):
        output.say(sentence)
    for path in written:
        output.note(str(path))


def _leave(made: Results, worked: Worked) -> None:
    """End as what came of it says; that nothing can be claimed is a failure."""
    from colane.lab.studies.run import unclaimed  # noqa: PLC0415 - imported late

    if worked.problems:
        more = f" (and {len(worked.problems) - 1} more)" if len(worked.problems) > 1 else ""
        raise FailureError(f"study: {worked.problems[0]}{more}")
    if worked.was_interrupted:
        many, kept = len(made.plan.cells), len(made.cells)
        output.note(f"interrupted: {kept} of {count(many, 'simulation')} kept; the same command goes on")
        raise typer.Exit(INTERRUPTED)
    if len(made.cells) < len(made.plan.cells) or unclaimed(made.plan, made.cells):
        raise typer.Exit(FAILURE)
