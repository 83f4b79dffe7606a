"""Puts the report of a simulation together: `summary.json`, `jobs-<policy>.csv`, figures, one HTML page."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from colane.foresee.judged import judged, judged_rows
from colane.lab.report import html, plots, simulated_plots, time_plots, timeline
from colane.lab.report.foreseen import foreseen_plot, foreseen_table, write_quotes
from colane.lab.report.html import Chart
from colane.lab.report.metrics import Summary, distribution, summarise
from colane.lab.report.records import JobTime
from colane.lab.report.simulated import BeliefError, Floats, SimulatedMetrics, SimulatedRun, Study, file_word
from colane.lab.report.simulated_compared import COMPARED, difference_object, differences, interval, sentences
from colane.lab.report.simulated_plots import compared_table, differences_table, refused_table, runs_table
from colane.lab.report.tables import Table, times_table
from colane.lab.traces.workload import TraceJob
from colane.model.words import count

REFUSED_NAMED_MAX = 20  # the summary names at most this many refused jobs; `refused.csv` has them all


def write(study: Study, out_dir: Path) -> html.Written:
    """Write everything into a directory, which is made where it is missing.

    The same runs give the same bytes, but for `decision_s` and `wall_s` in `summary.json`. Raises OSError: the
    directory cannot be written.
    """
    tables, told = _tables(study), (sentences(study), notes(study))
    written = html.write(
        out_dir / "report.html",
        out_dir / "summary.json",
        _charts(study),
        lambda pictures: html.page(study.title, told[0], tables, pictures, told[1], notes_title="Notes"),
        summary_object(study),
    )
    paths = []
    for run in [run for policy in study.policies for run, _ in study.of(policy)]:
        of_seed = "" if run.seed == study.first()[run.policy].seed else f"-seed-{run.seed}"
        of_run = f"{file_word(run.policy)}{of_seed}.csv"
        paths.append(write_jobs(run, study.jobs[run.seed], out_dir / f"jobs-{of_run}"))
        if run.foretold is not None:
            write_quotes(run.foretold, out_dir / f"quotes-{of_run}")
    write_refused(study.runs, out_dir / "refused.csv")
    return written._replace(jobs_csv=tuple(paths))


def write_parquet(tables: Sequence[Path]) -> None:
    """Write each CSV as Parquet beside it, its columns of the types that their values have; an empty cell is null."""
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    for path in tables:
        parquet.write_table(arrow_csv.read_csv(path), path.with_suffix(".parquet"))


def summary_object(study: Study) -> dict[str, Any]:
    """The numbers for programs."""
    return {
        "title": study.title,
        "partial": study.is_partial,
        **study.inputs,
        "runs": [run_object(run, found) for run, found in zip(study.runs, study.metrics, strict=True)],
        "policies": [_policy_object(study, policy) for policy in study.policies],
        "differences": [difference_object(study, one) for one in differences(study)],
        "refused": list(study.runs[0].refused[:REFUSED_NAMED_MAX]) if study.runs else [],
        "sentences": list(sentences(study)),
        "notes": list(notes(study)),
    }


def run_object(run: SimulatedRun, found: SimulatedMetrics) -> dict[str, Any]:
    """One run: the metrics of the contract first, then what explains them. `decision_s` and `wall_s` are wall times."""
    spread = distribution(found.decision_s)
    decision = None if spread is None else {
        **{name: spread[name] for name in ("mean", "p50", "p99")}, "max": found.decision_max_s,
    }  # fmt: skip
    return {
        "policy": run.policy, "seed": run.seed,
        **_told(
            found, "jobs", "finished", "makespan_s", "jct_s", "queue_s", "wait_s", "run_span_s", "gpu_active_ratio",
            "gpu_utilization_ratio", "fragmentation_ratio", "slo_violations", "restarts", "slowdown_variance",
        ),
        "decisions": run.decisions, "decision_s": decision, "events": run.events, "wall_s": run.wall_s,
        **_told(found, "submitted", "refused", "unfinished", "never_started"),
        "states": dict(found.states), "gpus": len(run.gpus), "gpu_hours": found.gpu_hours,
        "offered_load": run.offered_load, **_told(found, "slowdown", "slo_jobs"),
        "belief_error": _belief_object(run.belief_error), "partial": run.is_partial, "refused_plans": len(run.flaws),
        "as_published": run.is_as_published, "guards": dict(run.guards) or None,
    } | _of_few_objects(run)  # fmt: skip


def _told(found: SimulatedMetrics, *names: str) -> dict[str, Any]:
    """These metrics as JSON has them."""
    values = {name: getattr(found, name) for name in names}
    return {name: distribution(one) if isinstance(one, Summary) else one for name, one in values.items()}


def _of_few_objects(run: SimulatedRun) -> dict[str, Any]:
    """Time waited for turns, over all jobs, and what was foreseen; only of runs in which one did, or something was."""
    foreseen = {} if run.foretold is None else {"foreseen": judged_rows(run.policy, judged(run.foretold))}
    if not run.pause_s:
        return foreseen
    pauses = distribution(summarise([run.pause_s.get(job, 0.0) for job in run.columns.id.tolist()]))
    return {"pause_s": pauses, **foreseen}


STOPPED = "Partial: the simulation was stopped"
PARTIAL = f"{STOPPED} before its end; all numbers are of what had happened so far."


def notes(study: Study) -> tuple[str, ...]:
    """What a reader must know."""
    said = list(study.notes)
    if any(run.is_partial for run in study.runs):
        said.insert(0, PARTIAL)
    elif study.is_partial:
        asked, made = study.runs_asked, len(study.runs)
        said.insert(0, f"{STOPPED}; of {asked:,} runs these {made:,} are of the seeds that every policy had finished.")
    said += _load_note(study)
    said += _form_note(study)
    for policy in study.policies:
        said += _policy_notes(study, policy)
    return tuple(dict.fromkeys(said))


def _policy_notes(study: Study, policy: str) -> Iterator[str]:
    """What is to be said of each run of a policy; what holds for all seeds only once."""
    noted = [(run, list(_run_notes(run, found))) for run, found in study.of(policy)]
    common = [note for note in noted[0][1] if all(note in notes for _, notes in noted)]
    yield from (f"{policy}: {note}" for note in common)
    for run, notes in noted:
        yield from (f"{_run_name(study, run)}: {note}" for note in notes if note not in common)


def _load_note(study: Study) -> list[str]:
    """Of each seed's jobs; all policies have the same."""
    loads = {run.seed: run.offered_load for run in study.runs if run.offered_load is not None}
    if not loads:
        return []
    values = dict.fromkeys(f"{load:.3g}" for _, load in sorted(loads.items()))
    return [f"Offered load: {', '.join(values)} GPU-seconds asked for per GPU-second there is, while jobs arrive."]


