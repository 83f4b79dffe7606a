"""Orders in which waiting jobs are looked at."""

from __future__ import annotations

from colane.core.draft import Draft
from colane.model.job import JobSpec, NeedClass
from colane.perf.beliefs import Load

UNKNOWN_FIRST = (-1.0, -1.0)
"""Jobs without a profile go first: they only take free GPUs, and what they teach helps everybody."""


def by_load(draft: Draft, pool: str) -> dict[NeedClass, tuple[float, ...]]:
    """Classes of a pool by (C, M) ascending (paper A, algorithm 2)."""
    types = draft.view.gpu_types(pool)
    return {need: _load_key(draft, need, types) for _, need in draft.view.queue(pool).classes}


def _load_key(draft: Draft, need: NeedClass, types: list[str]) -> tuple[float, ...]:
    spec = JobSpec(name="", family=need.family, batch_size=need.batch_size, gpus=need.gpus)
    loads: list[Load | None] = [draft.beliefs.load(spec, kind) for kind in types if need.gpu_type in (None, kind)]
    known = [load for load in loads if load is not None]
    return tuple(min(known)) if known else UNKNOWN_FIRST
