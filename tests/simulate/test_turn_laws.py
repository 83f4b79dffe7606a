"""The shares of virtual time are what the agent's gate gives, grant by grant: one set of rules, seen from afar.

Both are played on random lanes: here every step is a grant or not by the gate's own state machine, there a lane is a
fluid. What a job gets may differ by 2 % of the lane's time over a thousand turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.agent.gate.rules import GateState
from colane.agent.gate.values import GateJob
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.traces.workload import TraceJob
from colane.lanes.turns import SHARED, Contender, shares
from colane.model.job import JobKind
from colane.model.placement import TurnRule, Turns
from tests.examples import examples

from .scenes import cluster, run
from .test_lanes import Laned, ends, laned

LANE = (0, 0)
TURNS = 1000
TOLERANCE = 0.02
RULES = st.sampled_from(TurnRule)


@dataclass
class Member:
    """A job at the gate.

    Attributes:
        job: As the trace has it.
        step_s: How long a step holds the lane: one of training, or an answer.
        every_s: Requests come so often; steps of training follow one another.
        done: Steps made.
        asked: Requests that have come.
    """

    job: TraceJob
    step_s: float
    every_s: float = 0.0
    done: int = 0
    asked: int = 0

    @property
    def has_work(self) -> bool:
        return not self.every_s or self.asked > self.done

    @property
    def next_request_s(self) -> float:
        asks = self.every_s and self.asked < (self.job.steps or 0)
        return self.job.submit_s + self.asked * self.every_s if asks else inf

    @property
    def gate_job(self) -> GateJob:
        spec = self.job.spec
        serves, total = spec.kind is JobKind.INFERENCE, spec.steps_total
        return GateJob(
            job=self.job.id, lanes=(LANE,), weight=spec.weight, priority=spec.priority, serves=serves, steps_total=total
        )


def member(job: TraceJob) -> Member:
    period_s = (job.duration_s or 0.0) / (job.steps or 1)
    serves = job.spec.kind is JobKind.INFERENCE
    return Member(job, period_s * job.gpu_ratio, period_s) if serves else Member(job, period_s)


class GateLane:
    """One lane under the agent's gate, step by step.

    Attributes:
        end_s: When each job has ended.
        held_s: How long each has held the lane.
        turns: How often a job was let go; where the first keeps the lane, or went on after a step.
    """

    def __init__(self, jobs: Iterable[TraceJob], turns: Turns) -> None:
        self._coming = [member(job) for job in jobs]
        self._here: dict[int, Member] = {}
        self._turns = turns
        self._floor = GateState()
        self._floor.follow([], turns, 0.0)
        self._step_end_s = inf
        self._holder: Member | None = None
        self.now_s = 0.0
        self.turns = 0
        self.end_s: dict[int, float] = {}
        self.held_s: dict[int, float] = {}

    def play(self, turns: float = inf, least_s: float = 0.0) -> None:
        """Until all have ended, or there were so many turns and so much time has passed."""
        while (self._coming or self._here) and (self.turns < turns or self.now_s < least_s):
            self._let_go()
            requests = [one.next_request_s for one in self._here.values()]
            arrival_s = self._coming[0].job.submit_s if self._coming else inf
            self.now_s = min(self._step_end_s, arrival_s, *requests, inf)
            self._happen(arrival_s)

    def _let_go(self) -> None:
        go = self._floor.settle(self.now_s).go
        if go:
            (job,) = go
            self.turns += 1
            self._begin(self._here[job])

    def _begin(self, holder: Member) -> None:
        self._holder, self._step_end_s = holder, self.now_s + holder.step_s

    def _happen(self, arrival_s: float) -> None:
        if self._step_end_s <= self.now_s:
            self._step_ended()
        elif arrival_s <= self.now_s:
            newcomer = self._coming.pop(0)
            self._here[newcomer.job.id] = newcomer
            self._follow()
            if newcomer.every_s:
                self._floor.idle(newcomer.job.id, 0, self.now_s)
            else:
                self._floor.parked(newcomer.job.id, 0, self.now_s)
        else:
            for one in self._here.values():
                if one.next_request_s <= self.now_s:
                    self._ask(one)

    def _ask(self, server: Member) -> None:
        was_idle = not server.has_work and server is not self._holder
        server.asked += 1
        if was_idle:
            self._floor.parked(server.job.id, server.done, self.now_s)

    def _step_ended(self) -> None:
        holder = self._holder
        assert holder is not None
        job = holder.job.id
        holder.done += 1
        self.held_s[job] = self.held_s.get(job, 0.0) + holder.step_s
        self._holder, self._step_end_s = None, inf
        if holder.done == holder.job.steps:
            del self._here[job]
            self.end_s[job] = self.now_s
            self._follow()
        elif not holder.has_work:
            self._floor.idle(job, holder.done, self.now_s)
        elif self._floor.settle(self.now_s).flags[job]:
            self._floor.parked(job, holder.done, self.now_s)
        else:
            self.turns += self._turns.rule not in SHARED
            self._begin(holder)

    def _follow(self) -> None:
        self._floor.follow([one.gate_job for one in self._here.values()], self._turns, self.now_s)


@st.composite
def lanes(draw: st.DrawFn, *, overloaded: bool) -> tuple[Turns, list[TraceJob]]:
    """Two to five jobs; a lane of servers has room for their requests, unless overloaded."""
    rule = draw(RULES)
    quantum_s = draw(st.sampled_from([0.0, 0.0, 5.0]))
    jobs: list[TraceJob] = []
    free_ratio = 3.0 if overloaded else 0.8
    for number in range(1, draw(st.integers(2, 5)) + 1):
        serves = draw(st.integers(0, 2)) == 0 and free_ratio > 0.1
        ratio = draw(st.floats(0.05, min(0.9, free_ratio))) if serves else 1.0
        free_ratio -= ratio if serves else 0.0
        steps, step_s = draw(st.integers(600, 1500)), draw(st.floats(0.5, 4.0))
        submit_s = 0.0 if overloaded else draw(st.sampled_from([0.0, 0.0, 100.0, 700.0]))
        wants: Any = {"weight": draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])), "priority": draw(st.integers(0, 1))}
        kind = JobKind.INFERENCE if serves else JobKind.TRAINING
        made = laned(number, submit_s, steps, kind=kind, gpu_ratio=ratio, **wants)
        jobs.append(replace(made, duration_s=steps * step_s / ratio))
    return Turns(rule=rule, quantum_s=quantum_s), sorted(jobs, key=lambda one: one.submit_s)


@examples(15)
@given(lanes(overloaded=True))
def test_the_grants_of_a_thousand_turns_give_the_shares(lane: tuple[Turns, list[TraceJob]]) -> None:
    turns, jobs = lane
    endless = [_endless(job) for job in jobs]
    gate = GateLane(endless, turns)
    gate.play(TURNS, TURNS * max(member(job).step_s for job in jobs))
    given_ratio = shares(turns.rule, [contender(job) for job in endless])
    got_ratio = {job.id: gate.held_s.get(job.id, 0.0) / gate.now_s for job in jobs}
    assert got_ratio == pytest.approx(given_ratio, abs=TOLERANCE)


def _endless(job: TraceJob) -> TraceJob:
    """So long that who has least left to do stays the same."""
    steps = round(1e9 * (10 - job.id) / member(job).step_s)
    duration_s = (job.duration_s or 0.0) * steps / (job.steps or 1)
    return replace(job, duration_s=duration_s, spec=replace(job.spec, steps_total=steps))


def contender(job: TraceJob) -> Contender:
    one, spec = member(job), job.spec
    left_s = (spec.steps_total or 0) * one.step_s
    return Contender(
        id=job.id, arrived=job.id, weight=spec.weight, priority=spec.priority, remaining_s=left_s, step_s=one.step_s,
        serves=bool(one.every_s), demand_ratio=job.gpu_ratio,
    )  # fmt: skip


@examples(12)
@given(lanes(overloaded=False))
def test_jobs_end_in_virtual_time_when_they_would_at_the_gate(lane: tuple[Turns, list[TraceJob]]) -> None:
    """Newcomers, jobs that leave, servers that idle, steps that are probed first: the simulator's whole driver."""
    turns, jobs = lane
    gate = GateLane(jobs, turns)
    gate.play()
    done = ends(run(jobs, cluster(1), Laned(turns.rule, turns.quantum_s), FactorsWorld(), DriverConfig()))
    assert done == pytest.approx(gate.end_s, abs=TOLERANCE * max(gate.end_s.values()))
