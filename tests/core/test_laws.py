"""Laws that every registered policy keeps on random worlds. Registering a policy is enough to be tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from string import Formatter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.core import ClusterState
from colane.core.check import check
from colane.core.cluster.load import GpuLoad, book
from colane.core.cluster.situations import situation_in
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import LimitsChanged, Outcome
from colane.core.lifecycle import MOVES
from colane.core.policy import Planner, Policy, ask
from colane.cpu.config import TuningConfig
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.job_spec import NewLimit, ShareBetween, is_among, under
from colane.model.plan import Park, Plan, Resize, Start, Stop
from colane.model.reason import Reason, Why
from colane.model.sentences import SENTENCES, sentence_of
from colane.perf.rate import Situation
from colane.scheduling.mechanisms.sharing.sharing_places import answer_bound_s
from colane.scheduling.registry import POLICIES, create, preset
from tests.examples import examples

from .audit import audit, audit_decisions
from .brute import any_free_place
from .worlds import World

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
REASONS_EVERY = 3
"""Events after which every job is asked for its reason: nine of ten that there are still stand then."""
HASTY: Mapping[str, Callable[[], Policy]] = {
    "srtf, hasty": lambda: preset("srtf", quantum_s=2.0),
    "las, hasty": lambda: preset("las", queues_gpu_s=(5.0,)),
    "max-min, hasty": lambda: preset("max-min", quantum_s=4.0),
    "max-min-packed, hasty": lambda: preset("max-min", packed=True, quantum_s=3.7),
    "max-min by program, hasty": lambda: create("max-min:solver=lp,quantum_s=4"),
    "finish-time-fair, hasty": lambda: preset("finish-time-fair", lease_s=5.0),
}
"""Preemptive policies with times as short as those of the random worlds, so that they do stop jobs there."""

FAIR = ("easy-backfill", "srtf", "f-sched", "colane")
"""Those of one order each that are tried with users' use before it."""

VARIANTS: Mapping[str, Callable[[], Policy]] = {
    **HASTY,
    **{f"{name}, fair": partial(preset, name, usage_half_life_s=30.0) for name in FAIR},
    **{f"colane, lanes {rule}": partial(create, f"colane:lanes={rule}") for rule in ("own", "single")},
    "colane, sub-arrays, DRF": partial(create, "colane:nodes=arrays,objective=drf,arrays=yes,lanes=own"),
}
policies = pytest.mark.parametrize("name", [*sorted(POLICIES), *VARIANTS])


def make(name: str) -> Policy:
    """A registered policy, or a variant of one."""
    return VARIANTS[name]() if name in VARIANTS else create(name)


ANY_FACT = dict.fromkeys(
    [name for sentence in SENTENCES.values() for _, name, _, _ in Formatter().parse(sentence) if name], 1
)
"""What any sentence names."""


def retelling(seed: int) -> Callable[[Planner, ClusterView], Plan]:
    """Planners are asked as ever, but each code of a reason in their plans is another one."""
    codes = list(Why)
    Random(seed).shuffle(codes)
    other = dict(zip(Why, codes, strict=True))

    def retold(reason: Reason) -> Reason:
        return Reason(other[reason.why], ANY_FACT, reason.jobs)

    def ask_and_retell(planner: Planner, view: ClusterView) -> Plan:
        plan = ask(planner, view)
        waits = {job: retold(reason) for job, reason in plan.waits.items()}
        class_waits = {need: retold(reason) for need, reason in plan.class_waits.items()}
        rest = {pool: retold(reason) for pool, reason in plan.rest.items()}
        actions = tuple(replace(action, reason=retold(action.reason)) for action in plan.actions)
        return replace(plan, actions=actions, waits=waits, class_waits=class_waits, rest=rest)

    return ask_and_retell


def unsaid(job: Job) -> Job:
    """The job without what was said of it."""
    nothing = Reason(Why.SUBMITTED)
    return replace(job, reason=None, story=tuple(replace(change, reason=nothing) for change in job.story))


