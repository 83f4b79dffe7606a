"""Jobs of several GPUs by price: whether they take places, and others theirs, and whether they change while they run.

A job that takes the places of others ends sooner by as long as the last of them would have kept it waiting; each of
them ends later by as long as it runs, as far as its GPUs are theirs. What leaving costs them is taken off.

One that runs goes on with other GPUs, faster ones, those of one node in the place of several, or more, where what it
has left, and what its GPUs are worth to others meanwhile, then costs less, its restart paid (`SizeCosts.gain_s`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from colane.core.cluster.contents import JobsOfKind
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import is_untouched
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobSpec, JobState, NeedClass
from colane.model.reason import Reason, Why
from colane.perf.rate import Situation
from colane.perf.topology import Shape, costs_of, shape_of_node
from colane.scheduling.engine.choices import horizon_s, most_valued, value_of
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.engine.live import LiveJobs, OfNodes, ran_since_s
from colane.scheduling.engine.moving_costs import MOVE_PART, may_move
from colane.scheduling.engine.sized_rates import left_with_s, most_on_a_node
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.elastic.priced import PRICED_SIZES, PricedSizes, SizeCosts
from colane.scheduling.mechanisms.elastic.reach import grown, on_one_node
from colane.scheduling.mechanisms.elastic.running import ElasticJobs, elastic_jobs, is_resizable
from colane.scheduling.mechanisms.topology.connected import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.free import any_free

ASKED_MAX: Final = 64  # of more elastic jobs any may be resized: they are not asked one by one

GANG_GROWTH: Final = 1.5
"""Each later move costs so many times the one before: less than of jobs of one GPU, as nothing else bounds them."""


@dataclass(frozen=True, slots=True)
class ByExchange:
    """The candidate of most value, but for places that others leave: these by exchange.

    Value is the job's speed there, less what others lose, less what it costs spread over what it has left. Of equal
    ones the first; one that brings no more than it takes is not taken.

    Among jobs of one GPU alone the chooser has decided. Where another objective than the mean time to the end is
    aimed at, it is no exchange that saves time: those leave that the order names, where that is of most value.
    """

    def choose(
        self, context: SchedulingContext, job: Job, _spec: JobSpec, candidates: Iterator[Candidate]
    ) -> Candidate | None:
        over_s = horizon_s(context.queue.left_s(job))
        return most_valued(candidates, partial(_value, context, job, over_s))


def _value(context: SchedulingContext, job: Job, over_s: float, candidate: Candidate) -> float:
    victims = _equals(context, job, candidate) if context.queue.exchanges else []
    return _exchanged(context, job, candidate, victims) if victims else value_of(candidate, over_s)


def _equals(context: SchedulingContext, job: Job, candidate: Candidate) -> list[Job]:
    """Who leaves for a job that is neither more urgent nor overdue. One that has no GPU changes places with none."""
    victims = [context.draft.view.job(action.job) for action in candidate.room]
    if job.home or any(victim.spec.priority < job.spec.priority for victim in victims) or context.is_overdue(job):
        return []
    return [] if any(not victim.gpus_held for victim in victims) else victims


def _exchanged(context: SchedulingContext, job: Job, candidate: Candidate, victims: list[Job]) -> float:
    """What a change of places is worth, over how long the last of them would have kept the job waiting."""
    if job.gpu_count == 1 and all(victim.gpu_count == 1 for victim in victims):
        return 0.0
    queue, taken = context.queue, {load.id for load in candidate.gpus}
    mine_s = left_with_s(context.draft, queue, job, len(candidate.gpus)) or 0.0
    waits_s = max([left_with_s(context.draft, queue, victim, victim.gpu_count) or 0.0 for victim in victims])
    left = [gpu for victim in victims for gpu in victim.gpus_held if gpu not in taken]
    idle = len(left) - _wanted(context, job, len(left))
    net_s = waits_s - idle * mine_s * queue.gpu_price(job)
    for victim in victims:
        kept = sum([gpu in left for gpu in victim.gpus_held])
        part = (victim.gpu_count - kept + (kept * idle / len(left) if kept else 0.0)) / victim.gpu_count
        dearer = MOVE_PART * GANG_GROWTH**victim.moves
        net_s -= part * mine_s + queue.weigh(victim) * (candidate.cost_s + dearer * mine_s * part)
    return net_s / waits_s if net_s > 0 else 0.0


def _wanted(context: SchedulingContext, job: Job, gpus: int) -> int:
    """How many of so many GPUs others that wait could have, each all of its own."""
    live = context.draft.view.derived(LiveJobs).pool(context.pool)
    wanted = sum([size * count for size, count in live.wanted.items() if size <= gpus])
    return min(gpus, wanted - (job.gpu_count if job.gpu_count <= gpus else 0))


# -- running gangs


@dataclass(frozen=True, slots=True)
class GangMoves(UsualMoving):
    """Running gangs and elastic jobs go on with other GPUs where that saves more than it costs."""

    moves: bool = True  # whether running jobs are moved at all; elastic ones grow anyway
    consolidates: bool = True  # whether jobs over several nodes go to one
    sizes: PricedSizes = PRICED_SIZES  # what numbers of GPUs cost

    def plan(self, context: SchedulingContext) -> None:
        """Make the changes of a pool that save most first; one takes a place that was another's, too."""
        able = self._able(context)
        if not able:
            return
        gangs = _Gangs(self, context)
        found = sorted([change for job in able for change in gangs.changes(job)], key=_most_first)
        for change in found:
            gangs.make(change)
        if self.sizes.is_bounded:
            gangs.make_fairest([change for change in found if change.grows])

    def _able(self, context: SchedulingContext) -> list[Job]:
        """Jobs that may change; those that are looked at even while none waits make the pool be planned again."""
        draft, view = context.draft, context.draft.view
        can_grow, is_free = partial(is_resizable, draft), any_free(context)
        scattered: Iterable[JobId] = ()
        if self.moves and self.consolidates:
            scattered = sorted(view.derived(ScatteredJobs).of(context.pool))
        held = view.derived(ElasticJobs).of(context.pool)
        is_any = len(held) > ASKED_MAX or any(map(can_grow, elastic_jobs(context)))
        if is_any:
            draft.plan_after_moves(context.pool)
        if is_any or scattered:
            draft.plan_while_idle(context.pool)
        if not is_free:
            return []
        others = partial(view.derived(Staying).others, draft, self.sizes.costs(context))
        found = {job.id: job for job in others(held) if can_grow(job)}
        live = view.derived(LiveJobs).pool(context.pool)
        most = max([draft.free((context.pool, kind)).most_free for kind in view.gpu_types(context.pool)])
        if self.moves:
            gangs = live.gangs_past_min_runtime(draft.now_s, context.queue.quantum_s, most)
            found.update({job.id: job for job in others(gangs)})
        apart, most = map(view.job, scattered), most_on_a_node(draft)
        found.update({job.id: job for job in apart if job.gpu_count <= most})
        return list(found.values())


