"""Beside servers, of a job of which too little is known to share otherwise: where servers are, no GPU comes free.

A job of unknown kind runs alone first, so that it is known what it needs. Servers run on for as long as they are asked,
and are idle most of the time: where they hold every GPU, it would wait for ever. It takes turns with those of one GPU
instead, one newcomer at a time, where there is room for the memory it declares, or at least a part of the GPU if it
declares none. The same is done where the servers are those of which too little is known, once they have run for a
while, and where each is known but not what several do to each other: idle ones never show it. A server whose own needs
are known gets a lane of its own there while half of it is left, and does not wait for GPUs that other jobs will leave.

If it turns out to need more memory than there is, it leaves, not a server (`core.planners.overflow`). So it does if
a server misses the objective for its answers that it has kept before (`core.planners.answers`); it does not come where
one misses it already. Where it may come to no GPU, it is said why, and what mends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec, JobState
from colane.model.profile import Memory
from colane.model.progress import late_answers
from colane.model.reason import Reason, Why
from colane.model.words import bytes_in_words
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import Candidate, Classes, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.sharing.sharing_places import (
    answer_bound_s,
    is_known_alone,
    is_late,
    is_seen,
    may_join,
    may_share,
)

LEARNT: Final = 0.05  # what such a start counts as worth: little, so that any place that is known to pay goes before

LEFT_MIN_RATIO: Final = 0.125  # part of a GPU that servers must leave for a job that does not say what it needs

TURNS_RATIO: Final = 0.5
"""Part of a GPU that servers leave for those that take turns: in one lane it holds more of them."""

LOOKS_AGAIN_S: Final = 60.0
"""While a job waits: servers begin to keep their objectives, or have run for a while, without anything happening."""


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
    """The source of GPUs where servers are."""

    # also where all are known but never were seen together: no other source has a job join several such
    unseen: bool = False

    def bind(self, context: SchedulingContext) -> BoundBesideServers | None:
        has_servers = context.draft.view.derived(Servers).of(context.pool)
        return BoundBesideServers(context, unseen=self.unseen) if has_servers else None


class BoundBesideServers(BoundSourceDefaults):
    """`BesideServers` for one plan."""

    def __init__(self, context: SchedulingContext, *, unseen: bool) -> None:
        self._draft = context.draft
        self._pool = context.pool
        self._unseen = unseen
        self._looks_again = False
        self._servers = sorted(context.draft.view.derived(Servers).of(context.pool))

    def may_help(self, classes: Classes) -> Classes:
        """Those of one GPU that may share, while a GPU has servers alone."""
        if not any(map(self._has_servers_alone, self._loads())):
            return {}
        return {key: line for key, line in classes.items() if key[1].share and key[1].gpus == 1 and not key[1].home}

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """The GPU of servers alone on which most memory is left."""
        if job.home or not may_share(spec) or self._comes_free(spec):
            return
        self._looks_again = True
        found = [load for load in self._loads_for(spec) if self._obstacle(load, spec) is None]
        if found:
            load = max(found, key=lambda load: (load.left_bytes, load.id))
            reason = Reason(Why.TRIES_SHARING, {"gpu": str(load.id)}, load.jobs)
            lanes = [self._lane(load, spec)]
            yield Candidate((load,), reason, lanes=lanes, ratio=1.0, harm=1.0 - LEARNT)

    def plan_again(self) -> None:
        if self._looks_again:
            self._draft.plan_again(self._pool, self._draft.now_s + LOOKS_AGAIN_S)

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Why it does not come to the servers with the most memory left, of a job that would wait for ever for them."""
        may_share = spec.share or job.constraints.isolated
        if job.home or not may_share or spec.gpus != 1 or self._comes_free(spec):
            return None
        loads = sorted(self._loads_for(spec), key=lambda load: (-load.left_bytes, load.id))
        for load in loads:
            because = self._obstacle(load, spec) if spec.share else _was_there(job)
            if because is not None:
                return Reason(Why.BESIDE_SERVERS, {"gpu": str(load.id), "because": because}, load.jobs)
        return None

    def _comes_free(self, spec: JobSpec) -> bool:
        """Whether a GPU that a job may have is free, or will be: no server is there, and all else ends.

        A known server is not kept waiting for that.
        """
        if self._unseen and self._is_known_server(spec):
            return False
        held = {load.id for load in self._loads()}
        for node in self._draft.view.nodes.values():
            if node.node.pool == self._pool and node.node.takes_jobs:
                for gpu in node.node.gpus:
                    mine = gpu.healthy and spec.gpu_type in {None, gpu.type}
                    if mine and GpuId(node.node.name, gpu.index) not in held:
                        return True
        return False

    def _loads(self) -> Iterator[GpuLoad]:
        """GPUs with servers, once each."""
        gpus = dict.fromkeys(self._draft.view.job(server).gpus_held[0] for server in self._servers)
        return map(self._draft.load, gpus)

    def _has_servers_alone(self, load: GpuLoad) -> bool:
        jobs = self._draft.view.jobs
        return load.is_joinable and all(jobs[job].spec.kind is JobKind.INFERENCE for job in load.jobs)

    def _loads_for(self, spec: JobSpec) -> Iterator[GpuLoad]:
        """GPUs with servers alone that no other source can judge for a job, as it or a server is not known enough."""
        for load in self._loads():
            serve = all(self._draft.view.job(job).spec.kind is JobKind.INFERENCE for job in load.jobs)
            if serve and spec.gpu_type in {None, load.gpu.type} and not self._are_known(load, spec):
                yield load

    def _are_known(self, load: GpuLoad, spec: JobSpec) -> bool:
        """Whether sources that go by what is known can judge a job there; servers that start will be, or will run."""
        if not _is_known(self._draft, spec, load.gpu.type):
            return False
        jobs = self._draft.view.jobs
        if not all(
            jobs[job].state is not JobState.RUNNING or _is_known(self._draft, jobs[job].effective, load.gpu.type)
            for job in load.jobs
        ):
            return False
        return not self._unseen or is_seen(self._draft, load)

    def _is_known_server(self, spec: JobSpec) -> bool:
        types = self._draft.view.gpu_types_for(spec)
        return spec.kind is JobKind.INFERENCE and any(_is_known(self._draft, spec, kind) for kind in types)

    def _lane(self, load: GpuLoad, spec: JobSpec) -> int:
        """Where it comes: the lane that grows least for it, or of a server whose needs are known one of its own.

        Lanes of their own are for answers that do not wait for each other; the rest of the GPU holds more in turns.
        """
        memory = self._draft.beliefs.terms(spec, load.gpu.type).memory
        kept_bytes = int(TURNS_RATIO * load.capacity_bytes)
        if memory is not None and self._is_known_server(spec) and sum(memory) <= load.left_bytes - kept_bytes:
            return load.next_lane
        return _turns_lane(load, memory)[0]

    def _obstacle(self, load: GpuLoad, spec: JobSpec) -> str | None:
        """What keeps a job from taking turns with the servers of a GPU, and what mends it; None where nothing does."""
        jobs = [self._draft.view.job(job) for job in load.jobs]
        if not load.is_joinable:
            return self._closed(load, jobs)
        slow = self._is_slow(load, jobs, spec)
        if slow is not None:
            return slow
        memory, left = self._draft.beliefs.terms(spec, load.gpu.type).memory, bytes_in_words(load.left_bytes)
        if memory is None and load.left_bytes < LEFT_MIN_RATIO * load.capacity_bytes:
            return f"they leave {left}, and what it needs is not known: submit it with --gpu-memory"
        if memory is not None and memory.persistent_bytes + _turns_lane(load, memory)[1] > load.left_bytes:
            return f"it needs {bytes_in_words(sum(memory))}, and they leave {left}: if that does, ask for less"
        if not may_join(self._draft, load, spec):
            return "its node has too few cores or too little memory for it, or the GPU is kept for another"
        return None

    def _is_slow(self, load: GpuLoad, jobs: list[Job], spec: JobSpec) -> str | None:
        """That an answer comes too late already, or could, by those steps that are known."""
        for job in jobs:
            late = late_answers(self._draft.view.progress(job.id), job.effective.latency_s)
            if late is not None:
                return (
                    f"job {job.id} answers in {late.p99_s:.3g} s (p99) already, above its objective of "
                    f"{late.latency_s:.3g} s: give it a longer --latency"
                )
        lane = self._lane(load, spec)
        members = [one for one, booking in zip(jobs, load.bookings, strict=True) if booking.lane == lane]
        specs = [*[one.effective for one in members], spec]
        alone = Situation(load.gpu.type)
        bound_s = answer_bound_s([(one.kind, self._draft.beliefs.rate(one, alone).step_s or 0.0) for one in specs])
        latency_s = min([one.latency_s for one in specs if one.latency_s is not None], default=inf)
        if bound_s > latency_s:
            text = f"an answer could take {bound_s:.3g} s, above the objective of {latency_s:.3g} s"
            return f"{text}: a longer --latency helps"
        if is_late(self._draft, load, spec, lane):
            return "an answer of those in lanes of their own would come after their objective: a longer --latency helps"
        return None

    def _closed(self, load: GpuLoad, jobs: list[Job]) -> str:
        unknown = [booking.job for booking in load.bookings if booking.memory is None]
        alone = [job.id for job in jobs if not job.effective.share]
        if alone:
            return f"job {alone[0]} shares its GPU with none"
        if unknown:
            return f"what job {unknown[0]} holds of it is not known yet: submit that one with --gpu-memory"
        return "it takes no jobs, or is kept for others that come back"


