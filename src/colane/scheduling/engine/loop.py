"""The only serve loop: every named policy is one value of `Composed` (`scheduling.presets`), and so is a user's own.

For each pool in which something has changed, jobs are asked in order; each is offered ways to run by the sources, takes
the one the choice picks among those the admissions allow, or waits, with what that means for those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Final

from colane.core.cluster.draft import Draft
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Turns
from colane.model.plan import Park, Plan, Resize, Stop
from colane.model.reason import Reason, Why
from colane.scheduling.engine.choices import AS_ASKED, FIRST, First
from colane.scheduling.engine.contracts import (
    Admission,
    BoundOrder,
    BoundSource,
    Candidate,
    Choice,
    Chooser,
    Classes,
    ClassKey,
    CpuPlacing,
    GuardTally,
    Keeping,
    Moving,
    Order,
    Outlook,
    PastUsage,
    QueueIterator,
    Rule,
    SchedulingContext,
    Sizer,
    Source,
    Verdict,
)
from colane.scheduling.engine.refusals import behind, no_place
from colane.scheduling.engine.usual import BesidePolicy, BoundReturn, UsualMoving

USUAL_TURNS: Final = Turns()
BESIDE_POLICY: Final = BesidePolicy()


@dataclass(frozen=True, slots=True)
class Composed:
    """A policy made of parts."""

    name: str  # of the policy
    order: Order  # which job is asked next
    sources: tuple[Source, ...]  # where candidates come from, in the order they are asked
    admits: tuple[Admission, ...] = ()  # which jobs may start now, in addition to what fits
    sizes: Sizer = AS_ASKED  # how many GPUs and cores a job is offered
    choose: Choice = FIRST  # which of its candidates a job takes
    turns: Turns = USUAL_TURNS  # how the jobs of one lane take turns
    cpu_jobs: CpuPlacing = BESIDE_POLICY  # places jobs without GPUs
    moving: Moving | None = None  # how running jobs are moved or resized
    usage: PastUsage | None = None  # goes before the order: among equal priorities users that have used least
    # decides about many jobs at once, before the others are asked in order; None where none does
    chooser: Chooser | None = None
    # what keeps promises to jobs and groups, in this order, before anything else is decided
    keeps: tuple[Keeping, ...] = ()
    protects: bool = True  # whether jobs are left alone for a while after their launch
    # whether it is without guards that its publication lacks (`scheduling.presets.AS_PUBLISHED`)
    is_as_published: bool = False

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        """The order, to serve a pool."""
        own = self.order.bind(draft, pool)
        return own if self.usage is None else self.usage.bind(draft, pool, own)

    @property
    def reads_usage(self) -> bool:
        """Whether use of late goes before the order; nothing else looks at `ClusterView.usage`."""
        return self.usage_half_life_s is not None

    @property
    def usage_half_life_s(self) -> float | None:
        """Use counts half as much after so long, if it counts."""
        return None if self.usage is None else self.usage.usage_half_life_s

    @property
    def min_runtime_before_preemption_s(self) -> float:
        """How long a job runs at least before it is stopped for another; infinite where none is."""
        runtimes_s = [] if self.chooser is None else [self.order.quantum_s]
        runtimes_s += [source.min_runtime_before_preemption_s(self.order) for source in self.sources]
        return min(runtimes_s, default=inf)

    @property
    def awaits_first_steps(self) -> bool:
        """Whether more may be decided once a job makes its first step; a source of a user's own may not say."""
        return any(getattr(source, "awaits_first_steps", True) for source in self.sources)

    @property
    def makes_room_for_cores(self) -> bool:
        """Whether jobs with GPUs wait for the cores they are to start with, as jobs without give them up (CODA)."""
        return self.cpu_jobs.makes_room

    def plan(self, view: ClusterView) -> Plan:
        """Serve every pool in which something has changed and a job waits."""
        draft = Draft(view)
        first = None if self.moving is None or not self.moving.goes_first else self.moving
        pools = view.pools if first is None and self.chooser is None else view.changed_pools
        changed = view.changed_pools
        lenders = [
            (keeping, pool) for pool in changed for keeping in self.keeps if keeping.keep(draft, pool, self.bind)
        ]
        for pool in pools:
            service = _Service(self, draft, pool)
            if first is not None:
                first.plan(service.context)
            service.serve()
            service.dissolve()
            for keeping in self.keeps if draft.settled else ():
                if not keeping.is_settled(view, pool):
                    draft.settled.clear()
            for keeping in [keeping for keeping, other in lenders if other == pool and not draft.goes_on(pool)]:
                keeping.fill(draft, pool, self.bind)
            self.cpu_jobs.place(draft, pool)
        if self.moving is not None and first is None:
            for pool in [pool for pool in view.changed_pools if not draft.goes_on(pool)]:
                self.moving.plan(SchedulingContext(draft, pool, self.bind(draft, pool), self.sizes))
        return draft.plan()


