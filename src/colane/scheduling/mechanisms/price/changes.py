"""What each change on a GPU in use is worth: a job comes, and any of those there stay or leave.

A GPU is worth the sum of price x speed of the jobs on it; a change is worth what it adds, less what it costs those it
moves, in the same unit. So joining, taking a place, taking it beside one that stays, and moving are one question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import combinations, islice
from math import ceil, inf
from typing import Final, NamedTuple

from colane.core.cluster.contents import Kind
from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import Means, is_untouched, may_leave, means_of, stopped_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.scheduling.engine.choices import urgent_value
from colane.scheduling.engine.contracts import BoundOrder, Rank, SchedulingContext
from colane.scheduling.engine.live import LiveJobs, Priorities, ran_since_s
from colane.scheduling.engine.moving_costs import STOP_S, dearness, may_move
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, Members
from colane.scheduling.mechanisms.sharing.sharing_places import may_share
from colane.scheduling.mechanisms.sharing.sharing_values import GROUPS_MAX, SharingValues
from colane.scheduling.mechanisms.topology.utility_placer import best_emptied, least_utility

JOIN_PART: Final = 0.05
"""Part of a job's price that a pair must bring: it is never for nothing. Of more `SharingValues.dilution` asks it."""

LESSENED_MAX: Final = 0.9  # what coming back is worth is lessened by so much at most for a job that was moved often

LOOKS_MAX: Final = 256  # of more GPUs in use every second, third, ... of those that are alike is looked at for a job

LOOKS_SEEN_MAX: Final = 64  # the same where no more is looked at than what has changed

EVERY_WAY_MAX: Final = 3  # of so many jobs on a GPU any may stay when another comes

WORK_A_WAY: Final = 2  # to work out one takes as long as to look at so many jobs

SLACK: Final = 1e-9  # part of a price by which two sums of the same terms may differ


def returning_part(queue: BoundOrder, job: Job, now_s: float) -> float:
    """What a place is worth to a waiting job that has run before: the less the oftener it was moved.

    So one that was moved seldom comes back first, and one that was moved often where it may stay. One that is parked
    goes on as it was. Of unknown length one that has run goes by what that tells: its family's new ones run as long.
    """
    if not job.attempt or job.home or queue.is_learnt(job):
        return 1.0
    return 1.0 - min(LESSENED_MAX, dearness(job, now_s))


class GpuChange(NamedTuple):
    """A job comes to a GPU, some leave it, and what that is worth."""

    net: float  # in job-seconds a second; above 0 it pays
    ratio: float  # speed of the job there
    rise: float  # what its coming adds before costs, over its own price
    load: GpuLoad  # the GPU as it is
    out: tuple[Job, ...]  # who leaves it


class Regrouping(NamedTuple):
    """Who stays on a GPU when a job comes, and all speeds that follow from it."""

    stays: tuple[int, ...]  # places of those that stay
    leaves: tuple[int, ...]  # of the others
    before: tuple[float, ...]  # speeds of all as they are
    after: tuple[float, ...]  # of those that stay, once it has come
    ratio: float  # of the job
    slowed: float  # by how much those that stay are slower in sum, at least
    fall: float  # by how much the first is slower, all of its speed if it leaves
    join_part: float  # what joining costs, in prices of the job


Alike = tuple[GpuGroup, Sequence[tuple[float, GpuId]] | None]
"""GPUs that are alike, and which of them are to be looked at, with the least that their jobs count; None for all."""


class WayOn(NamedTuple):
    """GPUs that are alike and one way to come to them, in the order of what that is worth at most."""

    gpu_group: GpuGroup  # they
    way: Regrouping  # who stays, and who leaves
    gpus: Sequence[tuple[float, GpuId]]  # what the jobs there count at least, the least first
    most: float  # what the change is worth on a GPU whose jobs count nothing
    cap: float  # what it is worth on any
    place: int = 0  # of the first that was not looked at


class _Entry(NamedTuple):
    """A line, or a change found on it: the first in order is worth most."""

    minus_most: float  # what it is worth at most, a change exactly, with its sign turned
    stage: int  # of those that may be worth the same first lines, then changes
    gpu: GpuId  # of a change, or of one that is known to be worth as much; that on the first GPU goes first,
    leaving: int  # then that which fewest leave
    number: int  # tells apart what else would be equal
    line: WayOn  # the line, of a change too
    change: GpuChange | None = None  # what was found


