"""Jobs into lanes of shared GPUs (paper B): who may be joined, in which order jobs are served, and why one waits.

Memory alone decides: a GPU may be joined while the safety condition holds with the newcomer. What a rule of lanes adds
is which lane the newcomer gets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from colane.core.draft import Draft, Walk
from colane.core.load import GpuLoad
from colane.core.policy import Policy
from colane.lanes.assign import How, Layout, Member, Spot
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec, NeedClass
from colane.model.lane import TurnRule, Turns
from colane.model.profile import Memory
from colane.model.reason import Reason, Why
from colane.policies.blocks.answers import miss_reason, missed
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.refusals import behind, no_place
from colane.policies.blocks.sharing import has_room

EQUAL_SHARES = Turns(rule=TurnRule.FAIR)
SHORTEST_FIRST = Turns(rule=TurnRule.SRTF)


class ShareWhen(StrEnum):
    """When jobs share a GPU."""

    QUEUE = "queue"
    """A free GPU first; a job shares only where it would have to wait."""
    ALWAYS = "always"
    """Shared GPUs first, the fullest before others, so that the fewest GPUs are used."""
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRules:
    """How jobs get lanes.

    Attributes:
        find: The lane a job gets on a GPU, None when none has room.
        share_when: When jobs share.
        max_wait_s: A job that has waited longer goes first and holds up the rest of its pool; None never.
    """

    find: Callable[[Layout, Memory], Spot | None]
    share_when: ShareWhen
    max_wait_s: float | None


def turns_of(policy: Policy) -> Turns:
    """How the jobs of a lane take turns under a policy; the usual way where it does not say."""
    turns = getattr(policy, "turns", None)
    return turns if isinstance(turns, Turns) else Turns()


def layout_of(load: GpuLoad) -> Layout:
    """The lanes of a GPU whose jobs' memory is known."""
    members = (Member(b.job, b.lane, b.memory) for b in load.bookings if b.memory is not None)
    return Layout(load.capacity_bytes, tuple(members))


def is_joinable(load: GpuLoad) -> bool:
    """Whether a GPU carries jobs that may have company: one-GPU jobs of known memory that allow it."""
    alone = all(booking.key.gpus == 1 for booking in load.bookings)
    return bool(load.bookings) and alone and load.gpu.healthy and load.is_shareable


def serve(draft: Draft, pool: str, rules: LaneRules) -> None:
    """Start every waiting job of a pool that has a place: inference before training, then by arrival, with skip."""
    server = _Server(draft, pool, rules)
    if not server.serve_overdue():
        return
    walk = Walk(draft, pool, _kinds(draft, pool))
    for job in walk:
        if draft.is_waiting(job.id) and not server.start(job):
            if draft.view.explain is not None:
                draft.wait_class(job.spec, server.refusal(job.spec))
            walk.leave_class()


def _kinds(draft: Draft, pool: str) -> dict[NeedClass, tuple[float, ...]]:
    classes = draft.view.queue(pool).classes
    return {need: (0.0 if need.kind is JobKind.INFERENCE else 1.0,) for _, need in classes}


class _Entry(NamedTuple):
    """A GPU that may be joined, by the order in which it is tried."""

    rank: int
    gpu: GpuId
    left_bytes: int


