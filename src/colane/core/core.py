"""The core: events in, outcome out. It reads no clock, file, socket or random source.

The server feeds it real events, the simulator virtual ones; neither has a scheduling rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from colane.core.check import check
from colane.core.cluster.changes import Happened
from colane.core.cluster.co_runners import CoRunners, Pacing
from colane.core.cluster.contents import Newcomers, News
from colane.core.cluster.draft import ACTIONS_MAX
from colane.core.cluster.limits import LimitBook
from colane.core.cluster.situations import rate_of
from colane.core.cluster.sized_speeds import SizedSpeed, speeds_at_sizes
from colane.core.cluster.state import ClusterState
from colane.core.cluster.useful_cores import useful_cores_of
from colane.core.cluster.view import ENDLESS, NO_NEWS, NONE_CAME, ClusterView, UnfinishedError
from colane.core.config import CoreConfig
from colane.core.eligibility import hold_reason
from colane.core.events import (
    BandwidthObserved,
    CancelRequested,
    Decision,
    DependenciesEnded,
    Ended,
    Event,
    Flaw,
    GpusObserved,
    GroupsSeen,
    IdleParkRequested,
    Launched,
    LimitsChanged,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeReserved,
    Outcome,
    PartHalted,
    ProfileDeclared,
    ProfilesForgotten,
    Progressed,
    RejectedPlan,
    RequeueRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.planners import drain, guard
from colane.core.planners.answers import KeptAnswers
from colane.core.planners.contention import Contention
from colane.core.planners.cpu_only import CpuOnlyJobs
from colane.core.planners.drain import Drains
from colane.core.planners.guard import Guard
from colane.core.planners.measurement_groups import MeasuredSets
from colane.core.planners.overflow import Relief
from colane.core.planners.remeasuring import Remeasuring
from colane.core.planners.returning import Returns
from colane.core.planners.tuning import CoreTuning
from colane.core.policy import Planner, Policy, ask
from colane.core.reducers import (
    arrays,
    black_holes,
    changing,
    checkpointing,
    dependencies,
    halting,
    idling,
    reports,
    suspension,
)
from colane.core.reducers.carrying import carry_out
from colane.core.reducers.step import Step, Watchers
from colane.core.reducers.suspicions import Suspicions
from colane.core.reducers.timers import TimerKind, Timers
from colane.core.usage import HALF_LIFE_S
from colane.model.hardware import GpuId
from colane.model.job import JobId, JobState
from colane.model.limits import Quotas
from colane.model.phases import HoldKind
from colane.model.placement import Turns
from colane.model.plan import ON_CHANGE, Plan, Replan
from colane.model.reason import Reason, Why
from colane.perf.nearby import Surroundings
from colane.perf.observe import Observer
from colane.perf.pace import Paces
from colane.perf.rate import ALONE

IDLE_TURNS_MAX: Final = 128  # plans in a row of a pool that decide nothing and leave all of it to the next step

EVENTS_A_STEP: Final = 100  # a step that takes in more leaves all there is to decide to the next one

WORK_A_PLAN: Final = 1024
"""A plan that has looked at so many jobs anew before its first change leaves all to the next step: what it knows is
kept. Plans in a row that decide nothing look at twice as many each `WORK_DOUBLES` turns, and soon at all."""

WORK_DOUBLES: Final = 16

UNFINISHED_MAX: Final = 64

ASKS_MAX: Final = 1000
"""A policy is asked so often at one instant, and once more for each live job: each time it may start one of them."""

Handler = Callable[[Step, Any], None]


class QueueReasons(NamedTuple):
    """Why jobs wait."""

    reasons: Mapping[JobId, Reason]  # of each waiting job that nothing holds
    holds: Mapping[JobId, tuple[GpuId, ...]]  # GPUs kept for waiting jobs
    reserved: Mapping[str, JobId]  # nodes, by name, reserved for waiting jobs that they cannot hold yet


HANDLERS: dict[type, Handler] = {
    Submitted: reports.submitted,
    DependenciesEnded: dependencies.ended,
    CancelRequested: reports.cancel_requested,
    RequeueRequested: reports.requeue_requested,
    SuspendRequested: suspension.suspend_requested,
    IdleParkRequested: idling.idle_park_requested,
    ResumeRequested: suspension.resume_requested,
    LimitsChanged: changing.limits_changed,
    NodeRegistered: reports.node_registered,
    NodeLost: reports.node_lost,
    PartHalted: halting.part_halted,
    NodeDrained: drain.drained,
    NodeReserved: reports.node_reserved,
    GpusObserved: reports.gpus_observed,
    GroupsSeen: reports.groups_seen,
    Launched: reports.launched,
    Progressed: reports.progressed,
    Ended: reports.ended,
    BandwidthObserved: reports.bandwidth_observed,
    ProfileDeclared: reports.profile_declared,
    ProfilesForgotten: reports.profiles_forgotten,
    Tick: reports.tick,
}


class Core:
    """Applies events, asks the policy, checks its plan, carries it out.

    Args:
        policy: Decides what starts where.
        state: Owned by the core from now on.
        config: Settings that hold for every policy.

    Attributes:
        limits: Keeps account of what users and groups use, where that is bounded.
        ask: How planners are asked; a driver may put something in its place that takes the time of it.
    """

    def __init__(self, policy: Policy, state: ClusterState, config: CoreConfig | None = None) -> None:
        self.ask: Callable[[Planner, ClusterView], Plan] = ask
        self.state = state
        self.config = config or CoreConfig()
        state.steps_unseen = self.config.runs_at_once
        state.cpu_only_passes_s = self.config.cpu_only_passes_s
        state.usage.is_charged = self.config.is_kept
        self._go_by(policy)
        self._watchers = Watchers(Observer(), Paces(), Surroundings(), Suspicions())
        self._timers = Timers()
        self._refused: tuple[JobId, ...] = ()
        self._planned_s: dict[str, float] = {}
        self._idle_turns: dict[str, int] = {}
        self._is_whole = False
        self._asks = 0
        self._remeasuring = Remeasuring()
        self._guard = Guard(state, self._watchers.guard, self.config)
        self._answers = KeptAnswers(state)
        self._relief = Relief(state)
        self._returns = Returns(state)
        self._tuning = CoreTuning(state, self.config.tuning, self.config.contention)
        self._contention = Contention(state, self.config.contention)
        watches: tuple[CoreTuning | Contention, ...] = (self._tuning, self._contention)
        self._sample_watches = tuple([watch for watch in watches if watch.is_on])
        self._sets = MeasuredSets()
        self._drains = Drains(state)
        self._cpu_only = CpuOnlyJobs()
        self.limits: LimitBook | None = None
        self.limit(self.config.limits)
        self._resume()

    def rule(self, policy: Policy) -> None:
        """Go by this policy from the next step on: what was remembered for the one before is forgotten."""
        self._go_by(policy)
        self.state.forget_derived()
        self._timers.replans.clear()
        self._planned_s.clear()
        self.state.changed_pools.update(self.state.gpu_types)

    def _go_by(self, policy: Policy) -> None:
        self.policy, self.config = policy, _for_policy(self.config, policy)
        usage = self.state.usage
        usage.is_charged = usage.is_charged or getattr(policy, "reads_usage", True)
        usage.half_life_s = getattr(policy, "usage_half_life_s", None) or HALF_LIFE_S

    def limit(self, quotas: Quotas) -> None:
        """Go by these limits from the next step on."""
        state, self.config = self.state, replace(self.config, limits=quotas)
        state.usage.is_charged = state.usage.is_charged or quotas.have_budgets
        state.guarantees, state.limits, self.limits = quotas.guarantees, None, None
        if quotas.hold or any(job.is_held(HoldKind.LIMIT) for job in state.jobs.values()):
            state.limits = self.limits = LimitBook(quotas, self.config.limit_passes_s)
            for job in state.jobs.values():
                self.limits.moved(None, job)

    def step(self, events: Sequence[Event], now_s: float, *, decides: bool = True, whole: bool = False) -> Outcome:
        """Take events in order, then decide once.

        Args:
            events: What happened, oldest first.
            now_s: The time; never less than in the step before.
            decides: Whether the policy is asked; else that is left to the next step, as more of a batch is to come.
            whole: Whether all there is to decide is decided, however much; else the next step may go on (`goes_on`).

        Returns:
            What changed and what the driver must do.
        """
        step = Step(self.state, self._watchers, self._timers, self.config, now_s)
        if self.state.arrays.later:
            arrays.begin(step)
        has_samples = False
        for event in events:
            HANDLERS[type(event)](step, event)
            has_samples = has_samples or type(event) is Progressed
            if step.grown:  # a GPU that cannot hold its jobs is relieved before anything else happens there
                self._relieve(step)
        for watch in self._sample_watches:
            watch.notice(events)
        if has_samples or step.outdated:
            self._separate(step, events)
        self._come_due(step)
        if self.state.draining:
            self._drains.notice(step)
            self._follow(step, self._drains, ())
        if self.state.returning:
            self._follow(step, self._returns, ())
        for watch in self._sample_watches:
            if watch.is_due:
                self._follow(step, watch, ())
        self._decide(step, asks=decides, whole=whole, is_late=len(events) > EVENTS_A_STEP)
        return step.outcome()

    def _come_due(self, step: Step) -> None:
        """What its time has come for: timers, nodes that are brought back, pools that are planned again."""
        timers = self._timers
        while (timer := timers.next_due(step.now_s)) is not None:
            reports.timer_due(step, timer)
        if self.state.closed:
            black_holes.look(step)
        if timers.replans:
            self.state.changed_pools.due(timers.pools_due(step.now_s))

    def _separate(self, step: Step, events: Sequence[Event]) -> None:
        """Have jobs leave each other where samples, or what they taught, call for it."""
        if self.config.guard:
            self._guard.notice(events, self.turns)
            self._remeasuring.notice(step.outdated)
        self._answers.notice(events)
        planners: tuple[Guard | Remeasuring | KeptAnswers, ...] = (self._guard, self._remeasuring, self._answers)
        for planner in planners:
            if planner.is_due:
                self._follow(step, planner, ())

    def _relieve(self, step: Step) -> None:
        self._relief.notice(step.grown)
        if self._relief.is_due:
            self._follow(step, self._relief, ())
        step.grown = []

    def why(self, job: JobId, now_s: float) -> Reason:
        """Why a live job is where it is. Raises KeyError: there is no such live job."""
        asked = self.state.jobs[job]
        if not asked.is_waiting:
            return self.why_held(job)
        view = ClusterView(self.state, now_s, pools=[asked.spec.pool], explain=job)
        if not asked.spec.gpus:
            plan = self.policy.plan(view)
            plan = plan if plan.serves_cpu_only else self._cpu_only.plan(view)
        else:
            plan = self._sets.plan(view) if asked.spec.measurement_group else self.policy.plan(view)
        return plan.reason_for(asked) or (asked.reason if asked.parked else None) or Reason(Why.SUBMITTED)

    def why_in(self, job: JobId, pool: str, now_s: float) -> Reason:
        """Why a live job of several pools does not start in one of them. Raises KeyError: there is no such live job."""
        asked, changed = self.state.jobs[job], self.state.changed_pools
        if job not in self.state.roaming or pool == asked.spec.pool:
            return self.why(job, now_s)
        known, changed.pools = changed.pools, {}
        self.state.put_job(asked.in_pool(pool))
        reason = self.why(job, now_s)
        self.state.put_job(asked)
        changed.pools = known
        return reason

    def why_held(self, job: JobId) -> Reason:
        """Why a live job that no policy is asked about is where it is: something holds it, or it does not wait.

        Raises KeyError: there is no such live job.
        """
        asked = self.state.jobs[job]
        if asked.array is not None and len(asked.holds) == 1:
            return arrays.reason_of(asked, self.state.arrays.arrays[job])
        if asked.holds:
            book, is_own = self.limits, all(hold.kind is HoldKind.LIMIT for hold in asked.holds)
            return book.reason(asked) if book is not None and is_own else hold_reason(asked)
        return asked.reason or Reason(Why.SUBMITTED)

    def waits(self, now_s: float) -> QueueReasons:
        """Why every waiting job waits, as `why` says of each, and which GPUs are kept for which: by one plan of each.

        Nothing of these plans is carried out.
        """
        found: dict[JobId, Reason] = {}
        waiting = [job for job in self.state.jobs.values() if job.is_waiting]
        if not waiting:
            return QueueReasons({}, {}, {})
        view = ClusterView(self.state, now_s, explain=waiting[0].id)
        plan, sets = self.policy.plan(view), self._sets.plan(view)
        cpu_only = plan if plan.serves_cpu_only else self._cpu_only.plan(view)
        acted = {id(made): {act.job: act.reason for act in made.actions} for made in (plan, sets, cpu_only)}
        for job in waiting:
            of_set = job.spec.gpus and job.spec.measurement_group
            made = sets if of_set else plan if job.spec.gpus else cpu_only
            told = acted[id(made)].get(job.id) or made.wait_of(job) or (job.reason if job.parked else None)
            found[job.id] = told or Reason(Why.SUBMITTED)
        return QueueReasons(found, plan.holds, plan.reserved)

    @property
    def turns(self) -> Turns:
        """How jobs of one lane take turns: as set, else as the policy says."""
        turns = self.policy.turns
        rule, quantum_s = self.config.turn_rule, self.config.quantum_s
        return Turns(
            rule=turns.rule if rule is None else rule, quantum_s=turns.quantum_s if quantum_s is None else quantum_s
        )

    def tuning_waits_s(self, job: JobId) -> tuple[float, ...]:
        """When the search for a job's cores wants samples of it, counted from a change, see `CoreTuning.waits_s`."""
        return self._tuning.waits_s(job)

    def co_runners(self, job: JobId) -> CoRunners | None:
        """How a running job shares its GPUs, as seen and as predicted; None when it shares none."""
        return guard.co_runners_of(self.state, self._watchers.guard, self.state.jobs[job], self.turns)

    def pacing(self, job: JobId) -> Pacing:
        """How fast a live job is believed to go, and with which co-runners."""
        asked = self.state.jobs[job]
        rate = rate_of(self.state, asked, self.turns.rule) or self.state.beliefs.rate(asked.effective, ALONE)
        co_runners = self.co_runners(job) if asked.placement is not None else None
        return Pacing(rate, co_runners, useful_cores_of(self.state, asked))

    def speeds_at_sizes(self, job: JobId) -> list[SizedSpeed]:
        """How fast a live job of several sizes is believed to go alone at each of them; nothing of one of one size."""
        return speeds_at_sizes(self.state, self.state.jobs[job])

    def _decide(self, step: Step, *, asks: bool, whole: bool, is_late: bool) -> None:
        """Ask until carrying out the plan taught nothing (a job that joins another ends its time alone, which teaches).

        Where it is late, as the step has taken in much, all of it is left to the next step, if not the whole is asked.
        A policy that wants to be asked again is asked until it has nothing more to change.
        """
        state, limits = self.state, self.limits
        changed, self._is_whole = state.changed_pools, whole
        self._asks = 0 if step.updates or not changed.left else self._asks  # or it goes on with what is left
        if step.moved_on or step.elements_moved or state.arrays.due:
            self._settle(step)
        if limits is not None:
            limits.begin()
            self._timers.look_s = limits.spend(state.usage, state.jobs.values(), step.now_s)
            self._review_limits(step, limits)
        if asks and is_late and not whole and not changed.left:  # once, or it may never come to it
            changed.put_off(everything=True)
        elif asks and changed.left:
            changed.resume()
        if asks and changed.pools:
            self._ask_on(step, whole=whole)
        if changed.left:
            self._timers.wake(step.now_s)
        if limits is not None:
            step.settle_holds()

    def _ask_on(self, step: Step, *, whole: bool) -> None:
        """Ask while pools are to be planned."""
        state, limits, changed = self.state, self.limits, self.state.changed_pools
        begun, again = len(step.decisions), set[str]()
        while changed.pools:
            self._asks += 1
            if self._asks > ASKS_MAX and self._asked_without_end(step):
                break
            aside = self._roam(step) if state.roaming else {}
            pools, updates, decisions = list(changed.pools), step.updates, len(step.decisions)
            wants_more = self._ask(step) and len(step.decisions) > decisions
            changed.again([pool for pool in pools if pool in state.queues] if wants_more else ())
            if aside:
                changed.take(aside)
            if step.moved_on or step.elements_moved or state.arrays.due:
                self._settle(step)
            if step.updates > updates:
                changed.update(state.queues)
            if limits is not None:
                self._review_limits(step, limits)
                again.update(self._ask_for_refused(limits, again))
            if changed.pools:
                changed.put_off(everything=len(step.decisions) - begun >= ACTIONS_MAX)
            if whole:
                changed.resume()

    def _roam(self, step: Step) -> dict[str, Happened]:
        """Have jobs of several pools wait in the first of those asked about now; return the others, asked about next.

        So each is in the queue of every pool whenever that is planned, and in one queue at a time.
        """
        state, changed, aside = self.state, self.state.changed_pools.pools, dict[str, Happened]()
        full = dict[tuple[str, str | None, int, bool], bool]()
        for job in [state.jobs[job_id] for job_id in state.roaming]:
            due = [way.pool for way in job.spec.pools if way.pool in changed]
            if len(due) > 1:  # it shares no GPU where another pool has one for it alone
                spec = job.effective
                keys = {pool: (pool, spec.gpu_type, spec.gpus_min, spec.multi_node) for pool in due}
                full |= {key: not state.has_free(*key) for key in keys.values() if key not in full}
                due = [pool for is_full in (False, True) for pool in due if full[keys[pool]] is is_full]
            for pool in due[1:]:
                aside[pool] = changed.pop(pool)
            if due and due[0] != job.spec.pool:
                step.roam(job, due[0])
        return aside

    def _settle(self, step: Step) -> None:
        """Let go, make, hold and end what starts and ends of other jobs bring about."""
        while step.moved_on or step.elements_moved or self.state.arrays.due:
            dependencies.settle(step)
            arrays.settle(step)

    def _ask_for_refused(self, limits: LimitBook, asked: set[str]) -> list[str]:
        """Ask once more about pools with jobs that a limit refused and that fit by now: GPUs were no longer kept."""
        refused, self._refused = self._refused, ()
        waiting = [self.state.jobs[job] for job in refused if job in self.state.jobs]
        fitting = [job for job in waiting if job.is_waiting and not job.holds and limits.allowance().take(job)]
        # Once a step: GPUs kept for another job in the next plan may leave no room again, and so on for ever.
        pools = list({job.spec.pool: None for job in fitting if job.spec.pool not in asked})
        self.state.changed_pools.update(pools)
        return pools

    def _review_limits(self, step: Step, limits: LimitBook) -> None:
        """Hold the waiting jobs that exceed a limit by now, and let those go that do not any more."""
        while limits.is_due:
            for job in limits.review(self.state.jobs, step.now_s):
                step.hold(job)

    def _asked_without_end(self, step: Step) -> bool:
        """A policy that never has enough must not keep time from going on: what it has decided so far stands."""
        if self._asks <= ASKS_MAX + len(self.state.jobs):
            return False
        detail = f"{self.policy.name} was asked {self._asks} times while nothing happened, and changes more"
        step.rejected = RejectedPlan(Plan(self.state.version), (Flaw("asked-without-end", detail),))
        self.state.changed_pools.clear()
        return True

    def _ask(self, step: Step) -> bool:
        """Follow one plan for what has changed; whether the policy wants to be asked again."""
        state, timers = self.state, self._timers
        changed, queues = state.changed_pools.pools, state.queues
        for pool, happened in changed.items() if timers.replans else ():
            if happened.any or happened.more:
                timers.more_happened(pool)
            if happened.any:
                timers.anything_happened(pool)
        waiting = [pool for pool in changed if pool in queues and queues[pool].count]
        plan = self._ask_policy(step, waiting) if waiting or timers.replans else None
        if state.cpu_only and waiting and (plan is None or not plan.serves_cpu_only):
            self._follow(step, self._cpu_only, waiting)
        if plan is None or not plan.replan:
            return False
        return any(self._wants_more(*wish) for wish in plan.replan.items())

    @property
    def goes_on(self) -> bool:
        """Whether the next step goes on with what this one has left."""
        return bool(self.state.changed_pools.left)

    def _wants_more(self, pool: str, replan: Replan) -> bool:
        """Whether a pool is to be planned again after what a plan has changed there."""
        if not replan.after_moves:
            return False
        happened = self.state.changed_pools.pools.get(pool)
        return not replan.settled or bool(self._refused) or (happened is not None and happened.any)

    def _ask_policy(self, step: Step, waiting: list[str]) -> Plan | None:
        state = self.state
        if state.measurement_groups and waiting:
            self._follow(step, self._sets, waiting)
            waiting = [pool for pool in waiting if state.queues[pool].count]
        if self._timers.replans:
            waiting = [pool for pool in waiting if not self._is_full(pool)]
            changed = state.changed_pools.pools
            waiting += [pool for pool in changed if self._timers.replan(pool).while_idle and pool not in waiting]
            for pool in changed:
                if pool not in waiting:
                    self._timers.anything_happened(pool)
        return self._ask_about(step, waiting) if waiting else None

    def _ask_about(self, step: Step, pools: list[str]) -> Plan:
        """Follow the policy's plan for these pools, and note when they are planned again."""
        timers, newcomers, news = self._timers, NONE_CAME, NO_NEWS
        if timers.replans:
            alone = [pool for pool in pools if timers.replan(pool).newcomers_only]
            if alone:
                newcomers = {pool: self.state.changed_pools.newcomers(pool) for pool in alone}
            news = {pool: self._news(pool) for pool in pools if timers.replan(pool).news_until_s > step.now_s}
        changed = self.state.changed_pools
        told = changed.pools
        changed.clear()  # from here on what this plan changes is noted
        plan = self._follow(step, self.policy, pools, newcomers, news)
        for pool in pools:
            replan = plan.replan.get(pool, ON_CHANGE)
            is_partial = replan.newcomers_only and newcomers.get(pool) is not None
            goes_on = replan.goes_on and step.rejected is None
            if not goes_on:
                self._planned_s[pool] = step.now_s
            before = self._idle_turns.pop(pool, 0) if self._idle_turns else 0
            turns = before + 1 if goes_on and not plan.actions else 0
            if 0 < turns <= IDLE_TURNS_MAX:
                self._idle_turns[pool] = turns
            if goes_on and turns <= IDLE_TURNS_MAX:  # or it would go on for ever
                changed.leave(pool, told[pool])
            if step.rejected is not None:
                replan = replan._replace(newcomers_only=False, full_up_to=-inf)
            if step.rejected is not None or self._refused:
                replan = replan._replace(news_until_s=-inf)
            timers.plan_again(pool, replan, keeps_earlier=is_partial)
        return plan

    def _news(self, pool: str) -> News | None:
        """All that has happened in a pool since its last plan, where that can be told."""
        known = self._timers.replan(pool)
        return self.state.changed_pools.news(pool, self._planned_s.get(pool, -inf), known.news_until_s)

    def _is_full(self, pool: str) -> bool:
        """Whether the policy has said that the jobs that came find nothing, and nothing else has happened."""
        replan, came = self._timers.replan(pool), self.state.changed_pools.newcomers(pool)
        if came is None or not replan.newcomers_only:
            return False
        return max([priority for priority, _ in came], default=replan.full_up_to) <= replan.full_up_to

    def _follow(
        self, step: Step, planner: Planner, pools: Iterable[str],
        newcomers: Mapping[str, Newcomers | None] = NONE_CAME, news: Mapping[str, News | None] = NO_NEWS,
    ) -> Plan:  # fmt: skip
        """Ask for a plan, judge it, carry it out, and record what was decided under the planner's name."""
        work = self._work(pools) if planner is self.policy else ENDLESS
        view = ClusterView(self.state, step.now_s, pools=pools, newcomers=newcomers, news=news, work_max=work)
        try:
            plan, limits = self.ask(planner, view), self.limits
        except UnfinishedError:
            again = {pool: self._timers.replan(pool)._replace(goes_on=True, while_idle=True) for pool in pools}
            return Plan(self.state.version, replan=again, serves_cpu_only=True)
        refused: tuple[JobId, ...] = ()
        if limits is not None and (plan.actions or plan.holds):
            plan, refused = limits.cut(plan, self.state.jobs)
        flaws = check(self.state, plan) if plan.actions or plan.holds else ()
        if flaws:
            step.rejected = RejectedPlan(plan, flaws)
            return plan
        for action in plan.actions:
            carry_out(step, action)
            step.decisions.append(Decision(step.now_s, planner.name, action))
        if limits is not None and planner is self.policy:
            self._refused = refused
            limits.keep(plan, pools, refused, self.state.jobs)
        return plan

    def _work(self, pools: Iterable[str]) -> int:
        """How many jobs a plan may look at anew before its first change."""
        turns = max([self._idle_turns.get(pool, 0) for pool in pools], default=0) if self._idle_turns else 0
        return ENDLESS if self._is_whole or turns >= UNFINISHED_MAX else WORK_A_PLAN << turns // WORK_DOUBLES

    def _resume(self) -> None:
        """After a restart, set the timers of running jobs anew and watch every GPU."""
        step = Step(self.state, self._watchers, self._timers, self.config, 0.0)
        for job in self.state.jobs.values():
            if self.state.reserved:
                self._timers.set(0.0, TimerKind.RESERVED, job.id, job.attempt)
            if job.placement is None:
                reports.set_hold_timers(self._timers, job)
                dependencies.enter(step, job)
                continue
            halting.watch(step, job)
            if job.state is JobState.CHECKPOINTING and job.effective.checkpoint is not None:
                checkpointing.set_timer(step, job, job.effective.checkpoint)


def _for_policy(config: CoreConfig, policy: Policy) -> CoreConfig:
    """Where the policy makes room for cores, jobs wait for those they are to start with."""
    if config.tuning is None or not getattr(policy, "makes_room_for_cores", False):
        return config
    return replace(config, tuning=replace(config.tuning, is_need=True))