NO_GPU: Final = GpuId("", 0)
UNSEEN: Final = 0
FOUND: Final = 1


class PlaceSearch:
    """What jobs that are alike could have on GPUs in use, for one plan: no more of it is worked out than is asked for.

    What was found stays until something is decided on its GPU; then that GPU alone is looked at anew.

    Args:
        changes: Works out what each is worth.
        job: One of the jobs: they wait, or one runs on the GPU `at` and would leave that.
        at: Where it is, to be read by others; then no job leaves for it.
        floor: What a change must be worth at least to come into question.
        among: GPUs to be looked at; None for all.
    """

    def __init__(
        self, changes: GpuChanges, job: Job, at: GpuLoad | None, floor: float, among: Iterable[GpuId] | None
    ) -> None:
        self._changes = changes
        self.at = at
        self._floor = floor
        self._heap: list[_Entry] = []
        self._number = 0
        self._seen = len(changes.draft.touched)
        self._new: dict[GpuId, None] = {}
        self._kinds = changes.draft.view.gpu_types_for(job.effective)
        every, groups = changes.among(self._kinds, at is not None, among)
        self._enter(job, groups, every)

    def go_on(self, changes: GpuChanges, changed: Iterable[GpuId]) -> None:
        """Go on in another plan: no more is looked at anew than the GPUs that have changed since."""
        self._changes, self._seen = changes, 0
        self._new.update(dict.fromkeys(changed))

    def best(self, job: Job, above: float) -> GpuChange | None:
        """The change that is worth most by which one of the jobs comes; None where none is worth more than that."""
        touched, heap = self._changes.draft.touched, self._heap
        if self._new or self._seen < len(touched):
            new = {**self._new, **dict.fromkeys(touched[self._seen :])}
            self._enter(job, self._changes.of_these(self._kinds, self.at is not None, new), 1)
            self._new, self._seen = {}, len(touched)
        while heap and -heap[0].minus_most > above:
            entry = heap[0]
            if entry.change is not None and self._holds(job, entry, entry.change):
                return entry.change
            heappop(heap)
            if entry.change is None:
                self._look(job, entry.line)
        return None

    def _enter(self, job: Job, groups: Iterable[Alike], every: int) -> None:
        """Take up GPUs, by all ways to come to them."""
        changes, floor, is_moving, numbers = self._changes, self._floor, self.at is not None, dict[str, int]()
        price, may_leave = changes.price(job), changes.may_leave and not is_moving
        is_sum = changes.lowest is None or job.spec.priority <= changes.lowest  # else it is not asked what all gain
        for gpu_group, given in groups:
            kind = gpu_group.kind[1]
            if kind not in numbers:
                numbers[kind] = changes.values.number_any(job, job.effective, kind)
            kept: dict[int, list[Regrouping]] = gpu_group.worked_out if may_leave else gpu_group.joins
            ways, gpus = kept.get(numbers[kind]), given
            if ways is None:
                changes.draft.view.work(WORK_A_WAY)
                ways = kept[numbers[kind]] = changes.ways(job, gpu_group, may_leave=may_leave)
            for way in ways:
                changes.draft.looks += 1
                cap = price * (way.ratio + SLACK) - way.slowed  # each second of the others saves a second at least
                if cap <= floor or (way.leaves and not changes.takes_places(job, gpu_group, given, every)):
                    continue
                if gpus is None:
                    gpus = changes.cheapest_first(gpu_group, is_moving, every)
                if gpus:
                    most = price * (way.ratio + SLACK - way.join_part) if is_sum and way.slowed > -inf else inf
                    self._put(WayOn(gpu_group, way, gpus, most, cap))

    def _put(self, line: WayOn) -> None:
        most = line.most - line.gpus[line.place][0] * line.way.fall
        bound = min(line.cap, most)
        if bound > self._floor:
            self._number += 1
            heappush(self._heap, _Entry(-bound, UNSEEN, NO_GPU, 0, self._number, line))

    def _holds(self, job: Job, entry: _Entry, change: GpuChange) -> bool:
        """Whether nothing has changed or was decided that forbids it by now."""
        changes, line, load = self._changes, entry.line, change.load
        if changes.draft.load(load.id) is not load or changes.values.gpu_groups.of(load.id) is not line.gpu_group:
            return False
        return changes.is_allowed(job, line.gpu_group, line.way, change)

    def _look(self, job: Job, line: WayOn) -> None:
        """Work out what the next of a line is worth."""
        changes, gpu_group, way = self._changes, line.gpu_group, line.way
        weight, gpu = line.gpus[line.place]
        found: GpuChange | None = None
        if changes.values.gpu_groups.of(gpu) is gpu_group and (self.at is None or gpu != self.at.id):
            change = changes.change(job, changes.draft.load(gpu), way)
            if change.net > self._floor:
                if way.stays and not changes.all_gain(job, gpu_group, way):
                    return  # on none of its GPUs
                if changes.is_allowed(job, gpu_group, way, change):
                    found = change
        if found is not None:
            self._number += 1
            heappush(self._heap, _Entry(-found.net, FOUND, gpu, len(found.out), self._number, line, found))
        if line.place + 1 == len(line.gpus):
            return
        rest = line._replace(place=line.place + 1)
        following, gpu = line.gpus[rest.place]
        if found is None or way.leaves or len(gpu_group.members) > 1 or following > weight:
            self._put(rest)
        else:  # worth as much
            self._number += 1
            heappush(self._heap, _Entry(-found.net, FOUND, gpu, 0, self._number, rest))


