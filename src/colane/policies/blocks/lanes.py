"""Jobs into lanes of shared GPUs (paper B): who may be joined, in which order jobs are served, and why one waits.

Memory alone decides: a GPU may be joined while the safety condition holds with the newcomer. What a rule of lanes adds
is which lane the newcomer gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from colane.core.circles import circle
from colane.core.draft import Draft, Walk
from colane.core.load import GpuLoad
from colane.core.policy import Policy
from colane.lanes.assign import How, Layout, Member, Spot
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec, NeedClass
from colane.model.lane import ShareBetween, TurnRule, Turns
from colane.model.profile import Memory
from colane.model.reason import Reason, Why
from colane.policies.blocks.answers import miss_reason, missed
from colane.policies.blocks.lane_index import Candidates, Entry, FullestFirst, LaneIndex, entry_of, is_joinable
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
        share_between: Whose jobs share.
        opens: Whether a GPU may have several lanes.
        joins: Whether a lane may have several jobs.
    """

    find: Callable[[Layout, Memory], Spot | None]
    share_when: ShareWhen
    max_wait_s: float | None
    share_between: ShareBetween = ShareBetween.ALL
    opens: bool = True
    joins: bool = True


def turns_of(policy: Policy) -> Turns:
    """How the jobs of a lane take turns under a policy; the usual way where it does not say."""
    turns = getattr(policy, "turns", None)
    return turns if isinstance(turns, Turns) else Turns()


def layout_of(load: GpuLoad) -> Layout:
    """The lanes of a GPU whose jobs' memory is known."""
    members = (Member(b.job, b.lane, b.memory) for b in load.bookings if b.memory is not None)
    return Layout(load.capacity_bytes, tuple(members))


def serve(draft: Draft, pool: str, rules: LaneRules) -> None:
    """Start every waiting job of a pool that has a place: inference before training, then by arrival, with skip."""
    server = _Server(draft, pool, rules)
    if not server.serve_overdue():
        return
    walk = Walk(draft, pool, _kinds(draft, pool))
    for job in walk:
        if not draft.is_waiting(job.id) or server.start(job):
            continue
        if rules.share_between is not ShareBetween.ALL:
            server.refuse(job)
            continue
        if draft.view.explain is not None:
            draft.wait_class(job.spec, server.refusal(job.spec))
        walk.leave_class()


def _kinds(draft: Draft, pool: str) -> dict[NeedClass, tuple[float, ...]]:
    classes = draft.view.queue(pool).classes
    return {need: (0.0 if need.kind is JobKind.INFERENCE else 1.0,) for _, need in classes}


_Asked = tuple[NeedClass, str, str, str]
"""A class, a GPU type, and of whose jobs where that matters."""


