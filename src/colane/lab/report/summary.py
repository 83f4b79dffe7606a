"""`summary.json`: the numbers of a report for programs, under the names every part of Colane uses."""

from __future__ import annotations

from collections.abc import Sequence

from colane.lab.report.metrics import GroupMetrics, Summary
from colane.lab.report.tables import Cell, Table

Json = Cell | bool | list["Json"] | dict[str, "Json"]


def summary_object(
    title: str,
    said: Sequence[str],
    metrics: Sequence[GroupMetrics],
    tables: Sequence[Table],
    notes: Sequence[str],
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
    return {
        "name": measured.name,
        "policy": measured.policy or measured.name,
        "jobs": measured.jobs,
        "finished": measured.finished,
        "states": {str(state): count for state, count in sorted(measured.states.items())},
        "never_started": measured.never_started,
        "devices": measured.devices,
        "makespan_s": measured.makespan_s,
        "jct_s": _distribution(measured.jct_s),
        "queue_s": _distribution(measured.queue_s),
        "run_span_s": _distribution(measured.run_span_s),
        "gpu_active_ratio": measured.gpu_active_ratio,
        "jobs_per_hour": measured.jobs_per_hour,
        "steps_per_s": measured.steps_per_s,
        "failures": measured.failures,
        "restarts": measured.restarts,
        "slowdown_exec": _distribution(measured.slowdown_exec),
        "slowdown_total": _distribution(measured.slowdown_total),
        "slowdown_variance": measured.slowdown_variance,
    }


def _distribution(summary: Summary | None) -> Json:
    if summary is None:
        return None
    return {"mean": summary.mean, "p50": summary.p50, "p95": summary.p95, "p99": summary.p99}