@policies
@examples(5)
@given(seed=SEEDS)
def test_what_stands_halted_is_whole_or_over(name: str, seed: int) -> None:
    """It holds nothing, no job was started on its GPUs, and what goes on is what it was."""
    world = World(make(name), seed, sized=True, cpu_only=True, serves=True, groups=True, cuts=True)
    for _ in range(60):
        was = {job: world.core.state.jobs[job].halted for job in world.core.state.halted}
        outcome = world.step(world.random_event())
        state = world.core.state
        assert outcome.rejected is None
        audit(state)
        assert sorted(state.halted) == [job.id for job in state.jobs.values() if job.halted is not None]
        for job in outcome.jobs:
            halted = was.get(job.id)
            if halted is not None and job.story[-1].reason.why is Why.WENT_ON:
                assert job.placement == halted.placement
                assert job.run.start_s == halted.run.start_s


@policies
@examples(15)
@given(seed=SEEDS)
def test_every_state_is_true_and_every_plan_is_legal(name: str, seed: int) -> None:
    world = World(make(name), seed)
    for _ in range(60):
        outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
        assert outcome.rejected is None
        audit(world.core.state)
        audit_decisions(world.core.state, outcome)


@policies
@examples(15)
@given(seed=SEEDS)
def test_every_job_ends_exactly_once_after_the_faults_stop(name: str, seed: int) -> None:
    world = World(make(name), seed)
    for _ in range(50):
        world.step(world.random_event())
    world.settle()
    ends = [job.id for outcome in world.outcomes for job in outcome.jobs if job.has_ended]
    assert sorted(ends) == sorted(world.submitted)
    assert all(load.is_free for load in world.core.state.gpus.values())


@policies
@examples(4)
@given(seed=SEEDS, sized=st.booleans())
@example(seed=83291, sized=False)  # a gang has lost a node, and another job might take its place
def test_a_job_has_whole_groups_of_gpus_on_each_of_its_nodes(name: str, seed: int, *, sized: bool) -> None:
    world = World(make(name), seed, sized=sized, saves=sized, groups=True)
    for _ in range(50):
        outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
        assert outcome.rejected is None
        audit(world.core.state)
        for job in world.running():
            each = job.spec.gpus_per_node
            assert not each or set(Counter(gpu.node for gpu in job.gpus_held).values()) <= {each}
    world.settle()
    assert all(load.is_free for load in world.core.state.gpus.values())


@policies
@examples(6)
@given(seed=SEEDS, sized=st.booleans())
def test_a_job_is_on_nodes_it_may_use_and_alone_where_it_takes_them_whole(name: str, seed: int, *, sized: bool) -> None:
    world = World(make(name), seed, sized=sized, saves=sized, cpu_only=True, serves=sized, groups=True, places=True)
    for _ in range(60):
        outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
        assert outcome.rejected is None
        audit(world.core.state)
        for job in world.running():
            assert job.placement is not None
            assert all(is_among(job.spec.nodes, node) for node in job.placement.nodes)
        for node in world.core.state.nodes.values():
            whole = [job for job in node.jobs if world.core.state.jobs[job].spec.whole_node]
            assert node.whole == (whole[0] if whole else None)
            assert not whole or len(node.jobs) == 1


@policies
def test_random_worlds_reach_named_and_whole_nodes(name: str) -> None:
    def reached(seed: int) -> set[str]:
        world, found = World(make(name), seed, cpu_only=True, places=True), set[str]()
        for _ in range(40):
            world.step(world.random_event())
            for job in world.running():
                found |= {kind for kind in ("nodes", "whole_node") if getattr(job.spec, kind)}
        return found

    assert set().union(*map(reached, range(10))) == {"nodes", "whole_node"}


@policies
def test_random_worlds_reach_groups_on_several_nodes(name: str) -> None:
    def reached(seed: int) -> bool:
        world = World(make(name), seed, groups=True)
        for _ in range(40):
            world.step(world.random_event())
            if any(job.spec.gpus_per_node > 1 and job.gpu_count > job.spec.gpus_per_node for job in world.running()):
                return True
        return False

    assert any(map(reached, range(20)))


