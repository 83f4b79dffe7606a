"""In a lane of a shared GPU (paper B): memory alone decides which jobs may join; a rule of lanes says which lane.

Jobs in different lanes run at once, which uses a GPU best and promises none a share of it; jobs of one lane take
turns (Yu and Chowdhury, MLSys 2020, section 3.4). A GPU may be joined while the safety condition holds with the
newcomer. Paused jobs keep their P on the GPU, so a job that would be first may still have to wait for memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad, book
from colane.core.cluster.situations import situation_beside, situation_in, situations_joined, speed_lost
from colane.lanes.assign import (
    RESERVE_BYTES,
    How,
    LaneMember,
    LaneSpot,
    Layout,
    SalusRule,
    find,
    find_single,
    salus_find,
)
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec, NeedClass
from colane.model.job_spec import ShareBetween, sharing_domain
from colane.model.profile import Memory
from colane.model.reason import Reason, Why
from colane.perf.rate import RateSource, Situation
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.engine.contracts import Candidate, Outlook, SchedulingContext
from colane.scheduling.engine.refusals import no_place
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.lanes.joinable import Candidates, FullestFirst, JoinableGpu, LaneIndex, entry_of
from colane.scheduling.mechanisms.sharing.beside_servers import BesideServers
from colane.scheduling.mechanisms.sharing.sharing_places import SEEN, answer_bound_s, is_late, may_join, may_share


class ShareWhen(StrEnum):
    """When jobs share a GPU."""

    QUEUE = "queue"  # a free GPU first; a job shares only where it would have to wait
    ALWAYS = "always"  # shared GPUs first, the fullest before others, so that the fewest GPUs are used
    NEVER = "never"


class LaneRule(StrEnum):
    """Which lane a newcomer gets."""

    NO = "no"  # none: no job comes to a GPU for its memory's sake
    OWN = "own"  # one of its own while there is room, else a share of one (paper B, algorithm 1, corrected)
    SINGLE = "single"  # all jobs of a GPU take turns in one (the paper's FAIR and SRTF)
    SALUS = "salus"
    """A lane is as large as P + E of its first job and never grows (SymbioticLab/Salus 7b7f5e06).

    The code's safety factors of 1.1 on P and 1.05 on the sum are those of the beliefs (`perf.PerfConfig`), so the rule
    adds none of its own.
    """


Find = Callable[[Layout, Memory], LaneSpot | None]


def layout_of(load: GpuLoad) -> Layout:
    """The lanes of a GPU whose jobs' memory is known."""
    members = (LaneMember(b.job, b.lane, b.memory) for b in load.bookings if b.memory is not None)
    return Layout(load.capacity_bytes, tuple(members))


