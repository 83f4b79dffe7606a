"""The order of the shadow price: least left first, each job's speed weighed by what a second of it saves all.

A second of work on a job ends it a second sooner, and gives as many GPU-seconds as it has GPUs to those behind it: that
is the derivative of the sum of all ends. A job waits for half a round of its equals on average, which is taken off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import heapify, heappop, heapreplace
from math import sqrt
from typing import Final

from colane.core.cluster.draft import ACTIONS_MAX, Draft
from colane.core.cluster.view import ClusterView
from colane.core.planners.means import stopped_s
from colane.facts.ran import had_s
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.job_spec import ShareBetween, sharing_domain
from colane.perf.estimates import LengthEstimates
from colane.scheduling.engine.contracts import (
    BoundOrder,
    Classes,
    ClassKey,
    FirstOf,
    Firsts,
    PlanWalks,
    QueueIterator,
    Rank,
    always_yields,
    no_line,
)
from colane.scheduling.engine.contracts import Head as HeadOf
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.moving_costs import STOP_S
from colane.scheduling.engine.times import Expected, attained_gpu_s
from colane.scheduling.engine.unended import expected_now
from colane.scheduling.engine.waiting import SHARED_MAX
from colane.scheduling.engine.walks import Entry, Starts, WalksByRank, each_ranked, priority_of, ranked
from colane.scheduling.mechanisms.fairness.users import Users
from colane.scheduling.orders.alike import AlikeRanks, tells_nothing
from colane.scheduling.orders.length import ByLength, by_heads
from colane.scheduling.orders.live_ranks import LeftOf, LiveRanks, RankOf, RanksNow


class Objective(StrEnum):
    """What is aimed at."""

    JCT = "jct"  # the least mean time from submission to end: a job's speed weighs one over what it has left
    MAKESPAN = "makespan"  # the earliest end of all: those with most left first
    FAIR = "fair"
    """Like service for users, or groups where jobs name one: a second of one that has had less counts more."""
    DRF = "drf"  # like shares for them: a second of one whose jobs hold fewer GPUs now counts more (CODA, DRF of GPUs)


FAIR: Final = (Objective.FAIR, Objective.DRF)  # those that weigh what is left, and prices, by what owners are owed

HALF: Final = 0.5  # rounds that a job waits for those of its own on average

LONG_MAX: Final = 3.0
"""A job counts as no more than so many times as long as all work takes, where the end of all is aimed at."""

MAKESPAN_WEIGHT: Final = 2.0
"""How much it counts when all are through where nothing else is aimed at (`ByShadowPrice.makespan_weight`)."""

ENDED_MIN: Final = 20  # before so many jobs of a family have ended none of it leaves for another of it

SURE_MAX: Final = 0.7
SURE_ERRORS: Final = 1.4
"""With so much more than an even chance one must have less left than another that leaves for it, in standard errors.

