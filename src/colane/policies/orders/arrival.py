"""Orders of arrival: jobs of higher priority first, among them the first to come, alone or after the kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft
from colane.model.job import JobKind, JobSpec, NeedClass
from colane.perf.beliefs import Load
from colane.policies.orders.walks import Keys, in_line
from colane.policies.parts import QUANTUM_S, Queue


@dataclass(frozen=True, slots=True)
class Arrival:
    """First come, first asked."""

    @property
    def quantum_s(self) -> float:
        """See `QUANTUM_S`; room is made by priority alone."""
        return QUANTUM_S

    def bind(self, draft: Draft, pool: str) -> Queue:
        """See `Order`."""
        return in_line(draft, pool)


@dataclass(frozen=True, slots=True)
class InferenceFirst:
    """Inference before training, then arrival (paper B: answers must not wait)."""

    @property
    def quantum_s(self) -> float:
        """See `QUANTUM_S`; room is made by priority alone."""
        return QUANTUM_S

    def bind(self, draft: Draft, pool: str) -> Queue:
        """See `Order`."""
        classes = draft.view.queue(pool).classes
        return in_line(draft, pool, {need: (0.0 if need.kind is JobKind.INFERENCE else 1.0,) for _, need in classes})


UNKNOWN_FIRST = (-1.0, -1.0)
"""Jobs without a profile go first: they only take free GPUs, and what they teach helps everybody."""


@dataclass(frozen=True, slots=True)
class LightestFirst:
    """By (C, M) ascending, then arrival (paper A, algorithm 2)."""

    @property
    def quantum_s(self) -> float:
        """See `QUANTUM_S`; room is made by priority alone."""
        return QUANTUM_S

    def bind(self, draft: Draft, pool: str) -> Queue:
        """See `Order`."""
        return in_line(draft, pool, draft.view.derived(LoadKeys).of(draft, pool))


class LoadKeys:
    """(C, M) of the classes that wait, kept from one plan to the next while profiles and GPU types stay as they are."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[int, list[str], dict[NeedClass, tuple[float, ...]]]] = {}

    def touched(self, node: int) -> None:
        """See `Derived`."""

    def removed(self, node: int) -> None:
        """See `Derived`."""

    def of(self, draft: Draft, pool: str) -> Keys:
        """Of those that wait in a pool; those that do no more are forgotten."""
        version, types = draft.beliefs.version, draft.view.gpu_types(pool).copy()
        kept = self._pools.get(pool)
        known = kept[2] if kept is not None and kept[:2] == (version, types) else {}
        keys = dict[NeedClass, tuple[float, ...]]()
        for _, need in draft.view.queue(pool).classes:
            keys[need] = known.get(need) or _load_key(draft, need, types)
        self._pools[pool] = version, types, keys
        return keys


def _load_key(draft: Draft, need: NeedClass, types: list[str]) -> tuple[float, ...]:
    spec = JobSpec(name="", family=need.family, batch_size=need.batch_size, gpus=need.gpus)
    loads: list[Load | None] = [draft.beliefs.load(spec, kind) for kind in types if need.gpu_type in (None, kind)]
    known = [load for load in loads if load is not None]
    return tuple(min(known)) if known else UNKNOWN_FIRST