class _Server:
    def __init__(self, draft: Draft, pool: str, rules: LaneRules) -> None:
        self._draft = draft
        self._pool = pool
        self._rules = rules
        self._sign = -1 if rules.share_when is ShareWhen.ALWAYS else 1
        self._entries: dict[str, list[_Entry]] = {}

    def serve_overdue(self) -> bool:
        """Serve jobs past their waiting time in order; False when one of them finds no place."""
        draft, limit_s = self._draft, self._rules.max_wait_s
        for job in map(draft.view.job, draft.view.queue(self._pool)):
            if limit_s is None or draft.now_s - job.submit_s <= limit_s:
                return True
            if not self.start(job):
                if draft.view.explain is not None:
                    draft.wait(job.id, self.refusal(job.spec))
                draft.wait_rest(self._pool, behind(job.id))
                return False
        return True

    def start(self, job: Job) -> bool:
        """Start a job on free GPUs or in a lane, whichever is to be tried first."""
        if self._rules.share_when is ShareWhen.ALWAYS:
            return self._share(job) or self._start_alone(job)
        return self._start_alone(job) or self._share(job)

    def _start_alone(self, job: Job) -> bool:
        gpus = first_fit(self._draft, job.spec)
        if gpus is None:
            return False
        self._draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        self._note(gpus[0].id)
        return True

    def _share(self, job: Job) -> bool:
        found = self._find(job.spec)
        if found is None:
            return False
        load, spot = found
        self._forget(load)
        self._draft.start(job, [load], _reason(load, spot), lanes=[spot.lane])
        self._note(load.id)
        return True

    def _find(self, spec: JobSpec) -> tuple[GpuLoad, Spot] | None:
        """A new lane where there is room for one, else the first lane it may join."""
        second: tuple[GpuLoad, Spot] | None = None
        for load, memory in self._candidates(spec):
            spot = self._rules.find(layout_of(load), memory)
            if spot is not None and spot.how is How.NEW:
                return load, spot
            if spot is not None and second is None and missed(self._draft, load, spot.lane, spec) is None:
                second = load, spot
        return second

    def _miss(self, spec: JobSpec) -> Reason | None:
        """A lane with room where an answer would come too late."""
        for load, memory in self._candidates(spec):
            spot = self._rules.find(layout_of(load), memory)
            miss = missed(self._draft, load, spot.lane, spec) if spot is not None else None
            if spot is not None and miss is not None:
                return miss_reason(load, _mates(load, spot.lane), miss)
        return None

    def _candidates(self, spec: JobSpec) -> Iterator[tuple[GpuLoad, Memory]]:
        if not spec.share or spec.gpus > 1 or self._rules.share_when is ShareWhen.NEVER:
            return
        draft = self._draft
        for kind in draft.view.gpu_types(self._pool, spec.gpu_type):
            memory = draft.beliefs.terms(spec, kind).memory
            if memory is None:
                continue
            for entry in self._joinable(kind):
                if memory.persistent_bytes <= entry.left_bytes:
                    load = draft.load(entry.gpu)
                    if has_room(draft, load, spec):
                        yield load, memory

    def _joinable(self, kind: str) -> list[_Entry]:
        """GPUs of a type that may be joined; made when first asked for and kept true from then on."""
        if kind not in self._entries:
            nodes = (node.node for node in self._draft.view.nodes.values() if node.node.pool == self._pool)
            gpus = (GpuId(node.name, gpu.index) for node in nodes for gpu in node.gpus if gpu.type == kind)
            loads = map(self._draft.load, gpus)
            self._entries[kind] = sorted(self._entry(load) for load in loads if is_joinable(load))
        return self._entries[kind]

    def _entry(self, load: GpuLoad) -> _Entry:
        return _Entry(self._sign * len(load.bookings), load.id, load.left_bytes)

    def _forget(self, load: GpuLoad) -> None:
        entries = self._entries[load.gpu.type]
        del entries[bisect_left(entries, self._entry(load))]

    def _note(self, gpu: GpuId) -> None:
        load = self._draft.load(gpu)
        if load.gpu.type in self._entries and is_joinable(load):
            insort(self._entries[load.gpu.type], self._entry(load))

    def refusal(self, spec: JobSpec) -> Reason:
        """Why nothing was found: no lane with room, a first run alone, or a need that cannot be met."""
        lacking, draft = no_place(self._draft, spec), self._draft
        sharing = spec.share and spec.gpus == 1 and self._rules.share_when is not ShareWhen.NEVER
        if lacking.why is not Why.NO_FREE_GPU or not sharing:
            return lacking
        late = self._miss(spec)
        if late is not None:
            return late
        for kind in draft.view.gpu_types(self._pool, spec.gpu_type):
            memory, entries = draft.beliefs.terms(spec, kind).memory, self._joinable(kind)
            if memory is not None and entries:
                return _no_lane(draft, memory, max(entries, key=lambda entry: (entry.left_bytes, entry.gpu)))
        types = draft.view.gpu_types(self._pool, spec.gpu_type)
        known = any(draft.beliefs.terms(spec, kind).memory is not None for kind in types)
        return lacking if known else replace(lacking, why=Why.UNKNOWN_ALONE_FIRST)


def _reason(load: GpuLoad, spot: Spot) -> Reason:
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "lane": spot.lane, "size_bytes": spot.size_bytes}
    if spot.how is How.NEW:
        return Reason(Why.NEW_LANE, facts, load.jobs)
    return Reason(Why.JOINS_LANE if spot.how is How.JOIN else Why.GROWS_LANE, facts, _mates(load, spot.lane))


def _mates(load: GpuLoad, lane: int) -> tuple[JobId, ...]:
    return tuple(booking.job for booking in load.bookings if booking.lane == lane)


def _no_lane(draft: Draft, memory: Memory, most: _Entry) -> Reason:
    facts: dict[str, str | int | float] = {
        "persistent_bytes": memory.persistent_bytes,
        "ephemeral_bytes": memory.ephemeral_bytes,
        "gpu": str(most.gpu),
        "have_bytes": max(0, most.left_bytes),
    }
    return Reason(Why.NO_LANE, facts, draft.load(most.gpu).jobs)
