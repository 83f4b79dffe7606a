"""The report's tables as plain rows: for a terminal, for HTML and for JSON alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from colane.lab.report.measured import MeasuredSet, plain_family, short_name
from colane.lab.report.metrics import GroupMetrics, StepTimes, Summary, compare, mean_of, shared_ratios
from colane.lab.report.prose import duration, percent
from colane.lab.report.records import TIME_PARTS, JobTime, RunGroup, mean_parts_s

Cell = str | int | float | None  # a value as JSON carries it; None is unknown


class TableColumn(NamedTuple):
    """A column: its key in JSON, its heading, how a value is shown, whether it is a number, and what a row takes.

    That is, of what a row is made of, the attribute of its key where nothing else is said.
    """

    key: str
    heading: str
    show: Callable[[Cell], str]
    is_number: bool = True
    take: Callable[[Any], Cell] | None = None

    def cell(self, item: Any) -> Cell:  # noqa: ANN401 - what its table is of
        """Its cell in the row of an item."""
        return getattr(item, self.key) if self.take is None else self.take(item)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns."""

    key: str  # its name in JSON and its anchor in HTML
    title: str  # its heading
    columns: tuple[TableColumn, ...]  # in order
    rows: tuple[tuple[Cell, ...], ...]  # each with one cell per column
    note: str = ""  # what a reader must know to read it

    @classmethod
    def of(cls, key: str, title: str, columns: Sequence[TableColumn], items: Iterable[Any], note: str = "") -> Table:
        """A row for each item, by what its columns take."""
        rows = tuple(tuple(column.cell(item) for column in columns) for item in items)
        return cls(key, title, tuple(columns), rows, note)

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
        text("name", "Group"),
        number("jobs", "Jobs"),
        number("finished", "Succeeded"),
        seconds("makespan_s", "Whole batch"),
        *spread("run_span", "Ran"),
        *spread("queue", "Waited"),
        *spread("jct", "Took"),
        ratio("gpu_active_ratio", "Devices in use"),
        decimal("jobs_per_hour", "Jobs/h"),
        decimal("steps_per_s", "Steps/s"),
        decimal("slowdown_exec_mean", "Slowdown, mean", lambda found: mean_of(found.slowdown_exec)),
        number("failures", "Failures"),
        number("restarts", "Restarts"),
    )
    note = (
        "Whole batch = first submission to last end (makespan). Of a job: took = submission to end (JCT), waited = "
        "submission to first start (queueing), ran = first start to end (run span; paper A: JCT). Slowdown = how long "
        "it ran over how long the same work ran alone. Devices in use = part of their time with at least one job."
    )
    return Table.of("groups", "What each group achieved", columns, metrics, note)


def comparison_table(metrics: Sequence[GroupMetrics]) -> Table:
    """Each further group that ran against the first one, in percent."""
    ran = [measured for measured in metrics if measured.makespan_s is not None]
    columns = (
        text("other", "Group"),
        text("base", "Against"),
        change("makespan_percent", "Whole batch"),
        change("run_span_percent", "Ran, mean"),
        change("jct_percent", "Took, mean"),
        change("queue_percent", "Waited, mean"),
        TableColumn("gpu_active_points", "Devices in use", known(lambda value: f"{value:+.0f} points")),
    )
    changes = [compare(ran[0], other) for other in ran[1:]]
    note = "Less is better, but for devices in use."
    return Table.of("comparisons", "Change from the first group", columns, changes, note)


def times_table(groups: Mapping[str, Sequence[JobTime]]) -> Table:
    """Where the time of the jobs of each group has gone, the mean of a job."""
    columns = (
        text("group", "Group"),
        number("jobs", "Jobs"),
        *(seconds(f"{part}_s", part.capitalize()) for part in TIME_PARTS),
        seconds("whole_s", "Whole"),
    )
    means = [(name, len(times), mean_parts_s(times)) for name, times in groups.items() if times]
    rows = tuple((name, jobs, *(p[part] for part in TIME_PARTS), sum(p.values())) for name, jobs, p in means)
    note = (
        "Lost is running whose steps had to be made again; checkpointing counts stopping. The whole is their sum: the "
        "time from submission to end."
    )
    return Table("time_spent", "Where the time of a job goes, mean", columns, rows, note)


