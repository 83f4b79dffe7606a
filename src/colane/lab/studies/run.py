"""A study from its file to its results: what was kept is kept, what is missing is simulated, all of it is measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.lab.report.prose import LACKED, lacks_what, spoken
from colane.lab.report.simulated import CURVES
from colane.lab.report.simulated_compared import (
    SEEDS_MIN,
    EndCounts,
    Paired,
    difference_shown,
    nothing_claimed,
    of_other_jobs,
    paired,
)
from colane.lab.report.windowed import METRICS, Value, finish_time_rho, measure_window
from colane.lab.simulate import request
from colane.lab.studies.cells import CellResult, changed, decisions_of, inputs_kept, inputs_of, read_cell, whole
from colane.lab.studies.file import CellKey, Extra, StudyError, StudyPlan
from colane.lab.studies.work import CellEnd, Worked, tasks_of, work
from colane.model.words import count

Cells = Mapping[CellKey, Mapping[str, Value]]  # metrics by simulation
LEVEL_OF_CHANCE: Final = 20  # of so many comparisons at 95 % where there is no difference, one comes out as one


class Compared(NamedTuple):
    """One metric of a policy at a load against the baseline's."""

    policy: str
    load: float
    metric: str
    found: Paired


def compare(plan: StudyPlan, cells: Cells) -> list[Compared]:
    """Compare all policies with the baseline, seed by seed; what no seed has of both is left out."""
    made, silent = [], unclaimed(plan, cells)
    for load in plan.loads:
        for policy in plan.policies:
            if policy == plan.baseline or (policy, load) in silent:
                continue
            for metric in plan.metrics:
                base, other = (
                    {key.seed: cells[key][metric] for seed in plan.seeds if (key := CellKey(of, load, seed)) in cells}
                    for of in (plan.baseline, policy)
                )
                found = paired(base, other)
                made += [] if found is None else [Compared(policy, load, metric, found)]
    return made


def unclaimed(plan: StudyPlan, cells: Cells) -> dict[tuple[str, float], str]:
    """Why nothing is claimed, by policy and load at which it did not finish the same jobs as the baseline."""

    def ends(policy: str, load: float) -> dict[int, EndCounts]:
        found = {seed: cells.get(CellKey(policy, load, seed)) for seed in plan.seeds}
        return {
            seed: EndCounts(*(int(one[name] or 0) for name in EndCounts._fields))
            for seed, one in found.items()
            if one is not None
        }

    said = {}
    for policy, load in product(plan.policies, plan.loads):
        if policy != plan.baseline and (uneven := of_other_jobs(ends(plan.baseline, load), ends(policy, load))):
            where = f" at load {load:g}" if len(plan.loads) > 1 else ""
            said[policy, load] = nothing_claimed(plan.baseline, policy, uneven, where)
    return said


def lacking(plan: StudyPlan, cells: Cells) -> Iterator[str]:
    """Policies that did not know what they are defined by: what they gain is not theirs, and that is said first."""
    for policy in plan.policies:
        mine = [found for key, found in cells.items() if key.policy == policy]
        lacks = {name: sum(int(found[f"no_{name}"] or 0) for found in mine) for name in LACKED}
        jobs = sum(int(found["workload_jobs"] or 0) for found in mine)
        yield from lacks_what(policy, lacks, jobs, '{option} = "{value}"')


def sentences(plan: StudyPlan, compared: Sequence[Compared]) -> tuple[str, ...]:
    """One for each significant difference."""
    return tuple(_sentence(plan, one) for one in compared if one.found.is_significant)


def _sentence(plan: StudyPlan, one: Compared) -> str:
    found = one.found
    where = f"at load {one.load:g}, " if len(plan.loads) > 1 else ""
    less = "lower" if found.difference_mean < 0 else "higher"
    size, width = (difference_shown(one.metric, value) for value in (abs(found.difference_mean), found.half_width))
    change = "" if found.change_percent is None else f", {abs(found.change_percent):.3g} %"
    said = f"{spoken(one.policy)} against {spoken(plan.baseline)}: {where}{METRICS[one.metric]} is {size} {less}"
    return f"{said} (+- {width}{change}; {count(found.seeds, 'seed')})."