@policies
@examples(15)
@given(seed=SEEDS)
@example(seed=13175)  # a gang that is being stopped to wait again is cancelled: its GPUs are for others now
@example(seed=626871096)  # one that was taken to run begins to step late: it is protected, another has to leave
@example(seed=1652293601)  # memory of one suspended while it was parked cannot be moved: it may be stopped now
@example(seed=2070385725)  # nothing happens in a pool where a borrower may be stopped by now
def test_planning_again_changes_nothing_and_planning_does_not_touch_the_state(name: str, seed: int) -> None:
    world = World(make(name), seed)
    for _ in range(40):
        world.step(world.random_event())
        before = dict(world.core.state.gpus), dict(world.core.state.jobs)
        again = world.policy.plan(ClusterView(world.core.state, world.now_s))
        assert again.actions == ()
        assert before == (dict(world.core.state.gpus), dict(world.core.state.jobs))


@policies
@examples(15)
@given(seed=SEEDS)
def test_same_input_gives_the_same_decisions(name: str, seed: int) -> None:
    runs = []
    for _ in range(2):
        world = World(make(name), seed)
        for _ in range(40):
            world.step(world.random_event())
        runs.append([decision for outcome in world.outcomes for decision in outcome.decisions])
    assert runs[0] == runs[1]


LIMITS = (None, 1.0, 100.0, 1e6)


class EventfulWorld(World):
    """One in which all happens that may happen to a job, and limits are changed, too."""

    def __init__(self, policy: Policy, seed: int) -> None:
        config = CoreConfig(share_between=ShareBetween.USER, saves_failed_max=1, tuning=TuningConfig())
        super().__init__(
            policy, seed, config, sized=True, cpu_only=True, drains=True, saves=True, serves=True, groups=True,
            idles=True,
        )  # fmt: skip
        self.pick = Random(seed)

    def go_on(self, number: int) -> Outcome:
        """What happens in a step; a limit is changed in each fifth."""
        events = [self.random_event()]
        if number % 5 == 0:
            job = self.pick.choice([JobId(1), *self.core.state.jobs])
            events.append(LimitsChanged(job, "ann", NewLimit(self.pick.choice(LIMITS))))
        return self.step(*events)


@policies
@examples(15)
@given(seed=SEEDS)
@example(seed=703)  # elastic jobs are resized as one of their nodes is lost
def test_codes_of_reasons_explain_and_decide_nothing(name: str, seed: int) -> None:
    """What happens is the same whatever codes the plans of the policy and of the core itself carry."""
    told, retold = EventfulWorld(make(name), seed), EventfulWorld(make(name), seed)
    retold.core.ask = retelling(seed)
    for number in range(60):
        for world in (told, retold):
            world.go_on(number)
        assert list(map(unsaid, told.outcomes[-1].jobs)) == list(map(unsaid, retold.outcomes[-1].jobs))
    assert told.core.state.version == retold.core.state.version


@policies
@examples(15)
@given(seed=SEEDS)
def test_what_was_declared_stays_declared(name: str, seed: int) -> None:
    world = EventfulWorld(make(name), seed)
    for number in range(60):
        for job in world.go_on(number).jobs:
            assert job.spec is world.submitted[job.id]
            assert job.effective == under(job.spec, job.constraints)


@policies
@examples(15)
@given(seed=SEEDS)
def test_a_restored_state_equals_the_one_it_was_written_from(name: str, seed: int) -> None:
    world = World(make(name), seed)
    for _ in range(50):
        world.step(world.random_event())
    state = world.core.state
    nodes = [(node.node, node.generation) for node in sorted(state.nodes.values(), key=lambda n: n.order)]
    restored = ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version)
    audit(restored)
    assert restored.jobs == state.jobs
    assert {gpu: set(load.bookings) for gpu, load in restored.gpus.items()} == {
        gpu: set(load.bookings) for gpu, load in state.gpus.items()
    }


@policies
@examples(15)
@given(seed=SEEDS)
def test_every_waiting_job_has_a_reason_and_refusals_for_lack_of_gpus_are_true(name: str, seed: int) -> None:
    world = World(make(name), seed)
    for number in range(40):
        world.step(world.random_event())
        if number % REASONS_EVERY:
            continue
        for job in list(world.core.state.jobs.values()):
            reason = world.core.why(job.id, world.now_s)
            assert sentence_of(reason)
            if reason.why in (Why.NO_FREE_GPU, Why.NO_NODE):
                assert not any_free_place(world.core.state, job.effective)