class _Server:
    def __init__(self, draft: Draft, pool: str, rules: LaneRules) -> None:
        self._draft = draft
        self._pool = pool
        self._rules = rules
        self._index = draft.view.derived(
            FullestFirst if rules.share_when is ShareWhen.ALWAYS else LaneIndex  # told apart by what is made
        )
        self._own_lane: dict[_Asked, Candidates] = {}
        self._in_lane: dict[_Asked, Candidates] = {}
        self._now: dict[GpuId, Entry] = {}
        self._fresh: list[Entry] = []

    def serve_overdue(self) -> bool:
        """Serve jobs past their waiting time in order; False when one of them finds no place."""
        draft, limit_s = self._draft, self._rules.max_wait_s
        for job in map(draft.view.job, draft.view.queue(self._pool)):
            if limit_s is None or draft.now_s - job.submit_s <= limit_s:
                return True
            if not self.start(job):
                self.refuse(job)
                draft.wait_rest(self._pool, behind(job.id))
                return False
        return True

    def start(self, job: Job) -> bool:
        """Start a job on free GPUs or in a lane, whichever is to be tried first."""
        if self._rules.share_when is ShareWhen.ALWAYS:
            return self._share(job) or self._start_alone(job)
        return self._start_alone(job) or self._share(job)

    def refuse(self, job: Job) -> None:
        """The job finds no place; why is worked out only when somebody asks."""
        if self._draft.view.explain is not None:
            self._draft.wait(job.id, self.refusal(job.spec))

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
        self._draft.start(job, [load], _reason(load, spot), lanes=[spot.lane])
        self._note(load.id)
        return True

    def _note(self, gpu: GpuId) -> None:
        """Something has started on a GPU."""
        load = self._draft.load(gpu)
        if is_joinable(load):
            entry = entry_of(load, self._index.sign)
            self._now[gpu] = entry
            self._fresh.append(entry)

    def _find(self, spec: JobSpec) -> tuple[GpuLoad, Spot] | None:
        """A new lane where there is room for one, else the first lane it may join."""
        return self._first(spec, self._own_lane, new=True) or self._first(spec, self._in_lane, new=False)

    def _first(self, spec: JobSpec, known: dict[_Asked, Candidates], *, new: bool) -> tuple[GpuLoad, Spot] | None:
        if not self._may_share(spec) or not (self._rules.opens if new else self._rules.joins):
            return None
        for kind, memory in self._memory(spec):
            asked = (spec.need, kind, *self._owner(spec))
            if asked not in known:
                suits = partial(Entry.has_room_for_lane if new else Entry.has_room_in_lane, memory=memory)
                least_bytes = sum(memory) if new else memory.persistent_bytes
                known[asked] = Candidates(self._entries(kind, least_bytes), suits)
            for entry in known[asked].walk(self._now, self._fresh_of(kind)):
                load = self._draft.load(entry.gpu)
                spot = self._spot(load, spec, memory)
                if spot is not None and (not new or spot.how is How.NEW):
                    return load, spot
        return None

    def _spot(self, load: GpuLoad, spec: JobSpec, memory: Memory) -> Spot | None:
        """The lane a job gets on a GPU, if its node has room, all may meet and every answer comes in time."""
        welcome = has_room(self._draft, load, spec) and self._may_meet(load, spec)
        spot = self._rules.find(layout_of(load), memory) if welcome else None
        late = spot is not None and missed(self._draft, load, spot.lane, spec) is not None
        return None if late else spot

    def _owner(self, spec: JobSpec) -> tuple[str, str]:
        """What of a job decides whom it may meet."""
        between = self._rules.share_between
        return "" if between is ShareBetween.ALL else spec.user, spec.group if between is ShareBetween.GROUP else ""

    def _may_meet(self, load: GpuLoad, spec: JobSpec) -> bool:
        if not load.admits(spec.circle):
            return False
        if self._rules.share_between is ShareBetween.ALL:
            return True
        between = self._rules.share_between
        others = (self._draft.view.job(booking.job).spec for booking in load.bookings)
        return all(circle(other, between) == circle(spec, between) for other in others)

    def _may_share(self, spec: JobSpec) -> bool:
        return spec.share and spec.gpus == 1 and self._rules.share_when is not ShareWhen.NEVER

    def _memory(self, spec: JobSpec) -> Iterator[tuple[str, Memory]]:
        """GPU types on which a job's need is known."""
        for kind in self._draft.view.gpu_types(self._pool, spec.gpu_type):
            memory = self._draft.beliefs.terms(spec, kind).memory
            if memory is not None:
                yield kind, memory

    def _entries(self, kind: str, left_bytes: int = 0) -> list[Entry]:
        """GPUs that could be joined when the plan began and had so much left."""
        return self._index.entries(self._draft.view, (self._pool, kind), left_bytes)

    def _fresh_of(self, kind: str) -> list[Entry]:
        """GPUs of a type on which something has started since, in order; one list serves a pool of one type."""
        if len(self._draft.view.gpu_types(self._pool)) == 1:
            return self._fresh
        return [entry for entry in self._fresh if self._draft.load(entry.gpu).gpu.type == kind]

    def refusal(self, spec: JobSpec) -> Reason:
        """Why nothing was found: no lane with room, a first run alone, or a need that cannot be met."""
        lacking, draft = no_place(self._draft, spec), self._draft
        if lacking.why is not Why.NO_FREE_GPU or not self._may_share(spec):
            return lacking
        known = list(self._memory(spec))
        if not known:
            return replace(lacking, why=Why.UNKNOWN_ALONE_FIRST)
        for kind, memory in known:
            loads = [load for load in map(draft.load, self._joinable(kind)) if self._may_meet(load, spec)]
            late = next((found for load in loads if (found := self._late(load, spec, memory)) is not None), None)
            if late is not None:
                return late
            if loads:
                return _no_lane(memory, max(loads, key=lambda load: (load.left_bytes, load.id)))
        return lacking

    def _joinable(self, kind: str) -> list[GpuId]:
        """GPUs of a type that may be joined now, in the order they are tried."""
        gpus = {entry.gpu: entry for entry in (*self._entries(kind), *self._fresh_of(kind))}
        return [entry.gpu for entry in sorted(gpus.values())]

    def _late(self, load: GpuLoad, spec: JobSpec, memory: Memory) -> Reason | None:
        """A lane with room where an answer would come too late."""
        spot = self._rules.find(layout_of(load), memory)
        miss = missed(self._draft, load, spot.lane, spec) if spot is not None else None
        return None if spot is None or miss is None else miss_reason(load, _mates(load, spot.lane), miss)


def _reason(load: GpuLoad, spot: Spot) -> Reason:
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "lane": spot.lane, "size_bytes": spot.size_bytes}
    if spot.how is How.NEW:
        return Reason(Why.NEW_LANE, facts, load.jobs)
    return Reason(Why.JOINS_LANE if spot.how is How.JOIN else Why.GROWS_LANE, facts, _mates(load, spot.lane))


def _mates(load: GpuLoad, lane: int) -> tuple[JobId, ...]:
    return tuple(booking.job for booking in load.bookings if booking.lane == lane)


def _no_lane(memory: Memory, most: GpuLoad) -> Reason:
    facts: dict[str, str | int | float] = {
        "persistent_bytes": memory.persistent_bytes,
        "ephemeral_bytes": memory.ephemeral_bytes,
        "gpu": str(most.id),
        "have_bytes": max(0, most.left_bytes),
    }
    return Reason(Why.NO_LANE, facts, most.jobs)
