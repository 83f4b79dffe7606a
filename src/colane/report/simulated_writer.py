"""Puts the report of a simulation together: `summary.json`, `jobs-<policy>.csv`, figures, one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from colane.model.words import count
from colane.report import html, plots, simulated_plots, style, time_plots, timeline
from colane.report.metrics import Summary, percent_change, summarise
from colane.report.prose import NEGLIGIBLE_PERCENT, TENFOLD_PERCENT, duration, percent, spoken
from colane.report.records import JobTime
from colane.report.simulated import (
    BeliefError,
    Interval,
    SimulatedMetrics,
    SimulatedRun,
    confidence,
)
from colane.report.simulated_csv import write_jobs, write_refused
from colane.report.simulated_study import Study
from colane.report.simulated_tables import compared_table, refused_table, runs_table
from colane.report.tables import Table, times_table
from colane.traces.workload import TraceJob

COMPARED: Mapping[str, str] = {
    "makespan_s": "makespan_s",
    "mean_jct_s": "jct_s",
    "p95_jct_s": "jct_s",
    "mean_queueing_s": "queue_s",
    "gpu_active_ratio": "gpu_active_ratio",
    "gpu_utilization_ratio": "gpu_utilization_ratio",
}
"""Metrics of the comparison figure, and the field each comes from."""

REFUSED_NAMED_MAX = 20
"""The summary names at most this many refused jobs; `refused.csv` has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where everything went."""

    html: Path
    summary_json: Path
    jobs_csv: tuple[Path, ...]
    figures: tuple[Path, ...]


def write(study: Study, out_dir: Path) -> Written:
    """Write everything into a directory, which is made where it is missing.

    The same runs give the same bytes, but for `decision_s` and `wall_s` in `summary.json`.

    Raises:
        OSError: The directory cannot be written.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    drawings = list(_drawings(study))
    figures = [style.save(figure, out_dir / f"{key}.png") for key, figure, _, _ in drawings]
    pictures = [
        html.Picture(key, style.inline_svg(figure, key, caption.rstrip(".")), caption, wide)
        for key, figure, caption, wide in drawings
    ]
    page = html.page(study.title, sentences(study), _tables(study), pictures, notes(study), notes_title="Notes")
    summary = json.dumps(summary_object(study), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    paths = [
        write_jobs(run, study.jobs[run.seed], out_dir / f"jobs-{policy}.csv") for policy, run in study.first().items()
    ]
    write_refused(study.runs, out_dir / "refused.csv")
    return Written(
        html=_written(out_dir / "report.html", page),
        summary_json=_written(out_dir / "summary.json", summary),
        jobs_csv=tuple(paths),
        figures=tuple(figures),
    )


def summary_object(study: Study) -> dict[str, Any]:
    """The numbers for programs."""
    return {
        "title": study.title,
        "partial": study.is_partial,
        **study.inputs,
        "runs": [run_object(run, found) for run, found in zip(study.runs, study.metrics, strict=True)],
        "policies": [_policy_object(study, policy) for policy in study.policies],
        "refused": list(study.runs[0].refused[:REFUSED_NAMED_MAX]) if study.runs else [],
        "sentences": list(sentences(study)),
        "notes": list(notes(study)),
    }


def run_object(run: SimulatedRun, found: SimulatedMetrics) -> dict[str, Any]:
    """One run: the metrics of the contract first, then what explains them. `decision_s` and `wall_s` are wall times."""
    decision = _distribution(found.decision_s)
    if decision is not None:
        decision = {"mean": decision["mean"], "p50": decision["p50"], "p99": decision["p99"]}
        decision["max"] = found.decision_max_s
    return {
        "policy": run.policy,
        "seed": run.seed,
        "jobs": found.jobs,
        "finished": found.finished,
        "makespan_s": found.makespan_s,
        "jct_s": _distribution(found.jct_s),
        "queue_s": _distribution(found.queue_s),
        "run_span_s": _distribution(found.run_span_s),
        "gpu_active_ratio": found.gpu_active_ratio,
        "gpu_utilization_ratio": found.gpu_utilization_ratio,
        "fragmentation_ratio": found.fragmentation_ratio,
        "slo_violations": found.slo_violations,
        "restarts": found.restarts,
        "slowdown_variance": found.slowdown_variance,
        "decisions": run.decisions,
        "decision_s": decision,
        "events": run.events,
        "wall_s": run.wall_s,
        "submitted": found.submitted,
        "refused": found.refused,
        "unfinished": found.unfinished,
        "never_started": found.never_started,
        "states": dict(found.states),
        "gpus": len(run.gpus),
        "gpu_hours": found.gpu_hours,
        "offered_load": run.offered_load,
        "slowdown": _distribution(found.slowdown),
        "slo_jobs": found.slo_jobs,
        "belief_error": _belief_object(run.belief_error),
        "partial": run.is_partial,
        "refused_plans": len(run.flaws),
    } | _pauses_object(run)


def _pauses_object(run: SimulatedRun) -> dict[str, Any]:
    """Time waited for turns, over all jobs; only of runs in which one did."""
    if not run.pause_s:
        return {}
    return {"pause_s": _distribution(summarise([run.pause_s.get(job, 0.0) for job in run.columns.id.tolist()]))}


def sentences(study: Study) -> tuple[str, ...]:
    """What came out: every policy against the first, or the only one by itself."""
    if not study.runs:
        return ("Nothing was simulated.",)
    base = study.policies[0]
    return (*(_against(study, base, other) for other in study.policies[1:]), _alone(study, base))


def notes(study: Study) -> tuple[str, ...]:
    """What a reader must know."""
    said = list(study.notes)
    if study.is_partial:
        said.insert(0, _partial_note(study))
    said += _load_note(study)
    for policy in study.policies:
        said += _policy_notes(study, policy)
    if len({tuple(found.finished for _, found in study.of(policy)) for policy in study.policies}) > 1:
        said.append("Policies finished different numbers of jobs, so their means are not of the same jobs.")
    return tuple(dict.fromkeys(said))


def _partial_note(study: Study) -> str:
    if any(run.is_partial for run in study.runs):
        return "Partial: the simulation was stopped before its end; all numbers are of what had happened so far."
    return (
        f"Partial: the simulation was stopped; of {study.runs_asked:,} runs these {len(study.runs):,} are of the seeds "
        "that every policy had finished."
    )


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


def _run_notes(run: SimulatedRun, found: SimulatedMetrics) -> Iterator[str]:
    if found.refused:
        jobs = count(f"{found.jobs:,}", "job")
        yield f"refused before the start: {found.refused:,} of {jobs}, such as {run.refused[0]}."
    if found.unfinished and not run.is_partial:
        first = f" The first is {run.stuck}" if run.stuck else ""
        unfinished = count(f"{found.unfinished:,}", "job")
        yield f"{unfinished} never ended: nothing was left to happen that could start more.{first}"
    failed = {state: n for state, n in found.states.items() if state in {"failed", "out-of-memory", "timed-out"}}
    if failed:
        yield "jobs that did not succeed: " + ", ".join(f"{n} {state}" for state, n in failed.items()) + "."
    if run.flaws:
        yield f"{len(run.flaws)} plans of the policy were refused as impossible, the first at {run.flaws[0]}"
    error = run.belief_error
    if error is not None:
        yield f"error of the policy's beliefs at starts: {belief_text(error)}."


def belief_text(error: BeliefError) -> str:
    """Median and p95 of the relative errors, alone and shared."""
    parts = (
        ("speed alone", error.alone, error.alone_unknown),
        ("speed-up shared", error.shared, error.shared_unknown),
    )
    return "; ".join(_error_text(*part) for part in parts)


def _error_text(what: str, found: Summary | None, unknown: int) -> str:
    more = f" ({count(f'{unknown:,}', 'start')} without a prediction)" if unknown else ""
    if found is None:
        return f"{what}: nothing predicted{more}"
    starts = count(f"{found.jobs:,}", "start")
    return f"{what}: median {found.p50 * 100:.1f} %, p95 {found.p95 * 100:.1f} % over {starts}{more}"


def _alone(study: Study, policy: str) -> str:
    runs = study.of(policy)
    run, found = runs[0]
    of = "" if len(runs) == 1 else f" (seed {run.seed} of {len(runs)})"
    said = f"{spoken(policy)} finished {found.finished:,} of {count(f'{found.jobs:,}', 'job')}"
    said += of if found.makespan_s is None else f" in {duration(found.makespan_s)}{of}"
    if found.jct_s and found.queue_s:
        said += (
            f"; a job took {duration(found.jct_s.mean)} on average, of which it waited {duration(found.queue_s.mean)}"
        )
    return said + "."


def _against(study: Study, base: str, other: str) -> str:
    means = {name: (_interval(study, base, name), _interval(study, other, name)) for name in COMPARED}
    changes = {name: percent_change(a.mean if a else None, b.mean if b else None) for name, (a, b) in means.items()}
    said = f"{spoken(other)} against {spoken(base)}: all jobs are done {_earlier(changes['makespan_s'])}"
    known = (("takes", changes["mean_jct_s"]), ("waits", changes["mean_queueing_s"]))
    does = " and ".join(f"{verb} {_less_or_more(change)}" for verb, change in known if change is not None)
    said += f"; a job {does} on average" if does else ""
    both = [found.mean for found in means["gpu_utilization_ratio"] if found is not None]
    return said + (
        f"; {100 * both[1]:.0f} % of the GPUs' worth is used instead of {100 * both[0]:.0f} %."
        if len(both) == 2
        else "."
    )


def _earlier(change: float | None) -> str:
    if change is None or abs(change) < NEGLIGIBLE_PERCENT:
        return "in the same time"
    return f"in {_less_or_more(change)} time"


def _less_or_more(change: float) -> str:
    if abs(change) < NEGLIGIBLE_PERCENT:
        return "as long"
    return percent(change) if change >= TENFOLD_PERCENT else f"{abs(change):.0f} % {'less' if change < 0 else 'more'}"


def _run_name(study: Study, run: SimulatedRun) -> str:
    return run.policy if len(study.seeds) == 1 else f"{run.policy}, seed {run.seed}"


def _policy_object(study: Study, policy: str) -> dict[str, Any]:
    found = {name: _interval(study, policy, name) for name in COMPARED}
    means = {
        name: None if value is None else {"mean": value.mean, "ci95": value.half_width} for name, value in found.items()
    }
    return {"policy": policy, "seeds": len(study.of(policy)), **means}


def _interval(study: Study, policy: str, name: str) -> Interval | None:
    return confidence([_metric(found, name) for _, found in study.of(policy)])


def _metric(found: SimulatedMetrics, name: str) -> float | None:
    value = getattr(found, COMPARED[name])
    if isinstance(value, Summary):
        return value.p95 if name.startswith("p95") else value.mean
    return None if value is None else float(value)


def _distribution(summary: Summary | None) -> dict[str, float | None] | None:
    if summary is None:
        return None
    return {"mean": summary.mean, "p50": summary.p50, "p95": summary.p95, "p99": summary.p99}


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
    tables = [runs_table(rows)]
    if _compares(study):
        tables.append(compared_table([(p, {n: _interval(study, p, n) for n in COMPARED}) for p in study.policies]))
    refused = study.runs[0].refused if study.runs else ()
    return (*tables, times_table(_times(study)), refused_table(refused))


def _times(study: Study) -> dict[str, tuple[JobTime, ...]]:
    """Of the run of each policy that is drawn."""
    return {policy: tuple(run.times.values()) for policy, run in study.first().items()}


def _compares(study: Study) -> bool:
    return len(study.policies) > 1 or len(study.seeds) > 1


def _drawings(study: Study) -> Iterator[tuple[str, Figure, str, bool]]:
    runs = study.first()
    done = {policy: run.columns.succeeded for policy, run in runs.items()}
    jct_s = {p: (r.columns.end_s - r.columns.submit_s)[done[p]] for p, r in runs.items()}
    yield (
        "jct_cdf",
        plots.cdf(jct_s, title="How long jobs took", quantity="submission to end"),
        "Submission to end (JCT).",
        False,
    )
    queue_s = {p: (r.columns.first_start_s - r.columns.submit_s)[done[p]] for p, r in runs.items()}
    figure = plots.cdf(queue_s, title="How long jobs waited", quantity="waiting in the queue")
    yield "queue_cdf", figure, "Submission to first start.", False
    curves = {policy: run.curves for policy, run in runs.items() if run.curves.at_s.size}
    if curves:
        gpus = max(len(run.gpus) for run in runs.values())
        figure = simulated_plots.gpus_over_time(curves, gpus)
        yield "gpus_over_time", figure, "GPUs with a job, and the use those jobs make of them.", False
        yield "queue_over_time", simulated_plots.queue_over_time(curves), "Jobs waiting.", False
    times = _times(study)
    if any(times.values()):
        yield "time_spent", time_plots.time_bars(times), time_plots.CAPTION, True
    if _compares(study):
        intervals = {name: {p: _interval(study, p, name) for p in study.policies} for name in COMPARED}
        figure = simulated_plots.comparison(intervals, len(study.seeds))
        yield "comparison", figure, "Policies compared.", True
    yield from _gantt(study)


def _gantt(study: Study) -> Iterator[tuple[str, Figure, str, bool]]:
    runs = [run for run in study.first().values() if simulated_plots.gantt_is_readable(run.gpus, len(run.stays))]
    if runs:
        panels = [_panel(run, study.jobs[run.seed]) for run in runs]
        caption = "Which job ran when on which GPU; jobs that shared one are stacked within its band."
        yield "gantt", timeline.timeline(panels), caption, True


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


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def terminal_tables(study: Study) -> Iterable[Table]:
    """The tables a terminal shows."""
    return (table for table in _tables(study) if table.rows)


def said(study: Study) -> Sequence[str]:
    """Sentences and notes for a terminal."""
    return (*sentences(study), *notes(study))