@policies
@examples(15)
@given(seed=SEEDS)
def test_no_server_is_parked_or_stopped_for_training(name: str, seed: int) -> None:
    """Whatever priorities are, and whatever its owner lets it be stopped for; only what servers alone need may be."""
    world = World(make(name), seed, CoreConfig(tuning=TuningConfig()), sized=True, cpu_only=True, serves=True)
    for _ in range(80):
        before = world.core.state.jobs.copy()
        carried = {gpu: load.jobs for gpu, load in world.core.state.gpus.items()}
        outcome = world.step(world.random_event())
        assert outcome.rejected is None
        audit(world.core.state)
        for action in [decision.action for decision in outcome.decisions]:
            job = before.get(action.job)
            if job is None or job.spec.kind is not JobKind.INFERENCE or not isinstance(action, (Stop, Park, Resize)):
                continue
            others = {other for gpu in job.gpus_held for other in carried[gpu]} & before.keys()
            assert action.reason.why is Why.OUTGROWN
            assert all(before[other].spec.kind is JobKind.INFERENCE for other in others)


@policies
@examples(15)
@given(seed=SEEDS)
def test_no_job_joins_where_an_objective_would_not_be_kept(name: str, seed: int) -> None:
    """By what is believed as it is decided: of all that share a GPU from then on, in lanes of their own or in one.

    Unknown steps may be of any length, but where a job is tried beside servers: it is watched how they answer.
    """
    world, late = World(make(name), seed, serves=True), list[tuple[JobId, float, float]]()

    def ask_and_judge(planner: Planner, view: ClusterView) -> Plan:
        plan = ask(planner, view)
        late.extend(late_by_choice(view, plan))
        return plan

    world.core.ask = ask_and_judge
    for _ in range(80):
        assert world.step(world.random_event()).rejected is None
        assert late == []


def late_by_choice(view: ClusterView, plan: Plan) -> Iterator[tuple[JobId, float, float]]:
    """Servers next to which a job is started, whose answers are believed to take longer than they may."""
    loads: dict[GpuId, GpuLoad] = {}
    starts = [action for action in plan.actions if isinstance(action, Start)]
    started = {action.job for action in starts}
    tried = {action.job for action in starts if action.reason.why is Why.TRIES_SHARING}
    for action in starts:
        for slot in action.placement.slots:
            load, job = loads.get(slot.gpu, view.gpu(slot.gpu)), view.jobs[action.job]
            terms = view.beliefs.terms(job.effective, load.gpu.type, len(action.placement.slots))
            loads[slot.gpu] = load.with_booking(book(job, slot.lane, terms))
    for load in loads.values():
        for booking in load.bookings if len(load.bookings) > 1 else ():
            one = view.jobs[booking.job].effective
            lane = [b.job for b in load.bookings if b.lane == booking.lane]
            if one.latency_s is None or (len(lane) > 1 and not started & {*lane}):
                continue  # who joins another lane costs those that take turns none of them
            if len(lane) > 1:
                lane_mates = [view.jobs[lane_mate].effective for lane_mate in lane]
                alone, unknown_s = Situation(load.gpu.type), 0.0 if tried & {*lane} else inf
                took_s = answer_bound_s(
                    [(each.kind, view.beliefs.rate(each, alone).step_s or unknown_s) for each in lane_mates]
                )
            else:
                took_s = view.beliefs.rate(one, situation_in(load, booking.job, view.jobs)).step_s or 0.0
            if took_s > one.latency_s:
                yield booking.job, took_s, one.latency_s


@pytest.mark.parametrize("name", ["colane", "colocate", "pack", "topo-aware-share"])
def test_random_worlds_reach_servers_beside_others(name: str) -> None:
    shared = 0
    for seed in range(20):
        world = World(create(name), seed, serves=True)
        for _ in range(60):
            world.step(world.random_event())
            jobs = world.core.state.jobs
            for load in world.core.state.gpus.values():
                shared += len(load.jobs) > 1 and any(jobs[job].effective.latency_s is not None for job in load.jobs)
    assert shared > 0


