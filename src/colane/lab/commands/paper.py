"""`colane paper`: a paper's own evaluation in simulation, each claim against ours."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError, writing
from colane.cli.output import ScreenColumn
from colane.lab.commands.study import FigureInch

if TYPE_CHECKING:
    from colane.lab.papers.claims import Claim, Evaluation, Experiment
    from colane.lab.report.simulated import Study

PAPERS: Final = {
    "A": ("Co-location of deep-learning jobs (Tabrizian 2020)", "colocation", "A/gavel_v100_throughputs.json.gz"),
    "B": ("Salus: fine-grained GPU sharing (Yu and Chowdhury, MLSys 2020)", "sharing", "B/workload_geometry.csv"),
    "C": ("Topology-aware GPU scheduling (Amaral et al., SC 2017)", "topology", "C/prof_from_experiments.json"),
    "D": ("CODA: the CPU side of training jobs (Zhao et al.)", "cpu_side", "traces/synergy-cpu/tput_matrix.csv"),
    "E": ("F-scheduling: elastic jobs by throughput functions (Seo, SNU 2020)", "elasticity", "E/calibrated_f.json"),
}  # fmt: skip
"""Title, module of `colane.lab.papers` and the first table that is read, of each that can be evaluated."""

ELSEWHERE: Final = {"D": "in github.com/msr-fiddle/synergy, simulator/models-*"}  # where those are that are not shipped
EXPLAINED: Final = ("partly", "differs")  # verdicts that are given with the reason why


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("paper", epilog="Example: [bold]colane paper A --data measured --out paper-a[/bold]")(paper)


def paper(
    letter: Annotated[str, typer.Argument(metavar="LETTER|all", help="Which paper: A, B, C, D or E, or all.")],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="COLANE_DATA",
            show_default="the tables that are shipped",
            help="Directory of measured tables.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write claims and plots here.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer jobs, machines and seeds: all papers within three minutes.")
    ] = False,
    figure_inch: FigureInch = None,
    as_json: output.Json = False,
) -> None:
    """Run a paper's own evaluation in simulation and print each claim: published, ours, verdict.

    A claim only a real GPU can decide is said to need one, or what was measured on one.
    """
    if letter != "all" and letter.upper() not in PAPERS:
        known = ", ".join(f"{key} ({title})" for key, (title, _, _) in PAPERS.items())
        raise MisuseError(f"paper: there is no evaluation of {letter!r}; known: {known}, or all")
    objects: list[dict[str, object]] = []
    for each in PAPERS if letter == "all" else (letter.upper(),):
        folder = out / each if out is not None and letter == "all" else out
        try:
            found = _evaluated(each, data, is_quick=quick)
        except MisuseError as error:
            if letter != "all":
                raise
            output.note(f"paper {each} is left out: {error}")
            continue
        if folder is not None:
            _write(found, folder, figure_inch)
        objects.append({"paper": each, "quick": quick, "claims": [claim.as_object() for claim in found.claims]})
        if not as_json:
            if letter == "all":
                output.say(f"Paper {each}: {PAPERS[each][0]}")
            _print(found.claims, folder, is_quick=quick)
    if as_json:
        output.print_json(objects if letter == "all" else objects[0])


def _evaluated(letter: str, data: Path | None, *, is_quick: bool) -> Evaluation:
    """Run one paper's evaluation; on a terminal each part is named as it begins."""
    from colane.lab.papers.claims import Effort  # noqa: PLC0415 - imported late

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            output.note(f"paper {letter}: {what}")

    folder = _tables(letter, data)
    try:
        evaluate = import_module(f"colane.lab.papers.{PAPERS[letter][1]}").evaluate
        found: Evaluation = evaluate(folder, Effort(is_quick, tell))
    except ValueError as error:
        raise MisuseError(str(error)) from error
    return found


def _tables(letter: str, named: Path | None) -> Path:
    """Return the directory of tables: the one named, else those that are shipped.

    Raises MisuseError: it does not hold what this paper's evaluation needs.
    """
    from colane.lab.traces.tables import SHIPPED  # noqa: PLC0415 - imported late

    folder = named or SHIPPED
    if (folder / PAPERS[letter][2]).is_file():
        return folder
    if named is None:
        raise MisuseError(
            f"--data: paper {letter} needs {PAPERS[letter][2]}, which is not shipped; its numbers are "
            f"{ELSEWHERE[letter]}; name a directory that holds that file"
        )
    raise MisuseError(f"--data: {folder} holds no {PAPERS[letter][2]}, which paper {letter} needs")