KindOfGpus = tuple[str, str, Shape]  # the type, how jobs share such a GPU, and the shape of its node


class Staying(OfNodes):
    """Running jobs for which nothing is better, whatever is free: no place as large is faster, no larger size is.

    It is kept of each until it, a node or a speed is otherwise.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: set[JobId] = set()
        self._fastest: dict[tuple[NeedClass, int], float] = {}
        self._kinds: dict[str, Counter[KindOfGpus]] = {}
        self._speeds_version = -1

    def moved(self, old: Job | None, _new: Job | None) -> None:
        if old is not None:
            self._jobs.discard(old.id)

    def count(self, node: Node, change: int) -> None:
        kinds, shape = self._kinds.setdefault(node.pool, Counter()), shape_of_node(node)
        for gpu in node.gpus:
            kinds[gpu.type, gpu.way, shape] += change
        self._speeds_version = -1

    def others(self, draft: Draft, costs: SizeCosts, jobs: Iterable[JobId]) -> list[Job]:
        """Those of these jobs for which something may be."""
        self.look(draft.view)
        if self._speeds_version != draft.beliefs.speeds_version:
            self._speeds_version, self._fastest = draft.beliefs.speeds_version, {}
            self._jobs.clear()
        asked = [draft.view.job(job_id) for job_id in jobs if job_id not in self._jobs]
        self._jobs.update([job.id for job in asked if self._stays(draft, costs, job)])
        return [job for job in asked if job.id not in self._jobs]

    def _stays(self, draft: Draft, costs: SizeCosts, job: Job) -> bool:
        spec, gpus = job.effective, job.gpu_count
        if job.state is not JobState.RUNNING or costs.may_grow(job):
            return False
        if gpus < 2 or spec.multi_node:
            return gpus < 2
        fastest = self._fastest.get((spec.need, gpus))
        if fastest is None:
            types, kinds = draft.view.gpu_types_for(spec), self._kinds[spec.pool]
            there = [
                Situation(kind, gpus, distance, way)
                for kind, way, shape in kinds if kind in types and kinds[kind, way, shape]
                for distance in costs_of(shape, gpus)
            ]  # fmt: skip
            fastest = max([draft.beliefs.rate(spec.at(gpus), one).ratio for one in there], default=0.0)
            self._fastest[spec.need, gpus] = fastest
        return speed_on(draft, spec.at(gpus), [draft.load(gpu) for gpu in job.gpus_held]) >= fastest


class _GangChange(NamedTuple):
    """What a job goes on with, and what that saves, in seconds: more GPUs, or as many, faster ones or of one node."""

    gain_s: float
    grows: bool
    gpus: int
    job: Job


class _Gangs:
    def __init__(self, settings: GangMoves, context: SchedulingContext) -> None:
        self._settings = settings
        self._context = context
        self._draft = context.draft
        self._quantum_s = context.queue.quantum_s
        self._fastest = BoundFastest(context)
        self._costs = settings.sizes.costs(context)

    def changes(self, job: Job) -> Iterator[_GangChange]:
        """Every change that pays."""
        if self._may_move(job):
            then = self._same_size(job)
            if then is not None:
                yield _GangChange(then[0], False, job.gpu_count, job)
        if is_resizable(self._draft, job):
            for gain_s, gpus in self._costs.growths(job):
                yield _GangChange(gain_s, True, gpus, job)

    def make(self, change: _GangChange) -> None:
        """Do so, if there is still a place on which it pays."""
        job, draft = change.job, self._draft
        if not draft.is_undecided(job.id):
            return
        if change.grows:
            if self._costs.is_fair(job, change.gpus):
                self._grow(change)
            return
        found = self._same_size(job)
        if found is None:
            return
        _, faster, rise, loads = found
        facts: dict[str, str | int | float]
        if self._is_scattered(job):
            nodes = len({gpu.node for gpu in job.gpus_held})
            facts = {"nodes": nodes, "node": loads[0].id.node, "faster": faster}
            draft.resize(job, loads, Reason(Why.CONSOLIDATED, facts))
        else:
            facts = {"had": str(job.gpus_held[0]), "gpu": str(loads[0].id), "rise": rise}
            draft.resize(job, loads, Reason(Why.MOVED, facts, loads[0].jobs))

    def make_fairest(self, growths: list[_GangChange]) -> None:
        """What is still free goes, one growth at a time, where speeds then vary least: Listing 1 of paper E, too."""
        left = [growth for growth in growths if self._draft.is_undecided(growth.job.id)]
        while left:
            fairest = min(left, key=self._by_variance)
            self._grow(fairest)
            left = [one for one in left if one is not fairest and self._draft.is_undecided(one.job.id)]

    def _by_variance(self, growth: _GangChange) -> tuple[float, float, JobId, int]:
        return (self._costs.variance_with(growth.job, growth.gpus), *_most_first(growth))

    def _grow(self, growth: _GangChange) -> None:
        job, gpus = growth.job, growth.gpus
        loads = grown(self._context, job, gpus)
        if loads is not None:
            then_s = self._costs.left_s(job, gpus, spans=len({load.id.node for load in loads}) > 1)
            if self._costs.gain_s(job, gpus, then_s) > 0:
                self._draft.resize(job, loads, Reason(Why.GROWN, {"had": job.gpu_count, "gpus": gpus}))

    def _is_scattered(self, job: Job) -> bool:
        return job.placement is not None and len(job.placement.nodes) > 1

    def _may_move(self, job: Job) -> bool:
        """Whether a job saves its state, has its GPUs for itself, and has not gone to faster ones too often."""
        draft = self._draft
        if not self._settings.moves or job.state is not JobState.RUNNING or not job.effective.preemptible:
            return False
        if job.gpu_count < 2 or not (job.effective.sizes or job.gpu_count == job.effective.gpus):
            return False
        if not draft.is_undecided(job.id) or ran_since_s(job) + self._quantum_s > draft.now_s:
            return False
        if not self._is_scattered(job) and not may_move(job, draft.now_s):
            return False
        loads = [draft.load(gpu) for gpu in job.gpus_held]
        return all(len(load.bookings) == 1 and is_untouched(draft, load) for load in loads)

    def _same_size(self, job: Job) -> tuple[float, float, float, tuple[GpuLoad, ...]] | None:
        """The place of as many GPUs that saves most: what, by how much it is faster there, in parts and speed."""
        draft, spec = self._draft, job.effective.at(job.gpu_count)
        has = self._speed(job, spec, [draft.load(gpu) for gpu in job.gpus_held])
        now_s, best = self._costs.now_s(job), None
        places: Iterable[tuple[GpuLoad, ...] | None]
        if self._is_scattered(job):
            places = [on_one_node(self._context, job)]
        else:
            places = [candidate.gpus for candidate in self._fastest.candidates(job, spec)]
        for loads in places:
            if loads is not None:
                there = self._speed(job, spec, loads)
                gain_s = self._costs.gain_s(job, job.gpu_count, now_s * has / there)
                if gain_s > (0.0 if best is None else best[0]):
                    best = gain_s, there / has, there - has, loads
        return best

    def _speed(self, job: Job, spec: JobSpec, loads: Sequence[GpuLoad]) -> float:
        """Alone on these; of one over several nodes by what is known of one node and several, else by type."""
        if not self._is_scattered(job):
            return speed_on(self._draft, spec, loads)
        spans = len({load.id.node for load in loads}) > 1
        return self._draft.beliefs.rate(spec, Situation(loads[0].gpu.type, len(loads), spans=spans)).ratio


def _most_first(change: _GangChange) -> tuple[float, JobId, int]:
    return -change.gain_s, change.job.id, change.gpus


class ScatteredJobs(JobsOfKind):
    """Jobs over several nodes that can be stopped, by pool, kept from plan to plan; not those that must be so."""

    def belongs(self, job: Job) -> bool:
        spec, placement = job.effective, job.placement
        if not spec.multi_node or spec.gpus_per_node or not spec.preemptible or job.state is not JobState.RUNNING:
            return False
        return placement is not None and not job.home and not job.parked and len(placement.nodes) > 1