def sets_table(sets: Sequence[MeasuredSet]) -> Table:
    """Measured sets with the verdict, best first."""
    columns = (
        text("set", "Set", lambda one: one.name),
        text("gpu_type", "Device", lambda one: ", ".join(sorted({key.gpu_type for key in one.keys}))),
        text("sharing", "Sharing"),
        number("times", "Times"),
        decimal("delta", "Delta"),
        decimal("delta_min", "Delta, least"),
        decimal("delta_max", "Delta, most"),
        decimal("delta_general", "Delta, general"),
        text("slowdowns", "Slowdown of each", lambda one: ", ".join(f"{slower:.2f}" for slower in one.slowdowns)),
        text("verdict", "Verdict", lambda one: "pays" if one.pays else "does not pay"),
    )
    note = (
        "Delta = sum of step times alone / longest step time together (paper A, eq. 4.1); sharing pays from "
        "1 on. The general form counts the steps each job really made."
    )
    return Table.of("measured_sets", "Sets measured together", columns, sets, note)


def steps_table(times: Sequence[StepTimes]) -> Table:
    """Step time of each kind of job alone and together, as the jobs of the groups reported it."""
    columns = (
        text("job", "Job", lambda found: short_name(found.key)),
        seconds("alone_s", "Step alone"),
        number("alone_jobs", "Jobs alone"),
        seconds("together_s", "Step together"),
        number("together_jobs", "Jobs together"),
        decimal("slowdown", "Slowdown"),
    )
    note = "A job that shared its GPU for a part of its run counts as together."
    return Table.of("step_times", "Step time alone and together", columns, times, note)


def jobs_table(groups: Sequence[RunGroup]) -> Table:
    """One row for each job of each group."""
    shared = [(group.records, shared_ratios(group.records)) for group in groups]
    ratios = {id(record): by_id.get(record.id) for records, by_id in shared for record in records}
    names = {id(record): group.name for group in groups for record in group.records}
    columns = (
        text("group", "Group", lambda record: names[id(record)]),
        number("id", "Job"),
        text("name", "Name"),
        text("family", "Family", lambda record: plain_family(record.family)),
        number("batch_size", "Batch"),
        text("user", "User"),
        text("state", "State", lambda record: str(record.state)),
        text("gpus", "GPUs", lambda record: ", ".join(record.gpus)),
        seconds("queue_s", "Waited"),
        seconds("run_span_s", "Ran"),
        seconds("jct_s", "Took"),
        ratio("shared_ratio", "Shared", lambda record: ratios[id(record)]),
        number("steps", "Steps"),
        seconds("step_s", "Step"),
        number("restarts", "Restarts"),
        text("reason", "Why it ended"),
    )
    ordered = [record for group in groups for record in sorted(group.records, key=lambda one: (one.submit_s, one.id))]
    note = "Shared = part of its GPUs' time in which another job ran there too."
    return Table.of("jobs", "Jobs", columns, ordered, note)


Take = Callable[[Any], Cell] | None


def known(show: Callable[[float], str]) -> Callable[[Cell], str]:
    """How a number is shown; an unknown one is a dash."""
    return lambda cell: "-" if cell is None or isinstance(cell, str) else show(float(cell))


def text(key: str, heading: str, take: Take = None) -> TableColumn:
    """A column of words."""
    return TableColumn(key, heading, lambda cell: str(cell) if cell else "-", is_number=False, take=take)


def number(key: str, heading: str, take: Take = None) -> TableColumn:
    """A column of numbers as they are."""
    return TableColumn(key, heading, lambda cell: "-" if cell is None else str(cell), take=take)


def many(key: str, heading: str, take: Take = None) -> TableColumn:
    """A column of whole numbers, their thousands set apart."""
    return TableColumn(key, heading, known("{:,.0f}".format), take=take)


def seconds(key: str, heading: str, take: Take = None) -> TableColumn:
    """A column of times."""
    return TableColumn(key, heading, known(duration), take=take)


def decimal(key: str, heading: str, take: Take = None) -> TableColumn:
    """A column of numbers with two digits, from 100 on with none."""
    return TableColumn(
        key, heading, known(lambda value: f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"), take=take
    )


def ratio(key: str, heading: str, take: Take = None, digits: int = 0) -> TableColumn:
    """A column of parts, in percent."""
    return TableColumn(key, heading, known(lambda value: f"{value * 100:.{digits}f} %"), take=take)


def change(key: str, heading: str) -> TableColumn:
    """A column of changes in percent."""
    return TableColumn(key, heading, known(percent))


def spread(metric: str, heading: str) -> tuple[TableColumn, TableColumn]:
    """Two columns: mean and p95 of a time."""
    name = f"{metric}_s"
    return (
        seconds(f"{metric}_mean_s", f"{heading}, mean", lambda found: mean_of(getattr(found, name))),
        seconds(f"{metric}_p95_s", f"{heading}, p95", lambda found: p95_of(getattr(found, name))),
    )


def p95_of(summary: Summary | None) -> float | None:
    """The 95th percentile, where there is one."""
    return None if summary is None else summary.p95