def _form_note(study: Study) -> list[str]:
    """Which policies are as their papers have them."""
    published = [policy for policy, run in study.first().items() if run.is_as_published]
    if not published:
        return []
    named, live = ", ".join(published), f"{published[-1].partition(':')[0]}:as_published=no"
    return [f"As published, without ageing, hysteresis, protection of ours: {named}; {live} simulates what runs live."]


GUARDS_SAID = {
    "ageing": "served {} out of turn, or on GPUs kept for them, as they had waited too long",
    "hysteresis": "kept {} waiting as a gain over a running one is asked for",
    "protection": "kept {} waiting as a running one had hardly begun",
}
"""What each guard did to so many jobs."""


def _run_notes(run: SimulatedRun, found: SimulatedMetrics) -> Iterator[str]:
    if found.refused:
        jobs = count(f"{found.jobs:,}", "job")
        yield f"refused before the start: {found.refused:,} of {jobs}, such as {run.refused[0]}."
    if found.unfinished and not run.is_partial:
        first = f" The first is {run.stuck}" if run.stuck else ""
        unfinished = count(f"{found.unfinished:,}", "job")
        yield f"{unfinished} never ended: nothing was left to happen that could start more.{first}"
    elsewhere, named = run.on_other_types
    if named:
        ran = f"{elsewhere:,} of {count(f'{named:,}', 'job')}"
        yield f"{ran} that may have one of several GPU types last ran on another, as none is enforced."
    failed = {state: n for state, n in found.states.items() if state in {"failed", "out-of-memory", "timed-out"}}
    if failed:
        yield "jobs that did not succeed: " + ", ".join(f"{n} {state}" for state, n in failed.items()) + "."
    if run.flaws:
        yield f"{len(run.flaws)} plans of the policy were refused as impossible, the first at {run.flaws[0]}"
    if run.foretold is not None and not run.foretold:
        yield "nothing was foreseen: no job waited."
    guards = [(said, run.guards[name]) for name, said in GUARDS_SAID.items() if run.guards.get(name)]
    if guards:
        yield f"guards {'; '.join([said.format(count(f'{jobs:,}', 'job')) for said, jobs in guards])}."
    if run.belief_error is not None:
        yield f"error of the policy's beliefs at starts: {belief_text(run.belief_error)}."


