"""Names of metrics besides Colane's own, which dashboards have already."""

from __future__ import annotations

from enum import StrEnum


class MetricNames(StrEnum):
    """Whose names."""

    DCGM = "dcgm"
    SLURM = "slurm"