Where lengths are learnt of n ends that of a probability is 0.5 / sqrt(n): what few ends tell is chance, and every stop
for it is lost. More than the other is never asked.
"""

Yielding = dict[tuple[NeedClass, JobId], bool]
"""By class of a job that never ran, of unknown length: whether another leaves for it."""

FIRST_OF_ALL: Final[Rank] = ()  # every job comes after it

OWED_MAX: Final = 3.0
"""Work for an owner counts at most so many times as much as for others, for what these have had, and as few times."""


def shadow_price(gpus: int, behind: float, of: int) -> float:
    """Job-seconds that a second of work saves on a job of so many GPUs that so many jobs come after, of so many GPUs.

    At least what it saves the job itself.
    """
    return max(1.0, 1.0 + gpus * (behind / max(1, of) - HALF))


def owed_ratio(had: float, usual: float) -> float:
    """How many times as much a second of work counts of an owner who has had so much service, of so much on average.

    The less the owner has had the more, between 1 over `OWED_MAX` and that.
    """
    return max(1.0 / OWED_MAX, min(OWED_MAX, usual / had if had > 0 else OWED_MAX))


WEIGHED_ACTIONS_MAX: Final = 32
"""So much does a plan decide where each change is weighed anew, but not where each plan ranks all that waits anew."""


@dataclass(frozen=True, slots=True)
class ByShadowPrice:
    """The order of `colane`."""

    # what is aimed at. Under `jct` a second counts by what it saves all; under `makespan` the more the longer a job is,
    # against all work; under `fair` by what it saves all, times what is owed its owner, and as many times less left a
    # job has in the order
    objective: Objective = Objective.JCT
    displaces_min: float = 1.25  # a job takes the places of those with this many times as much left at least
    untold_min: float = 2.0  # the same where what either has left is learnt
    # under `makespan` a longer job takes a shorter one's place if it has so many times as much left, so that those of
    # much the same length do not change places for ever
    keeps_min: float = 10.0
    move_s: float = 60.0  # and with so many GPU-seconds more
    quantum_s: float = 60.0  # a job runs at least this long before another takes its place
    # under `jct`, how much it counts besides when all are through: 0 is the least mean time to the end, 0.1 to 0.2 is
    # near the best of both, 2 is the soonest end of all in this order
    makespan_weight: float = 0.0
    # under `jct` jobs go by the time they have left, times their GPUs to this power. By time alone (0) wide gangs keep
    # many others waiting, by time times GPUs (1, SRSF: Tiresias, Gu et al., NSDI 2019, section 2.3) one narrow job
    # keeps a gang waiting beside GPUs that those behind it have (decision 34)
    gpus_power: float = 0.75
    # None is stopped for a gang that would have a place before it could be through, as soon as every waiting job would
    # have one (`scheduling.engine.waiting`)
    awaits: bool = True

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        expected, is_by_left = expected_now(draft, pool), self.objective is Objective.JCT
        left_s, by_left = expected.rest_s, self._by_left(expected)
        is_fair = self.objective in FAIR
        owed = _owed(draft, pool, by_share=self.objective is Objective.DRF) if is_fair else None
        if owed is not None:
            rank = _owed_first(by_left, owed)
        else:
            rank = by_left if is_by_left else self._by_most_left(expected)
        held = self._held(rank)
        kept, beliefs = draft.view.derived(LiveJobs).kept(draft.view, pool), draft.beliefs
        by_work = self._held(by_left) if owed else held
        alike = AlikeRanks(kept, beliefs.lengths, by_work, expected, beliefs.tells_each)
        waiting = alike.rank
        walk: Callable[[Callable[[], Classes]], QueueIterator]
        firsts: Callable[[FirstOf], Firsts] | None = None
        class_heads: Callable[[], list[HeadOf]] | None = None
        line: Callable[[ClassKey], Iterator[Entry]] = no_line
        plan_walks: Callable[[], PlanWalks] | None = None
        draft.actions_max = ACTIONS_MAX if is_fair else WEIGHED_ACTIONS_MAX
        if is_fair:
            walk = ranked(draft, each_ranked(draft, held))
            plan_walks = partial(WalksByRank, draft, held)
        elif len(draft.view.derived(Users).lines(pool)) > 1:
            by_user = draft.view.derived(ByLeft, self.objective, self.gpus_power, True)
            walk = across_users(draft, pool, by_user, waiting)
            plan_walks = partial(WalksAcrossUsers, draft, pool, by_user, waiting)
            of_all = draft.view.derived(ByLeft, self.objective, self.gpus_power)
            class_heads = partial(of_all.heads, draft.view, pool, waiting)
        else:
            index = draft.view.derived(ByLeft, self.objective, self.gpus_power)
            walk = by_heads(draft, pool, index, waiting)
            firsts = partial(index.firsts, draft.view, pool, waiting)
            line = partial(_line, draft, pool, index, waiting)
        ranks = draft.view.derived(LiveRanks, Objective.JCT if owed else self.objective, self.gpus_power)
        ranking = partial(ranks.at, draft.view, pool, alike.of, by_work, left_s, expected.course)
        ranks_placed = partial(ranks.of_placed, draft.view, pool, rank, expected.course) if is_by_left else None
        prices = Prices(draft, pool, held, left_s, self.makespan_weight, self.objective, ranking, owed)

        is_makespan = self.objective is Objective.MAKESPAN
        yielding: Yielding | None = {} if is_by_left else None
        yields = always_yields if is_makespan else partial(self._yields, expected, rank, draft, yielding)
        return BoundOrder(
            walk=walk, rank=rank, displaces=self._displaces, yields=yields, quantum_s=self.quantum_s,
            gain_min=self.displaces_min, because=BECAUSE[self.objective], left_s=left_s,
            is_learnt=expected.is_learnt, is_past_end=expected.is_past_end,
            weigh=prices.of, gpu_price=prices.of_gpu, firsts=firsts, line=line, plan_walks=plan_walks,
            class_heads=class_heads,
            weighs_first_most=owed is None and (not is_by_left or not self.makespan_weight),
            soonest_end_s=soonest_end(draft, pool, left_s) if self.objective is Objective.MAKESPAN else None,
            drains_s=None if self.objective is Objective.MAKESPAN else prices.drains_s,
            awaits=self.awaits and is_by_left, exchanges=is_by_left, held=held, ranks_placed=ranks_placed,
        )  # fmt: skip

    def _by_left(self, expected: Expected) -> RankOf:
        power = self.gpus_power

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), expected.rest_s(job) * float(job.effective.gpus) ** power

        return rank

    @staticmethod
    def _by_most_left(expected: Expected) -> RankOf:
        def rank(job: Job) -> Rank:
            left_s = expected.left_s(job)
            return priority_of(job.spec), 0.0 if left_s is None else -left_s

        return rank

    def _held(self, rank: RankOf) -> RankOf:
        """A parked job goes before those that would not have taken its place while it ran (`_displaces`)."""
        factor = self.keeps_min if self.objective is Objective.MAKESPAN else 1 / self.displaces_min

        def held(job: Job) -> Rank:
            priority, amount = rank(job)
            return priority, amount * factor - self.move_s if job.home else amount

        return held

    def _yields(
        self, expected: Expected, rank: RankOf, draft: Draft, known: Yielding | None, job: Job, victim: Job
    ) -> bool:
        """Of jobs of unknown length one leaves only for another that most likely ends before it, its restart paid.

        Where they have different numbers of GPUs both are weighed by these, as in the order.
        """
        if not expected.is_learnt(job) and not expected.is_learnt(victim):
            return True
        if known is None or job.attempt or not expected.is_learnt(job):
            return self._yields_surely(expected, rank, draft, job, victim)
        asked = job.need, victim.id  # others of its class that never ran are as long
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._yields_surely(expected, rank, draft, job, victim)
        return found

    def _yields_surely(self, expected: Expected, rank: RankOf, draft: Draft, job: Job, victim: Job) -> bool:
        lengths, family = draft.beliefs.lengths, job.effective.family
        if victim.effective.family == family and lengths.ended(family) < ENDED_MIN:
            return False
        amount, most, weight = rank(job)[-1], rank(victim)[-1] / self.untold_min, victim.effective.gpus**self.gpus_power
        if amount >= most or amount + (stopped_s(draft.view, victim) + STOP_S) * weight >= most:
            return False
        ended = max(1.0, min([lengths.ended(one.effective.family) for one in (job, victim) if expected.is_learnt(one)]))
        sure = min(SURE_MAX, 0.5 + SURE_ERRORS * 0.5 / sqrt(ended))
        times = (victim.effective.gpus / job.effective.gpus) ** self.gpus_power
        return _ends_before(expected, lengths, draft.now_s, job, victim, times) >= sure

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        if self.objective is Objective.MAKESPAN:
            return -waiting[1] > -running[1] * self.keeps_min + self.move_s
        return (waiting[1] + self.move_s) * self.displaces_min < running[1]


def _ends_before(
    expected: Expected, lengths: LengthEstimates, now_s: float, job: Job, other: Job, times: float
) -> float:
    """The probability that a job has less than so many times another's rest left, where either is learnt."""
    job_s, other_s = expected.left_s(job), expected.left_s(other)
    family, other_family = job.effective.family, other.effective.family
    if other_s is not None:
        return lengths.ends_within(family, had_s(job, now_s), times * other_s)
    if job_s is not None:
        return 1.0 - lengths.ends_within(other_family, had_s(other, now_s), job_s / times)
    return lengths.ends_before(family, had_s(job, now_s), other_family, had_s(other, now_s), times)


