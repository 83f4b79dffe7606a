"""In the place of a job that goes behind in the order, next to its co-runners: it is parked, or stopped.

Of several places the one of most value: how much the newcomer raises the sum of speeds, less what the victim added to
it, by what their speeds weigh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import cheapest, is_untouched, leaving_s, may_leave
from colane.model.job import Job, JobId, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.choices import urgent_value
from colane.scheduling.engine.contracts import Candidate, Classes, Order, Rank, SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.openings import Openings
from colane.scheduling.engine.usual import BoundSourceDefaults
from colane.scheduling.mechanisms.preemption.preemption_utility import best_emptied
from colane.scheduling.mechanisms.sharing.co_runner_index import others
from colane.scheduling.mechanisms.sharing.groups import GpuGroup
from colane.scheduling.mechanisms.sharing.sharing_places import fits_instead, made_for
from colane.scheduling.mechanisms.sharing.sharing_values import JOBS_PER_GPU_MAX, SharingValues
from colane.scheduling.mechanisms.topology.connected import least_utility


@dataclass(frozen=True, slots=True)
class Swap:
    """In the place of a job that goes behind in the order, next to its co-runners."""

    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX
    rise_min: float = 0.0

    def bind(self, context: SchedulingContext) -> BoundSwap | None:
        return BoundSwap(self, context)

    def min_runtime_before_preemption_s(self, order: Order) -> float:
        return order.quantum_s


class _Place(NamedTuple):
    """A victim's place that a job could take, and what that is worth."""

    value: float
    rank: Rank
    rise: float
    lost: float
    ratio: float
    load: GpuLoad
    victim: Job


class _GroupVictims(NamedTuple):
    """Victims in the same place of GPUs that are alike, the last in rank first."""

    gpu_group: GpuGroup
    place: int
    victims: list[tuple[Rank, Job]]