def notes(plan: StudyPlan, cells: Cells, compared: Sequence[Compared]) -> Iterator[str]:
    """What a reader must know of the comparisons."""
    missing = [key for key in plan.cells if key not in cells]
    if missing:
        yield f"Not simulated yet: {len(missing)} of {count(len(plan.cells), 'cell')}, the first is {missing[0]}."
    if len(plan.policies) > 1 and len(plan.seeds) < SEEDS_MIN:
        here = "is 1" if len(plan.seeds) == 1 else f"are {len(plan.seeds)}"
        yield f"No interval is given and nothing is claimed: that takes {SEEDS_MIN} seeds, here {here}."
    judged = [one for one in compared if one.found.half_width is not None]
    if judged:
        significant = sum(one.found.is_significant for one in judged)
        chance = len(judged) / LEVEL_OF_CHANCE
        yield (
            f"{significant} of {count(len(judged), 'difference')} significant at 95 % each (Student's t, paired by "
            f"seed); were there none, about {chance:.2g} would come out by chance."
        )
    if any(cells[key]["unfinished"] for key in cells):
        yield "Some jobs never ended in some simulations (unfinished in cells.csv): means are of those that did."


def as_object(one: Compared, plan: StudyPlan) -> dict[str, Any]:
    """For programs and tables."""
    found = one.found
    return {
        "policy": one.policy, "baseline": plan.baseline, "load": one.load, "metric": one.metric, "seeds": found.seeds,
        "baseline_mean": found.base_mean, "policy_mean": found.other_mean, "difference_mean": found.difference_mean,
        "difference_ci95": found.half_width, **found.judged,
    }  # fmt: skip


KEY: Final = ("policy", "load", "seed")

JOB_COLUMNS: Final = (
    "job", "place", "name", "gpus", "state", "submit_s", "first_start_s", "start_s", "end_s", "queue_s", "run_span_s",
    "jct_s", "alone_s", "gpu_s", "attempts", "rho_ratio",
)  # fmt: skip
STAY_COLUMNS: Final = ("job", "gpus", "start_s", "end_s")


class TidyTable(NamedTuple):
    """Names of columns, and rows, which are made as they are asked for; what is not known is None or NaN."""

    columns: tuple[str, ...]
    rows: Iterable[Sequence[Any]]


def cells_table(cells: Mapping[CellKey, Mapping[str, Value]]) -> TidyTable:
    """One row for each simulation."""
    names = tuple(next(iter(cells.values()), {}))
    return TidyTable((*KEY, *names), ((*key, *found.values()) for key, found in cells.items()))


def comparisons_table(rows: Sequence[Mapping[str, Any]]) -> TidyTable:
    """One row for each metric of each policy against the baseline."""
    return TidyTable(tuple(rows[0]) if rows else (), (tuple(row.values()) for row in rows))


def extra_table(extra: Extra, results: Iterable[CellResult]) -> TidyTable:
    """One row for each job, each stay of a job on GPUs, each moment of the timeline, or each horizon of quotes.

    Raises KeyError: it is no table.
    """
    columns, rows_of = TABLES[extra]
    return TidyTable((*KEY, *columns), ((*found.key, *row) for found in results for row in rows_of(found)))


def _jobs(found: CellResult) -> Iterator[tuple[Any, ...]]:
    m = found.measured
    rho = finish_time_rho(m)
    yield from zip(
        found.ids.tolist(), m.place.tolist(), found.names, m.gpus.tolist(), map(str, found.states),
        *(column.tolist() for column in (
            m.submit_s, m.first_start_s, found.start_s, m.end_s, m.first_start_s - m.submit_s,
            m.end_s - m.first_start_s, m.end_s - m.submit_s, m.alone_s, m.gpu_s, m.attempts, rho,
        )), strict=True,
    )  # fmt: skip