class GpuChanges:
    """The worth of changes on a pool's GPUs, for one plan.

    Args:
        context: Where.
        jobs_max: Jobs on a GPU at most.

    Attributes:
        draft: Where decisions are made.
        values: What sharing is worth.
        looks: So much was looked at: changes, and ways to come to GPUs that are alike.
        price: Of a job.
        may_leave: Whether any job may have its place taken by now.
        lowest: Priority of those that run.
    """

    def __init__(self, context: SchedulingContext, jobs_max: int) -> None:
        self._context = context
        self.draft = context.draft
        self._queue = context.queue
        self._jobs_max = jobs_max
        self.values = SharingValues(context.draft, context.pool, jobs_max - 1, context.queue)
        self._looks_at_all = context.explains or context.draft.view.news(context.pool) is None
        self.price = context.queue.weigh
        live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._live = live
        self.may_leave = live.has_past_min_runtime(context.draft.now_s, context.queue.quantum_s)
        self._last: Rank | None = None
        self.lowest = context.draft.view.derived(Priorities).lowest(context.pool)
        self._lasts: dict[tuple[GpuGroup, int], Rank] = {}
        self._ranks: dict[JobId, Rank] = {}
        self._in_order: dict[tuple[GpuGroup, bool], tuple[int, Sequence[tuple[float, GpuId]]]] = {}
        self._alike: dict[tuple[str, ...], tuple[int, list[Alike]]] = {}
        self._given: dict[tuple[bool, tuple[str, ...]], tuple[Iterable[GpuId], list[Alike]]] = {}
        self._followed = 0

    def look(self) -> None:
        """Something was decided."""
        touched = self.draft.touched
        if self._followed == len(touched):
            return
        self._followed = len(touched)
        self._alike.clear()
        self._given.clear()
        for known in [known for known in self._lasts if known[1] > 1]:  # others are looked at now
            del self._lasts[known]
        self.values.look()

    def takes_places(
        self, job: Job, gpu_group: GpuGroup, given: Sequence[tuple[float, GpuId]] | None, every: int
    ) -> bool:
        """Whether a waiting job may take the place of any: if not of the last in the order, then of none before it.

        Of very many jobs that run those alone are ranked that are on the GPUs to be looked at.
        """
        if len(self._live.jobs) <= LOOKS_MAX:
            if self._last is None:
                rank, jobs = self._queue.rank, self._live.jobs.values()
                self._last = max([rank(one) for one in jobs if one.gpus_held and not one.home], default=(inf,))
            last: Rank | None = self._last
        elif given is not None:
            last = self._last_on([gpu for _, gpu in given])
        else:
            last = self._lasts.get((gpu_group, every))
            if last is None:
                last = self._last_on(_every(gpu_group.joinable, every))
                self._lasts[gpu_group, every] = last
        return last is not None and self._queue.displaces(self._queue.rank(job), last)

    def _last_on(self, gpus: Iterable[GpuId]) -> Rank:
        """Rank of the last of the jobs on these."""
        ranks, rank, jobs, load = self._ranks, self._queue.rank, self.draft.view.jobs, self.draft.load
        found: Rank = (-inf,)
        for gpu in gpus:
            for booking in load(gpu).bookings:
                one = ranks.get(booking.job)
                if one is None:
                    one = ranks[booking.job] = rank(jobs[booking.job])
                found = max(found, one)
        return found if found > (-inf,) else (inf,)

    def cheapest_first(self, gpu_group: GpuGroup, is_moving: bool, every: int) -> Sequence[tuple[float, GpuId]]:
        """One in so many GPUs of one job each, with its price, the least first; of others 0, in no such order."""
        known = self._in_order.get((gpu_group, is_moving))
        if known is not None and known[0] == gpu_group.version:
            return known[1]
        gpus = _every(gpu_group.gpus if is_moving else gpu_group.joinable, every)
        found = [(self._least_of(gpu_group, gpu), gpu) for gpu in gpus]
        if len(gpu_group.members) == 1:
            found.sort()
        self._in_order[gpu_group, is_moving] = gpu_group.version, found
        return found

    def among(self, kinds: list[str], is_moving: bool, among: Iterable[GpuId] | None) -> tuple[int, list[Alike]]:
        """GPUs in use by group, and how many of these one stands for.

        No running job comes to a GPU of which something was decided in this plan.
        """
        if among is not None:
            asked = is_moving, tuple(kinds)
            given = self._given.get(asked)
            if given is None or given[0] is not among:
                given = self._given[asked] = among, self.of_these(kinds, is_moving, among)
            return 1, given[1]
        known = self._alike.get(tuple(kinds))
        if known is None:
            groups = [group for kind in kinds for group in self._some((self._context.pool, kind))]
            most = LOOKS_MAX if self._looks_at_all else LOOKS_SEEN_MAX
            every = max(1, ceil(sum([group.gpu_count for group in groups]) / most))
            known = self._alike[tuple(kinds)] = every, [(group, None) for group in groups]
        return known

    def _some(self, kind: Kind) -> Iterable[GpuGroup]:
        """Groups of a GPU type: of very many the lightest, and of all every second, third, ..."""
        index = self.values.gpu_groups
        groups = index.present(kind)
        if len(groups) <= GROUPS_MAX:
            return groups
        some = islice(groups, 0, None, ceil(2 * len(groups) / GROUPS_MAX))
        return dict.fromkeys([*index.lightest(kind, self._jobs_max - 1, GROUPS_MAX // 2), *some])

    def of_these(self, kinds: list[str], is_moving: bool, gpus: Iterable[GpuId]) -> list[Alike]:
        """Each of them by itself."""
        found: list[Alike] = []
        for gpu in gpus:
            gpu_group = self.values.gpu_groups.of(gpu)
            if gpu_group is not None and gpu_group.kind[1] in kinds and (not is_moving or gpu in gpu_group.gpus):
                found.append((gpu_group, ((self._least_of(gpu_group, gpu), gpu),)))
        return found

    def _least_of(self, gpu_group: GpuGroup, gpu: GpuId) -> float:
        """What the first job on a GPU counts at least: its price where it is the only one."""
        return (
            self._queue.weigh(self.draft.view.jobs[self.draft.load(gpu).jobs[0]])
            if len(gpu_group.members) == 1
            else 0.0
        )

    def value(self, gpu_group: GpuGroup, jobs: Sequence[Job]) -> float:
        """What a GPU is worth as it is."""
        return sum([self._queue.weigh(job) * ratio for job, ratio in zip(jobs, self.speeds(gpu_group), strict=True)])

    def lost(self, gpu_group: GpuGroup, jobs: Sequence[Job], place: int) -> float:
        """What it is worth less without one of these."""
        rest = [job for other, job in enumerate(jobs) if other != place]
        members = _at_places(gpu_group.members, tuple([p for p in range(len(jobs)) if p != place]))
        speeds = self.values.speeds(gpu_group.site, members)
        left = sum([self._queue.weigh(job) * ratio for job, ratio in zip(rest, speeds, strict=True)])
        return self.value(gpu_group, jobs) - left

    def moving_price(self, job: Job, lasts_s: float) -> float:
        """What leaving a GPU and going on later costs a job, if what is won by it lasts so long."""
        cost_s = stopped_s(self.draft.view, job) + STOP_S
        return self._queue.weigh(job) * (cost_s / max(1.0, lasts_s) + dearness(job, self.draft.now_s))

    def leaving_price(self, job: Job, away_s: float) -> float:
        """What waiting for so long costs a job beside its time: as moving, or less if it is parked where it is."""
        if means_of(self.draft, job, away_s=away_s) is Means.PARK:
            return self._queue.weigh(job) * dearness(job, self.draft.now_s)
        return self.moving_price(job, away_s)

    # -- speeds of GPUs that are alike

    def ways(self, job: Job, gpu_group: GpuGroup, *, may_leave: bool) -> list[Regrouping]:
        """Who may stay when a job comes, and who leaves."""
        spec, number, found = job.effective, self._number(job, gpu_group), list[Regrouping]()
        members, before = gpu_group.members, self.speeds(gpu_group)
        known = self.values.number(job, spec, gpu_group.kind[1]) is not None
        places = range(len(members))
        for count in _counts(len(members)) if may_leave else (len(members),):
            if count >= self._jobs_max:
                continue
            for stays in combinations(places, count) if not count or (known and may_share(spec)) else ():
                kept = _at_places(members, stays)
                if kept and not self._may_stay(number, gpu_group, kept):
                    continue
                after = self.values.speeds(gpu_group.site, (*kept, number))
                leaves = tuple([place for place in places if place not in stays])
                slowed, some_gain = 0.0, False
                for place, ratio in zip(stays, after, strict=False):
                    slowed += before[place] - ratio
                    some_gain = some_gain or before[place] < ratio
                fall = before[0] - (after[0] if 0 in stays else 0.0)
                bound = -inf if some_gain else slowed
                join_part = JOIN_PART if count == 1 else 0.0
                found.append(Regrouping(stays, leaves, before, after[:-1], after[-1], bound, fall, join_part))
        return found

    def _may_stay(self, number: int, gpu_group: GpuGroup, kept: Members) -> bool:
        """Whether these may share their GPU with a newcomer that may share one itself, memory apart."""
        values, site, known = self.values, gpu_group.site, self.values.gpu_groups.co_runners
        for who in kept:
            one = known.known[who]
            if not one.share or one.memory is None:
                return False
            if not values.is_known_alone(who, gpu_group.kind[1]):
                return False
        return values.is_borne(number, site, kept)

    def speeds(self, gpu_group: GpuGroup) -> tuple[float, ...]:
        """Of the jobs on each of its GPUs."""
        before = gpu_group.speeds
        if before is None:
            before = gpu_group.speeds = self.values.speeds(gpu_group.site, gpu_group.members)
        return before

    # -- each of them

    def change(self, job: Job, load: GpuLoad, way: Regrouping) -> GpuChange:
        """What a change is worth, of a running job all but what its leaving costs where it was."""
        self.draft.looks += 1
        weigh, price, jobs = self._queue.weigh, self._queue.weigh(job), self.draft.view.jobs
        here = [jobs[booking.job] for booking in load.bookings]
        net, lasts_s = price * way.ratio, 0.0
        for place, ratio in zip(way.stays, way.after, strict=True):
            net += weigh(here[place]) * (ratio - way.before[place])
        if way.leaves or not job.is_waiting:  # else none pays for a move
            lasts_s = self._lasts_s(job, way.ratio)
            for place, ratio in zip(way.stays, way.after, strict=True):
                lasts_s = min(lasts_s, self._lasts_s(here[place], ratio))
        out = tuple([here[place] for place in way.leaves])
        if out:  # without it the job would wait as long as those there run
            lasts_s = max(lasts_s, min([self._queue.left_s(victim) or 0.0 for victim in out]))
        lost = sum([weigh(here[place]) * way.before[place] for place in way.leaves])
        cost = sum([self.moving_price(victim, lasts_s) for victim in out])
        rise = net / price
        if out and all(victim.spec.priority < job.spec.priority for victim in out):
            urgent = price * urgent_value(max(0.0, rise), (lost + cost) / price, 0.0, None)
            return GpuChange(urgent, way.ratio, rise, load, out)
        net -= lost + cost + way.join_part * price
        if not job.is_waiting:
            net -= self.moving_price(job, lasts_s)
        elif net > 0:
            net *= returning_part(self._queue, job, self.draft.now_s)
        return GpuChange(net, way.ratio, rise - lost / price, load, out)

    def _lasts_s(self, job: Job, ratio: float) -> float:
        left_s = self._queue.left_s(job) or 0.0
        return left_s / ratio if ratio > 0 else inf

    # -- what forbids a change

    def is_allowed(self, job: Job, gpu_group: GpuGroup, way: Regrouping, change: GpuChange) -> bool:
        """Whether nothing forbids it, as things are now."""
        load, out, spec = change.load, change.out, job.effective
        if not all(self._may_go(victim, job) for victim in out) or not self.draft.leave_for(out, job):
            return False
        if out and not is_untouched(self.draft, load):
            return False
        rest = load
        for victim in out:
            rest = rest.without(victim.id)
        if not self._fits(job, spec, rest, out):
            return False
        if not rest.bookings:
            return self._starts_on(job, spec, load)
        kept, number = _at_places(gpu_group.members, way.stays), self._number(job, gpu_group)
        return not self.values.is_declined(rest, gpu_group.site, kept, number, job)

    def all_gain(self, job: Job, gpu_group: GpuGroup, way: Regrouping) -> bool:
        """Whether all end earlier on average if a job comes to those that stay, on whichever of the GPUs."""
        kept, number = _at_places(gpu_group.members, way.stays), self._number(job, gpu_group)
        least = self.values.dilution(gpu_group.site, kept, number)
        if least == -inf:  # any sum will do
            return self.values.is_borne(number, gpu_group.site, kept)
        return self.values.rise(number, gpu_group.site, kept) > least

    def _number(self, job: Job, gpu_group: GpuGroup) -> int:
        return self.values.number_any(job, job.effective, gpu_group.kind[1])

    def _may_go(self, victim: Job, job: Job) -> bool:
        """Whether a job may leave for another: that goes before it, and it has not been moved too often."""
        if not self._may_stop(victim):
            return False
        if victim.spec.priority != job.spec.priority:
            return victim.spec.priority < job.spec.priority
        if self.values.waits.keeps_place(victim, job):
            return False
        queue = self._queue
        if not may_move(victim, self.draft.now_s) or not queue.displaces(queue.rank(job), queue.rank(victim)):
            return False
        return queue.yields(job, victim)

    def _may_stop(self, job: Job) -> bool:
        """Whether a job of one GPU may leave it now."""
        if not self.draft.is_undecided(job.id) or len(job.gpus_held) != 1 or job.home or job.is_leaving:
            return False
        if not job.is_movable or ran_since_s(job) + self._queue.quantum_s > self.draft.now_s:
            return False
        return may_leave(self.draft.view, job)

    def _fits(self, job: Job, spec: JobSpec, rest: GpuLoad, out: Sequence[Job]) -> bool:
        """Whether a job fits next to those that remain, with the cores of those that leave."""
        draft, node = self.draft, self.draft.view.nodes[rest.id.node]
        if not rest.bookings:
            fits = draft.fits_alone(rest, spec)
        else:
            memory = draft.beliefs.terms(spec, rest.gpu.type).memory
            fits = memory is not None and sum(memory) <= rest.left_bytes
            fits = fits and rest.is_joinable and rest.admits(spec.sharing_domain)
        if not out and job.home:  # its host memory it has
            return fits and draft.has_room_at_home(job)
        if not out:
            return fits and draft.has_room_beside(node, spec)
        cores = sum([len(victim.placement.cores) for victim in out if victim.placement is not None])
        need = max(spec.cores, spec.cores_beside if rest.bookings else 0)
        return fits and draft.may_use(node, spec) and draft.host_free(node).cores + cores >= need

    def _starts_on(self, job: Job, spec: JobSpec, load: GpuLoad) -> bool:
        """Whether a job would not decline a GPU for its neighbours, once it is empty."""
        least, node = least_utility(self._context, job), self.draft.view.nodes[load.id.node]
        return not least or best_emptied(self.draft, node, spec, (load,), least) is not None


def _every(gpus: Iterable[GpuId], every: int) -> list[GpuId]:
    """One in so many of them."""
    return list(gpus)[::every]


def _counts(members: int) -> Sequence[int]:
    """How many of so many may stay: of many none, one, or all but at most one, as all ways would be too many."""
    return range(members + 1) if members <= EVERY_WAY_MAX else (0, 1, members - 1, members)


def _at_places(members: Members, places: Sequence[int]) -> Members:
    return tuple([members[place] for place in places])