@dataclass(frozen=True, slots=True)
class InTurn(UsualMoving):
    """Several ways to move jobs, one after another; a later one leaves alone the jobs an earlier one has moved."""

    ways: tuple[Moving, ...]  # they

    def plan(self, context: SchedulingContext) -> None:
        for way in self.ways:
            way.plan(context)


class _Service:
    """One pool in one plan."""

    def __init__(self, parts: Composed, draft: Draft, pool: str) -> None:
        self._draft = draft
        self._choice = parts.choose
        self._chooser = parts.chooser
        self.context = context = SchedulingContext(draft, pool, parts.bind(draft, pool), parts.sizes)
        self._bound_sources = context.bound_sources = _bind_sources(parts, context)
        self._rules = _bound_rules(parts, context)
        self._judges = [rule for rule in self._rules if rule.judges] if self._rules else []
        self._takes_first = not self._judges and isinstance(parts.choose, First)
        self._promised: set[JobId] = set()
        self._at_home: list[BoundSource] = []
        self._now: list[BoundSource] = []
        self._may_settle = (
            parts.moving is None
            and parts.chooser is None
            and not self._rules
            and context.queue.aim is None
            and not context.explains
        )
        self._has_full = parts.cpu_jobs.is_idle
        self._lowest = inf
        self._waiting = draft.view.queue(pool).count
        self._is_cut = self._has_asked = False
        self._newcomers = draft.view.newcomers(pool) if self._may_settle and self._settles() else None

    def serve(self) -> None:
        """Serve jobs that have waited too long, then the line; again while one job's start may have helped another."""
        for rule in self._rules:
            for job in rule.urgent():
                if job.id not in self._promised and self._draft.is_undecided(job.id):
                    self._serve_urgent(job)
        if self._chooser is not None:
            self._chooser.serve(self.context, self._take)
        if self._bound_sources or not self.context.skips_hopeless:
            while not self._goes_on and self._serve_line():
                self._newcomers = None
        if self._chooser is not None:
            self._chooser.served(self.context, is_cut=self._is_cut)
        if self._waiting > 0 and not self._goes_on:
            self._plan_again()
        if self._may_settle and self._settles() and not self._goes_on:
            self._draft.plan_for_newcomers(self.context.pool, self._full_up_to())

    @property
    def _goes_on(self) -> bool:
        return bool(self._draft.replan) and self._draft.goes_on(self.context.pool)

    def dissolve(self) -> None:
        """Break the reference cycles of context, sources and rules: what a plan took is freed at once."""
        self.context.bound_sources = []
        self.context.reason = None

    def _settles(self) -> bool:
        """Whether those that are refused are refused until something else happens than that others come."""
        return all(bound_source.outlook is not Outlook.ALL for bound_source in self._bound_sources)

    def _full_up_to(self) -> float:
        """Newcomers up to this priority find nothing either: no source has anything, nor would one outrank."""
        pool, is_full = self.context.pool, self._has_full
        for bound_source in self._bound_sources:
            is_full = is_full and bound_source.outlook is Outlook.NONE
        if not is_full or pool in self._draft.replan:
            return -inf
        return min(max(self._draft.view.queue(pool).lines, default=-inf), self._lowest)

    def _serve_line(self) -> bool:
        """Walk the line once; whether another walk may help a job."""
        for rule in self._rules:
            rule.walks()
        walk = self.context.queue.walk(self._worth)
        started, refused, self._has_asked = False, self._newcomers is not None, False
        hope = _Hope(self._worth)
        for job in walk:
            if self._is_long:
                self._draft.go_on(self.context.pool)
                self._is_cut = True
                break
            if hope.is_lost(job):
                walk.skip_class()
            elif job.id not in self._promised and self._draft.is_undecided(job.id):
                spec = None if job.id in self.context.refused else self._serve_one(job)
                if spec is not None:
                    started = True
                    hope.started()
                    walk.took(job, spec)
                    continue
                refused = True
                hope.refused()
                if not self._pass(job, walk) or hope.is_over:
                    break
        if not self._is_cut:
            self.context.refused.clear()
        if not started or not (refused or self.context.left_out):
            return False
        return any(bound_source.has_grown for bound_source in self._bound_sources)

    @property
    def _is_long(self) -> bool:
        """Whether as much was decided as one plan may; or looked at, and the next one goes on, but any was asked."""
        if self._has_asked and self._chooser is not None and self._draft.has_looked:
            return True
        return self._draft.is_long

    def _plan_again(self) -> None:
        for bound_source in self._bound_sources:
            bound_source.plan_again()
        watch = self._draft.view.derived(GuardTally).watch
        if watch is not None and any(bound_source.preempts for bound_source in self._bound_sources):
            watch.waits(self.context)

    def _serve_urgent(self, job: Job) -> None:
        watch = self._draft.view.derived(GuardTally).watch
        is_favoured = watch is not None and watch.asks_urgent(self.context, job)
        if self._serve_one(job) is not None and watch is not None and is_favoured:
            watch.serves_urgent(job)

    def _serve_one(self, job: Job) -> JobSpec | None:
        """Give a job the best of its candidates, at which size; None when there is nothing it may have."""
        self._has_asked = True
        for spec in self.context.sizes(job):
            candidate = self._best(job, spec)
            if candidate is not None:
                self._take(job, spec, candidate)
                return spec
        return None

    def _best(self, job: Job, spec: JobSpec) -> Candidate | None:
        """The candidate its choice picks; no more than one is looked for where the first is taken unjudged."""
        if not self._takes_first:
            return self._choice.choose(self.context, job, spec, self._candidates(job, spec))
        for bound_source in self._asked(job, spec):
            candidate = next(bound_source.candidates(job, spec), None)
            if candidate is not None:
                return candidate
        return None

    def _candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """The candidates it may have."""
        for bound_source in self._asked(job, spec):
            for candidate in bound_source.candidates(job, spec):
                if self._is_allowed(job, spec, candidate):
                    yield candidate

    def _asked(self, job: Job, spec: JobSpec) -> list[BoundSource]:
        """Sources to ask: preemption serves one size alone, no job leaves for another to be larger than that."""
        if job.parking is not None and job.home:
            return self._bound_sources_at_home()
        if not spec.sizes or spec.gpus == self.context.sizer.room_for(self.context, job):
            return self._bound_sources
        if not self._now:
            self._now = [bound_source for bound_source in self._bound_sources if not bound_source.preempts]
        return self._now

    def _bound_sources_at_home(self) -> list[BoundSource]:
        """For a parked job: its own place, co-runners there, and preemption there."""
        if not self._at_home:
            others = [bound_source for bound_source in self._bound_sources if bound_source.at_home]
            self._at_home = [BoundReturn(self.context), *others]
        return self._at_home

    def _is_allowed(self, job: Job, spec: JobSpec, candidate: Candidate) -> bool:
        return all(rule.allows(job, spec, candidate) for rule in self._judges)

    def _take(self, job: Job, spec: JobSpec, candidate: Candidate) -> None:
        draft, pool = self._draft, self.context.pool
        types = draft.view.gpu_types(pool)
        is_settled = draft.settled.get(pool) == len(draft.actions) and (
            candidate.is_later or spec.gpus > 1 or self._joins_none(spec)
        )
        if candidate.is_later:
            self._preempt(job, spec, candidate)
        else:
            own = self.context.reason
            reason = candidate.reason if own is None else own(job, candidate)
            draft.start(job, candidate.gpus, reason, candidate.lanes)
            self._lowest = min(self._lowest, job.spec.priority)
            self._waiting -= 1
            if self._chooser is not None and spec.preemptible:  # it may be stopped then
                draft.plan_again(pool, draft.now_s + self.context.queue.quantum_s)
        if is_settled and (candidate.is_later or not any(draft.free((pool, kind)).count for kind in types)):
            draft.settle(pool)  # what starts on several GPUs, or others leave for, is joined by none; so is an elastic
            # job where none waits of one GPU, as what only tries sharing waits for first steps
        if candidate.accepted is not None:
            candidate.accepted()
        self.context.changed(candidate.gpus)
        for rule in self._judges:
            rule.took(job, spec, candidate)

    def _joins_none(self, spec: JobSpec) -> bool:
        """Whether none waits that would join this one where it starts on one GPU."""
        classes = self._draft.view.queue(self.context.pool).classes
        return bool(spec.sizes) and all(need.gpus > 1 or need.sizes for _, need in classes)

    def _preempt(self, job: Job, spec: JobSpec, candidate: Candidate) -> None:
        """Others do what they must, and what they leave is kept for the job, with what is free."""
        draft = self._draft
        for action in candidate.room:
            victim = draft.view.job(action.job)
            if isinstance(action, Park):
                draft.park(victim, action.reason, action.for_job, isolate=action.isolate)
            elif isinstance(action, Stop):
                draft.act(action)
            elif isinstance(action, Resize):
                draft.resize(victim, [draft.load(gpu) for gpu in action.placement.gpus], action.reason)
        draft.hold(job, candidate.gpus, spec)
        draft.wait(job.id, Reason(Why.PREEMPTING, {}, candidate.waits_for))
        self._promised.add(job.id)

    # -- jobs that find nothing

    def _pass(self, job: Job, walk: QueueIterator) -> bool:
        """Leave a job waiting; whether any job behind it is still to be looked at."""
        verdict = self.context.refused.get(job.id)
        if verdict is None:
            verdict = Verdict.NEXT_CLASS
            for bound_source in self._bound_sources:
                if bound_source.single:
                    verdict = Verdict.NEXT_JOB
            self.context.refused[job.id] = verdict
        for rule in self._rules:
            verdict = rule.refused(job, verdict)
        if self.context.explains:
            self._explain(job, alone=verdict is not Verdict.NEXT_CLASS or job.home != "")
        if verdict is Verdict.NEXT_CLASS:
            walk.skip_class()
        return verdict is not Verdict.STOP

    def _explain(self, job: Job, *, alone: bool) -> None:
        if job.id in self._draft.waits:
            return
        if alone:
            self._draft.wait(job.id, self._reason(job))
        else:
            self._draft.wait_class(job.effective, self._reason(job))

    def _reason(self, job: Job) -> Reason:
        """Why it waits: what a source can tell, else which need is not met, or which job everything is kept for."""
        spec = min(self.context.sizes(job), key=attrgetter("gpus"))  # it may rather wait than start on the fewest
        for bound_source in self._asked(job, spec):
            told = bound_source.refusal(job, spec)
            if told is not None:
                return told
        lacking, kept_for = no_place(self._draft, spec), list(self._draft.held.values())
        is_in_line = bool(kept_for) and job.id not in kept_for and not lacking.however_many
        return behind(kept_for[0]) if is_in_line else lacking.reason

    def _worth(self) -> Classes:
        """Classes of the pool's waiting jobs worth looking at: the others find nothing now."""
        waiting = self._draft.view.queue(self.context.pool).classes
        if not self.context.skips_hopeless:
            return waiting
        return self._promising(waiting)

    def _promising(self, waiting: Classes) -> Classes:
        """The newcomers, or all jobs where more has happened, for which some source can have something."""
        came, found = self._newcomers, dict[ClassKey, Line]()
        classes = waiting if came is None else {key: waiting[key] for key in came if key in waiting}
        for bound_source in self._bound_sources:
            helped = bound_source.may_help(classes)
            if helped is None or helped is classes:
                return classes
            found.update(helped)
        return found


