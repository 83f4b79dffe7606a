"""Where nothing has happened but that jobs came, those alone are looked at, and nothing is decided otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import CancelRequested, Ended, NodeRegistered, Submitted, Tick
from colane.core.policy import Planner, Policy
from colane.model.job import Exit, Job, JobId, JobSpec
from colane.model.plan import Plan
from colane.perf.beliefs import Beliefs
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.contracts import Candidate, Outlook, SchedulingContext
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.fairness.service import LeastAttained
from colane.scheduling.mechanisms.lanes.in_lane import InLane
from colane.scheduling.mechanisms.preemption.preemption import Preemption
from colane.scheduling.mechanisms.sharing.beside import BesideLightest
from colane.scheduling.mechanisms.topology.free import Free
from colane.scheduling.mechanisms.topology.placement import Connected
from colane.scheduling.orders.arrival import Arrival
from colane.scheduling.registry import create
from tests.core.worlds import World, make_node
from tests.examples import IS_COMPILED, examples

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
EVERY_SOURCE = (Free(), BesideLightest(), InLane(), Connected(), Preemption())
SETTLING = {
    **{name: create(name) for name in ("best-fit", "colocate", "drf", "pack", "salus-code", "sjf", "srtf", "las")},
    "all sources": Composed("all-sources", LeastAttained((5.0,)), EVERY_SOURCE, (Ageing(20.0),)),
}


def decisions(policy: Policy, seed: int, *, forgets: bool) -> list[object]:
    """Of a random world, by a core that looks at newcomers alone where it may, or at everybody each time."""
    world = World(policy, seed)
    for _ in range(60):
        if forgets:
            world.look_at_all()
        world.step(world.random_event())
    return [decision for outcome in world.outcomes for decision in outcome.decisions]


@pytest.mark.parametrize("name", SETTLING)
@examples(20)
@given(seed=SEEDS)
def test_newcomers_alone_and_all_jobs_give_the_same_decisions(name: str, seed: int) -> None:
    policy = SETTLING[name]
    assert decisions(policy, seed, forgets=False) == decisions(policy, seed, forgets=True)


@pytest.mark.parametrize("name", SETTLING)
def test_random_worlds_reach_plans_for_newcomers_alone(name: str) -> None:
    partial = 0

    def ask(planner: Planner, view: ClusterView) -> Plan:
        nonlocal partial
        partial += any(view.newcomers(pool) for pool in view.pools)
        return planner.plan(view)

    for seed in range(4):
        world = World(SETTLING[name], seed)
        world.core.ask = ask
        for _ in range(60):
            world.step(world.random_event())
    assert partial > 0


def test_a_full_cluster_is_asked_only_about_jobs_that_may_take_a_place() -> None:
    core, asked = Core(create("colocate"), ClusterState(Beliefs())), list[float]()
    inner = core.ask

    def ask(planner: Planner, view: ClusterView) -> Plan:
        asked.append(view.now_s)
        return inner(planner, view)

    core.step([NodeRegistered(make_node("a", 1))], 0.0)
    core.step([came(1)], 1.0)
    core.step([came(2)], 2.0)
    core.ask = ask
    core.step([came(3)], 3.0)
    assert asked == []
    core.step([Submitted(JobId(4), JobSpec(name="4", family="f4", priority=1))], 4.0)
    assert asked == [4.0]
    core.step([CancelRequested(JobId(1), "ann")], 5.0)
    assert [decision.action.job for decision in core.step([ended(1)], 6.0).decisions] == [4]


def test_what_came_free_while_no_job_waited_is_there_for_one_that_comes() -> None:
    core = Core(create("best-fit"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("a", 1))], 0.0)
    core.step([came(1), came(2)], 1.0)
    core.step([CancelRequested(JobId(2), "ann"), CancelRequested(JobId(1), "ann")], 2.0)
    core.step([ended(1)], 3.0)
    assert [decision.action.job for decision in core.step([came(3)], 4.0).decisions] == [3]


own_source = pytest.mark.skipif(IS_COMPILED, reason="a source of a test cannot derive from a compiled one")


class Asked(UsualSource):
    """Offers nothing, and notes who was asked for."""

    def __init__(self, *, settles: bool) -> None:
        self.jobs: list[JobId] = []
        self.does_settle = settles

    def bind(self, context: SchedulingContext) -> AskedFinder:
        """See `Source`."""
        return AskedFinder(self, context)


class AskedFinder(BoundSourceDefaults):
    """See `Asked`."""

    def __init__(self, source: Asked, _context: SchedulingContext) -> None:
        self._source = source

    @property
    def outlook(self) -> Outlook:
        """As its source was told."""
        return Outlook.NEWCOMERS if self._source.does_settle else Outlook.ALL

    def candidates(self, job: Job, _spec: JobSpec) -> Iterator[Candidate]:
        """None."""
        self._source.jobs.append(job.id)
        yield from ()


def full_cluster(source: Asked) -> Core:
    """One GPU that is taken, and a job of each of five families in the queue."""
    core = Core(Composed("any", LeastAttained(), (source, Free())), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("a", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="1", family="first"))], 0.0)
    core.step([Submitted(JobId(k), JobSpec(name=str(k), family=f"f{k}")) for k in range(2, 7)], 1.0)
    source.jobs.clear()
    return core


def came(number: int) -> Submitted:
    """A job of a family of its own."""
    return Submitted(JobId(number), JobSpec(name=str(number), family=f"f{number}"))


def ended(number: int) -> Ended:
    """The end of a first attempt."""
    return Ended(JobId(number), 1, "signalled", Exit(None, 15), None, 0.0)


@own_source
def test_a_newcomer_is_looked_at_alone() -> None:
    source = Asked(settles=True)
    core = full_cluster(source)
    core.step([came(7)], 2.0)
    assert source.jobs == [7]
    core.step([Tick()], 3.0)
    assert source.jobs == [7, 2, 3, 4, 5, 6, 7]


@own_source
def test_every_job_is_looked_at_where_a_source_cannot_tell() -> None:
    source = Asked(settles=False)
    core = full_cluster(source)
    core.step([came(7)], 2.0)
    assert source.jobs == [2, 3, 4, 5, 6, 7]


@own_source
def test_every_job_is_looked_at_where_one_has_left_as_well() -> None:
    source = Asked(settles=True)
    core = full_cluster(source)
    core.step([came(7), CancelRequested(JobId(2), "ann")], 2.0)
    assert source.jobs == [3, 4, 5, 6, 7]


def test_a_plan_that_is_refused_settles_nothing() -> None:
    """After a plan with a flaw no job has been served: the next one is for all."""

    class Flawed:
        """Now and then starts a job twice."""

        name = "flawed"
        inner = Composed("any", Arrival(), (Free(),))
        turns, min_runtime_before_preemption_s = inner.turns, inner.min_runtime_before_preemption_s
        fails = True

        def plan(self, view: ClusterView) -> Plan:
            """See `Policy`."""
            plan = self.inner.plan(view)
            return Plan(plan.based_on, plan.actions * 2, replan=plan.replan) if self.fails else plan

    policy = Flawed()
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("a", 2))], 0.0)
    assert core.step([came(1)], 1.0).rejected is not None
    policy.fails = False
    assert sorted(decision.action.job for decision in core.step([came(2)], 2.0).decisions) == [1, 2]