def belief_text(error: BeliefError) -> str:
    """Median and p95 of the relative errors, alone and shared."""
    parts = (("speed alone", error.alone, error.alone_unknown), ("speed-up shared", error.shared, error.shared_unknown))
    return "; ".join(_error_text(*part) for part in parts)


def _error_text(what: str, found: Summary | None, unknown: int) -> str:
    more = f" ({count(f'{unknown:,}', 'start')} without a prediction)" if unknown else ""
    if found is None:
        return f"{what}: nothing predicted{more}"
    starts = count(f"{found.jobs:,}", "start")
    return f"{what}: median {found.p50 * 100:.1f} %, p95 {found.p95 * 100:.1f} % over {starts}{more}"


def _run_name(study: Study, run: SimulatedRun) -> str:
    return run.policy if len(study.seeds) == 1 else f"{run.policy}, seed {run.seed}"


def _policy_object(study: Study, policy: str) -> dict[str, Any]:
    found = {name: interval(study, policy, name) for name in COMPARED}
    means = {
        name: None if value is None else {"mean": value.mean, "ci95": value.half_width} for name, value in found.items()
    }
    return {"policy": policy, "seeds": len(study.of(policy)), **means}


def _belief_object(error: BeliefError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    parts = (("alone", error.alone, error.alone_unknown), ("shared", error.shared, error.shared_unknown))
    return {
        name: {
            "starts": found.jobs if found else 0,
            "median": found.p50 if found else None,
            "p95": found.p95 if found else None,
            "unknown": unknown,
        }
        for name, found, unknown in parts
    }


def _tables(study: Study) -> tuple[Table, ...]:
    rows = [(_run_name(study, run), run, found) for run, found in zip(study.runs, study.metrics, strict=True)]
    tables = [runs_table([(name, found) for name, _, found in rows])]
    if _compares(study):
        tables.append(compared_table([(p, {n: interval(study, p, n) for n in COMPARED}) for p in study.policies]))
    found = differences(study)
    if found:
        tables.append(differences_table(study.policies[0], [(one.policy, one.metric, one.found) for one in found]))
    refused = study.runs[0].refused if study.runs else ()
    foreseen = [row for name, run, _ in rows if run.foretold for row in judged_rows(name, judged(run.foretold))]
    return (*tables, foreseen_table(foreseen), times_table(_times(study)), refused_table(refused))


def _times(study: Study) -> dict[str, tuple[JobTime, ...]]:
    """Of the jobs of all seeds; none where a run is too large to keep them."""
    found = {policy: [run.times for run, _ in study.of(policy)] for policy in study.policies}
    return {p: tuple(t for one in times for t in one.values()) if all(times) else () for p, times in found.items()}


def _compares(study: Study) -> bool:
    return len(study.policies) > 1 or len(study.seeds) > 1


def _charts(study: Study) -> Iterator[Chart]:
    runs = study.first()
    many = len(study.seeds)
    pooled = f" Jobs of all {many} seeds." if many > 1 else ""
    one = f" Seed {study.seeds[0]} of {many}." if many > 1 else ""
    for key, end, title, quantity, caption in (
        ("jct_cdf", "end_s", "How long jobs took", "submission to end", "Submission to end (JCT)."),
        ("queue_cdf", "first_start_s", "How long jobs waited", "waiting in the queue", "Submission to first start."),
    ):
        every = {policy: [run.columns for run, _ in study.of(policy)] for policy in runs}  # those of all seeds
        found_s = {
            policy: np.concatenate([(getattr(c, end) - c.submit_s)[c.succeeded] for c in own])
            for policy, own in every.items()
        }
        yield Chart(key, plots.cdf(found_s, title=title, quantity=quantity), caption + pooled)
    curves = {policy: run.curves for policy, run in runs.items() if run.curves.at_s.size}
    if curves:
        figure = simulated_plots.gpus_over_time(curves, max(len(run.gpus) for run in runs.values()))
        yield Chart("gpus_over_time", figure, f"GPUs with a job, and the use those jobs make of them.{one}")
        yield Chart("queue_over_time", simulated_plots.queue_over_time(curves), f"Jobs waiting.{one}")
    foretold = {one: judged_rows(one, judged(run.foretold)) for one, run in runs.items() if run.foretold}
    if foretold:
        caption = f"How many of the quotes of starts held, and how wrong their medians were, by what they said.{one}"
        yield Chart("foreseen", foreseen_plot(foretold), caption, wide=True)
    times = _times(study)
    if any(times.values()):
        yield Chart("time_spent", time_plots.time_bars(times), time_plots.CAPTION + pooled, wide=True)
    if _compares(study):
        intervals = {name: {p: interval(study, p, name) for p in study.policies} for name in COMPARED}
        figure = simulated_plots.comparison(intervals, many)
        yield Chart("comparison", figure, "Policies compared.", wide=True)
    readable = [run for run in runs.values() if simulated_plots.gantt_is_readable(run.gpus, len(run.stays))]
    if readable:
        caption = f"Which job ran when on which GPU; jobs that shared one are stacked within its band.{one}"
        panels = [_panel(run, study.jobs[run.seed]) for run in readable]
        yield Chart("gantt", timeline.timeline(panels), caption, wide=True)


def _panel(run: SimulatedRun, jobs: Mapping[int, TraceJob]) -> timeline.Panel:
    states = dict(zip(run.columns.id.tolist(), run.columns.state, strict=True))
    first_s = float(run.columns.submit_s.min()) if run.columns.submit_s.size else 0.0
    bars = (
        tuple(
            timeline.Bar(
                device=gpu, start_s=stay.start_s, end_s=stay.end_s, label=jobs[stay.job].spec.name,
                family=jobs[stay.job].spec.family, succeeded=states.get(stay.job) == "succeeded",
            )
            for gpu in stay.gpus
        )
        for stay in run.stays
    )  # fmt: skip
    return timeline.panel_of(run.policy, run.gpus, bars, first_s)


def terminal_tables(study: Study) -> Iterable[Table]:
    """The tables a terminal shows."""
    return (table for table in _tables(study) if table.rows)


def said(study: Study) -> Sequence[str]:
    """Sentences and notes for a terminal."""
    return (*sentences(study), *notes(study))


CSV_COLUMNS: tuple[Any, ...] = (
    "id", "name", "model", "batch_size", "user", "pool", "gpus_asked", "state", "submit_s", "first_start_s", "start_s",
    "end_s", "queue_s", "run_span_s", "jct_s", "alone_s", "gpu_s", "attempts", "gpus",
)  # fmt: skip


def write_jobs(run: SimulatedRun, jobs: Mapping[int, TraceJob], path: Path) -> Path:
    """Write one row a job, in order of id; `pause_s` only where a job waited for turns.

    Raises OSError: the file cannot be written.
    """
    rows: Iterable[tuple[Any, ...]] = chain([CSV_COLUMNS], _job_rows(run, jobs))
    if run.pause_s:
        rows = ((*row, "pause_s" if row is CSV_COLUMNS else run.pause_s.get(row[0], 0.0)) for row in rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


def _job_rows(run: SimulatedRun, jobs: Mapping[int, TraceJob]) -> Iterator[tuple[Any, ...]]:
    columns = run.columns
    submit_s, first_s, end_s = columns.submit_s, columns.first_start_s, columns.end_s
    times = (submit_s, first_s, columns.start_s, end_s, first_s - submit_s, end_s - first_s, end_s - submit_s)
    places = columns.id.argsort(kind="stable")
    numbers = zip(*[_cells(column[places]) for column in (*times, columns.alone_s, columns.gpu_s)], strict=True)
    ids, attempts = columns.id[places].tolist(), columns.attempts[places].tolist()
    states, gpus = columns.state, columns.gpus
    for place, job_id, cells, tries in zip(places.tolist(), ids, numbers, attempts, strict=True):
        spec = jobs[job_id].spec
        yield (
            job_id, spec.name, spec.family, spec.batch_size, spec.user, spec.pool, spec.gpus, str(states[place]),
            *cells, tries, gpus[place],
        )  # fmt: skip


def _cells(column: Floats) -> list[float] | list[float | str]:
    """A column's cells; what is not finite is empty."""
    values: list[float] = column.tolist()
    return values if isfinite(sum(values)) else [value if isfinite(value) else "" for value in values]


def write_refused(runs: Iterable[SimulatedRun], path: Path) -> None:
    """Write the jobs that were refused, or remove the file where there are none.

    Raises OSError: the file cannot be written.
    """
    lines = dict.fromkeys(chain.from_iterable(run.refused for run in runs))
    if lines:
        text = "job\n" + "".join(f'"{line.replace(chr(34), chr(34) * 2)}"\n' for line in lines)
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