class Prices:
    """What a second of work on each job of a pool saves all of them, for one plan.

    Args:
        draft: Where decisions are made.
        pool: Where.
        rank: Order of jobs.
        left_s: What a job has left.
        makespan_weight: See `ByShadowPrice`.
        objective: Likewise.
        ranking: Ranks all of them.
        owed: Under `fair`, how many times as much each counts for what its owner has had.
    """

    def __init__(
        self,
        draft: Draft,
        pool: str,
        rank: RankOf,
        left_s: LeftOf,
        makespan_weight: float,
        objective: Objective,
        ranking: Callable[[], RanksNow],
        owed: Callable[[Job], float] | None = None,
    ) -> None:
        self._draft = draft
        self._pool = pool
        self._rank = rank
        self._left_s = left_s
        self._objective = objective
        self._makespan_weight = MAKESPAN_WEIGHT if objective is Objective.MAKESPAN else makespan_weight
        self._ranking = ranking
        self._ranked: RanksNow | None = None
        self._gpus = 1
        self._work_s = 0.0
        self._owed = owed
        self._known: dict[JobId, float] = {}

    def of(self, job: Job) -> float:
        """Of one job, at least 1."""
        price = self._known.get(job.id)
        if price is None:
            price = self._known[job.id] = self._price(job)
        return price

    def of_gpu(self, job: Job) -> float:
        """Of a second on one GPU, in seconds of a job that may have it: as many as wait for it behind the job."""
        ranked = self._all_ranked()
        if self._objective is not Objective.MAKESPAN:
            return ranked.behind(self._rank(job)) / self._gpus
        return ranked.behind(FIRST_OF_ALL) / self._gpus / self.of(job)

    def drains_s(self) -> float:
        """In how many seconds the GPUs of the pool could do all that is left there."""
        return self._all_ranked().work_s / (SHARED_MAX * self._gpus)

    def _price(self, job: Job) -> float:
        ranked, price = self._all_ranked(), 1.0
        if self._objective is Objective.JCT:
            kept = ranked.kept.get(job.id)  # that of a job that waits
            rank = self._rank(job) if kept is None else kept.rank
            price = shadow_price(job.gpu_count, ranked.behind(rank), self._gpus)
        elif self._owed is not None:
            price = shadow_price(job.gpu_count, ranked.behind(self._rank(job)), self._gpus)
            price = max(1.0, self._owed(job) * price)
        if self._makespan_weight:
            price += self._makespan_weight * min(LONG_MAX, self._length_s(job) / self._work_s) ** 2
        return price

    def _length_s(self, job: Job) -> float:
        """What it has left; where the longest go first as much as says its place, which a parked one holds."""
        return -self._rank(job)[-1] if self._objective is Objective.MAKESPAN else self._left_s(job)

    def _all_ranked(self) -> RanksNow:
        """Jobs that run or wait, in order."""
        if self._ranked is None:
            self._ranked = self._ranking()
            live = self._draft.view.derived(LiveJobs)
            self._gpus = max(1, live.usable_gpus(self._draft.view, self._pool))
            self._work_s = max(1.0, self._ranked.work_s / self._gpus)
        return self._ranked


