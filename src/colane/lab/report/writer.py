"""Puts a report together and writes its files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from matplotlib.figure import Figure

from colane.lab.report import html, plots, profile_plots, time_plots, timeline
from colane.lab.report import metrics as figures_of
from colane.lab.report.html import Chart
from colane.lab.report.measured import (
    Boundary,
    MeasuredSet,
    mps_gains,
    plain_family,
    set_points,
    summarise_sets,
    throughput_by_batch,
    verdict,
)
from colane.lab.report.metrics import GroupMetrics, StepTimes, Summary, distribution
from colane.lab.report.prose import failed_jobs, load_by_others, not_measured, sentences
from colane.lab.report.records import RunGroup, RunRecord, without
from colane.lab.report.tables import (
    Cell,
    Table,
    comparison_table,
    groups_table,
    jobs_table,
    sets_table,
    steps_table,
    times_table,
)
from colane.model.profile import Profile, SetMeasurement

TRADE_OFF_GROUPS_MIN = 3  # of two groups the table and the bars say as much
IN_RUNS = frozenset({"groups", "jobs"})
"""Tables that the summary for programs has in another form, or leaves to jobs.csv."""

ROWS_MIN = 2  # of one row a table says as much as a figure
DISTRIBUTION_JOBS_MIN = 2
PLANE_SETS_MIN = 4  # fewer sets show no boundary between those sharing pays for and others


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written, and what a terminal shows of it."""

    summary: str  # the one sentence that says what came out
    sentences: tuple[str, ...]  # it and the further ones
    tables: tuple[Table, ...]  # all tables, those of results first
    notes: tuple[str, ...]  # what was not measured
    metrics: tuple[GroupMetrics, ...]  # of each group, in order
    html: Path  # the page
    summary_json: Path  # the numbers for programs
    jobs_csv: Path  # one line per job
    figures: tuple[Path, ...]  # PNG files


@dataclass(frozen=True, slots=True)
class ReportChapter:
    """What the caller of a report has seen of the runs itself."""

    said: tuple[str, ...]  # sentences that follow the summary
    table: Table  # of results
    timeline: Figure  # shown instead of that made of the jobs' records
    caption: str  # of the timeline


@dataclass(frozen=True, slots=True)
class _Content:
    """Everything that is computed once and shown in several places."""

    groups: tuple[RunGroup, ...]
    metrics: tuple[GroupMetrics, ...]
    sets: tuple[MeasuredSet, ...]
    steps: tuple[StepTimes, ...]


def build(
    groups: Sequence[RunGroup],
    measurements: Sequence[SetMeasurement],
    out_dir: Path,
    *,
    title: str,
    profiles: Sequence[Profile] = (),
    boundary: Boundary | None = None,
    chapter: ReportChapter | None = None,
    told: Sequence[Table] = (),
) -> Report:
    """Write `report.html`, `summary.json`, `jobs.csv` and the figures as PNG into a directory.

    The first group is the baseline the others are compared with. With profiles, throughput is drawn against batch size,
    and measured sets against their sums of C and M, with the boundary that was fitted. Files of an older report are
    written over. Raises ValueError: two groups have one name. Raises OSError: the directory cannot be written.
    """
    twice = [name for name, count in Counter(group.name for group in groups).items() if count > 1]
    if twice:
        raise ValueError(f"groups must have different names, got '{twice[0]}' twice")
    alone_s = figures_of.run_spans_alone(groups)
    metrics = tuple(figures_of.measure(group, alone_s) for group in groups)
    content = _Content(tuple(groups), metrics, summarise_sets(measurements), figures_of.step_times(groups))
    said = sentences(content.groups, content.metrics) + load_by_others(content.groups)
    said += (verdict(content.sets),) if content.sets else ()
    said += chapter.said if chapter else ()
    notes = failed_jobs(content.groups) + not_measured(content.groups, content.metrics)
    notes += () if content.sets else (verdict(()),)
    tables = (
        *((chapter.table,) if chapter else ()),
        groups_table(content.metrics),
        comparison_table(content.metrics),
        times_table({group.name: group.times for group in content.groups}),
        sets_table(content.sets),
        steps_table(content.steps),
        *told,
        jobs_table(content.groups),
    )
    written = html.write(
        out_dir / "report.html",
        out_dir / "summary.json",
        _charts(content, profiles, boundary, chapter),
        lambda pictures: html.page(title, said, tables, pictures, notes),
        summary_object(title, said, content.metrics, [t for t in tables if t.key not in IN_RUNS], notes),
    )
    return Report(
        summary=said[0],
        sentences=said,
        tables=tables,
        notes=notes,
        metrics=content.metrics,
        html=written.html,
        summary_json=written.summary_json,
        jobs_csv=_write_csv(out_dir / "jobs.csv", tables[-1]),
        figures=written.figures,
    )