@pytest.mark.parametrize("name", ["colane", "srtf, hasty"])
def test_random_worlds_reach_training_stopped_beside_servers(name: str) -> None:
    stops = 0
    for seed in range(30):
        world = World(make(name), seed, cpu_only=True, serves=True)
        for _ in range(60):
            running = [job for job in world.core.state.jobs.values() if job.gpus_held]
            servers = any(job.spec.kind is JobKind.INFERENCE for job in running)
            actions = [decision.action for decision in world.step(world.random_event()).decisions]
            stops += servers and any(isinstance(action, (Stop, Park)) for action in actions)
    assert stops > 0


@examples(15)
@given(seed=SEEDS)
def test_fifo_never_starts_a_job_before_one_that_stands_before_it(seed: int) -> None:
    world = World(create("fifo"), seed)
    for _ in range(60):
        outcome = world.step(world.random_event())
        for decision in outcome.decisions:
            started = world.submitted[decision.action.job]
            for job in world.core.state.jobs.values():
                if job.is_waiting and job.spec.pool == started.pool:
                    assert (-job.spec.priority, job.id) > (-started.priority, decision.action.job)


@pytest.mark.parametrize("name", HASTY)
def test_random_worlds_reach_preemption_and_what_was_stopped_was_stopped_for_a_waiting_job(name: str) -> None:
    stops = 0
    for seed in range(12):
        world = World(make(name), seed)
        for _ in range(60):
            waiting = {job.id for job in world.core.state.jobs.values() if job.state is JobState.QUEUED}
            outcome = world.step(world.random_event())
            waiting |= {job.id for job in outcome.jobs if job.state is JobState.QUEUED}
            for decision in outcome.decisions:
                if isinstance(decision.action, Stop):
                    assert decision.reason.why is Why.PREEMPTED
                    assert set(decision.reason.jobs) <= waiting
                    stops += 1
    assert stops > 0


def test_live_states_can_all_reach_an_end_and_ends_are_ends() -> None:
    from colane.model.job import ENDED  # noqa: PLC0415

    reach = set(ENDED)
    for _ in JobState:
        reach |= {a for a, b in MOVES if b in reach}
    assert reach == set(JobState)
    assert not [a for a, _ in MOVES if a in ENDED]


def test_a_plan_based_on_an_old_version_is_refused() -> None:
    world = World(create("fifo"), 1)
    view = ClusterView(world.core.state, 0.0)
    plan = world.policy.plan(view)
    world.step(world.submit())
    assert [flaw.code for flaw in check(world.core.state, plan)] == ["stale-plan"]


SHARING = ("colocate", "fair", "max-min-packed", "pack", "salus-code", "salus-srtf", "topo-aware-share")


@pytest.mark.parametrize("between", [ShareBetween.USER, ShareBetween.GROUP])
@pytest.mark.parametrize("name", SHARING)
@examples(15)
@given(seed=SEEDS)
def test_only_jobs_of_one_sharing_domain_share_a_gpu(name: str, between: ShareBetween, seed: int) -> None:
    world = World(create(name), seed, CoreConfig(share_between=between))
    for _ in range(60):
        assert world.step(world.random_event()).rejected is None
        audit(world.core.state)
        for load in world.core.state.gpus.values():
            specs = [world.submitted[job] for job in load.jobs]
            owners = {f"u {s.user}" if between is ShareBetween.USER or not s.group else f"g {s.group}" for s in specs}
            assert len(owners) <= 1


@pytest.mark.parametrize("between", list(ShareBetween))
def test_random_worlds_reach_sharing_in_every_sharing_domain(between: ShareBetween) -> None:
    shared = 0
    for seed in range(8):
        world = World(create("pack"), seed, CoreConfig(share_between=between))
        for _ in range(60):
            world.step(world.random_event())
            shared += any(len(load.bookings) > 1 for load in world.core.state.gpus.values())
    assert shared > 0
