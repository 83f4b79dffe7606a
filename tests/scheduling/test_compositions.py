"""Laws that compositions of parts drawn at random keep: any order with any sources, admissions and choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.view import ClusterView
from colane.lab.simulate.world import NeutralWorld
from colane.model.job import JobId
from colane.model.placement import TurnRule, Turns
from colane.model.plan import Plan
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.admissions.backfill import Backfill
from colane.scheduling.admissions.line import DepthMax, HeadOfLine
from colane.scheduling.engine.choices import FIRST
from colane.scheduling.engine.contracts import Admission, Choice, Order, Source
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.fairness.service import LeastAttained, SmallestPart, WorstFinish
from colane.scheduling.mechanisms.lanes.in_lane import InLane, LaneRule, ShareWhen
from colane.scheduling.mechanisms.preemption.preemption import Preemption, PreemptsFor
from colane.scheduling.mechanisms.price.gangs import ByExchange
from colane.scheduling.mechanisms.sharing.beside import BesideLightest, BesidePartner
from colane.scheduling.mechanisms.sharing.beside_utility import BesideByUtility
from colane.scheduling.mechanisms.topology.free import Free, NodesBy
from colane.scheduling.mechanisms.topology.placement import Connected
from colane.scheduling.orders.arrival import Arrival, InferenceFirst, LightestFirst
from colane.scheduling.orders.length import LeastRemaining, Shortest
from tests.core.audit import audit, audit_decisions
from tests.core.brute import any_free_place
from tests.core.worlds import World, decided
from tests.examples import examples
from tests.simulate.scenes import GIB, cluster, job, run

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
STEPS = 40

ORDERS: tuple[Order, ...] = (
    Arrival(),
    InferenceFirst(),
    LightestFirst(),
    Shortest(),
    LeastRemaining(quantum_s=1.0),
    LeastAttained(queues_gpu_s=(5.0,)),
    SmallestPart(quantum_s=3.0),
    WorstFinish(lease_s=5.0),
    LeastShare(),
)
CHOICES: tuple[Choice, ...] = (FIRST, ByExchange())
ALONE = st.one_of(
    st.builds(Free, st.sampled_from(NodesBy), st.sampled_from(((), ("V100", "A100")))),
    st.builds(Connected, postpones=st.booleans()),
)
BESIDE = st.one_of(
    st.builds(BesideLightest, jobs_per_gpu_max=st.integers(2, 3)),
    st.just(BesidePartner()),
    st.builds(BesideByUtility, st.integers(2, 3), postpones=st.booleans()),
    st.builds(InLane, st.sampled_from(LaneRule), st.sampled_from(ShareWhen)),
)
ROOM = st.builds(Preemption, st.sampled_from(PreemptsFor))
BOUNDS_S = (2.0, 5.0, 20.0, 3600.0)
AGEING = st.builds(Ageing, st.sampled_from(BOUNDS_S))
LINES = (HeadOfLine(), Backfill(), DepthMax(3))
TURNS = st.builds(Turns, rule=st.sampled_from(TurnRule), quantum_s=st.none())


@st.composite
def sources(draw: st.DrawFn) -> tuple[Source, ...]:
    """Free GPUs and sharing in any sequence; preemption by jobs that find nothing else."""
    alone = draw(st.lists(ALONE, min_size=1, max_size=2))
    beside = draw(st.lists(BESIDE, max_size=2))
    return (*draw(st.permutations([*alone, *beside])), draw(ROOM))


@st.composite
def compositions(draw: st.DrawFn) -> Composed:
    """A policy."""
    admits: list[Admission] = draw(st.lists(AGEING, max_size=1))
    admits += draw(st.lists(st.sampled_from(LINES), max_size=2, unique=True))
    order, choice = draw(st.sampled_from(ORDERS)), draw(st.sampled_from(CHOICES))
    return Composed("any", order, draw(sources()), tuple(admits), choose=choice, turns=draw(TURNS))


laws = examples(6)


def lived(world: World) -> Iterator[World]:
    """After each of some random events."""
    for _ in range(STEPS):
        world.step(*(world.random_event() for _ in range(world.random.randrange(1, 3))))
        yield world


def plan(world: World, explain: JobId | None = None) -> Plan:
    """What the policy would do now."""
    return world.core.policy.plan(ClusterView(world.core.state, world.now_s, explain=explain))


@laws
@given(policy=compositions(), seed=SEEDS)
def test_every_plan_is_legal_and_every_state_true(policy: Composed, seed: int) -> None:
    for world in lived(World(policy, seed)):
        assert world.outcomes[-1].rejected is None
        audit(world.core.state)
        audit_decisions(world.core.state, world.outcomes[-1])


@laws
@given(policy=compositions(), seed=SEEDS)
def test_planning_again_and_asking_why_change_nothing(policy: Composed, seed: int) -> None:
    for world in lived(World(policy, seed)):
        again = plan(world)
        assert again.actions == ()
        waiting = [job.id for job in world.core.state.jobs.values() if job.is_waiting]
        told = plan(world, explain=waiting[0] if waiting else JobId(0))
        assert told.actions == ()
        assert told.holds == again.holds


@laws
@given(policy=compositions(), seed=SEEDS)
def test_a_policy_that_remembers_decides_as_one_just_started(policy: Composed, seed: int) -> None:
    remembers, forgets = (decided(World(policy, seed), STEPS, forgets=forgets) for forgets in (False, True))
    assert remembers == forgets


def passes_no_job(policy: Composed) -> bool:
    """Whether by its own rules GPUs may stay idle for a job that waits."""
    strict = any(isinstance(rule, HeadOfLine | Backfill | DepthMax) for rule in policy.admits)
    return strict or not any(isinstance(source, Free) for source in policy.sources)


@laws
@given(policy=compositions().filter(lambda policy: not passes_no_job(policy)), seed=SEEDS)
def test_nothing_is_idle_that_a_job_may_use(policy: Composed, seed: int) -> None:
    for world in lived(World(policy, seed)):
        state = world.core.state
        if plan(world).holds:
            continue
        for waiting in state.jobs.values():
            if waiting.is_waiting and not waiting.home and waiting.effective.gpus == 1:
                assert not any_free_place(state, waiting.effective)


@laws
@given(policy=compositions(), priority=st.integers(0, 1))
def test_a_large_job_starts_within_the_bound(policy: Composed, priority: int) -> None:
    """Under a stream of newcomers, more than four GPUs can serve, that goes on for longer than the bound."""
    newcomer_s, gap_s, bound_s = 600.0, 120.0, 3600.0
    rules = tuple(rule for rule in policy.admits if not isinstance(rule, Ageing))
    bound = Composed("any", policy.order, policy.sources, (Ageing(bound_s), *rules), choose=policy.choose)
    wants: dict[str, Any] = {"gpu_memory_bytes": 12 * GIB, "time_limit_s": 2 * newcomer_s}
    large = job(4, 3 * gap_s, 1200.0, gpus=4, steps=1200, **wants)
    stream = [
        job(n, n * gap_s, newcomer_s, steps=int(newcomer_s), priority=priority, **wants)
        for n in (1, 2, 3, *range(5, 45))
    ]
    done = run([*stream[:3], large, *stream[3:]], cluster(4), bound, NeutralWorld())
    start_s = dict(zip(done.ledger.rows.id, done.ledger.rows.first_start_s, strict=True))[large.id]
    assert start_s - large.submit_s <= bound_s + newcomer_s