def _charts(
    content: _Content, profiles: Sequence[Profile], boundary: Boundary | None, chapter: ReportChapter | None
) -> Iterator[Chart]:
    caption = "Which job ran when on which device; jobs that shared a device are stacked within its band."
    if chapter is None:
        yield Chart("timeline", timeline.timeline([_panel(group) for group in content.groups]), caption, wide=True)
    else:
        yield Chart("timeline", chapter.timeline, chapter.caption, wide=True)
    yield from _run_charts(content)
    if sum(found.slowdown is not None for found in content.steps) >= ROWS_MIN:
        yield Chart("step_times", plots.step_time_pairs(content.steps), "Step time alone and together.")
    yield from _set_charts(content.sets)
    yield from _profile_charts(content.sets, profiles, boundary)


def _run_charts(content: _Content) -> Iterator[Chart]:
    times = {g.name: g.times for g in content.groups if g.times}
    if times:
        yield Chart("time_spent", time_plots.time_bars(times), time_plots.CAPTION, wide=True)
    makespans_s = {m.name: m.makespan_s for m in content.metrics}
    if len(makespans_s) > 1:
        caption = "First submission to last end of the batch (makespan)."
        yield Chart("makespan", plots.makespan_bars(makespans_s), caption)
    points = {
        m.name: None if m.run_span_s is None or m.makespan_s is None else (m.run_span_s.mean, m.makespan_s)
        for m in content.metrics
    }
    if sum(point is not None for point in points.values()) >= TRADE_OFF_GROUPS_MIN:
        caption = "How long a job ran on average (run span) against how long its batch took (makespan)."
        yield Chart("trade_off", plots.trade_off(points), caption)
    caption = "How long the queue was, and how many jobs ran at once; parked and suspended ones count in neither."
    yield Chart("jobs_over_time", plots.jobs_over_time({g.name: _lives(g.records) for g in content.groups}), caption)
    if time_plots.is_known(content.groups):
        yield Chart("use_over_time", time_plots.use_over_time(content.groups), time_plots.USE_CAPTION, wide=True)
        if time_plots.has_several(content.groups):
            yield Chart("use_by_device", time_plots.use_by_device(content.groups), time_plots.USE_CAPTION, wide=True)
    yield from _distributions(content)


def _distributions(content: _Content) -> Iterator[Chart]:
    """How times are spread over jobs, where a group has more than one job: of one, the table says it."""
    done = {group.name: [record for record in group.records if record.succeeded] for group in content.groups}
    spans_s = {name: [r.run_span_s for r in records if r.run_span_s is not None] for name, records in done.items()}
    if max(map(len, spans_s.values()), default=0) < DISTRIBUTION_JOBS_MIN:
        return
    figure = plots.cdf(spans_s, title="How long jobs ran", quantity="start to end")
    caption = "First start to end of a job (run span; paper A: JCT); number of jobs in brackets."
    yield Chart("run_span_cdf", figure, caption)
    queues_s = {name: [r.queue_s for r in records if r.queue_s is not None] for name, records in done.items()}
    figure = plots.cdf(queues_s, title="How long jobs waited", quantity="waiting in the queue")
    yield Chart("queue_cdf", figure, "Submission to first start of a job; number of jobs in brackets.")


