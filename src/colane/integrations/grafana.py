"""A board for Grafana and alert rules for Prometheus, over the names that `/metrics` has."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from colane.core.eligibility import REASONS
from colane.model.reason import Why

Json = dict[str, Any]

ON_PURPOSE: Final = (
    Why.BUDGET, Why.ARRAY, Why.ARRAY_FULL, Why.ARRAY_NEXT, Why.NODES_RESERVED, Why.NODES_DRAINED, *REASONS.values()
)  # fmt: skip
"""Why jobs wait by the word of a user or an operator, however many devices are free: holds, limits, conditions."""


class BoardPanel(NamedTuple):
    """One panel of the board."""

    title: str  # above it
    queries: tuple[tuple[str, str], ...]  # what it shows: expression and legend
    unit: str = "short"  # as Grafana names units
    kind: str = "timeseries"  # `timeseries` or `stat`
    width: int = 8  # of 24


PANELS: Final = (
    BoardPanel("Devices", (("colane_devices", "{{state}}"),), kind="stat", width=12),
    BoardPanel("Jobs", (("colane_running_jobs", "running"), ("colane_waiting_jobs", "waiting")), kind="stat", width=6),
    BoardPanel("Needs a look", (("colane_needs_look", "{{code}}"),), kind="stat", width=6),
    BoardPanel("Why jobs wait", (("colane_waiting_jobs_by_reason", "{{why}}"),), width=12),
    BoardPanel("Devices of users", (("topk(10, colane_user_devices)", "{{user}}"),), width=12),
    BoardPanel("Busy, by node", (("avg by (node) (colane_device_busy_ratio)", "{{node}}"),), "percentunit"),
    BoardPanel(
        "Device memory used, by node",
        (("sum by (node) (colane_device_memory_used_bytes) / sum by (node) (colane_device_memory_bytes)", "{{node}}"),),
        "percentunit",
    ),
    BoardPanel("Power, by node", (("sum by (node) (colane_device_power_watts)", "{{node}}"),), "watt"),
    BoardPanel("Hottest devices", (("topk(10, colane_device_temperature_celsius)", "{{node}}/{{gpu}}"),), "celsius"),
    BoardPanel("What sharing gains", (("colane_sharing_gain_ratio", "together, of one alone"),)),
    BoardPanel(
        "Slowdown of jobs, seen and predicted",
        (
            ("max by (job) (colane_job_slowdown_actual)", "{{job}} seen"),
            ("max by (job) (colane_job_slowdown_predicted)", "{{job}} predicted"),
        ),
    ),
    BoardPanel("Slowest jobs", (("bottomk(10, colane_job_speed_ratio)", "{{job}} {{name}}"),), "percentunit"),
    BoardPanel("Idle jobs", (("colane_job_idle_seconds", "{{job}} {{user}}"),), "s"),
    BoardPanel("Age of checkpoints", (("topk(10, colane_job_checkpoint_age_seconds)", "{{job}} {{name}}"),), "s"),
    BoardPanel("Jobs that end", (("rate(colane_jobs_ended_total[10m]) * 3600", "{{state}} an hour"),)),
    BoardPanel(
        "Deciding and committing, mean",
        (
            ("rate(colane_decision_seconds_sum[5m]) / rate(colane_decision_seconds_count[5m])", "decide"),
            ("rate(colane_store_commit_seconds_sum[5m]) / rate(colane_store_commit_seconds_count[5m])", "commit"),
        ),
        "s",
    ),
    BoardPanel("Faults", (("increase(colane_faults_total[1h])", "in an hour"),)),
)


class AlertRule(NamedTuple):
    """One alert rule: its expression, for how long it must hold, how bad it is, and what it says."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str


ALERTS: Final = (
    AlertRule("ColaneStoreNotWritable", "colane_store_writable == 0", "1m", "critical", "Nothing can be written: no job is taken in or started."),  # noqa: E501
    AlertRule("ColaneNodeLost", 'colane_nodes{state="lost"} > 0', "5m", "critical", "{{ $value }} nodes are lost."),
    AlertRule("ColaneDeviceBroken", "colane_device_healthy == 0", "1m", "critical", "{{ $labels.node }}/{{ $labels.gpu }} does not work any more."),  # noqa: E501
    AlertRule("ColaneDeviceHot", "colane_device_temperature_celsius > 90", "5m", "warning", "{{ $labels.node }}/{{ $labels.gpu }} has {{ $value }} degrees."),  # noqa: E501
    AlertRule("ColaneJobIdle", "colane_job_idle_seconds > 3600", "5m", "warning", "Job {{ $labels.job }} of {{ $labels.user }} holds devices and uses none."),  # noqa: E501
    AlertRule("ColaneJobsWaitBesideFreeDevices", f'colane_devices{{state="free"}} > 0 and on() sum(colane_waiting_jobs_by_reason{{why!~"{"|".join(ON_PURPOSE)}"}}) > 0', "30m", "warning", "Jobs wait though {{ $value }} devices are free."),  # noqa: E501
    AlertRule("ColaneJobsFail", 'increase(colane_jobs_ended_total{state="failed"}[1h]) > 20', "0m", "warning", "{{ $value }} jobs have failed within an hour."),  # noqa: E501
    AlertRule("ColaneDecidesSlowly", "rate(colane_decision_seconds_sum[5m]) / rate(colane_decision_seconds_count[5m]) > 0.5", "10m", "warning", "A turn's decisions take {{ $value }} s."),  # noqa: E501
    AlertRule("ColaneFaults", "increase(colane_faults_total[1h]) > 0", "0m", "warning", "The scheduler has met {{ $value }} faults of its own: see its log."),  # noqa: E501
)  # fmt: skip


def board() -> Json:
    """Return the board as Grafana imports it; it asks which Prometheus to read."""
    panels, x, y = list[Json](), 0, 0
    for number, panel in enumerate(PANELS, start=1):
        if x + panel.width > 24:
            x, y = 0, y + 8
        panels.append(_panel(number, panel, x, y))
        x += panel.width
    return {
        "title": "Colane",
        "uid": "colane",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["colane"],
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _panel(number: int, panel: BoardPanel, x: int, y: int) -> Json:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend, "datasource": source}
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }


def alerts() -> Json:
    """Return the rules as a file of Prometheus's."""
    rules = [
        {
            "alert": one.name,
            "expr": one.expression,
            "for": one.lasting,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary},
        }
        for one in ALERTS
    ]
    return {"groups": [{"name": "colane", "rules": rules}]}
