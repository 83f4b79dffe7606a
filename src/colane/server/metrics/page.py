"""All of `/metrics`, as a caller may see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.model.choices import MetricNames
from colane.server.ground.sight import Sight
from colane.server.metrics import other_names, own
from colane.server.metrics.text import MetricText
from colane.server.views.holders import holders_of
from colane.server.views.overview import OverviewMaker


@dataclass(slots=True)
class MetricsPage:
    """Writes the page, and keeps what of it changes seldom."""

    overviews: OverviewMaker  # the whole cluster in numbers
    labels: own.DeviceLabels = field(default_factory=own.DeviceLabels)  # labels of devices and jobs

    def text(self, sight: Sight, *, is_open: bool) -> str:
        """Return it, as OpenMetrics or in Prometheus's own form.

        Raises RefusedError: 503 while the store cannot be read.
        """
        text, parts = MetricText(is_open=is_open), self.overviews.parts
        holders = holders_of(parts.read_model)
        overview = self.overviews.make(sight, holders)
        own.write(text, self.overviews, self.labels, sight, overview, holders)
        if MetricNames.DCGM in parts.config.metrics_names:
            other_names.write_dcgm(text, parts)
        if MetricNames.SLURM in parts.config.metrics_names:
            other_names.write_slurm(text, parts, sight, overview)
        return text.finish()
