"""How long a job runs at most on GPUs of its own: the throughput function of a deadline."""

from __future__ import annotations

from collections.abc import Sequence

from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import distance_of, situation_alone
from colane.core.cluster.view import ClusterView
from colane.model.job import JobSpec
from colane.model.profile import BY_LEFT
from colane.perf.rate import Situation
from colane.scheduling.engine.times import RunTimes


def takes_s(times: RunTimes, view: ClusterView, spec: JobSpec, loads: Sequence[GpuLoad], margin: float) -> float | None:
    """How long a job runs at most alone on these GPUs; None where neither its length nor a limit is known."""
    kind, gpus = loads[0].gpu.type, len(loads)
    predicted_s = times.predicted_s(spec, kind, gpus)
    alone = view.beliefs.rate(spec, Situation(kind, gpus)).alone
    if alone is not None and alone.by == BY_LEFT:
        predicted_s = None  # nothing says what others will leave
    if predicted_s is not None:
        place = situation_alone(loads, distance=distance_of(view.nodes, [load.id for load in loads]))
        usual = view.beliefs.rate(spec, Situation(kind, gpus)).slowdown
        predicted_s *= margin * view.beliefs.rate(spec, place).slowdown / usual
    known_s = [each for each in (predicted_s, spec.time_limit_s) if each is not None]
    return min(known_s, default=None)
