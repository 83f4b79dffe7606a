"""Orders of arrival: jobs of higher priority first, among them the first to come, alone or after the kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.model.job import JobKind, JobSpec, NeedClass
from colane.perf.estimates import Load
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.usual import UsualOrder
from colane.scheduling.engine.walks import Keys, in_line


@dataclass(frozen=True, slots=True)
class Arrival(UsualOrder):
    """First come, first asked."""

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        return in_line(draft, pool)


@dataclass(frozen=True, slots=True)
class InferenceFirst(UsualOrder):
    """Inference before training, then arrival (paper B: answers must not wait)."""

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        return in_line(draft, pool, _inference_first)


def _inference_first(need: NeedClass) -> tuple[float, ...]:
    return (0.0 if need.kind is JobKind.INFERENCE else 1.0,)


UNKNOWN_FIRST = (-1.0, -1.0)  # jobs without a profile go first: they only take free GPUs, and what they teach helps all

CLASSES_MAX = 4096  # classes of which keys are remembered at once


@dataclass(frozen=True, slots=True)
class LightestFirst(UsualOrder):
    """By (C, M) ascending, then arrival (paper A, algorithm 2)."""

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        return in_line(draft, pool, draft.view.derived(LoadKeys).of(draft, pool))


class LoadKeys(NodesMatterNot):
    """(C, M) of classes, kept from one plan to the next while profiles and GPU types stay as they are."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[int, list[str], dict[NeedClass, tuple[float, ...]]]] = {}

    def of(self, draft: Draft, pool: str) -> Keys:
        """Of those that wait in a pool."""
        version, types = draft.beliefs.speeds_version, draft.view.gpu_types(pool)
        kept = self._pools.get(pool)
        if kept is None or kept[0] != version or kept[1] != types:
            kept = self._pools[pool] = version, types.copy(), {}
        known = kept[2]

        def key(need: NeedClass) -> tuple[float, ...]:
            found = known.get(need)
            if found is None:
                if len(known) >= CLASSES_MAX:
                    known.clear()
                found = known[need] = _load_key(draft, need, types)
            return found

        return key


def _load_key(draft: Draft, need: NeedClass, types: list[str]) -> tuple[float, ...]:
    spec = JobSpec(name="", family=need.family, batch_size=need.batch_size, gpus=need.gpus)
    loads: list[Load | None] = [draft.beliefs.load(spec, kind) for kind in types if need.gpu_type in (None, kind)]
    known = [load for load in loads if load is not None]
    return tuple(min(known)) if known else UNKNOWN_FIRST
