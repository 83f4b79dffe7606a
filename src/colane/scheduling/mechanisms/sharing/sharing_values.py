"""What sharing is worth: the sum of the speeds of the jobs on a GPU (Gavel's normalised throughput)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf, log2
from typing import Final, NamedTuple

from colane.core.cluster.contents import Kind
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import Booking, GpuLoad, book
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.perf.rate import Rate, Situation
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.waiting import Waits
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, GpuGroupIndex, Members, Site, by_weight, others
from colane.scheduling.mechanisms.sharing.sharing_places import SEEN, is_known_alone

JOBS_PER_GPU_MAX: Final = 16  # jobs on one GPU at most: memory and what sharing brings end it sooner

DILUTED_MIN: Final = 2
"""Of so many jobs on a GPU a further one must pay for the time all there take longer: one of a pair can go on
elsewhere as soon as a GPU falls free, if either can be stopped."""

PAIRS_MIN: Final = 0.05
"""By so much the sum of speeds must rise for two to share that cannot be stopped; less may be error."""

BURDEN_MIN: Final = 0.1  # a job that lowers the sum of speeds on a GPU by so much burdens it; less may be error

GROUPS_MAX: Final = 64
"""Of a GPU type so many sets of co-runners are looked at for a job, the lightest first (paper A's order)."""

TRY_LOOKS: Final = 8  # what it is to see whether sharing may be tried on GPUs alike (`Draft.looks`)

TRIES_MAX: Final = 64
"""Of equal GPUs so many are looked at for sharing to try: where these do not step the others hardly do."""


class Joining(NamedTuple):
    """A GPU to come to, by how much the sum of speeds would rise, and by how much it must at least."""

    rise: float
    least: float
    load: GpuLoad


class SharingValues:
    """What sets of co-runners are worth, by what they are: equal GPUs are looked at once (`GpuGroupIndex`).

    Args:
        draft: Where decisions are made.
        pool: Where.
        jobs_max: Jobs that a GPU may have for another to join.
    """

    def __init__(self, draft: Draft, pool: str, jobs_max: int, queue: BoundOrder | None = None) -> None:
        self._draft = draft
        self._pool = pool
        self._queue = queue
        self._jobs_max = jobs_max
        self.waits = Waits(draft, pool, queue)
        self._alone: dict[tuple[int, str], bool] = {}
        self._still: set[GpuGroup] = set()
        self._left: dict[Kind, tuple[tuple[int, int], list[GpuGroup]]] = {}
        self._among: tuple[Mapping[GpuId, None] | None, int, list[GpuGroup]] = (None, 0, [])
        self.gpu_groups = draft.view.derived(GpuGroupIndex)
        gpus = draft.view.derived(LiveJobs).usable_gpus(draft.view, pool)
        self._waiting = in_doublings(draft.view.queue(pool).count / max(1, gpus))
        self.gpu_groups.wait(pool, self._waiting)
        self.look()

    def look(self) -> None:
        """Something was decided."""
        self.gpu_groups.look(self._draft)

    def rate(self, spec: JobSpec, load: GpuLoad, others: Sequence[Booking]) -> Rate:
        """Of a job on a GPU, in a lane of its own beside these."""
        keys = tuple([booking.key for booking in others])
        return self._draft.beliefs.rate(spec, Situation(load.gpu.type, 1, None, load.gpu.way, keys))

    def number(self, job: Job, spec: JobSpec, gpu_type: str) -> int | None:
        """Of a job as a co-runner on a GPU of a type; None where its memory or its time alone is not known."""
        number = self.number_any(job, spec, gpu_type)
        known = self.gpu_groups.co_runners.known[number]
        return number if known.memory is not None and self.is_known_alone(number, gpu_type) else None

    def number_any(self, job: Job, spec: JobSpec, gpu_type: str) -> int:
        """The same, whatever is known of it."""
        asked = spec.need, spec.utility_min, spec.preemptible, gpu_type
        number = self.gpu_groups.co_runners.asked.get(asked)
        if number is None:
            booking = book(job, 0, self._draft.beliefs.terms(spec, gpu_type))
            number = self.gpu_groups.co_runners.asked[asked] = self.gpu_groups.co_runners.number(booking, spec)
        return number

    def total(self, site: Site, members: Members) -> float:
        """Sum of the speeds of these jobs on a GPU."""
        if not members:
            return 0.0
        asked, stamp = (site, tuple(sorted(members))), self.gpu_groups.co_runners.stamp(members)
        known = self.gpu_groups.totals.get(asked)
        if known is None or known[0] != stamp:
            total = 0.0
            for place in range(len(members)):
                total += self.ratio(site, members[place], others(members, place))
            known = self.gpu_groups.totals[asked] = stamp, total
        return known[1]

    def ratio(self, site: Site, number: int, beside: Members) -> float:
        """Speed of a job next to others."""
        return self._rate(site, number, beside).ratio

    def speeds(self, site: Site, members: Members) -> tuple[float, ...]:
        """Of these jobs together on a GPU, each over that alone at its best."""
        known = self.gpu_groups.co_runners
        specs, keys = [known.specs[who] for who in members], [known.known[who].key for who in members]
        return self._draft.beliefs.speeds_together(specs, keys, *site)

    def _rate(self, site: Site, number: int, beside: Members) -> Rate:
        keys = tuple([self.gpu_groups.co_runners.known[other].key for other in beside])
        return self._draft.beliefs.rate(
            self.gpu_groups.co_runners.specs[number], Situation(site[0], 1, None, site[1], keys)
        )

    def rise(self, number: int, site: Site, members: Members) -> float:
        """By how much the sum of speeds rises by one that joins; minus infinity where one is too slow, or to answer."""
        if not self.is_borne(number, site, members):
            return -inf
        return self.total(site, (*members, number)) - self.total(site, members)

    def is_borne(self, number: int, site: Site, members: Members) -> bool:
        """Whether all are as fast as they must be, and answer as soon, if one joins these."""
        joined = (*members, number)
        for place, who in enumerate(joined):
            known = self.gpu_groups.co_runners.known[who]
            least, latency_s = known.utility_min, known.latency_s
            if least and self.ratio(site, who, others(joined, place)) < least:
                return False
            if latency_s is not None and (self._rate(site, who, others(joined, place)).step_s or inf) > latency_s:
                return False
        return True

    def rise_at(self, number: int, gpu_group: GpuGroup) -> float:
        """The same for a group of GPUs; minus infinity where it may not be joined by such a job."""
        rise = gpu_group.rises.get(number)
        if rise is None:
            rise = self.rise(number, gpu_group.site, gpu_group.members) if self._may_join(number, gpu_group) else -inf
            gpu_group.rises[number] = rise
        return rise

    def is_known(self, site: Site, members: Members) -> bool:
        """Whether anything is known of what these jobs do to each other."""
        asked, stamp = (site, tuple(sorted(members))), self.gpu_groups.co_runners.stamp(members)
        known = self.gpu_groups.known_sets.get(asked)
        if known is None or known[0] != stamp:
            is_known = self._rate(site, members[0], members[1:]).factors.gpu.is_known
            known = self.gpu_groups.known_sets[asked] = stamp, is_known
        return known[1]

    def has_untried(self, number: int, gpu_type: str, among: Mapping[GpuId, None] | None = None) -> bool:
        """Whether there are co-runners for a job of which nothing is known, cores apart; on these GPUs if named."""
        kind = self._pool, gpu_type
        if among is not None:
            return any(self._is_untried(number, gpu_group) for gpu_group in self._tries(kind, among))
        version = self.gpu_groups.version(kind)
        known = self.gpu_groups.tries.get((number, kind))
        if known is None or known[0] != version:
            found = any(self._is_untried(number, gpu_group) for gpu_group in self._groups(kind))
            known = self.gpu_groups.tries[number, kind] = version, found
        return known[1]

    def _is_untried(self, number: int, gpu_group: GpuGroup) -> bool:
        """Whether a job could be the second on GPUs where that was never measured, nor is being tried.

        Only those whose time alone is known can be seen to be slower.
        """
        if len(gpu_group.members) != 1 or not self._draft.beliefs.learns or self.rise_at(number, gpu_group) == -inf:
            return False
        joined = (*gpu_group.members, number)
        if self.is_known(gpu_group.site, joined) or self.gpu_groups.is_there(gpu_group.kind, joined):
            return False
        alone = [self._rate(gpu_group.site, who, ()).alone for who in joined]
        return None not in alone

    def untried(
        self, job: Job, spec: JobSpec, number: int, gpu_type: str, among: Mapping[GpuId, None] | None = None
    ) -> GpuLoad | None:
        """The lightest GPU where sharing may be tried: the job there makes steps, so that it will be known."""
        draft, waits = self._draft, self.waits
        if not self.has_untried(number, gpu_type, among):
            return None
        for gpu_group in self._tries((self._pool, gpu_type), among):
            draft.looks += TRY_LOOKS
            if not self._is_untried(number, gpu_group):
                continue
            if waits.is_asked and waits.would_rather_wait(job, self.ratio(gpu_group.site, number, gpu_group.members)):
                continue  # on none of its GPUs
            for load in self._stepping(gpu_group, among):
                has_room = draft.has_room_beside(draft.view.nodes[load.id.node], spec)
                if has_room and not self.is_declined(load, gpu_group.site, gpu_group.members, number, job):
                    return load
        return None

    def may_try(self, gpu_type: str, among: Mapping[GpuId, None] | None = None) -> bool:
        """Whether on any GPU that may be joined the only job makes steps: elsewhere nothing would be learnt."""
        return any(self._stepping(gpu_group, among) for gpu_group in self._tries((self._pool, gpu_type), among))

    def _tries(self, kind: Kind, among: Mapping[GpuId, None] | None) -> list[GpuGroup]:
        """Groups of one job each that are not known to stand still: no others can be tried in this plan."""
        if not self.gpu_groups.stepping:
            return []
        if among is not None:
            touched = len(self._draft.touched)
            if self._among[0] is not among or self._among[1] != touched:
                there = [(self.gpu_groups.of(gpu), gpu) for gpu in among]
                found = [one for one, gpu in there if one is not None and self._steps(self._draft.load(gpu))]
                self._among = among, touched, sorted(filter(self._is_tried, dict.fromkeys(found)), key=by_weight)
            return [one for one in self._among[2] if one.kind == kind]
        asked = self.gpu_groups.version(kind), len(self._still)
        known = self._left.get(kind)
        if known is None or known[0] != asked:
            found = [one for one in self._groups(kind) if self._is_tried(one) and one not in self._still]
            known = self._left[kind] = asked, found
        return known[1]

    @staticmethod
    def _is_tried(gpu_group: GpuGroup) -> bool:
        return len(gpu_group.members) == 1 and gpu_group.sharing_domain is not None

    def _stepping(self, gpu_group: GpuGroup, among: Mapping[GpuId, None] | None) -> list[GpuLoad]:
        """Of a group's first GPUs those whose only job makes steps; where there is none it is not asked again."""
        gpus = gpu_group.gpus[:TRIES_MAX]
        if among is not None:
            gpus = [gpu for gpu in gpu_group.gpus if gpu in among]
        found = list(filter(self._steps, [self._draft.load(gpu) for gpu in gpus]))
        if not found and among is None:
            self._still.add(gpu_group)
        return found

    def _steps(self, load: GpuLoad) -> bool:
        """Whether the first job there makes steps."""
        return bool(load.bookings) and self._draft.view.jobs[load.bookings[0].job].first_step_s is not None

    def dilution(self, site: Site, members: Members, number: int) -> float:
        """By how much the sum of speeds must rise for jobs to end earlier on average if one more joins these.

        Of N alike jobs for a GPU, k at a time at a sum of s, the mean end is (N + k) / 2 s times the length of one: one
        more at a time pays if s rises by more than s / (N + k). Of several it is asked of the sum that is usual on GPUs
        of the type where these come to less: a job that waits finds a better place than to mend a bad one. None joins
        several of which it was not seen what they do to each other.
        """
        count = len(members)
        if count < DILUTED_MIN:
            return self._pair_dilution(site, (*members, number))
        if self._draft.beliefs.learns and self._rate(site, members[0], members[1:]).factors.gpu.source not in SEEN:
            return inf
        if self._ends_all_at_once:
            return -inf
        total, usual = self.total(site, members), self.gpu_groups.usual((self._pool, site[0]), self.total)
        return max(0.0, usual - total) + max(total, usual) / (2 * count + self._waiting)

    def _pair_dilution(self, site: Site, pair: Members) -> float:
        """The same of one that joins one: it is asked where neither can be stopped, so that both end where they are."""
        known = self.gpu_groups.co_runners.known
        if not all(known[who].stays for who in pair) or self._ends_all_at_once:
            return -inf
        return max(PAIRS_MIN, self.total(site, pair[:1]) / (len(pair) + self._waiting))

    @property
    def _ends_all_at_once(self) -> bool:
        """Whether it counts when all are through, not each."""
        return self._queue is not None and self._queue.soonest_end_s is not None

    def _may_join(self, number: int, gpu_group: GpuGroup) -> bool:
        known = self.gpu_groups.co_runners.known[number]
        if known.memory is None or sum(known.memory) > gpu_group.left_bytes:
            return False
        if not known.share or gpu_group.sharing_domain != known.sharing_domain:
            return False
        return all(self.is_known_alone(who, gpu_group.kind[1]) for who in (*gpu_group.members, number))

    def is_known_alone(self, number: int, gpu_type: str) -> bool:
        """Whether the time of a job alone is known there."""
        asked = number, gpu_type
        is_known = self._alone.get(asked)
        if is_known is None:
            spec = self.gpu_groups.co_runners.specs[number]
            is_known = self._alone[asked] = is_known_alone(self._draft, spec, gpu_type)
        return is_known

    def loss(self, gpu_group: GpuGroup, place: int) -> float:
        """By how much the sum of speeds falls if one of a group leaves."""
        return self.total(gpu_group.site, gpu_group.members) - self.total(
            gpu_group.site, others(gpu_group.members, place)
        )

    def burdened(self) -> list[GpuGroup]:
        """Groups of the pool in which all would go faster together without one of them."""
        index = self.gpu_groups
        for gpu_group in index.unjudged:
            index.burdened.pop(gpu_group, None)
            if min(self.loss(gpu_group, place) for place in range(len(gpu_group.members))) < -BURDEN_MIN:
                index.burdened[gpu_group] = None
        index.unjudged.clear()
        return [gpu_group for gpu_group in index.burdened if gpu_group.kind[0] == self._pool]

    def _groups(self, kind: Kind) -> list[GpuGroup]:
        return self.gpu_groups.lightest(kind, self._jobs_max, GROUPS_MAX)

    def nearest(self, job: Job, spec: JobSpec, number: int, gpu_type: str) -> Joining | None:
        """The co-runners with which the sum of speeds would rise most, of equal ones the lightest: to explain a wait.

        Of those alone of which something is known, and on GPUs that have room for the job.
        """
        best: Joining | None = None
        for gpu_group in self._groups((self._pool, gpu_type)):
            rise = self.rise_at(number, gpu_group)
            if rise > (-inf if best is None else best.rise):
                least = self.dilution(gpu_group.site, gpu_group.members, number)
                load = self._with_room(gpu_group, spec, number, job) if least < inf else None
                if load is not None:
                    best = Joining(rise, max(0.0, least), load)
        return best

    def _with_room(self, gpu_group: GpuGroup, spec: JobSpec, number: int, newcomer: Job) -> GpuLoad | None:
        draft = self._draft
        for gpu in gpu_group.joinable:
            if draft.has_room_beside(draft.view.nodes[gpu.node], spec):
                load = draft.load(gpu)
                if not self.is_declined(load, gpu_group.site, gpu_group.members, number, newcomer):
                    return load
        return None

    def is_declined(self, load: GpuLoad, site: Site, members: Members, number: int, newcomer: Job | None) -> bool:
        """Whether a job had better not come to a GPU, as it or one there would end too late (`Waits`)."""
        if not self.waits.is_asked:
            return False
        if newcomer is not None and self.waits.would_wait(newcomer, self.ratio(site, number, members), load.id):
            return True
        for place, booking in enumerate(load.bookings):
            ratio = self.ratio(site, members[place], (*others(members, place), number))
            job = self._draft.view.job(booking.job)
            if self.waits.is_cut_off(job, ratio) or self.waits.delays(job, ratio):
                return True
        return False


def in_doublings(number: float) -> float:
    """The next larger power of two, so that what follows from it holds for a while; 0 below a 16th."""
    return 0.0 if number < 1 / 16 else 2.0 ** ceil(log2(number))
