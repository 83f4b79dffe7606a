"""The report's tables as plain rows: for a terminal, for HTML and for JSON alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from colane.lab.report.measured import MeasuredSet, plain_family, short_name
from colane.lab.report.metrics import Comparison, GroupMetrics, StepTimes, Summary, compare, mean_of, shared_ratios
from colane.lab.report.prose import duration, percent
from colane.lab.report.records import TIME_PARTS, JobTime, RunGroup, RunRecord, mean_parts_s

Cell = str | int | float | None  # a value as JSON carries it; None is unknown


class TableColumn(NamedTuple):
    """A column: its key in JSON, its heading, how a value is shown, and whether it is a number."""

    key: str
    heading: str
    show: Callable[[Cell], str]
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns."""

    key: str  # its name in JSON and its anchor in HTML
    title: str  # its heading
    columns: tuple[TableColumn, ...]  # in order
    rows: tuple[tuple[Cell, ...], ...]  # each with one cell per column
    note: str = ""  # what a reader must know to read it

    def texts(self) -> list[list[str]]:
        """Rows as shown to people; an unknown value is a dash."""
        return [[column.show(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def records(self) -> list[dict[str, Cell]]:
        """Rows as JSON objects."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


def groups_table(metrics: Sequence[GroupMetrics]) -> Table:
    """One row for each group with what it achieved."""
    columns = (
        _text("name", "Group"),
        _number("jobs", "Jobs"),
        _number("finished", "Succeeded"),
        _seconds("makespan_s", "Whole batch"),
        _seconds("run_span_mean_s", "Ran, mean"),
        _seconds("run_span_p95_s", "Ran, p95"),
        _seconds("queue_mean_s", "Waited, mean"),
        _seconds("queue_p95_s", "Waited, p95"),
        _seconds("jct_mean_s", "Took, mean"),
        _seconds("jct_p95_s", "Took, p95"),
        _ratio("gpu_active_ratio", "Devices in use"),
        _decimal("jobs_per_hour", "Jobs/h"),
        _decimal("steps_per_s", "Steps/s"),
        _decimal("slowdown_exec_mean", "Slowdown, mean"),
        _number("failures", "Failures"),
        _number("restarts", "Restarts"),
    )
    note = (
        "Whole batch = first submission to last end (makespan). Of a job: took = submission to end (JCT), waited = "
        "submission to first start (queueing), ran = first start to end (run span; paper A: JCT). Slowdown = how long "
        "it ran over how long the same work ran alone. Devices in use = part of their time with at least one job."
    )
    return Table("groups", "What each group achieved", columns, tuple(map(_group_row, metrics)), note)


def comparison_table(metrics: Sequence[GroupMetrics]) -> Table:
    """Each further group that ran against the first one, in percent."""
    ran = [measured for measured in metrics if measured.makespan_s is not None]
    columns = (
        _text("other", "Group"),
        _text("base", "Against"),
        _percent("makespan_percent", "Whole batch"),
        _percent("run_span_percent", "Ran, mean"),
        _percent("jct_percent", "Took, mean"),
        _percent("queue_percent", "Waited, mean"),
        TableColumn("gpu_active_points", "Devices in use", _show_points),
    )
    rows = tuple(_comparison_row(compare(ran[0], other)) for other in ran[1:])
    return Table("comparisons", "Change from the first group", columns, rows, "Less is better, but for devices in use.")


def times_table(groups: Mapping[str, Sequence[JobTime]]) -> Table:
    """Where the time of the jobs of each group has gone, the mean of a job."""
    columns = (
        _text("group", "Group"),
        _number("jobs", "Jobs"),
        *(_seconds(f"{part}_s", part.capitalize()) for part in TIME_PARTS),
        _seconds("whole_s", "Whole"),
    )
    rows = tuple(_times_row(name, times) for name, times in groups.items() if times)
    note = (
        "Lost is running whose steps had to be made again; checkpointing counts stopping. The whole is their sum: the "
        "time from submission to end."
    )
    return Table("time_spent", "Where the time of a job goes, mean", columns, rows, note)


def _times_row(name: str, times: Sequence[JobTime]) -> tuple[Cell, ...]:
    parts = mean_parts_s(times)
    return name, len(times), *(parts[part] for part in TIME_PARTS), sum(parts.values())


def sets_table(sets: Sequence[MeasuredSet]) -> Table:
    """Measured sets with the verdict, best first."""
    columns = (
        _text("set", "Set"),
        _text("gpu_type", "Device"),
        _text("sharing", "Sharing"),
        _number("times", "Times"),
        _decimal("delta", "Delta"),
        _decimal("delta_min", "Delta, least"),
        _decimal("delta_max", "Delta, most"),
        _decimal("delta_general", "Delta, general"),
        _text("slowdowns", "Slowdown of each"),
        _text("verdict", "Verdict"),
    )
    note = (
        "Delta = sum of step times alone / longest step time together (paper A, eq. 4.1); sharing pays from "
        "1 on. The general form counts the steps each job really made."
    )
    return Table("measured_sets", "Sets measured together", columns, tuple(map(_set_row, sets)), note)


def steps_table(times: Sequence[StepTimes]) -> Table:
    """Step time of each kind of job alone and together, as the jobs of the groups reported it."""
    columns = (
        _text("job", "Job"),
        _seconds("alone_s", "Step alone"),
        _number("alone_jobs", "Jobs alone"),
        _seconds("together_s", "Step together"),
        _number("together_jobs", "Jobs together"),
        _decimal("slowdown", "Slowdown"),
    )
    rows = tuple((short_name(t.key), t.alone_s, t.alone_jobs, t.together_s, t.together_jobs, t.slowdown) for t in times)
    note = "A job that shared its GPU for a part of its run counts as together."
    return Table("step_times", "Step time alone and together", columns, rows, note)


def jobs_table(groups: Sequence[RunGroup]) -> Table:
    """One row for each job of each group."""
    columns = (
        _text("group", "Group"),
        _number("id", "Job"),
        _text("name", "Name"),
        _text("family", "Family"),
        _number("batch_size", "Batch"),
        _text("user", "User"),
        _text("state", "State"),
        _text("gpus", "GPUs"),
        _seconds("queue_s", "Waited"),
        _seconds("run_span_s", "Ran"),
        _seconds("jct_s", "Took"),
        _ratio("shared_ratio", "Shared"),
        _number("steps", "Steps"),
        _seconds("step_s", "Step"),
        _number("restarts", "Restarts"),
        _text("reason", "Why it ended"),
    )
    rows = [row for group in groups for row in _job_rows(group)]
    note = "Shared = part of its GPUs' time in which another job ran there too."
    return Table("jobs", "Jobs", columns, tuple(rows), note)


def _group_row(measured: GroupMetrics) -> tuple[Cell, ...]:
    return (
        measured.name,
        measured.jobs,
        measured.finished,
        measured.makespan_s,
        *_mean_and_p95(measured.run_span_s),
        *_mean_and_p95(measured.queue_s),
        *_mean_and_p95(measured.jct_s),
        measured.gpu_active_ratio,
        measured.jobs_per_hour,
        measured.steps_per_s,
        mean_of(measured.slowdown_exec),
        measured.failures,
        measured.restarts,
    )


def _mean_and_p95(summary: Summary | None) -> tuple[Cell, Cell]:
    return (None, None) if summary is None else (summary.mean, summary.p95)


def _comparison_row(change: Comparison) -> tuple[Cell, ...]:
    return (
        change.other,
        change.base,
        change.makespan_percent,
        change.run_span_percent,
        change.jct_percent,
        change.queue_percent,
        change.gpu_active_points,
    )


def _set_row(measured: MeasuredSet) -> tuple[Cell, ...]:
    slowdowns = ", ".join(f"{slowdown:.2f}" for slowdown in measured.slowdowns)
    return (
        measured.name,
        ", ".join(sorted({key.gpu_type for key in measured.keys})),
        measured.sharing,
        measured.times,
        measured.delta,
        measured.delta_min,
        measured.delta_max,
        measured.delta_general,
        slowdowns,
        "pays" if measured.pays else "does not pay",
    )


def _job_rows(group: RunGroup) -> list[tuple[Cell, ...]]:
    ratios = shared_ratios(group.records)
    return [
        _job_row(group.name, record, ratios.get(record.id))
        for record in sorted(group.records, key=lambda record: (record.submit_s, record.id))
    ]


def _job_row(group: str, record: RunRecord, shared_ratio: float | None) -> tuple[Cell, ...]:
    return (
        group,
        record.id,
        record.name,
        plain_family(record.family),
        record.batch_size,
        record.user,
        str(record.state),
        ", ".join(record.gpus),
        record.queue_s,
        record.run_span_s,
        record.jct_s,
        shared_ratio,
        record.steps,
        record.step_s,
        record.restarts,
        record.reason,
    )


def _text(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, lambda cell: str(cell) if cell else "-", is_number=False)


def _number(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, lambda cell: "-" if cell is None else str(cell))


def _seconds(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, lambda cell: duration(_float(cell)))


def _decimal(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, _show_decimal)


def _ratio(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, _show_ratio)


def _percent(key: str, heading: str) -> TableColumn:
    return TableColumn(key, heading, lambda cell: percent(_float(cell)))


def _show_decimal(cell: Cell) -> str:
    value = _float(cell)
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _show_ratio(cell: Cell) -> str:
    value = _float(cell)
    return "-" if value is None else f"{value * 100:.0f} %"


def _show_points(cell: Cell) -> str:
    value = _float(cell)
    return "-" if value is None else f"{value:+.0f} points"


def _float(cell: Cell) -> float | None:
    return None if cell is None or isinstance(cell, str) else float(cell)