@dataclass(frozen=True, slots=True)
class InLane(UsualSource):
    """The source of lanes."""

    lanes: LaneRule = LaneRule.OWN  # which lane a job gets
    share_when: ShareWhen = ShareWhen.QUEUE  # when jobs share
    share_between: ShareBetween = ShareBetween.ALL  # which jobs share
    take_turns: bool = True  # whether a job may join a lane where there is no room for one of its own
    reserve_bytes: int = RESERVE_BYTES  # left free on every GPU under the rule of the released code
    # training jobs join only where the sum of speeds rises by this at least; None lets memory alone decide
    gain_min: float | None = None
    gangs: bool = False  # whether jobs of several GPUs share where that gain was measured, of them or their like

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing."""
        return self.share_when is ShareWhen.NEVER or self.lanes is LaneRule.NO

    def bind(self, context: SchedulingContext) -> BoundLane | None:
        return None if self.is_idle else BoundLane(self, context)

    @property
    def opens(self) -> bool:
        """Whether jobs on a GPU may have lanes of their own, and so run at once; else all take turns in one."""
        return self.lanes is not LaneRule.SINGLE

    @property
    def joins(self) -> bool:
        """Whether jobs may take turns."""
        return self.take_turns or not self.opens

    def find(self) -> Find:
        """The rule as a function."""
        if self.lanes is LaneRule.SINGLE:
            return find_single
        if self.lanes is LaneRule.SALUS:
            return partial(salus_find, rule=SalusRule(1.0, 1.0, self.reserve_bytes))
        return find


MEASURED: Final = SEEN | {RateSource.REGRESSION, RateSource.INTERPOLATED}
"""Sources of what is known of co-runners, from them or from others like them."""

_Asked = tuple[NeedClass, str, str, str]  # a class, a GPU type, and the owner where that matters


class BoundLane(BoundSourceDefaults):
    """`InLane` for one plan."""

    def __init__(self, source: InLane, context: SchedulingContext) -> None:
        self.goes_first = source.share_when is ShareWhen.ALWAYS
        self.has_grown = False
        self.single = source.share_between is not ShareBetween.ALL
        self._servers = BesideServers().bind(context)
        self._draft = context.draft
        self._pool = context.pool
        self._find = source.find()
        self._between = source.share_between
        self._opens = source.opens
        self._joins = source.take_turns
        self._gain_min = source.gain_min
        self._gangs = source.gangs
        self._gains = Gains(context.draft)
        # The two orders of the index are told apart by what is made.
        self._index = context.draft.view.derived(FullestFirst if self.goes_first else LaneIndex)
        self._own_lane: dict[_Asked, Candidates] = {}
        self._in_lane: dict[_Asked, Candidates] = {}
        self._now: dict[GpuId, JoinableGpu] = {}
        self._fresh: list[JoinableGpu] = []

    @property
    def outlook(self) -> Outlook:
        return Outlook.NEWCOMERS if self._servers is None else Outlook.ALL

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """A new lane where there is room for one, else the first lane it may join, else in turn with servers."""
        if not may_share(spec, gangs=self._gangs):
            return
        if spec.gpus > 1:
            yield from self._gang_candidates(job, spec)
            return
        found = self._first(job, spec, self._own_lane, new=True) if self._opens else None
        if found is None and self._joins:
            found = self._first(job, spec, self._in_lane, new=False)
        if found is not None:
            load, spot = found
            yield Candidate((load,), _reason(load, spot), lanes=[spot.lane])
        elif self._servers is not None:
            yield from self._servers.candidates(job, spec)

    def plan_again(self) -> None:
        if self._servers is not None:
            self._servers.plan_again()

    def changed(self, gpus: Iterable[GpuLoad]) -> None:
        for gpu in gpus:
            load = self._draft.load(gpu.id)
            if load.is_joinable or (self._gangs and load.is_joinable_by_gangs):
                self.has_grown = True
                entry = entry_of(load, self._index.sign)
                self._now[load.id] = entry
                self._fresh.append(entry)

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Why nothing was found: no lane with room, a first run alone, an answer too late, no gain."""
        told = None if self._servers is None else self._servers.refusal(job, spec)
        if told is None and spec.gpus > 1 and may_share(spec, gangs=self._gangs):
            return self._gang_refusal(job, spec)
        return self._refusal(job, spec) if told is None else told

    def _refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        lacking, draft = no_place(self._draft, spec), self._draft
        if not lacking.gpus or not may_share(spec):
            return None
        known = list(self._memory(spec))
        if not known:
            return replace(lacking.reason, why=Why.UNKNOWN_ALONE_FIRST)
        for kind, memory in known:
            open_to_it = [draft.load(gpu) for gpu in self._joinable(kind) if gpu not in draft.held]
            loads = [load for load in open_to_it if self._may_meet(load, spec)]
            late = next((found for load in loads if (found := self._late(load, spec, memory)) is not None), None)
            if late is not None:
                return late
            poor = [found for load in loads if (found := self._poor(job, load, spec, memory)) is not None]
            if poor:
                return max(poor, key=lambda reason: float(reason.facts["gain"]))
            if loads:
                return _no_lane(memory, max(loads, key=lambda load: (load.left_bytes, load.id)))
        return None

    def _first(
        self, job: Job, spec: JobSpec, known: dict[_Asked, Candidates], *, new: bool
    ) -> tuple[GpuLoad, LaneSpot] | None:
        for kind, memory in self._memory(spec):
            asked = (spec.need, kind, *self._owner(spec))
            if asked not in known:
                suits = partial(JoinableGpu.has_room_for_lane if new else JoinableGpu.has_room_in_lane, memory=memory)
                least_bytes = sum(memory) if new else memory.persistent_bytes
                known[asked] = Candidates(self._entries(kind, least_bytes), suits)
            for entry in known[asked].walk(self._now, self._fresh_of(kind)):
                load = self._draft.load(entry.gpu)
                spot = self._spot(load, spec, memory)
                if spot is not None and (not new or spot.how is How.NEW) and self._gain(job, spec, load, spot) is None:
                    return load, spot
        return None

    def _spot(self, load: GpuLoad, spec: JobSpec, memory: Memory, find_lane: Find | None = None) -> LaneSpot | None:
        """The lane a job gets on a GPU, if its node has room, all may meet and every answer comes in time.

        No job takes turns with one over several nodes: each node hands out its own.
        """
        welcome = may_join(self._draft, load, spec) and self._may_meet(load, spec)
        spot = (find_lane or self._find)(layout_of(load), memory) if welcome else None
        if spot is None or missed(self._draft, load, spot.lane, spec) is not None:
            return None
        mates = _lane_mates(load, spot.lane) if load.carries_gang else ()
        if any(len({gpu.node for gpu in self._draft.view.job(mate).gpus_held}) > 1 for mate in mates):
            return None
        return None if is_late(self._draft, load, spec, spot.lane) else spot

    def _gain(self, job: Job, spec: JobSpec, load: GpuLoad, spot: LaneSpot) -> float | None:
        """What all gain together where that is too little; None where it is enough, or is not asked."""
        if load.carries_gang:
            gain = self._gains.measured(job, spec, (load,), (spot.lane,))
            return None if gain is not None and gain >= (self._gain_min or 0.0) else gain or 0.0
        if self._gain_min is None or spec.kind is JobKind.INFERENCE:
            return None
        gain = self._gains.of(job, spec, load, spot.lane)
        return gain if gain is not None and gain < self._gain_min else None

    def _poor(self, job: Job, load: GpuLoad, spec: JobSpec, memory: Memory) -> Reason | None:
        """A lane with room where all together would gain too little."""
        spot = self._spot(load, spec, memory)
        gain = self._gain(job, spec, load, spot) if spot is not None else None
        return None if gain is None else _no_gain(load, gain, self._gain_min or 0.0)

    # -- jobs of several GPUs

    def _gang_candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """Where it gets a lane of its own on each GPU, else takes turns on each, if that gains what is asked."""
        for place in self._gang_places(job, spec):
            if place.gain >= (self._gain_min or 0.0):
                reason = replace(_reason(place.shared, place.spot), jobs=place.jobs)
                yield Candidate(place.loads, reason, lanes=place.lanes)
                return

    def _gang_refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """The best that is not enough."""
        best = max(self._gang_places(job, spec), key=lambda place: place.gain, default=None)
        return None if best is None else _no_gain(best.shared, best.gain, self._gain_min or 0.0)

    def _gang_places(self, job: Job, spec: JobSpec) -> Iterator[GangPlace]:
        """Places where what all gain together was measured."""
        for kind, memory in self._memory(spec):
            for loads in self._gang_loads(spec, kind):
                for find_lane in ([self._find] if self._opens else []) + ([find_single] if self._joins else []):
                    spots = self._agreeing(loads, spec, memory, find_lane)
                    lanes = [spot.lane for spot in spots]
                    gain = self._gains.measured(job, spec, loads, lanes) if spots else None
                    if gain is not None:
                        shared = [place for place in zip(loads, spots, strict=True) if place[0].bookings]
                        yield GangPlace(loads, lanes, gain, *shared[0])

    def _agreeing(self, loads: Sequence[GpuLoad], spec: JobSpec, memory: Memory, find_lane: Find) -> list[LaneSpot]:
        """A lane of each GPU, all of its own or, on one node, all in turns; empty where there are no such."""
        in_turns = find_lane is find_single
        found: list[LaneSpot] = []
        for load in loads:
            spot = self._spot(load, spec, memory, find_lane)
            if spot is None or (bool(load.bookings) and (spot.how is How.NEW) is in_turns):
                return []
            found.append(spot)
        return [] if in_turns and len({load.id.node for load in loads}) > 1 else found

    def _gang_loads(self, spec: JobSpec, kind: str) -> Iterator[tuple[GpuLoad, ...]]:
        """The GPUs of each job that has as many, then of each node those with the fewest jobs."""
        draft, seen = self._draft, set[JobId]()
        joinable = self._joinable(kind)
        for gpu in joinable:
            for other in [b.job for b in draft.load(gpu).bookings if b.key.gpus == spec.gpus and b.job not in seen]:
                seen.add(other)
                gpus = draft.view.job(other).gpus_held
                counts = Counter([held.node for held in gpus])
                each = spec.gpus_per_node
                suits = spec.fits_one_node if len(counts) == 1 else spec.multi_node and set(counts.values()) <= {each}
                if len(gpus) == spec.gpus and (suits or (not each and spec.multi_node)):
                    yield tuple([draft.load(held) for held in gpus])
        for name in dict.fromkeys([gpu.node for gpu in joinable]) if spec.fits_one_node else ():
            node = draft.view.nodes[name]
            loads = [draft.load(gpu) for number, gpu in sorted(node.ids.items())]
            loads = [load for load in loads if load.gpu.type == kind and (load.is_free or load.is_joinable_by_gangs)]
            chosen = sorted(loads, key=lambda load: (len(load.bookings), load.id))[: spec.gpus]
            if len(chosen) == spec.gpus and any(load.bookings for load in chosen):
                yield tuple(chosen)

    def _owner(self, spec: JobSpec) -> tuple[str, str]:
        """What of a job decides which jobs it may share with."""
        if self._between is ShareBetween.ALL:
            return "", ""
        return spec.user, spec.group if self._between is ShareBetween.GROUP else ""

    def _may_meet(self, load: GpuLoad, spec: JobSpec) -> bool:
        if not load.admits(spec.sharing_domain):
            return False
        if self._between is ShareBetween.ALL:
            return True
        mine = sharing_domain(spec, self._between)
        others = [self._draft.view.job(booking.job).effective for booking in load.bookings]
        return all(sharing_domain(other, self._between) == mine for other in others)

    def _memory(self, spec: JobSpec) -> Iterator[tuple[str, Memory]]:
        """GPU types on which a job's need is known, that on which it is fastest first."""
        for kind in fastest_first(self._draft, spec, self._draft.view.gpu_types_for(spec)):
            memory = self._draft.beliefs.terms(spec, kind).memory
            if memory is not None:
                yield kind, memory

    def _entries(self, kind: str, left_bytes: int = 0) -> list[JoinableGpu]:
        """GPUs that could be joined when the plan began and had so much left."""
        entries = self._index.entries(self._draft.view, (self._pool, kind), left_bytes)
        return entries if self._gangs else [entry for entry in entries if not entry.carries_gang]

    def _fresh_of(self, kind: str) -> list[JoinableGpu]:
        """GPUs of a type on which something has started since, in order; one list serves a pool of one type."""
        if len(self._draft.view.gpu_types(self._pool)) == 1:
            return self._fresh
        return [entry for entry in self._fresh if self._draft.load(entry.gpu).gpu.type == kind]

    def _joinable(self, kind: str) -> list[GpuId]:
        """GPUs of a type that may be joined now, in the order they are tried."""
        gpus = {entry.gpu: entry for entry in (*self._entries(kind), *self._fresh_of(kind))}
        return [entry.gpu for entry in sorted(gpus.values())]

    def _late(self, load: GpuLoad, spec: JobSpec, memory: Memory) -> Reason | None:
        """A lane with room where an answer would come too late."""
        spot = self._find(layout_of(load), memory)
        miss = missed(self._draft, load, spot.lane, spec) if spot is not None else None
        return None if spot is None or miss is None else miss_reason(load, _lane_mates(load, spot.lane), miss)


