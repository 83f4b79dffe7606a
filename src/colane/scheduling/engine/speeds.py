"""Which GPU type a job is fastest on, by what is believed."""

from __future__ import annotations

from collections.abc import Sequence

from colane.core.cluster.draft import Draft
from colane.model.job import JobSpec
from colane.perf.situation import Situation


def speeds_by_type(draft: Draft, spec: JobSpec, gpu_types: Sequence[str]) -> list[tuple[str, float]]:
    """The types with the job's speed on each over that on its fastest one, fastest first.

    A type nothing is known of counts as no slower than the fastest known one, and goes before it: so each is tried once
    before the slower ones are taken again. Else types that seem alike stay in their order.
    """
    if len(gpu_types) < 2:
        return [(kind, 1.0) for kind in gpu_types]
    rated = []
    for place, kind in enumerate(gpu_types):
        rate = draft.beliefs.rate(spec, Situation(kind))
        rated.append((-rate.ratio, rate.step_s is not None, place))
    return [(gpu_types[place], -ratio) for ratio, _, place in sorted(rated)]


def fastest_first(draft: Draft, spec: JobSpec, gpu_types: Sequence[str]) -> list[str]:
    """The types alone (see `speeds_by_type`)."""
    return [kind for kind, _ in speeds_by_type(draft, spec, gpu_types)]
