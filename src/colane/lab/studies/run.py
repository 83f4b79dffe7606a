"""A study from its file to its results: what was kept is kept, what is missing is simulated, all of it is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colane.lab.report.windowed import Value, measure_window
from colane.lab.simulate.request import load
from colane.lab.studies.cells import CellResult, decisions_of, inputs_kept, read_cell, whole
from colane.lab.studies.compare import Compared, as_object, compare, lacking, notes, sentences
from colane.lab.studies.file import CellKey, Extra, StudyError, StudyPlan
from colane.lab.studies.inputs import changed, inputs_of
from colane.lab.studies.tables import TABLES, TidyTable, cells_table, comparisons_table, extra_table, write_table
from colane.lab.studies.work import CellEnd, Worked, tasks_of, work
from colane.model.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCells:
    """A directory of kept simulations, held against a study.

    Attributes:
        inputs: What each simulation of the study is a function of.
        missing: Simulations that are not kept.
        stale: Those that are kept of other inputs, with the names of what differs.
    """

    inputs: Mapping[CellKey, Mapping[str, Any]]
    missing: tuple[CellKey, ...]
    stale: Mapping[CellKey, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a study found so far.

    Attributes:
        plan: The study.
        out: Its directory.
        cells: Metrics by simulation, in order of policy, load and seed.
        compared: Every policy against the baseline.
    """

    plan: StudyPlan
    out: Path
    cells: Mapping[CellKey, Mapping[str, Value]]
    compared: tuple[Compared, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """One for each policy that lacked what defines it, then one for each significant difference."""
        return (*lacking(self.plan, self.cells), *sentences(self.plan, self.compared))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return tuple(notes(self.plan, self.cells, self.compared))


def look(plan: StudyPlan, out: Path) -> KeptCells:
    """Hold what is kept against the study, after judging that what the study names can be read.

    Raises:
        ValueError: Something that the study names is not there or not right.
    """
    jobs = len(load(plan.request_of(plan.loads[0]), plan.seeds[0]).workload.jobs)
    if plan.window is not None and plan.window[1] > jobs:
        first, behind = plan.window
        raise StudyError(
            f"{plan.path}: jobs: [{first}, {behind}] ends behind the trace, which has {count(f'{jobs:,}', 'job')}"
        )
    try:
        inputs = inputs_of(plan)
    except OSError as error:
        raise StudyError(f"{plan.path}: {error.filename}: cannot be read: {error.strerror}") from error
    kept = {key: _inputs_kept(plan, out, key) for key in plan.cells}
    differing = {key: tuple(changed(was, inputs[key])) for key, was in kept.items() if was is not None}
    return KeptCells(
        inputs=inputs,
        missing=tuple(key for key, was in kept.items() if was is None),
        stale={key: names for key, names in differing.items() if names},
    )


def _inputs_kept(plan: StudyPlan, out: Path, key: CellKey) -> dict[str, Any] | None:
    """None also where its decisions are asked for, and were not when it was simulated."""
    lacks = Extra.DECISIONS in plan.extras and not decisions_of(out, key).exists()
    return None if lacks else inputs_kept(out, key)


def simulate_missing(
    plan: StudyPlan,
    out: Path,
    found: KeptCells,
    processes: int,
    on_end: Callable[[CellEnd], None] = lambda _: None,
    executor: Executor | None = None,
) -> Worked:
    """Simulate what is missing, and anew what was kept of other inputs; see `work`."""
    todo = [key for key in plan.cells if key in found.missing or key in found.stale]
    if not todo:
        return Worked(problems=(), was_interrupted=False)
    return work(tasks_of(plan, todo, found.inputs, out), processes, on_end, executor)


def results(plan: StudyPlan, out: Path, inputs: Mapping[CellKey, Mapping[str, Any]]) -> Results:
    """Measure what is kept of a study's inputs."""
    order = [CellKey(p, x, s) for p in plan.policies for x in plan.loads for s in plan.seeds]
    cells = {key: _measured(plan, read_cell(out, key)) for key in order if inputs_kept(out, key) == inputs[key]}
    return Results(plan=plan, out=out, cells=cells, compared=tuple(compare(plan, cells)))


def _measured(plan: StudyPlan, cell: CellResult) -> dict[str, Value]:
    found = measure_window(cell.measured, plan.window)
    return {
        "offered_load_ratio": cell.offered_load,
        "jobs": found.pop("jobs"),
        "refused": len(cell.refused),
        **found,
        "refused_plans": cell.flaws,
        "workload_jobs": cell.jobs,
        "lengthless": cell.lengthless,
    }


def write_results(found: Results) -> list[Path]:
    """Write the tables that the study asks for, and the sentences for programs.

    Raises:
        OSError: One cannot be written.
    """
    plan, out = found.plan, found.out
    paths = [write_table(out / f"{name}.csv", table) for name, table in tables(found)]
    for name in ("comparisons", *TABLES):
        if (old := out / f"{name}.csv") not in paths:
            old.unlink(missing_ok=True)  # of what the study asked for before
    if Extra.FIGURES in plan.extras:
        from colane.lab.studies.figures import write_figures  # noqa: PLC0415 - matplotlib takes half a second to import

        paths += write_figures(plan, out, found.cells)
    with whole(out / "summary.json") as draft:
        draft.write_text(json.dumps(summary_object(found), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return [*paths, out / "summary.json"]


def tables(found: Results) -> Iterator[tuple[str, TidyTable]]:
    """The tables that the study asks for, each with its name."""
    yield "cells", cells_table(found.cells)
    rows = [as_object(one, found.plan) for one in found.compared]
    if rows:
        yield "comparisons", comparisons_table(rows)
    for extra in found.plan.extras:
        if extra in TABLES:
            yield str(extra), extra_table(extra, _each(found))


def _each(found: Results) -> Iterator[CellResult]:
    """One at a time: each may have a million jobs."""
    return (read_cell(found.out, key) for key in found.cells)


def summary_object(found: Results) -> dict[str, Any]:
    """The study for programs."""
    plan = found.plan
    return {
        "title": plan.title,
        "baseline": plan.baseline,
        "policies": list(plan.policies),
        "loads": list(plan.loads),
        "seeds": list(plan.seeds),
        "jobs": None if plan.window is None else list(plan.window),
        "cells": [{**key._asdict(), **values} for key, values in found.cells.items()],
        "cells_asked": len(plan.cells),
        "comparisons": [as_object(one, plan) for one in found.compared],
        "sentences": list(found.sentences),
        "notes": list(found.notes),
    }
