"""Beside servers, of a job of which too little is known to share otherwise: where servers are, no GPU comes free.

A job of unknown kind runs alone first, so that it is known what it needs. Servers run on for as long as they are asked,
and are idle most of the time: where they hold every GPU, it would wait for ever. If it declares its memory, it takes
turns with those of one GPU instead that has room for that, one newcomer at a time. None of them has an objective for
its answers, as none could be promised beside steps of unknown length. If it turns out to need more than there is, it
leaves, not a server (`core.planners.overflow`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from colane.core.cluster.derived import NodesMatterNot
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobKind, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.sharing.sharing_places import is_known_alone, may_join, may_share

LEARNT: Final = 0.05
"""What such a start counts as worth: little, so that any place that is known to pay goes before."""


class Servers(NodesMatterNot):
    """Servers of one GPU that hold it, by pool."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and old.spec.kind is JobKind.INFERENCE:
            self._pools.get(old.spec.pool, set()).discard(old.id)
        if new is not None and new.spec.kind is JobKind.INFERENCE and len(new.gpus_held) == 1:
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, set())


@dataclass(frozen=True, slots=True)
class BesideServers(UsualSource):
    """See the module."""

    def bind(self, context: SchedulingContext) -> BoundBesideServers | None:
        return BoundBesideServers(context) if context.draft.view.derived(Servers).of(context.pool) else None


class BoundBesideServers(BoundSourceDefaults):
    """See `BesideServers`."""

    def __init__(self, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._servers = sorted(context.draft.view.derived(Servers).of(context.pool))

    def may_help(self, classes: Classes) -> Classes:
        """Those of one GPU that may share, while a GPU has servers alone."""
        if not any(map(self._has_servers_alone, self._loads())):
            return {}
        return {key: line for key, line in classes.items() if key[1].share and key[1].gpus == 1 and not key[1].home}

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """The GPU of servers alone on which most memory is left."""
        if job.home or not may_share(spec) or spec.latency_s is not None or self._has_free(spec):
            return
        found = [load for load in self._loads() if self._may_come(load, spec)]
        if found:
            load = max(found, key=lambda load: (load.left_bytes, load.id))
            reason = Reason(Why.TRIES_SHARING, {"gpu": str(load.id)}, load.jobs)
            lanes = [load.bookings[0].lane]
            yield Candidate((load,), reason, lanes=lanes, utility=LEARNT, ratio=1.0, harm=1.0 - LEARNT)

    def _has_free(self, spec: JobSpec) -> bool:
        draft = self._draft
        return any(draft.free((spec.pool, kind)).most_free for kind in draft.view.gpu_types_for(spec))

    def _loads(self) -> Iterator[GpuLoad]:
        """GPUs with servers, once each."""
        gpus = dict.fromkeys(self._draft.view.job(server).gpus_held[0] for server in self._servers)
        return map(self._draft.load, gpus)

    def _has_servers_alone(self, load: GpuLoad) -> bool:
        jobs = self._draft.view.jobs
        return load.is_foreseeable and all(
            jobs[job].spec.kind is JobKind.INFERENCE and jobs[job].effective.latency_s is None for job in load.jobs
        )

    def _may_come(self, load: GpuLoad, spec: JobSpec) -> bool:
        """Whether it is not known well enough to be judged by others, and there is room for what it declares."""
        if spec.gpu_type not in {None, load.gpu.type} or not self._has_servers_alone(load):
            return False
        memory = self._draft.beliefs.terms(spec, load.gpu.type).memory
        if memory is None or is_known_alone(self._draft, spec, load.gpu.type):
            return False
        return sum(memory) <= load.left_bytes and may_join(self._draft, load, spec)