def _foreseen(found: CellResult) -> Iterator[tuple[Any, ...]]:
    for row in found.foreseen:
        score = row["score"], row["p90_over_p10"]
        yield row["method"], "all", row["quotes"], row["holds"], row["median_error"], *score
        for part in (*row["horizons"], row["known"]):
            yield row["method"], part["said"], part["quotes"], part["holds"], part["error"], None, None


TABLES: Final[Mapping[Extra, tuple[tuple[str, ...], Callable[[CellResult], Iterator[tuple[Any, ...]]]]]] = {
    Extra.JOBS: (JOB_COLUMNS, _jobs),
    Extra.STAYS: (STAY_COLUMNS, lambda found: iter(found.stays)),
    Extra.TIMELINE: (
        CURVES,
        lambda found: zip(*[getattr(found.measured.curves, name).tolist() for name in CURVES], strict=True),
    ),
    Extra.FORESEEN: (("method", "said", "quotes", "holds", "error", "score", "p90_over_p10"), _foreseen),
}
"""Tables that a study may ask for: columns besides the key, and the rows of a simulation."""


def write_table(path: Path, table: TidyTable) -> Path:
    """Write a table as CSV. Raises OSError: the file cannot be written."""
    with whole(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows([_cell(value) for value in row] for row in table.rows)
    return path


def _cell(value: object) -> object:
    """What is not known is empty; a float is written so that it is read back as the same."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCells:
    """A directory of kept simulations, held against a study."""

    inputs: Mapping[CellKey, Mapping[str, Any]]  # what each simulation of the study is a function of
    missing: tuple[CellKey, ...]  # simulations that are not kept
    stale: Mapping[CellKey, tuple[str, ...]]  # those that are kept of other inputs, with the names of what differs


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a study found so far."""

    plan: StudyPlan  # the study
    out: Path  # its directory
    cells: Mapping[CellKey, Mapping[str, Value]]  # metrics by simulation, in order of policy, load and seed
    compared: tuple[Compared, ...]  # every policy against the baseline

    @property
    def sentences(self) -> tuple[str, ...]:
        """What nothing is claimed of, policies that lacked what defines them, then each significant difference."""
        silent = unclaimed(self.plan, self.cells).values()
        return (*silent, *lacking(self.plan, self.cells), *sentences(self.plan, self.compared))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return tuple(notes(self.plan, self.cells, self.compared))


def look(plan: StudyPlan, out: Path) -> KeptCells:
    """Hold what is kept against the study, after judging that what the study names can be read.

    Raises ValueError: something that the study names is not there or not right.
    """
    jobs = len(request.load(plan.request_of(plan.loads[0]), plan.seeds[0]).workload.jobs)
    if plan.window is not None and plan.window[1] > jobs:
        first, behind = plan.window
        raise StudyError(
            f"{plan.path}: jobs: [{first}, {behind}] ends behind the trace, which has {count(f'{jobs:,}', 'job')}"
        )
    needs_decisions = Extra.DECISIONS in plan.extras
    try:
        inputs = inputs_of(plan)
    except OSError as error:
        raise StudyError(f"{plan.path}: {error.filename}: cannot be read: {error.strerror}") from error
    kept = {
        # Anew also where its decisions are asked for, and were not when it was simulated.
        key: None if needs_decisions and not decisions_of(out, key).exists() else inputs_kept(out, key)
        for key in plan.cells
    }
    differing = {key: tuple(changed(was, inputs[key])) for key, was in kept.items() if was is not None}
    return KeptCells(
        inputs=inputs,
        missing=tuple(key for key, was in kept.items() if was is None),
        stale={key: names for key, names in differing.items() if names},
    )


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
        **{f"no_{name}": cell.lacks.get(name, 0) for name in LACKED},
    }


def write_results(found: Results) -> list[Path]:
    """Write the tables that the study asks for, and the sentences for programs.

    Raises OSError: one cannot be written.
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
            one_at_a_time = (read_cell(found.out, key) for key in found.cells)  # each may have a million jobs
            yield str(extra), extra_table(extra, one_at_a_time)


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