class BoundSwap(BoundSourceDefaults):
    """See `Swap`."""

    def __init__(self, source: Swap, context: SchedulingContext) -> None:
        self._context = context
        self._draft = context.draft
        self._rise_min = source.rise_min
        self._values = SharingValues(context.draft, context.pool, source.jobs_per_gpu_max - 1, context.queue)
        self._openings = Openings(context.draft, context.pool, context.queue)
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._ranked: list[tuple[Rank, Job]] | None = None
        self._groups: list[_GroupVictims] | None = None
        context.draft.plan_after_moves(context.pool)
        context.draft.plan_again(
            context.pool, self._live.min_runtime_until_s(context.draft.now_s, context.queue.quantum_s)
        )

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        if spec.gpus != 1 or job.home:
            return
        made = made_for(self._draft, self._live, job)
        if made is not None:
            yield Candidate((made,), Reason(Why.PREEMPTING, {}, ()), waits_for=made.jobs, is_later=True)
            return
        best = max(self._places(job, spec), key=_value, default=None)
        if best is None or (not is_urgent(job, best.victim) and self._openings.suffice(job, spec, (best.load,))):
            return
        candidate = self._candidate(job, best)
        if candidate is not None:
            yield candidate

    def may_help(self, classes: Classes) -> Classes | None:
        return (
            classes
            if self._live.going or self._live.has_past_min_runtime(self._draft.now_s, self._context.queue.quantum_s)
            else {}
        )

    def _may_displace(self, rank: Rank) -> bool:
        """Whether a job of this rank goes before any that may be moved."""
        ranked = self._victims()
        return bool(ranked) and self._context.queue.displaces(rank, ranked[-1][0])

    def _victims(self) -> list[tuple[Rank, Job]]:
        """Jobs of one GPU that may be moved, first in rank first."""
        if self._ranked is None:
            draft, queue = self._draft, self._context.queue
            jobs = [draft.view.job(job) for job in self._live.past_min_runtime(draft.now_s, queue.quantum_s)]
            mine = [job for job in jobs if len(job.gpus_held) == 1 and may_leave(draft.view, job)]
            self._ranked = sorted([(queue.rank(job), job) for job in mine], key=_rank_of)
        return self._ranked

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        self._values.look()

    def _gpu_groups(self) -> list[_GroupVictims]:
        """Victims by what they are and by their co-runners, in each group and of all groups the last in rank first."""
        if self._groups is None:
            groups: dict[tuple[GpuGroup, int], _GroupVictims] = {}
            for rank, victim in reversed(self._victims()):
                gpu = victim.gpus_held[0]
                gpu_group = self._values.gpu_groups.of(gpu)
                if gpu_group is not None:
                    place = self._draft.view.gpu(gpu).jobs.index(victim.id)
                    group = groups.get((gpu_group, place))
                    if group is None:
                        group = groups[gpu_group, place] = _GroupVictims(gpu_group, place, [])
                    group.victims.append((rank, victim))
            self._groups = list(groups.values())
        return self._groups

    def _places(self, job: Job, spec: JobSpec) -> Iterator[_Place]:
        """The last in rank of each group: of equal ones its speed weighs least."""
        draft, queue, rank = self._draft, self._context.queue, self._context.queue.rank(job)
        types = draft.view.gpu_types_for(spec)
        for group in self._gpu_groups() if self._may_displace(rank) else ():
            if not queue.displaces(rank, group.victims[0][0]):
                break
            if group.gpu_group.kind[1] in types:
                place = self._instead(job, spec, group, rank)
                if place is not None:
                    yield place

    def _instead(self, job: Job, spec: JobSpec, group: _GroupVictims, rank: Rank) -> _Place | None:
        """What it is worth to come to a GPU that a job of a group leaves."""
        gpu_group, values, weigh = group.gpu_group, self._values, self._context.queue.weigh
        number, rest = values.number_any(job, spec, gpu_group.kind[1]), others(gpu_group.members, group.place)
        rise = values.rise(number, gpu_group.site, rest)
        if rise <= (max(self._rise_min, values.dilution(gpu_group.site, rest, number)) if rest else 0.0):
            return None  # nor would it come to them once the place is free
        for other_rank, victim in group.victims:
            if not self._context.queue.displaces(rank, other_rank):
                return None
            load, urgent = self._draft.load(victim.gpus_held[0]), is_urgent(job, victim)
            if not is_untouched(self._draft, load) or not fits_instead(
                self._draft, spec, load.without(victim.id), victim
            ):
                continue
            if not rest and not self._starts_on(job, spec, load):
                continue
            if urgent or not self._is_bad(job, group, number, victim):
                lost = values.loss(gpu_group, group.place) * weigh(victim) / weigh(job)
                value = urgent_value(rise, lost, 0.0, None) if urgent else rise - lost
                ratio = values.ratio(gpu_group.site, number, rest)
                return _Place(value, other_rank, rise, lost, ratio, load, victim)
        return None

    def _starts_on(self, job: Job, spec: JobSpec, load: GpuLoad) -> bool:
        """Whether a job would not decline a GPU for its neighbours, once it is empty."""
        least, node = least_utility(self._context, job), self._draft.view.nodes[load.id.node]
        return not least or best_emptied(self._draft, node, spec, (load,), least) is not None

    def _is_bad(self, job: Job, group: _GroupVictims, number: int, victim: Job) -> bool:
        """Whether the victim would be bound for too long, or the job and those that remain to each other."""
        gpu_group, values, rest = group.gpu_group, self._values, others(group.gpu_group.members, group.place)
        if values.waits.keeps_place(victim, job, values.ratio(gpu_group.site, number, rest)):
            return True
        load = self._draft.load(victim.gpus_held[0]).without(victim.id)
        return bool(rest) and values.is_declined(load, gpu_group.site, rest, number, job)

    def _candidate(self, job: Job, place: _Place) -> Candidate | None:
        queue = self._context.queue
        left_s = queue.left_s(job)
        action = cheapest(
            self._draft, place.victim, job.id, queue.because_of(job, place.victim), 0, away_s=left_s or 0.0
        )
        if action is None:
            return None
        value, cost_s = place.value, leaving_s(self._draft.view, place.victim, action)
        if is_urgent(job, place.victim):
            value, cost_s = urgent_value(place.rise, place.lost, cost_s, left_s), 0.0
        return Candidate(
            (place.load,), Reason(Why.PREEMPTING, {}, (place.victim.id,)), room=(action,), waits_for=place.load.jobs,
            is_later=True, ratio=place.ratio, harm=place.ratio - value, cost_s=cost_s,
        )  # fmt: skip


def is_urgent(job: Job, victim: Job) -> bool:
    """Whether a job's place is asked for by one of higher priority: then it is not weighed whether that pays."""
    return job.spec.priority > victim.spec.priority


def _value(place: _Place) -> tuple[float, Rank]:
    return place.value, place.rank


def _rank_of(entry: tuple[Rank, Job]) -> tuple[Rank, JobId]:
    return entry[0], entry[1].id