def _print(claims: tuple[Claim, ...], folder: Path | None, *, is_quick: bool) -> None:
    """Each claim with its verdict, and below it every number and order that it states."""
    columns = [ScreenColumn(name) for name in ("Id", "Claim", "Stated", "By", "Ours", "Verdict")]
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        rows.append((claim.id, claim.claim, "", "", "", claim.told))
        for one in claim.stated:
            by = ", ".join(filter(None, (str(one.source), one.where)))
            # A value of ours stands beside no stated one, and a limit we set ourselves is no claim of the paper.
            rows.append(("", f"  {one.what}".rstrip(), one.told, by, one.found, f"  {one.judgement}"))
    output.print_table(columns, rows)
    counts = Counter(str(claim.verdict) for claim in claims)
    output.say(f"{len(claims)} claims: {', '.join(f'{number} {verdict}' for verdict, number in counts.most_common())}")
    for claim in claims:
        if claim.note and claim.verdict in EXPLAINED:
            output.say(f"{claim.id}: {claim.note}")
    if is_quick:
        output.say("--quick: fewer jobs, machines and seeds than without; verdicts are of these.")
    if folder is not None:
        output.say(f"plots: {folder}")


def _write(found: Evaluation, out: Path, figure_inch: float | None) -> None:
    """Every stated number and order as a row with the claim's verdict and world, then figures and tables of its own."""
    from colane.lab.papers import cpu_side, plots  # noqa: PLC0415 - imported late
    from colane.lab.papers.claims import row_of_stated, table  # noqa: PLC0415
    from colane.lab.papers.sharing import SharingEvaluation  # noqa: PLC0415
    from colane.lab.papers.topology import TopologyEvaluation  # noqa: PLC0415
    from colane.lab.report import simulated_writer as writer  # noqa: PLC0415 - matplotlib comes with it
    from colane.lab.report import style  # noqa: PLC0415

    rows = [
        {"claim": claim.id, "what is claimed": claim.claim, **row_of_stated(one), "verdict": claim.told}
        | {"world": claim.world, "note": claim.note}
        for claim in found.claims
        for one in claim.stated
    ]
    with writing(f"--out: {out}"), style.as_wide_as(figure_inch):
        out.mkdir(parents=True, exist_ok=True)
        with (out / "claims.csv").open("w", newline="", encoding="utf-8") as file:
            written = csv.DictWriter(file, list(rows[0]))
            written.writeheader()
            written.writerows(rows)
        text = json.dumps({"claims": [claim.as_object() for claim in found.claims]}, indent=1, ensure_ascii=False)
        (out / "claims.json").write_text(text + "\n", encoding="utf-8")
        (out / "claims.md").write_text(table(found.claims), encoding="utf-8")
        for experiment in found.experiments:
            writer.write(_study(experiment), out / experiment.name)
        if isinstance(found, SharingEvaluation):
            plots.draw(found, out)
        if isinstance(found, TopologyEvaluation):
            for scenario in found.scenarios:
                plots.draw_ticked(scenario, out)
        if isinstance(found, cpu_side.CpuEvaluation):
            cpu_side.write_tables(found, out)


def _study(experiment: Experiment) -> Study:
    from colane.lab.commands.simulation import inputs_object  # noqa: PLC0415 - imported late
    from colane.lab.report import simulated  # noqa: PLC0415
    from colane.lab.studies.reported import simulated_run  # noqa: PLC0415

    first = experiment.loaded[experiment.runs[0][0]]
    return simulated.Study(
        title=experiment.title,
        inputs=inputs_object(first, {}),
        runs=tuple(simulated_run(run, seed, experiment.loaded[seed]) for seed, run in experiment.runs),
        jobs={seed: {job.id: job for job in one.workload.jobs} for seed, one in experiment.loaded.items()},
        notes=(experiment.note, f"World: {first.world.name}."),
    )