def _owed(draft: Draft, pool: str, *, by_share: bool) -> Callable[[Job], float]:
    """How many times as much each job counts for what its owner has had, or for the GPUs it holds, by weight."""
    had: Counter[str] = Counter()
    weights: dict[str, float] = {}
    for job in draft.view.jobs.values():
        if job.spec.pool == pool:
            owner = sharing_domain(job.spec, ShareBetween.GROUP)
            had[owner] += len(job.gpus_held) if by_share else int(attained_gpu_s(job, draft.now_s))
            if job.spec.gpus > 0 and (job.placement is not None or job.is_waiting):
                weights[owner] = job.spec.weight
    usual = sum([had[owner] / weight for owner, weight in weights.items()]) / max(1, len(weights))

    def owed(job: Job) -> float:
        return owed_ratio(had[sharing_domain(job.spec, ShareBetween.GROUP)] / job.spec.weight, usual)

    return owed


def _owed_first(by_left: RankOf, owed: Callable[[Job], float]) -> RankOf:
    def rank(job: Job) -> Rank:
        priority, amount = by_left(job)
        return priority, amount / owed(job)

    return rank


def _line(draft: Draft, pool: str, index: ByLeft, rank: Callable[[Job], Rank], key: ClassKey) -> Iterator[Entry]:
    return index.entries(draft.view, key, draft.view.queue(pool).classes[key], rank)


def soonest_end(draft: Draft, pool: str, left_s: Callable[[Job], float]) -> Callable[[], float]:
    """In how many seconds all jobs of a pool could have ended at best, worked out when first asked for.

    The one with most left alone, or all work on all GPUs in the best sharing, whichever takes longer.
    """
    known: list[float] = []

    def end_s() -> float:
        if not known:
            jobs = [job for job in draft.view.jobs.values() if job.spec.pool == pool and job.spec.gpus]
            gpus = draft.view.derived(LiveJobs).usable_gpus(draft.view, pool)
            work_s = sum([left_s(job) * job.gpu_count for job in jobs]) / (SHARED_MAX * max(1, gpus))
            known.append(max([work_s, *[left_s(job) for job in jobs]]))
        return known[0]

    return end_s


