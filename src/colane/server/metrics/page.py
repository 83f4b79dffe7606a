"""All of `/metrics`, as a caller may see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colane.model.metric_names import MetricNames
from colane.server.http.sight import Sight
from colane.server.metrics import other_names, own
from colane.server.metrics.text import MetricText
from colane.server.views.holders import holders_of

if TYPE_CHECKING:
    from colane.server.service import Service


def metrics(service: Service, sight: Sight, *, is_open: bool) -> str:
    """Return the text, OpenMetrics or Prometheus's own.

    Raises:
        RefusedError: 503 while the store cannot be read.
    """
    text = MetricText(is_open=is_open)
    holders = holders_of(service.read_model)
    overview = service.overviews.make(service, sight, holders)
    own.write(text, service, sight, overview, holders)
    if MetricNames.DCGM in service.config.metrics_names:
        other_names.write_dcgm(text, service)
    if MetricNames.SLURM in service.config.metrics_names:
        other_names.write_slurm(text, service, sight, overview)
    return text.finish()