class GangPlace(NamedTuple):
    """GPUs for a job of several, some of which others have."""

    loads: tuple[GpuLoad, ...]
    lanes: list[int]  # of each
    gain: float  # see `Gains.measured`
    shared: GpuLoad  # the first that others have
    spot: LaneSpot  # its lane there

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Jobs on any of them."""
        return tuple(sorted({job for load in self.loads for job in load.jobs}))


def _no_gain(load: GpuLoad, gain: float, least: float) -> Reason:
    return Reason(Why.NO_GAIN, {"gpu": str(load.id), "gain": gain, "least": least}, load.jobs)


def _reason(load: GpuLoad, spot: LaneSpot) -> Reason:
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "lane": spot.lane, "size_bytes": spot.size_bytes}
    if spot.how is How.NEW:
        return Reason(Why.NEW_LANE, facts, load.jobs)
    return Reason(Why.JOINS_LANE if spot.how is How.JOIN else Why.GROWS_LANE, facts, _lane_mates(load, spot.lane))


def _lane_mates(load: GpuLoad, lane: int) -> tuple[JobId, ...]:
    return tuple(booking.job for booking in load.bookings if booking.lane == lane)


def _no_lane(memory: Memory, most: GpuLoad) -> Reason:
    facts: dict[str, str | int | float] = {
        "persistent_bytes": memory.persistent_bytes,
        "ephemeral_bytes": memory.ephemeral_bytes,
        "gpu": str(most.id),
        "have_bytes": max(0, most.left_bytes),
    }
    return Reason(Why.NO_LANE, facts, most.jobs)


# -- whether inference jobs answer in time when they take turns with others
#
# How long an answer takes at most: `answer_bound_s`.


class Miss(NamedTuple):
    """An objective that a lane would not keep."""

    latency_s: float
    bound_s: float


def missed(draft: Draft, load: GpuLoad, lane: int, spec: JobSpec) -> Miss | None:
    """The tightest objective that would not be kept if the job joined that lane; None when all would be."""
    members = [draft.view.job(booking.job).effective for booking in load.bookings if booking.lane == lane]
    specs = [*members, spec]
    objectives = [one.latency_s for one in specs if one.kind is JobKind.INFERENCE and one.latency_s is not None]
    if not members or not objectives:
        return None
    bound_s = answer_bound_s([(one.kind, _step_s(draft, one, load.gpu.type)) for one in specs])
    return Miss(min(objectives), bound_s) if bound_s > min(objectives) else None


def miss_reason(load: GpuLoad, jobs: tuple[JobId, ...], miss: Miss) -> Reason:
    """Why a job does not join a lane."""
    return Reason(Why.TOO_SLOW_TO_ANSWER, {"gpu": str(load.id), **miss._asdict()}, jobs)


def _step_s(draft: Draft, spec: JobSpec, gpu_type: str) -> float:
    """Believed step time; nothing can be promised beside a job of unknown steps."""
    return draft.beliefs.rate(spec, Situation(gpu_type)).step_s or inf


# -- what all jobs of a GPU gain by a newcomer: its speed less what the others lose


class Gains:
    """Gains in sums of speeds over those alone (`Rate.ratio`), remembered by co-runners for one plan."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[object, float | None] = {}

    def of(self, job: Job, spec: JobSpec, load: GpuLoad, lane: int) -> float | None:
        """By a job of this size in that lane of a GPU; None where nothing is known of such co-runners."""
        co_runners = tuple([(booking.key, booking.lane, self._weight(booking.job)) for booking in load.bookings])
        asked = (spec.need, spec.weight, load.gpu.type, load.gpu.way, lane, co_runners)
        if asked not in self._known:
            self._known[asked] = self._gain(job, spec, load, lane)
        return self._known[asked]

    def _gain(self, job: Job, spec: JobSpec, load: GpuLoad, lane: int) -> float | None:
        draft, beliefs = self._draft, self._draft.beliefs
        booking = book(job, lane, beliefs.terms(spec, load.gpu.type))
        own = beliefs.rate(spec, situation_beside(load, lane, draft.view.jobs))
        if own.source is RateSource.DEFAULT:
            return None
        return own.ratio - speed_lost(beliefs, load, booking, draft.view.jobs)

    def measured(self, job: Job, spec: JobSpec, loads: Sequence[GpuLoad], lanes: Sequence[int]) -> float | None:
        """By a job on all of these GPUs, speeds counted by GPUs, over its own.

        None where it was not measured, of jobs like these, what any of them do to each other at once.
        """
        beliefs, jobs = self._draft.beliefs, self._draft.view.jobs
        own, lost = inf, dict[JobId, float]()
        for load, lane in zip(loads, lanes, strict=True):
            rate = beliefs.rate(spec, situation_beside(load, lane, jobs, gpus=len(loads)))
            if rate.factors.gpu.source not in MEASURED:
                return None
            own = min(own, rate.ratio)
            booking = book(job, lane, beliefs.terms(spec, load.gpu.type, len(loads)))
            for other, situation in situations_joined(load, booking, jobs):
                one = jobs[other].effective
                after, before = beliefs.rate(one, situation), beliefs.rate(one, situation_in(load, other, jobs))
                if after.factors.gpu.source not in MEASURED:
                    return None
                less = (before.ratio - after.ratio) * (situation.gpus or 1)
                lost[other] = max(less, lost.get(other, less))
        return own - sum(lost.values(), 0.0) / len(loads)

    def _weight(self, job: JobId) -> float:
        return self._draft.view.job(job).spec.weight
