"""Jobs of one GPU start, join, take places, move and part in the order of what that is worth (see `changes`).

Of all changes that may be made now the one that is worth most is made, and again until none pays, those of the highest
priority first. A job that waits and one that runs compete alike for a free GPU: with whichever of them most is won. Of
jobs alike in their needs those first in the order are asked.

For a while after a look at everything no more is looked at than what has changed: jobs that came, for any GPU, and GPUs
that are free or that jobs came to or left, for any job. Others had found nothing that pays, but prices drift: the fewer
GPUs there are, so the less a look costs, the sooner everything is looked at again.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from colane.core.cluster.contents import News, NodesMatterNot
from colane.core.cluster.draft import LOOKS_A_PLAN
from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import Facts, SplitReasons, cheapest, is_untouched, may_split_off, split_off
from colane.facts.ran import had_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, NeedClass
from colane.model.plan import Park, Stop
from colane.model.progress import PAST_END_MIN_S
from colane.model.reason import Reason, Why
from colane.model.resources import host_needs
from colane.scheduling.engine.contracts import (
    Candidate,
    Classes,
    ClassKey,
    Entry,
    FirstOf,
    Firsts,
    Head,
    Rank,
    SchedulingContext,
    Take,
    Verdict,
    entry_of,
)
from colane.scheduling.engine.live import LiveJobs, is_past_min_runtime, ran_since_s
from colane.scheduling.engine.moving_costs import MOVE_PART, may_move
from colane.scheduling.engine.usual import BoundReturn
from colane.scheduling.mechanisms.fairness.users import Users
from colane.scheduling.mechanisms.price.changes import GpuChange, GpuChanges, PlaceSearch, returning_part
from colane.scheduling.mechanisms.price.whole import next_kept, next_whole
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, others
from colane.scheduling.mechanisms.sharing.sharing_places import made_for
from colane.scheduling.mechanisms.sharing.sharing_values import BURDEN_MIN, JOBS_PER_GPU_MAX
from colane.scheduling.mechanisms.topology.connected import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.free import NodesBy, any_free

HEADS_MAX: Final = 4
"""Of jobs alike in their needs so many are looked at: one moved less often may go before one with less left."""

CLASSES_MAX: Final = 64
"""So many waiting jobs are looked at at once, the dearest first: each that finds something makes room for another."""

CLASSES_SEEN_MAX: Final = 32  # the same where no more is looked at than what has changed

LONGEST_PART: Final = 4  # one in so many of them is one of the longest, where the end of all counts too

LOOK_EVERY_S: Final = 300.0  # so long prices drift at most before everything is looked at again, when something happens

SHARED_SEEN_MAX: Final = 32  # the same where no more is looked at than what has changed

SLOWER_TOGETHER: Final = SplitReasons(Why.SPLIT, Why.SPLIT_BY_STOPPING)

SHARED_MAX: Final = 256
"""So many GPUs are looked at whose jobs could go elsewhere, those with most to gain first; alike ones go together."""


@dataclass(frozen=True, slots=True)
class ByPrice:
    """The chooser of `colane`."""

    moves: bool = True  # whether running jobs are moved at all
    makes_way: bool = True  # whether jobs move off a GPU to which a parked job is bound
    parts: bool = True  # whether one of the jobs on a GPU waits that are worth more without it
    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX  # jobs on one GPU at most
    nodes: NodesBy = NodesBy.FIRST  # which node with free GPUs is taken
    look_s_per_gpu: float = 0.25  # everything is looked at so long after the last such look for each GPU there is

    def serve(self, context: SchedulingContext, take: Take) -> None:
        """Make the changes of a pool that pay, those that are worth most first."""
        draft, quantum_s = context.draft, context.queue.quantum_s
        live = draft.view.derived(LiveJobs).pool(context.pool)
        draft.plan_after_moves(context.pool)
        draft.plan_again(context.pool, live.min_runtime_until_s(draft.now_s, quantum_s))
        if self.moves:
            draft.plan_while_idle(context.pool)
        news = draft.view.news(context.pool)
        gpus = draft.view.derived(LiveJobs).usable_gpus(draft.view, context.pool)
        pause_s = min(LOOK_EVERY_S, gpus * self.look_s_per_gpu)
        draft.plan_for_news(context.pool, draft.now_s + pause_s if news is None else news.until_s)
        _Chooser(self, context, take, news).run()
        if not context.explains:
            kept = draft.view.derived(Looking, context.pool)
            context.refused = kept.refused
            draft.plan_again(context.pool, kept.again_s)

    def served(self, context: SchedulingContext, *, is_cut: bool) -> None:
        """A line that was cut goes on without choosing; then what was told and has changed is chosen among."""
        draft, kept = context.draft, context.draft.view.derived(Looking, context.pool)
        if is_cut:
            kept.leave(draft.touched)
            kept.is_stale = kept.is_stale and kept.is_chosen
            kept.is_chosen = True
            kept.again_s = min(kept.again_s, draft.replan[context.pool].at_s)
            if draft.is_long:
                kept.refused.clear()
        elif not draft.goes_on(context.pool) and not context.explains:
            if kept.is_chosen and kept.is_stale:
                draft.go_on(context.pool)
            kept.end()


class _Chosen(NamedTuple):
    """A change, and what it is worth; of those worth the same the job first in the order goes first."""

    net: float  # what it is worth
    job: Job  # the job that comes
    candidate: Candidate  # where, and what leaves for it
    rise: float = 0.0  # by how much a running job is worth more there
    parked: JobId | None = None  # the job that goes on where a running one was; None where it moves for itself


class _Parting(NamedTuple):
    """A job that had better wait: what that is worth, what it has left, and for how long the others have the GPU."""

    net: float
    left_s: float
    job: Job
    away_s: float
    facts: Facts


class _Leaver(NamedTuple):
    """A running job that could go elsewhere."""

    most: float  # what that is worth at most: at its full speed, at no cost to others
    job: Job  # the job
    load: GpuLoad  # where it is
    lost: float  # what its GPU is worth less without it
    cost: float  # what moving costs it


class Looking(NodesMatterNot):
    """What the searches of a plan that has looked at its share have found: the next plan goes on with them.

    Attributes:
        searches: For each job, and for those alike.
        closed: GPUs that plans so far have changed: no job moves on from there, as none does within one plan.
        changed: GPUs to be looked at anew.
        for_gang: A gang for which GPUs are kept, these, and when everything is planned anew.
        is_chosen: Whether all that pays was chosen, and the next plan goes on with the line.
        refused: Jobs of the line that have found nothing since.
        again_s: When they are to be asked again.
        is_stale: Whether anything has changed since.
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._is_whole = False
        self.searches: dict[Hashable, PlaceSearch] = {}
        self.closed: set[GpuId] = set()
        self.changed: dict[GpuId, None] = {}
        self.for_gang: tuple[JobId, list[GpuId], float] | None = None
        self.is_chosen = self.is_stale = False
        self.refused: dict[JobId, Verdict] = {}
        self.again_s = inf

    def moved(self, old: Job | None, new: Job | None) -> None:
        for job in (old, new) if self.searches or self.is_chosen else ():
            if job is not None and job.spec.pool == self._pool:
                self.is_stale = True
                self.searches.pop(job.id, None)
                self.changed.update(dict.fromkeys(job.gpus_held))

    def begin(self, changes: GpuChanges, *, is_whole: bool) -> None:
        """Go on in another plan, if as much is looked at."""
        if is_whole is not self._is_whole:
            self.end()
        self._is_whole = is_whole
        for search in self.searches.values():
            search.go_on(changes, self.changed)
        self.changed = {}

    def leave(self, touched: Sequence[GpuId]) -> None:
        """A plan leaves the rest to the next one."""
        self.changed.update(dict.fromkeys(touched))
        self.closed.update(touched)

    def end(self) -> None:
        """All was looked at."""
        self.searches.clear()
        self.closed.clear()
        self.refused.clear()
        self.again_s = inf
        self.is_chosen = self.is_stale = False


