"""The core: events in, outcome out. It reads no clock, file, socket or random source.

The server feeds it real events, the simulator virtual ones; neither has a scheduling rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from colane.core import guard, reports, suspension
from colane.core.check import check
from colane.core.companies import plan_companies
from colane.core.company import Company
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Decision,
    Ended,
    Event,
    GpusObserved,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    RejectedPlan,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.lifecycle import move
from colane.core.policy import Policy
from colane.core.state import ClusterState
from colane.core.step import Step, Watchers
from colane.core.timers import TimerKind, Timers
from colane.core.view import ClusterView
from colane.model.job import Job, JobId, JobState
from colane.model.lane import Turns
from colane.model.placement import Placement
from colane.model.plan import Blocked, Plan, Start
from colane.model.reason import Reason
from colane.perf.nearby import Surroundings
from colane.perf.observe import Observer
from colane.perf.pace import Paces

Handler = Callable[[Step, Any], None]

HANDLERS: dict[type, Handler] = {
    Submitted: reports.submitted,
    CancelRequested: reports.cancel_requested,
    SuspendRequested: suspension.suspend_requested,
    ResumeRequested: suspension.resume_requested,
    NodeRegistered: reports.node_registered,
    NodeLost: reports.node_lost,
    GpusObserved: reports.gpus_observed,
    Launched: reports.launched,
    Progressed: reports.progressed,
    Ended: reports.ended,
    ProfileDeclared: reports.profile_declared,
    Tick: reports.tick,
}


class Core:
    """Applies events, asks the policy, checks its plan, carries it out.

    Args:
        policy: Who decides.
        state: Owned by the core from now on.
        config: Settings that hold for every policy.
    """

    def __init__(self, policy: Policy, state: ClusterState, config: CoreConfig | None = None) -> None:
        self.policy = policy
        self.state = state
        self.config = config or CoreConfig()
        self._watchers = Watchers(Observer(), Paces(), Surroundings())
        self._timers = Timers()
        self._blocked: dict[str, Blocked] = {}
        self._resume()

    def step(self, events: Sequence[Event], now_s: float) -> Outcome:
        """Take events in order, then decide once.

        Args:
            events: What happened, oldest first.
            now_s: The time; never less than in the step before.

        Returns:
            What changed and what the driver must do.
        """
        step = Step(self.state, self._watchers, self._timers, self.config, now_s)
        for event in events:
            HANDLERS[type(event)](step, event)
        if self.config.guard:
            guard.keep(step, events, self.turns)
        for timer in self._timers.due(now_s):
            reports.timer_due(step, timer)
        self.state.changed_pools.update(self._timers.pools_due(now_s))
        suspension.bring_back(step)
        self._decide(step)
        return step.outcome()

    def why(self, job: JobId, now_s: float) -> Reason:
        """Why a live job is where it is.

        Raises:
            KeyError: There is no such live job.
        """
        asked = self.state.jobs[job]
        if asked.state is not JobState.QUEUED:
            return asked.story[-1].reason
        if asked.suspended:
            return suspension.held_reason(asked)
        view = ClusterView(self.state, now_s, pools=[asked.spec.pool], explain=job)
        plan = plan_companies(view) if asked.spec.company else self.policy.plan(view)
        return plan.reason_for(asked)

    @property
    def turns(self) -> Turns:
        """How jobs of one lane take turns: as set, else as the policy says."""
        turns: Turns = getattr(self.policy, "turns", Turns())
        rule, quantum_s = self.config.turn_rule, self.config.quantum_s
        return Turns(
            rule=turns.rule if rule is None else rule,
            quantum_s=turns.quantum_s if quantum_s is None else quantum_s,
        )

    def company(self, job: JobId) -> Company | None:
        """How a running job shares its GPUs, as seen and as predicted; None when it shares none."""
        return guard.company_of(self.state, self._watchers.guard, self.state.jobs[job], self.turns)

    def _decide(self, step: Step) -> None:
        """Ask until carrying out the plan taught nothing (who joins a job ends its time alone, and that teaches).

        A policy that wants to be asked again is asked until it has nothing more to change.
        """
        state = self.state
        while state.changed_pools:
            pools, lessons, decisions = state.changed_pools, step.lessons, len(step.decisions)
            wants_more = self._ask(step)
            state.changed_pools = set()
            if step.lessons > lessons:
                state.changed_pools = set(state.queues)
            elif wants_more and len(step.decisions) > decisions:
                state.changed_pools = {pool for pool in pools if pool in state.queues}

    def _ask(self, step: Step) -> bool:
        """Follow one plan for what has changed; whether the policy wants to be asked again."""
        state = self.state
        waiting = [pool for pool in state.changed_pools if pool in state.queues and state.queues[pool].count]
        if state.companies and waiting:
            self._follow(step, plan_companies, waiting)
            waiting = [pool for pool in waiting if state.queues[pool].count]
        if self._blocked:
            waiting = [pool for pool in waiting if not self._is_blocked(pool)]
        if waiting:
            plan = self._follow(step, self.policy.plan, waiting)
            self._blocked.update(plan.blocked)
            for pool in waiting:
                self._timers.ask_again(pool, plan.again_s.get(pool))
            return bool(plan.again_s)
        return False

    def _is_blocked(self, pool: str) -> bool:
        """Whether the policy has said that nothing can change in a pool yet."""
        by = self._blocked.get(pool)
        if by is None:
            return False
        if self.state.is_blocked(pool, by):
            return True
        del self._blocked[pool]
        return False

    def _follow(self, step: Step, plan_from: Callable[[ClusterView], Plan], pools: Iterable[str]) -> Plan:
        """Ask for a plan, judge it, carry it out."""
        plan = plan_from(ClusterView(self.state, step.now_s, pools=pools))
        flaws = check(self.state, plan) if plan.actions else ()
        if flaws:
            step.rejected = RejectedPlan(plan, flaws)
        else:
            self._carry_out(step, plan)
        return plan

    def _carry_out(self, step: Step, plan: Plan) -> None:
        for action in plan.actions:
            job = self.state.jobs[action.job]
            if isinstance(action, Start):
                self._start(step, job, action)
            else:
                step.stop(job, JobState.QUEUED, action.reason)
            step.decisions.append(Decision(step.now_s, self.policy.name, action))

    def _start(self, step: Step, job: Job, action: Start) -> None:
        placement = self._with_port(action.placement)
        changes: dict[str, object] = {"attempt": job.attempt + 1, "start_s": None, "first_step_s": None}
        changes |= {"ending": None, "exit": None, "ended_on": ()}
        if self.config.runs_at_once:
            reports.run_at_once(step, job, placement, action.reason, changes)
        else:
            step.put(move(job, JobState.ASSIGNED, step.now_s, action.reason, placement=placement, **changes))
        step.company_changed(placement.gpus)

    def _with_port(self, placement: Placement) -> Placement:
        """Hand out the lowest port that no other job's first node uses."""
        if len(placement.nodes) == 1:
            return placement
        others = (self.state.jobs[job].placement for job in self.state.nodes[placement.node].jobs)
        taken = {other.port for other in others if other is not None and other.node == placement.node}
        first, last = self.config.gang_ports
        return replace(placement, port=next((port for port in range(first, last + 1) if port not in taken), first))

    def _resume(self) -> None:
        """After a restart, set the timers of running jobs anew and watch every GPU."""
        step = Step(self.state, self._watchers, self._timers, self.config, 0.0)
        for job in self.state.jobs.values():
            if job.placement is None:
                continue
            step.company_changed(job.placement.gpus)
            if job.start_s is not None:
                reports.set_start_timers(step, job, job.start_s)
            if job.state is JobState.RUNNING_PROTECTED and job.first_step_s is not None:
                step.timers.set(job.first_step_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