def _set_charts(sets: Sequence[MeasuredSet]) -> Iterator[Chart]:
    if len(sets) >= ROWS_MIN:
        deltas: dict[str, dict[str, float]] = {}
        for measured in sets:
            deltas.setdefault(measured.sharing, {})[measured.name] = measured.delta
        figure = profile_plots.speedup_bars(deltas, title="Speed-up of sets measured together")
        yield Chart("speedup_sets", figure, "Sum of step times alone / longest step time together.")
    gains = [gain for _, gain in mps_gains(sets)]
    if gains:
        figure = profile_plots.mps_gain_histogram(gains)
        yield Chart("mps_gain", figure, "Change of the speed-up by MPS, over sets measured both ways.")


def _profile_charts(
    sets: Sequence[MeasuredSet], profiles: Sequence[Profile], boundary: Boundary | None
) -> Iterator[Chart]:
    points = set_points(sets, profiles)
    for sharing in sorted({point.sharing for point in points}):
        chosen = [point for point in points if point.sharing == sharing]
        if len(chosen) < PLANE_SETS_MIN and boundary is None:
            continue
        figure = profile_plots.speedup_plane(
            chosen, boundary=boundary, title=f"Which sets sharing pays for ({sharing})"
        )
        slug = re.sub(r"[^\w-]", "_", sharing, flags=re.ASCII)  # it becomes a file name
        yield Chart(f"speedup_plane_{slug}", figure, "Each dot is a measured set.")
    throughputs = throughput_by_batch(profiles)
    if any(len(found) > 1 for found in throughputs.values()):
        figure = profile_plots.throughput(throughputs)
        yield Chart("throughput", figure, "Throughput of each family alone, by batch size.")


def _lives(records: Sequence[RunRecord]) -> list[plots.Life]:
    """When the jobs that ran waited and ran; clocks that differ do not turn time round."""
    starts = [(r, max(r.first_start_s, r.submit_s)) for r in records if r.first_start_s is not None]
    return [
        plots.Life((r.submit_s, start_s), without((start_s, max(r.end_s, start_s)), r.pauses_s))
        for r, start_s in starts
    ]


def _panel(group: RunGroup) -> timeline.Panel:
    ran = [record for record in group.records if record.first_start_s is not None]
    first_s = min((record.submit_s for record in ran), default=0.0)
    devices = [device.name for device in group.all_devices]
    return timeline.panel_of(group.name, devices, map(_bars, ran), first_s)


def _bars(record: RunRecord) -> tuple[timeline.Bar, ...]:
    return tuple(
        timeline.Bar(
            device=device,
            start_s=start_s,
            end_s=end_s,
            label=f"{record.name} #{record.id}",
            family=plain_family(record.family),
            succeeded=record.succeeded,
        )
        for device in dict.fromkeys(record.gpus)
        for start_s, end_s in record.ran_s
    )


def _write_csv(path: Path, table: Table) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([column.key for column in table.columns])
        rows.writerows(table.rows)
    return path


Json = Cell | bool | Sequence["Json"] | Mapping[str, "Json"]


def summary_object(
    title: str, said: Sequence[str], metrics: Sequence[GroupMetrics], tables: Sequence[Table], notes: Sequence[str]
) -> dict[str, Json]:
    """The whole file: sentences, one run per group, the tables, and what was not measured."""
    return {
        "title": title,
        "summary": said[0],
        "sentences": list(said),
        "runs": [run_object(measured) for measured in metrics],
        **{table.key: [dict(record) for record in table.records()] for table in tables},
        "not_measured": list(notes),
    }


def run_object(measured: GroupMetrics) -> dict[str, Json]:
    """Metrics of one group; null is not known. Metrics that finished jobs cannot give are absent."""
    told = {each.name: getattr(measured, each.name) for each in fields(measured)}
    states = {str(state): count for state, count in sorted(measured.states.items())}
    told |= {"policy": measured.policy or measured.name, "states": states}
    return {name: distribution(value) if isinstance(value, Summary) else value for name, value in told.items()}