REFUSED_MAX: Final = 8
"""When so many in a row find nothing behind one that has started, it is asked anew which jobs may.

With 1,000 families an end under `colane` takes 10 ms by this in place of 43 (`benchmarks/decide.py`, as source).
"""


class _Hope:
    """Jobs of a walk that may yet find something, once a start has left less: looked at anew after some were refused.

    Args:
        worth: Classes for which there may be something now.
    """

    def __init__(self, worth: Callable[[], Classes]) -> None:
        self._worth = worth
        self._left: Classes | None = None
        self._refused = REFUSED_MAX

    def is_lost(self, job: Job) -> bool:
        """Whether a job need not be looked at."""
        return self._left is not None and (job.spec.priority, job.need) not in self._left

    @property
    def is_over(self) -> bool:
        """Whether no job need be looked at any more."""
        return self._left is not None and not self._left

    def started(self) -> None:
        """A job takes what others might have had, or opens the way for them."""
        self._left, self._refused = None, 0

    def refused(self) -> None:
        """A job finds nothing."""
        self._refused += 1
        if self._refused == REFUSED_MAX:
            self._left = self._worth()


def _bind_sources(parts: Composed, context: SchedulingContext) -> list[BoundSource]:
    """In the order they are asked."""
    bound_sources: list[BoundSource] = []
    for source in parts.sources:
        bound_source = source.bind(context)
        if bound_source is not None:
            bound_sources.append(bound_source)
    if len(bound_sources) > 1:
        bound_sources.sort(key=lambda bound_source: not bound_source.goes_first)
    return bound_sources


def _bound_rules(parts: Composed, context: SchedulingContext) -> list[Rule]:
    rules: list[Rule] = []
    for admission in parts.admits:
        rule = admission.bind(context)
        if rule is not None:
            rules.append(rule)
    return rules