class _Chooser:
    def __init__(self, settings: ByPrice, context: SchedulingContext, take: Take, news: News | None) -> None:
        self._settings = settings
        self._news = news
        self._context = context
        draft = self._draft = context.draft
        self._pool = context.pool
        self._queue = context.queue
        self._take = take
        kept = self._kept = Looking(context.pool) if context.explains else draft.view.derived(Looking, context.pool)
        self._changes = GpuChanges(context, settings.jobs_per_gpu_max)
        self._fastest = BoundFastest(context, settings.nodes)
        self._back = BoundReturn(context)
        self._lent = next((source for source in context.bound_sources if source.frees_host), None)
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._promised: set[JobId] = set()
        self._closed: set[GpuId] = set()
        self._searches = kept.searches
        self._is_cut = False
        self._lines: dict[ClassKey, list[Job]] = {}
        self._users = context.draft.view.derived(Users)
        self._has_users = len(self._users.lines(context.pool)) > 1
        self._started: list[Job] = []
        self._walks = None if self._queue.plan_walks is None else self._queue.plan_walks()
        self._entries_taken: dict[ClassKey, int] = {}
        self._given: Counter[str] = Counter()
        self._dearness: dict[JobId, tuple[int, float, Rank]] = {}
        self._gpus_started_on: list[GpuId] = []
        self._starts = 0
        self._heads_max = CLASSES_MAX if news is None else CLASSES_SEEN_MAX
        self._firsts = None if self._queue.firsts is None else self._queue.firsts(FIRST_OF)
        self._heads_of_taken: dict[ClassKey, list[Head]] = {}
        self._changed = dict.fromkeys(self._all_changed())
        self._open = dict(self._changed)
        self._followed = 0
        self._any_free = False
        self._look()
        self._before_gang: Rank | None = None
        self._movers: list[_Leaver] = []
        if settings.moves and self._live.stoppable > 0 and (news is None or self._changed) and not kept.is_chosen:
            self._movers = sorted(self._all_movers(), key=_most_first)

    def _all_changed(self) -> Iterator[GpuId]:
        """GPUs that have changed, or whose jobs may be stopped by now; none where everything is looked at."""
        news, draft, quantum_s = self._news, self._draft, self._queue.quantum_s
        if news is not None:
            yield from news.gpus
            for job in self._live.past_min_runtime(draft.now_s, quantum_s, news.since_s):
                yield from draft.view.job(job).gpus_held

    def run(self) -> None:
        """Make the change that is worth most, and again until none pays."""
        self._kept.begin(self._changes, is_whole=self._news is None)
        self._keep_what_is_made()
        self._start_whole()
        self._draft.looks = min(self._draft.looks, LOOKS_A_PLAN // 2)  # or it would come to nothing else
        self._look()
        while not self._is_cut and not self._kept.is_chosen and (change := self._best()) is not None:
            self._make(change)
            self._look()
            self._is_cut = self._draft.is_long
        if self._is_cut:
            self._kept.leave(self._draft.touched)
            self._draft.go_on(self._pool)
            return
        if self._settings.parts:
            self._part()
        self._settle()
        self._kept.searches.clear()

    def _settle(self) -> None:
        """Spare the core the next plan if it would find nothing: what starts does so on free GPUs, and none joins it.

        Who would be found something there is left to the next plan, which knows of these starts.
        """
        if self._news is None or self._context.explains or len(self._draft.actions) != self._starts:
            return
        if self._movers or self._live.homes:
            return
        self._open = dict.fromkeys(self._gpus_started_on)
        if not self._open or (self._best() is None and not self._is_cut):
            self._draft.settle(self._pool)

    def _keep_what_is_made(self) -> None:
        """GPUs that others are leaving stay for the jobs they leave for."""
        for other in list(self._live.going.values()):
            job = None if other.preempted_for is None else self._draft.view.jobs.get(other.preempted_for)
            if job is None or job.spec.gpus != 1 or not self._is_open(job) or not job.is_waiting or job.home:
                continue
            made = made_for(self._draft, self._live, job)
            if made is not None:
                waits = Reason(Why.PREEMPTING, {}, ())
                self._promise(job, Candidate((made,), waits, waits_for=made.jobs, is_later=True))

    def _start_whole(self) -> None:
        """Let gangs go first where those before them would leave GPUs idle, now or as soon as they have a place."""
        if not self._any_free or not self._queue.exchanges:
            return
        draft, kept = self._draft, self._kept
        if not kept.closed and not kept.is_chosen:  # else this goes on with a plan that did it
            while (whole := next_whole(self._context, self._in_order, self._fastest)) is not None:
                self._promise(whole.job, whole.candidate)
                self._starts += 1
                self._before_gang = None
            found = next_kept(self._context, self._in_order)
            kept.for_gang = None
            if found is not None:  # by then they have ended on which it counts, or it counts on them no longer
                until_s = draft.now_s + found[1].in_s + PAST_END_MIN_S
                kept.for_gang = found[0].id, [load.id for load in found[1].gpus], until_s
        if kept.for_gang is not None:
            number, gpus, until_s = kept.for_gang
            job = draft.view.jobs.get(number)
            if job is not None and job.is_waiting and all(gpu in draft.view.gpus for gpu in gpus):
                loads = [draft.load(gpu) for gpu in gpus]
                draft.hold(job, loads, job.effective)
                self._context.changed(loads)
                draft.plan_again(self._pool, until_s)

    def _look(self) -> None:
        """Something was decided: GPUs that this plan changes again are the next one's news."""
        self._changes.look()
        for gpu in self._draft.touched[self._followed :]:
            self._open.pop(gpu, None)
        self._followed = len(self._draft.touched)
        self._any_free = any_free(self._context)

    def _best(self) -> _Chosen | None:
        """Of the highest priority at which any pays."""
        heads, movers = self._heads(), self._movers
        priorities = {job.spec.priority for job in heads} | {mover.job.spec.priority for mover in movers}
        for priority in sorted(priorities, reverse=True):
            best = self._best_of(
                [job for job in heads if job.spec.priority == priority],
                [mover for mover in movers if mover.job.spec.priority == priority],
            )
            if self._is_cut:
                return None
            if best is not None:
                return best
        return None

    def _best_of(self, heads: list[Job], movers: list[_Leaver]) -> _Chosen | None:
        best: _Chosen | None = None
        for job in heads:
            if self._is_cut or (best is not None and self._queue.weigh(job) <= best.net):
                break
            change = self._of_waiting(job, 0.0 if best is None else best.net)
            best = change or best
        for mover in movers:
            if self._is_cut or mover.most <= (0.0 if best is None else best.net):
                break
            if is_untouched(self._draft, mover.load) and mover.load.id not in self._closed:
                best = self._elsewhere(mover, 0.0 if best is None else best.net) or best
        return best

    # -- jobs that wait

    def _heads(self) -> list[Job]:
        """Of each class those that go first, the dearest first."""
        if self._firsts is not None:
            return self._first_heads(self._firsts)
        classes, found = self._classes(), list[Rank]()
        for key, rank in self._by_rank(classes):
            if len(found) >= self._heads_max and found[self._heads_max - 1] < rank:
                break  # so many go before all of the others
            known = self._lines.get(key)
            if _is_served(key[1]) and (known is None or not all(map(self._is_open, known))):
                moved: dict[int, Job] = {}
                for job in islice(self._in_order({key: classes[key]}), HEADS_MAX):
                    moved.setdefault(job.moves, job)
                known = self._lines[key] = list(moved.values())
            for job in known or ():
                insort(found, self._queue.place(job))
        heads = [job for line in self._lines.values() for job in line]
        if not self._has_changed():
            heads = [job for job in heads if self._is_new(job)]
        heads.sort(key=self._dearest_first)
        return heads[: self._heads_max]

    def _by_rank(self, classes: Classes) -> Iterator[tuple[ClassKey, Rank]]:
        """Classes by the rank of their first job where that says which are dearest; of few none is told."""
        heads = self._queue.class_heads if self._queue.weighs_first_most and self._has_changed() else None
        if heads is None or len(classes) <= self._heads_max:
            return ((key, ()) for key in classes)
        return ((key, rank) for rank, _, key in heads())

    def _first_heads(self, firsts: Firsts) -> list[Job]:
        """The same where what goes first is kept: no class is asked anew but those from which this plan took a job."""
        is_in_order = self._queue.weighs_first_most
        if self._has_changed():
            heads = firsts.in_order
            most = self._heads_max if self._news is not None else 2 * self._heads_max
            if not is_in_order and len(heads) > most:  # the dearest are among the shortest and the longest
                longest = most // LONGEST_PART
                heads = heads[: most - longest] + heads[-longest:]
        else:
            heads = sorted([head for key in self._came() for head in firsts.by_class.get(key, ())], key=entry_of)
        found = self._open_heads(heads, self._heads_max if is_in_order else len(heads))
        jobs = self._draft.view.jobs
        line = [jobs[number] for _, number, _ in found]
        if not self._has_changed():
            line = [job for job in line if self._is_new(job)]
        if not is_in_order:
            line.sort(key=self._dearest_first)
        return line[: self._heads_max]

    def _open_heads(self, heads: list[Head], most: int) -> list[Head]:
        """Those in order, and of classes from which this plan took some of these the others that go first."""
        jobs, found = self._draft.view.jobs, list[Head]()
        for head in heads:
            if len(found) == most:
                break
            if head[2] in self._heads_of_taken:
                continue
            if self._is_open(jobs[head[1]]):
                found.append(head)
            else:
                self._heads_of_taken[head[2]] = []
                found = [other for other in found if other[2] != head[2]]
        if self._heads_of_taken:
            for key in self._heads_of_taken:
                found += self._heads_left(key)
            found.sort(key=entry_of)
        return found

    def _heads_left(self, key: ClassKey) -> list[Head]:
        """The first of a class that this plan has not taken."""
        jobs, known = self._draft.view.jobs, self._heads_of_taken[key]
        if not known or not all(self._is_open(jobs[number]) for _, number, _ in known):
            line = self._open_ones(key)
            known = self._heads_of_taken[key] = FIRST_OF.of(jobs, line, key)
        return known

    def _open_ones(self, key: ClassKey) -> Iterator[Entry]:
        jobs, taken, is_first = self._draft.view.jobs, self._entries_taken.get(key, 0), True
        for entry in islice(self._queue.line(key), taken, None):
            if self._is_open(jobs[entry[1]]):
                is_first = False
                yield entry
            elif is_first:  # what was decided stays so: the next time it is gone past at once
                taken += 1
                self._entries_taken[key] = taken

    def _has_changed(self) -> bool:
        """Whether jobs that have not just come are to be looked at: for GPUs that have changed, or for all."""
        return self._news is None or bool(self._open) or self._any_free

    def _classes(self) -> Classes:
        """Classes of waiting jobs of which some may find something."""
        classes = self._draft.view.queue(self._pool).classes
        if self._news is None or self._has_changed():
            return classes
        return {key: classes[key] for key in self._came() if key in classes}

    def _came(self) -> dict[ClassKey, None]:
        """Classes of the jobs that have come."""
        jobs, news = self._draft.view.jobs, self._news
        came = [] if news is None else [jobs[job] for job in sorted(news.came) if job in jobs and jobs[job].is_waiting]
        return dict.fromkeys([(job.spec.priority, job.need) for job in came])

    def _in_order(self, classes: Classes) -> Iterator[Job]:
        """Those of these jobs that wait and were found nothing yet."""
        worth = partial(_given, classes)
        walk = self._queue.walk(worth) if self._walks is None else self._walks.walk(worth)
        for job in self._started:
            walk.took(job, job.effective)
        for job in walk:
            if self._is_open(job):
                yield job

    def _gang(self) -> Rank:
        """Rank of the first in the order of those that are served after these: free GPUs are theirs before."""
        if self._before_gang is None:
            self._before_gang = self._first_gang()
        return self._before_gang

    def _first_gang(self) -> Rank:
        classes = self._draft.view.queue(self._pool).classes
        others = classes if self._firsts is None else self._firsts.others
        gangs = {key: classes[key] for key in others if not _is_served(key[1]) and not key[1].home}
        if not gangs:
            return (inf,)
        first = next(self._in_order(gangs), None)
        return (inf,) if first is None else self._queue.place(first)

    def _free(self, job: Job) -> Iterator[Candidate]:
        """Free GPUs that no gang before it waits for; of a parked job those that it may come back to."""
        if (job.home or self._any_free) and self._queue.place(job) <= self._gang():
            source = self._back if job.home else self._fastest
            yield from [found for found in source.candidates(job, job.effective) if found.gpus[0].is_empty]
            if self._lent is not None and job.is_waiting and not job.home:
                yield from self._lent.candidates(job, job.effective)

    def _dearest_first(self, job: Job) -> tuple[int, float, Rank, int, JobId]:
        """Of equal ones that of the user who holds least first, what this plan gives included."""
        held = self._users.taken(self._pool, job.spec.user)[0] + self._given[job.spec.user] if self._has_users else 0
        known = self._dearness.get(job.id)
        if known is None:
            known = self._dearness[job.id] = -job.spec.priority, -self._queue.weigh(job), self._queue.place(job)
        return known[0], known[1], known[2], held, job.id

    def _is_open(self, job: Job) -> bool:
        return self._draft.is_undecided(job.id) and job.id not in self._promised

    def _of_waiting(self, job: Job, least: float) -> _Chosen | None:
        """The best that a waiting job could have, if it is worth more than that."""
        best: _Chosen | None = None
        price, part = self._queue.weigh(job), returning_part(self._queue, job, self._draft.now_s)
        for candidate in self._free(job) if price * part > least and (self._any_free or job.home) else ():
            net = price * candidate.ratio * part
            if net > least:
                best, least = _Chosen(net, job, candidate), net
        if job.home:
            best = self._vacated(job, least) or best
            least = best.net if best is not None else least
        if least >= price * part:  # at full speed, at no cost to any
            return best
        change = self._found(job, None, 0.0, least)
        found = None if change is None else self._candidate(job, change)
        return best if change is None or found is None else _Chosen(change.net, job, found)

    def _vacated(self, parked: Job, least: float) -> _Chosen | None:
        """The job that has a GPU alone to which a parked one is bound moves to a free one: both run then."""
        best: _Chosen | None = None
        if not self._settings.makes_way or not self._settings.moves or not self._any_free:
            return None
        if self._queue.place(parked) > self._gang():
            return None
        for load in self._draft.homes(parked):
            job = self._draft.view.job(load.jobs[0]) if len(load.bookings) == 1 else None
            if job is None or load.id in self._closed or not self._makes_way(job, load, parked):
                continue
            gain = self._queue.weigh(parked) * speed_on(self._draft, parked.effective, (load,))
            gain -= self._changes.moving_price(job, self._queue.left_s(job) or 0.0)
            has = speed_on(self._draft, job.effective, (load,))
            for candidate in self._fastest.candidates(job, job.effective):
                net = gain + self._queue.weigh(job) * (candidate.ratio - has)
                if net > least and not self._changes.values.waits.is_awaited(candidate.gpus[0].id, job):
                    best, least = _Chosen(net, job, candidate, candidate.ratio - has, parked.id), net
        return best

    def _makes_way(self, job: Job, load: GpuLoad, parked: Job) -> bool:
        """Whether it may move now, and leaves the cores and the bandwidth that the parked one goes on with."""
        draft = self._draft
        if not is_untouched(draft, load) or not may_move(job, draft.now_s):
            return False
        if job.effective.sizes or not is_past_min_runtime(draft, job, self._queue.quantum_s):
            return False
        free = draft.host_free(draft.view.nodes[load.id.node])
        need = host_needs(parked.effective, 1) - host_needs(job.effective, 1)
        return need.cores <= free.cores and need.host_bandwidth_bytes_per_s <= free.host_bandwidth_bytes_per_s

    def _found(self, job: Job, at: GpuLoad | None, floor: float, above: float) -> GpuChange | None:
        """The best GPU in use for a job, if it is worth more than that; a parked one has its homes alone."""
        changes = self._changes
        if job.home:
            looks, homes = self._draft.looks, [load.id for load in self._draft.homes(job)]
            found = PlaceSearch(changes, job, at, floor, homes).best(job, above)
            self._draft.looks = looks
            return found
        self._is_cut = self._draft.has_looked
        if self._is_cut:
            return None
        self._draft.looks += 1
        search = self._searches.get(job.id)
        if search is None or search.at is not at:
            search = self._searches[job.id] = self._search(job, at, floor)
        return search.best(job, above)

    def _search(self, job: Job, at: GpuLoad | None, floor: float) -> PlaceSearch:
        """A new one; waiting jobs alike in all that counts find the same."""
        if at is not None or not self._is_new(job):
            return PlaceSearch(self._changes, job, at, floor, None if self._is_new(job) else self._open)
        queue, spec = self._queue, job.effective
        left_s, part = queue.left_s(job), returning_part(queue, job, self._draft.now_s)
        had = had_s(job, self._draft.now_s) if job.attempt and queue.is_learnt(job) else 0.0
        alike = spec.need, spec.utility_min, spec.preemptible, spec.time_limit_s, queue.rank(job), left_s, part, had
        search = self._searches.get(alike)
        if search is None:
            search = self._searches[alike] = PlaceSearch(self._changes, job, None, floor, None)
        return search

    def _is_new(self, job: Job) -> bool:
        """Whether a job is to be looked at for all GPUs."""
        news = self._news
        if news is None or job.home or job.id in news.came:
            return True
        return not job.is_waiting and any(gpu in self._changed for gpu in job.gpus_held)

    def _candidate(self, job: Job, change: GpuChange) -> Candidate | None:
        load, away_s = change.load, self._queue.left_s(job) or 0.0
        if not change.out:
            facts: dict[str, str | int | float] = {"gpu": str(load.id), "rise": change.rise, "speed": change.ratio}
            return Candidate((load,), Reason(Why.SHARES_BEST, facts, load.jobs), ratio=change.ratio)
        room: list[Stop | Park] = []
        for victim in change.out:
            action = cheapest(self._draft, victim, job.id, self._because(job, victim), 0, away_s=away_s)
            if action is None:
                return None
            room.append(action)
        reason = Reason(Why.PREEMPTING, {}, tuple([victim.id for victim in change.out]))
        return Candidate(
            (load,), reason, room=tuple(room), waits_for=load.jobs, is_later=True, ratio=change.ratio
        )  # fmt: skip

    def _because(self, job: Job, victim: Job) -> str:
        if job.spec.priority > victim.spec.priority or not self._queue.exchanges:
            return self._queue.because_of(job, victim)
        mine, other = self._queue.weigh(job), self._queue.weigh(victim)
        return f"a second of work on it saves {mine:.1f} job-seconds, on this one {other:.1f}"

    # -- jobs that run

    def _shared(self) -> Iterator[tuple[GpuGroup, GpuId]]:
        """GPUs whose jobs could gain by going elsewhere: they share them, or are faster on another type."""
        changes, found = self._changes, list[tuple[float, GpuGroup]]()
        for kind in self._draft.view.gpu_types(self._pool):
            for gpu_group in changes.values.gpu_groups.present((self._pool, kind)):
                speeds = changes.speeds(gpu_group) if gpu_group.gpus else (1.0,)
                if min(speeds) < 1.0 - MOVE_PART:
                    found.append((sum(speeds) - len(speeds), gpu_group))
        found.sort(key=lambda entry: entry[0])
        closed = self._kept.closed
        gpus = ((gpu_group, gpu) for _, gpu_group in found for gpu in list(gpu_group.gpus) if gpu not in closed)
        return islice(gpus, SHARED_MAX if self._news is None else SHARED_SEEN_MAX)

    def _all_movers(self) -> Iterator[_Leaver]:
        """Jobs that may go elsewhere, and could gain by it."""
        for gpu_group, gpu in self._shared():
            load = self._draft.load(gpu)
            here = [self._draft.view.job(booking.job) for booking in load.bookings]
            for place, job in enumerate(here):
                if job.effective.sizes or not may_move(job, self._draft.now_s):
                    continue
                if is_past_min_runtime(self._draft, job, self._queue.quantum_s):
                    lost = self._changes.lost(gpu_group, here, place)
                    cost = self._changes.moving_price(job, self._queue.left_s(job) or 0.0)
                    yield _Leaver(self._queue.weigh(job) - cost - lost, job, load, lost, cost)

    def _elsewhere(self, mover: _Leaver, least: float) -> _Chosen | None:
        """The best place for a job that leaves its GPU, if it is worth more than that."""
        job, lost, price = mover.job, mover.lost, self._queue.weigh(mover.job)
        best: _Chosen | None = None
        for candidate in self._free(job):
            net = price * candidate.ratio - mover.cost - lost
            if net > least:
                best, least = _Chosen(net, job, candidate, candidate.ratio - lost / price), net
        change = self._found(job, mover.load, lost, least + lost)
        if change is not None and change.net - lost > least and change.load.id not in self._closed:
            candidate = Candidate((change.load,), Reason(Why.MOVED, {}, change.load.jobs), ratio=change.ratio)
            return _Chosen(change.net - lost, job, candidate, change.rise - lost / price)
        return best

    # -- making one

    def _make(self, change: _Chosen) -> None:
        job, candidate = change.job, change.candidate
        if job.is_waiting:
            if not candidate.is_later and candidate.gpus[0].is_empty:
                self._gpus_started_on.append(candidate.gpus[0].id)
                self._starts += 1
            self._promise(job, candidate)
            return
        gpu = candidate.gpus[0]
        facts: dict[str, str | int | float] = {
            "had": str(job.gpus_held[0]), "gpu": str(gpu.id), "rise": change.rise
        }  # fmt: skip
        self._closed |= {gpu.id, *job.gpus_held}
        if change.parked is not None:
            self._promised.add(change.parked)
            del facts["rise"]
            self._draft.resize(job, (gpu,), Reason(Why.VACATED, facts, (change.parked,)), for_job=change.parked)
        else:
            self._draft.resize(job, (gpu,), Reason(Why.MOVED, facts, gpu.jobs))
        self._context.changed((gpu,))

    def _part(self) -> None:
        """Let a job wait where all on a GPU are worth more without it, its leaving paid: no better place was found."""
        for gpu_group in self._changes.values.burdened():
            for load in [self._draft.load(gpu) for gpu in gpu_group.gpus]:
                if is_untouched(self._draft, load):
                    found = max(self._partings(gpu_group, load), key=_most_first_parting, default=None)
                    if found is not None:
                        split_off(self._draft, load, found.job, found.facts, SLOWER_TOGETHER, away_s=found.away_s)

    def _partings(self, gpu_group: GpuGroup, load: GpuLoad) -> Iterator[_Parting]:
        """Jobs without which the others are worth more than with it, for as long as they run."""
        draft, values, left_s = self._draft, self._changes.values, self._queue.left_s
        here = [draft.view.job(booking.job) for booking in load.bookings]
        for place, job in enumerate(here):
            if not may_split_off(draft, job) or ran_since_s(job) + self._queue.quantum_s > draft.now_s:
                continue
            rest = values.total(gpu_group.site, others(gpu_group.members, place))
            away_s = sum([left_s(other) or 0.0 for other in here if other is not job]) / rest
            net = -self._changes.lost(gpu_group, here, place) - self._changes.leaving_price(job, away_s)
            if net > 0 and values.loss(gpu_group, place) < -BURDEN_MIN:
                together = values.total(gpu_group.site, gpu_group.members)
                facts: Facts = {"gpu": str(load.id), "sum": together, "without": rest}
                yield _Parting(net, left_s(job) or 0.0, job, away_s, facts)

    def _promise(self, job: Job, candidate: Candidate) -> None:
        """Let a waiting job have it, at once or once others have left."""
        self._promised.add(job.id)
        self._take(job, job.effective, candidate)
        if self._walks is not None:
            self._walks.took(job, job.effective)
        if self._has_users:
            user = job.spec.user
            if self._walks is None:
                self._started.append(job)
            self._given[user] += job.gpu_count
            own, classes = self._users.lines(self._pool).get(user, {}), self._draft.view.queue(self._pool).classes
            for key in [key for key, jobs in self._lines.items() if any(other.spec.user == user for other in jobs)]:
                if key not in own or len(own[key]) < len(classes[key]):  # else its order is of this user alone
                    del self._lines[key]


def _is_served(need: NeedClass) -> bool:
    """Whether jobs of such needs are served here: of one GPU, not elastic unless parked at a size."""
    return need.gpus == 1 and not need.sizes


FIRST_OF: Final = FirstOf(_is_served, attrgetter("moves"), HEADS_MAX)
"""Of jobs of one GPU and alike in their needs those that go first, one for each number of moves."""


def _most_first_parting(parting: _Parting) -> tuple[float, float, JobId]:
    return parting.net, parting.left_s, JobId(-parting.job.id)


def _most_first(mover: _Leaver) -> tuple[float, JobId]:
    return -mover.most, mover.job.id


def _given(classes: Classes) -> Classes:
    """These: a function of its own, as one made in a compiled method would leave a cycle behind."""
    return classes
