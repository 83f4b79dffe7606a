"""Tables of simulated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colane.lab.report.metrics import Summary
from colane.lab.report.paired import Paired, difference_shown
from colane.lab.report.prose import duration
from colane.lab.report.simulated import Interval, SimulatedMetrics, SimulatedRun
from colane.lab.report.simulated_plots import METRIC_NAMES
from colane.lab.report.tables import Cell, Table, TableColumn

NOTE = (
    "All jobs = first submission to last end (makespan). Of a job: took = submission to end (JCT), waited = submission "
    "to first start (queueing), ran = first start to end (run span; paper A: JCT). GPUs with a job = part of their "
    "time; GPUs' use = busy fraction x efficiency; idle beside a queue = GPUs without a job while a job of their pool "
    "waits; SLO missed = jobs to which their trace promises a time (slo, slo_ratio, minimal_utility) "
    "and that took longer or failed."
)


def runs_table(rows: Sequence[tuple[str, SimulatedRun, SimulatedMetrics]]) -> Table:
    """One row for each run."""
    columns = (
        TableColumn("name", "Policy", _text, is_number=False),
        TableColumn("jobs", "Jobs", _count),
        TableColumn("finished", "Finished", _count),
        TableColumn("makespan_s", "All jobs", _seconds),
        TableColumn("jct_mean_s", "Took, mean", _seconds),
        TableColumn("jct_p50_s", "Took, p50", _seconds),
        TableColumn("jct_p95_s", "Took, p95", _seconds),
        TableColumn("queue_mean_s", "Waited, mean", _seconds),
        TableColumn("queue_p95_s", "Waited, p95", _seconds),
        TableColumn("run_span_mean_s", "Ran, mean", _seconds),
        TableColumn("gpu_active_ratio", "GPUs with a job", _ratio),
        TableColumn("gpu_utilization_ratio", "GPUs' use", _ratio),
        TableColumn("fragmentation_ratio", "Idle beside a queue", _ratio),
        TableColumn("restarts", "Restarts", _count),
        TableColumn("slo_violations", "SLO missed", _count),
    )
    return Table("groups", "What each policy achieved", columns, tuple(_row(*row) for row in rows), NOTE)


def compared_table(rows: Sequence[tuple[str, Mapping[str, Interval | None]]]) -> Table:
    """One row for each policy with means over seeds and their 95 % confidence intervals."""
    names = list(rows[0][1])
    heads = (TableColumn(name, METRIC_NAMES.get(name, name), _text) for name in names)
    columns = (TableColumn("policy", "Policy", _text, is_number=False), *heads)
    cells = tuple((policy, *(_interval(name, values[name]) for name in names)) for policy, values in rows)
    if all(v is None or v.half_width is None for v in rows[0][1].values()):
        return Table("comparisons", "Policies compared", columns, cells, "")
    return Table(
        "comparisons", "Means over seeds", columns, cells, "+- is half of a 95 % confidence interval over seeds."
    )


def differences_table(base: str, rows: Sequence[tuple[str, str, Paired]]) -> Table:
    """One row for each policy with its mean differences from the first one, seed by seed."""
    found: dict[str, dict[str, Paired]] = {}
    for policy, metric, one in rows:
        found.setdefault(policy, {})[metric] = one
    names = list(dict.fromkeys(metric for _, metric, _ in rows))
    heads = (TableColumn(name, METRIC_NAMES.get(name, name), _text) for name in names)
    columns = (TableColumn("policy", "Policy", _text, is_number=False), *heads)
    cells = tuple((policy, *(_difference(name, ones.get(name)) for name in names)) for policy, ones in found.items())
    note = f"Policy less {base}, seed by seed; +- is half of a 95 % interval (Student's t), * where that leaves out 0."
    return Table("differences", f"Differences from {base}", columns, cells, note)


def _difference(name: str, found: Paired | None) -> str | None:
    if found is None:
        return None
    width = "" if found.half_width is None else f" +- {difference_shown(name, found.half_width)}"
    return f"{difference_shown(name, found.difference_mean)}{width}{' *' if found.is_significant else ''}"


def refused_table(lines: Sequence[str]) -> Table:
    """Jobs that were not submitted, by reason, the most frequent first."""
    reasons: dict[str, list[str]] = {}
    for line in lines:
        job, _, reason = line.partition(": ")
        reasons.setdefault(reason, []).append(job)
    columns = (
        TableColumn("jobs", "Jobs", _count),
        TableColumn("reason", "Reason", _text, is_number=False),
        TableColumn("example", "Such as", _text, is_number=False),
    )
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = tuple((len(jobs), reason, jobs[0]) for reason, jobs in ordered)
    return Table("refused", "Jobs refused before the start", columns, rows, "With --out, refused.csv names every one.")


def _row(name: str, run: SimulatedRun, found: SimulatedMetrics) -> tuple[Cell, ...]:
    del run
    jct, queue, span = found.jct_s, found.queue_s, found.run_span_s
    return (
        name,
        found.jobs,
        found.finished,
        found.makespan_s,
        _mean(jct),
        jct.p50 if jct else None,
        jct.p95 if jct else None,
        _mean(queue),
        queue.p95 if queue else None,
        _mean(span),
        found.gpu_active_ratio,
        found.gpu_utilization_ratio,
        found.fragmentation_ratio,
        found.restarts,
        found.slo_violations,
    )


def _mean(summary: Summary | None) -> float | None:
    return summary.mean if summary else None


def _interval(name: str, value: Interval | None) -> str | None:
    if value is None:
        return None
    show = _ratio if name.endswith("_ratio") else _seconds
    return show(value.mean) + ("" if value.half_width is None else f" +- {show(value.half_width)}")


def _text(cell: Cell) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def _count(cell: Cell) -> str:
    return "-" if cell is None else f"{cell:,}"


def _seconds(cell: Cell) -> str:
    return duration(None if cell is None else float(cell))


def _ratio(cell: Cell) -> str:
    return "-" if cell is None else f"{float(cell) * 100:.1f} %"