def _turns_lane(load: GpuLoad, memory: Memory | None) -> tuple[int, int]:
    """The lane that must grow least for a job, of equal ones the one of fewest jobs; and by how much, in bytes."""
    need = load.capacity_bytes if memory is None else memory.ephemeral_bytes
    largest, count = dict[int, int](), Counter[int]()
    for booking in load.bookings:
        held = 0 if booking.memory is None else booking.memory.ephemeral_bytes
        largest[booking.lane] = max(largest.get(booking.lane, 0), held)
        count[booking.lane] += 1
    growth, _, lane = min([(max(0, need - held), count[lane], lane) for lane, held in largest.items()])
    return lane, growth


def _was_there(job: Job) -> str:
    """Of a job that has a GPU to itself from now on."""
    why = f" ({job.reason.why})" if job.reason is not None else ""
    return f"it has a GPU to itself since it was there{why}: colane show {job.id} tells how that came"


def _is_known(draft: Draft, spec: JobSpec, gpu_type: str) -> bool:
    """Whether memory and speed alone of a job of one GPU are known."""
    return draft.beliefs.terms(spec, gpu_type).memory is not None and is_known_alone(draft, spec, gpu_type)


class ServersElse(BoundSourceDefaults):
    """What a source has that offers the GPUs of servers where it finds no other place."""

    def __init__(self, context: SchedulingContext) -> None:
        self._servers = BesideServers().bind(context)

    def plan_again(self) -> None:
        if self._servers is not None:
            self._servers.plan_again()

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Why it does not take turns with servers, where those hold GPUs."""
        return None if self._servers is None else self._servers.refusal(job, spec)