BECAUSE = {
    Objective.JCT: "it has less left to do",
    Objective.MAKESPAN: "it has more left to do",
    Objective.FAIR: "its owner has had less",
    Objective.DRF: "its owner's jobs hold fewer GPUs",
}


class ByLeft(ByLength):
    """Waiting jobs of classes that were asked for, by what is left of them."""

    def __init__(self, objective: Objective, gpus_power: float, by_user: bool = False) -> None:
        super().__init__(by_user=by_user)
        self.objective = objective
        self.gpus_power = gpus_power

    def is_alike(self, view: ClusterView, job: Job) -> bool:
        return not view.beliefs.tells_each and tells_nothing(job)

    def judged(self, view: ClusterView, key: ClassKey) -> int:
        return view.beliefs.lengths.version_of(key[1].family)

    def judged_at_all(self, view: ClusterView) -> int:
        return view.beliefs.lengths.version


Head = tuple[Rank, int, JobId, int]
"""Rank of the next job of a line, GPUs that its user holds, the job, and which line it is."""


class AcrossUsers:
    """Waiting jobs by rank, then by what their users hold, what they take in this very plan included.

    Where nothing tells one job from another, as while the lengths of all are unknown, order of arrival would let one
    user with thousands of queued jobs keep every other waiting. Jobs of one user keep their order.

    Args:
        draft: Where decisions are made.
        pool: The pool; only what is held of it counts.
        worth: Classes worth looking at.
        index: Has the lines of each user.
        rank: Of a waiting job.
        starts: What this plan has started before the walk.
    """

    def __init__(
        self, draft: Draft, pool: str, worth: Classes, index: ByLength, rank: Callable[[Job], Rank],
        starts: Starts | None = None,
    ) -> None:  # fmt: skip
        users = draft.view.derived(Users)
        self._jobs = draft.view.jobs
        self._left: set[ClassKey] = set()
        self._key: ClassKey | None = None
        self._held: dict[str, int] = {}
        self._lines: list[tuple[str, ClassKey, Iterator[Entry]]] = []
        heads: list[Head] = []
        for user, lines in users.lines(pool).items():
            self._held[user] = users.taken(pool, user)[0] + (0 if starts is None else starts.held[user])
            for key in worth if len(worth) < len(lines) else lines:
                if key not in lines or key not in worth:
                    continue
                entries = index.entries(draft.view, key, lines[key], rank, user)
                entries = entries if starts is None else starts.left(user, key, entries)
                first = next(entries, None)
                if first is not None:
                    heads.append((first[0], self._held[user], first[1], len(self._lines)))
                    self._lines.append((user, key, entries))
        heapify(heads)
        self._heads = heads

    def __iter__(self) -> Iterator[Job]:
        heads = self._heads
        while heads:
            rank, held, job, number = heads[0]
            user, key, entries = self._lines[number]
            if key in self._left:
                heappop(heads)
                continue
            if self._held[user] > held:  # it has been given GPUs since this was filed
                heapreplace(heads, (rank, self._held[user], job, number))
                continue
            self._key = key
            yield self._jobs[job]
            following = None if key in self._left else next(entries, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0], self._held[user], following[1], number))

    def skip_class(self) -> None:
        if self._key is not None:
            self._left.add(self._key)

    def took(self, job: Job, spec: JobSpec) -> None:
        self._held[job.spec.user] += spec.gpus


def across_users(
    draft: Draft, pool: str, index: ByLength, rank: Callable[[Job], Rank]
) -> Callable[[Callable[[], Classes]], AcrossUsers]:
    """Makes walks across users."""

    def walk(worth: Callable[[], Classes]) -> AcrossUsers:
        return AcrossUsers(draft, pool, worth(), index, rank)

    return walk


class WalksAcrossUsers:
    """Makes walks across users that count what a plan has started so far, and go past it."""

    def __init__(self, draft: Draft, pool: str, index: ByLength, rank: Callable[[Job], Rank]) -> None:
        self._draft = draft
        self._pool = pool
        self._index = index
        self._rank = rank
        self._starts = Starts()

    def walk(self, worth: Callable[[], Classes]) -> QueueIterator:
        return AcrossUsers(self._draft, self._pool, worth(), self._index, self._rank, self._starts)

    def took(self, job: Job, spec: JobSpec) -> None:
        self._starts.took(job, spec)
