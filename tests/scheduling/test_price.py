"""The policy `colane`: what a second of work saves, and that of all changes the one of most value is made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.decide import Size, cluster, submissions
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted, Tick
from colane.core.policy import Planner, ask
from colane.lab.simulate.world import NeutralWorld
from colane.model.job import Exit, Job, JobId, JobSpec
from colane.model.plan import Action, Move, Park, Plan, Resize, Start, Stop
from colane.model.profile import SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.moving_costs import MOVES_MAX, moved_part
from colane.scheduling.orders.price import OWED_MAX, WEIGHED_ACTIONS_MAX, ByShadowPrice, owed_ratio, shadow_price
from colane.scheduling.registry import create
from tests.core.worlds import GIB, World, make_node, make_profile
from tests.examples import examples
from tests.simulate.scenes import random_cluster, random_jobs, run

from .life import Life, known, step_time

POLICY = "colane"
ONE = [make_node("n0", 1)]
STEP = [step_time(1.0), step_time(1.0, gpus=2)]


@examples(50)
@given(gpus=st.integers(1, 64), of=st.integers(1, 1000), behind=st.integers(0, 10_000), more=st.integers(0, 1000))
def test_a_second_saves_at_least_itself_and_the_more_the_more_are_behind(
    gpus: int, of: int, behind: int, more: int
) -> None:
    assert 1.0 <= shadow_price(gpus, behind, of) <= shadow_price(gpus, behind + more, of)


def test_of_jobs_on_one_gpu_a_second_of_the_first_saves_one_for_each_but_half_a_round() -> None:
    assert shadow_price(1, 9, 1) == pytest.approx(9.5)
    assert shadow_price(4, 8, 8) == pytest.approx(3.0)


@examples(50)
@given(had=st.floats(0, 1e6), more=st.floats(0, 1e6), usual=st.floats(0, 1e6))
def test_who_has_had_less_counts_for_more_but_for_no_more_than_so_much(had: float, more: float, usual: float) -> None:
    assert OWED_MAX >= owed_ratio(had, usual) >= owed_ratio(had + more, usual) >= 1.0 / OWED_MAX
    assert owed_ratio(usual, usual) == (1.0 if usual else OWED_MAX)


def prices(core: Core, makespan_weight: float = 0.0) -> dict[int, float]:
    """Of all live jobs of a core."""
    draft = Draft(ClusterView(core.state, 10.0))
    weigh = ByShadowPrice(makespan_weight=makespan_weight).bind(draft, "default").weigh
    return {int(job.id): weigh(job) for job in core.state.jobs.values()}


def with_lengths(*steps: int) -> Core:
    """One GPU and jobs of so many steps of a second each."""
    core = Core(create(POLICY), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1)), *map(ProfileDeclared, STEP)], 0.0)
    for number, total in enumerate(steps, 1):
        core.step([Submitted(JobId(number), JobSpec(name="j", family="f", steps_total=total))], float(number))
    return core


def test_prices_fall_along_the_order_of_what_is_left() -> None:
    found = prices(with_lengths(400, 100, 200, 300))
    assert found == {2: 3.5, 3: 2.5, 4: 1.5, 1: 1.0}


def test_with_a_weight_for_the_end_of_all_long_jobs_count_for_more() -> None:
    found, plain = prices(with_lengths(400, 100, 200), makespan_weight=2.0), prices(with_lengths(400, 100, 200))
    assert found[1] - plain[1] > found[3] - plain[3] > found[2] - plain[2] > 0


def test_a_shorter_job_takes_the_place_of_a_longer_one_which_goes_on_later() -> None:
    life = Life(create(f"{POLICY}:quantum_s=0"), ONE, [known(0, 1000), known(20, 10)], STEP).run()
    assert life.spans == {1: [(0, 20), (30, 1010)], 2: [(20, 30)]}


def test_none_is_stopped_for_one_that_goes_behind_it() -> None:
    life = Life(create(f"{POLICY}:quantum_s=0"), ONE, [known(0, 100), known(20, 1000)], STEP).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 1100)]}


@pytest.mark.parametrize(("objective", "start"), [("jct", 400), ("fair", 100)])
def test_for_fairness_a_longer_job_of_who_has_had_less_takes_the_place_of_a_shorter_one(
    objective: str, start: int
) -> None:
    jobs = [known(0, 400, user="ann"), known(100, 500, user="bob")]
    life = Life(create(f"{POLICY}:objective={objective}"), ONE, jobs, STEP).run()
    assert life.spans[2][0][0] == start


def test_a_job_on_a_slow_type_moves_to_a_fast_one_that_falls_free() -> None:
    nodes = [make_node("n0", 1, "K80"), make_node("n1", 1)]
    steps = [step_time(1.0), step_time(4.0, "K80")]
    speed = {"K80": 0.25, "V100": 1.0}
    life = Life(
        create(f"{POLICY}:quantum_s=0"), nodes, [known(0, 100), known(0, 400)], steps, lambda _spec, kind: speed[kind]
    ).run()
    assert life.spans == {1: [(0, 100)], 2: [(0, 100), (100, 475)]}


@pytest.mark.parametrize(("run_s", "moves"), [(2000, True), (300, False)])
def test_a_gang_moves_to_a_faster_type_where_what_it_gains_pays_the_move(run_s: int, moves: bool) -> None:
    nodes = [make_node("n0", 2, "K80"), make_node("n1", 2)]
    steps = [step_time(1.0, gpus=2), step_time(1.1, "K80", gpus=2)]
    speed = {"K80": 1 / 1.1, "V100": 1.0}
    life = Life(
        create(f"{POLICY}:quantum_s=0"), nodes, [known(0, 100, gpus=2), known(0, run_s, gpus=2)], steps,
        lambda _spec, kind: speed[kind],
    ).run()  # fmt: skip
    assert life.nodes_used == {1: ["n1"], 2: ["n0", "n1"] if moves else ["n0"]}


def test_of_two_gangs_the_one_that_gains_more_gets_the_faster_gpus() -> None:
    nodes = [make_node("n0", 4, "K80"), make_node("n1", 2)]
    steps = [
        *(step_time(1.0, family=family, gpus=2) for family in "fgh"),
        step_time(1.5, "K80", "g", gpus=2), step_time(3.0, "K80", "h", gpus=2),
    ]  # fmt: skip
    jobs = [
        known(0, 100, gpus=2, gpu_type="V100"),
        known(1, 1000, gpus=2, family="g"),
        known(1, 5000, gpus=2, family="h"),
    ]
    slow = {"f": 1.0, "g": 1.5, "h": 3.0}
    life = Life(
        create(f"{POLICY}:quantum_s=0"), nodes, jobs, steps,
        lambda spec, kind: 1 / slow[spec.family] if kind == "K80" else 1.0,
    ).run()  # fmt: skip
    assert life.nodes_used == {1: ["n1"], 2: ["n0"], 3: ["n0", "n1"]}


def test_a_gang_before_it_in_the_order_gets_the_free_gpus() -> None:
    jobs = [known(0, 100), known(0, 100), known(10, 60, gpus=2), known(20, 1000)]
    life = Life(create(f"{POLICY}:move_s=1000"), [make_node("n0", 2)], jobs, STEP).run()
    assert life.spans[3] == [(100, 160)]
    assert life.spans[4] == [(160, 1160)]


@pytest.mark.parametrize(("run_s", "starts_s"), [(50, 100), (2000, 1000)])
def test_a_job_of_one_gpu_takes_the_place_of_a_gang_where_the_exchange_pays(run_s: int, starts_s: float) -> None:
    jobs = [known(0, 1000, gpus=2), known(100, run_s)]
    life = Life(create(f"{POLICY}:quantum_s=0"), [make_node("n0", 2)], jobs, STEP).run()
    assert life.spans[2][0][0] == starts_s


def test_a_gang_takes_the_places_of_jobs_that_would_keep_it_waiting_longer_than_they_then_wait() -> None:
    jobs = [known(0, 1000), known(0, 1000), known(100, 100, gpus=2)]
    life = Life(create(f"{POLICY}:quantum_s=0"), [make_node("n0", 2)], jobs, STEP).run()
    assert life.spans[3] == [(100, 200)]
    long = [*jobs[:2], known(100, 520, gpus=2)]
    life = Life(create(f"{POLICY}:quantum_s=0,displaces_min=1"), [make_node("n0", 2)], long, STEP).run()
    assert life.spans[3] == [(1000, 1520)]


def shared(slowdown: float, steps: dict[int, int], gpus: int = 1) -> Core:
    """GPUs and jobs alike but for their length, that save their state; pairs are slowed by so much, as was seen."""
    core = Core(create(POLICY), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", gpus))], 0.0)
    kind = replace(make_profile("light", "V100", 0.0, GIB // 2, step_s=1.0), occupancy=None, bandwidth=None)
    core.step([ProfileDeclared(kind)], 0.0)
    for count, slowed in ((2, slowdown), (3, 10.0)):
        seen = SetMeasurement(
            keys=(kind.key,) * count, sharing="mps", step_alone_s=(1.0,) * count,
            step_together_s=(slowed,) * count, steps=(50,) * count, delta=1.0, delta_general=1.0, at_s=0.0,
        )  # fmt: skip
        for _ in range(50):
            core.state.knowledge.learn_set(seen)
    for number, total in steps.items():
        spec = JobSpec(name="j", family="light", batch_size=64, steps_total=total, preemptible=True)
        core.step([Submitted(JobId(number), spec)], float(number))
        job = core.state.jobs[JobId(number)]
        if job.placement is not None:
            core.step([Launched(job.id, job.attempt, 1, number + 0.1)], number + 0.1)
            progress = Progress(at_s=number + 0.2, steps=0, first_step_s=number + 0.2)
            core.step([Progressed(job.id, job.attempt, progress)], number + 0.2)
    return core


def on_gpus(core: Core) -> list[tuple[int, ...]]:
    return [tuple(map(int, load.jobs)) for load in core.state.gpus.values()]


def test_two_share_where_that_is_worth_more_and_the_reason_has_its_numbers() -> None:
    core = shared(1.2, {1: 1000, 2: 1000})
    assert on_gpus(core) == [(1, 2)]
    (reason,) = [line.reason for line in core.state.jobs[JobId(2)].story if line.reason.why is Why.SHARES_BEST]
    assert reason.facts["speed"] == pytest.approx(1 / 1.2, rel=0.02)


def test_an_urgent_job_gets_what_falls_free_though_a_second_of_another_saves_more() -> None:
    jobs = [known(0, 100), *[known(1, 50)] * 3, known(2, 5000, priority=1, preemptible=False)]
    life = Life(create(f"{POLICY}:quantum_s=1000"), ONE, jobs, STEP).run()
    assert life.spans[5] == [(100, 5100)]


def test_none_joins_where_both_together_are_worth_no_more() -> None:
    assert on_gpus(shared(2.0, {1: 1000, 2: 1000})) == [(1,)]


def test_the_victim_is_told_what_a_second_of_work_saves_on_either() -> None:
    core = shared(3.0, {1: 100_000})
    core.step([], 100.0)
    core.step([Submitted(JobId(2), replace(core.state.jobs[JobId(1)].spec, steps_total=100))], 101.0)
    reason = core.state.jobs[JobId(1)].reason
    assert reason is not None
    assert "a second of work on it saves 1.5 job-seconds, on this one 1.0" in sentence_of(reason)


def test_one_that_shares_moves_to_a_gpu_that_falls_free_and_then_all_stays() -> None:
    core = shared(1.5, {1: 50_000, 2: 50_000})
    assert on_gpus(core) == [(1, 2)]
    core.step([NodeRegistered(make_node("n1", 1))], 500.0)
    moved = [job for job in core.state.jobs.values() if job.resizes_to is not None]
    assert len(moved) == 1
    assert moved[0].reason is not None
    assert moved[0].reason.why is Why.MOVED
    plan = ask(create(POLICY), ClusterView(core.state, 500.0))
    assert not [action for action in plan.actions if isinstance(action, (Park, Resize, Stop))]


@pytest.mark.parametrize("steps", [20_000, 40_000, 60_000])
def test_a_job_that_goes_elsewhere_is_not_stopped_for_another_in_the_same_plan(steps: int) -> None:
    """Its old GPU, looked at before, is looked at anew: a plan with two actions for one job was refused as a whole."""
    core = shared(1.5, {1: 50_000, 2: 50_000})
    alike = [
        replace(make_profile("light", kind, 0.0, GIB // 2, step_s=1.0), occupancy=None, bandwidth=None)
        for kind in ("V100", "P100")
    ]
    core.step([ProfileDeclared(alike[1])], 400.0)
    seen = SetMeasurement(
        keys=(alike[0].key,) * 2, sharing="mps", step_alone_s=(1.0,) * 2, step_together_s=(10.0,) * 2, steps=(50,) * 2,
        delta=0.2, delta_general=0.2, at_s=0.0,
    )  # fmt: skip
    for _ in range(400):
        core.state.knowledge.learn_set(seen)
    waits = replace(core.state.jobs[JobId(1)].spec, steps_total=steps, gpu_type="V100")
    outcome = core.step([NodeRegistered(make_node("n1", 1, "P100")), Submitted(JobId(3), waits)], 500.0)
    assert outcome.rejected is None
    assert [job.id for job in core.state.jobs.values() if job.resizes_to is not None]


def test_every_further_move_is_dearer_and_the_less_the_longer_a_job_has_run() -> None:
    assert [moved_part(moves, 0.0) for moves in range(3)] == [0.05, 0.1, 0.2]
    assert moved_part(MOVES_MAX, 0.0) > 1
    assert moved_part(2, 7 * 86_400.0) == moved_part(1, 0.0)


class _Compared:
    """Plans by what has changed alone, held against plans that look at everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.same = 0

    def __call__(self, planner: Planner, view: ClusterView) -> Plan:
        quick, news = planner.plan(view), {pool: view.news(pool) for pool in view.changed_pools}
        if None in news.values():
            return quick
        thorough = planner.plan(ClusterView(self.world.core.state, view.now_s, pools=view.changed_pools))
        if not thorough.actions:
            assert not quick.actions
            return quick
        best = thorough.actions[0]
        told = [one for one in news.values() if one is not None]
        if any(best.job in one.came or gpus_of(best) & set(one.gpus) for one in told):
            assert quick.actions[0] == best
            self.same += 1
        return quick


def gpus_of(action: Action) -> set[object]:
    return set(action.placement.gpus) if isinstance(action, (Start, Move, Resize)) else set()


@pytest.mark.parametrize("seed", range(8))
def test_of_what_has_changed_the_best_is_found_as_by_a_look_at_everything(seed: int) -> None:
    world = World(create(f"{POLICY}:look_s_per_gpu=300,quantum_s=1"), seed)
    compared = world.core.ask = _Compared(world)
    for _ in range(60):
        world.step(world.random_event())
    assert compared.same > 2


@pytest.mark.parametrize(("policy", "until_s"), [(POLICY, 10.25), (f"{POLICY}:look_s_per_gpu=1000", 310.0)])
def test_the_fewer_gpus_there_are_the_sooner_everything_is_looked_at_again(policy: str, until_s: float) -> None:
    core = shared(1.2, {1: 1000, 2: 1000})
    assert ask(create(policy), ClusterView(core.state, 10.0)).replan["default"].news_until_s == until_s


@examples(15)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_job_of_one_gpu_is_moved_more_often_than_it_may_be(seed: int) -> None:
    jobs = [one for one in random_jobs(seed) if one.spec.gpus == 1 and not one.spec.priority]
    done = run(jobs, random_cluster(seed), create(POLICY), NeutralWorld())
    assert max(done.ledger.rows.attempts, default=1) <= MOVES_MAX + 1


@pytest.mark.parametrize(("nodes", "queued", "ends"), [(8, 600, 4), (8, 600, 12), (30, 1_000, 4), (30, 1_000, 30)])
def test_what_is_decided_in_many_steps_is_what_one_plan_would_decide(nodes: int, queued: int, ends: int) -> None:
    """A plan that has looked at its share leaves what its searches have found to the next one."""
    core = _where_much_pays(nodes, queued, ends)
    waiting = next(job.id for job in core.state.jobs.values() if job.is_waiting)
    at_once = core.policy.plan(ClusterView(core.state, 703.0, explain=waiting)).actions
    steps = [core.step([Tick()], 703.0).decisions]
    while core.goes_on:
        steps.append(core.step([], 703.0).decisions)
    made = [decision.action for step in steps for decision in step]
    assert len(steps) > 2
    assert [_what(action) for action in made] == [_what(action) for action in at_once]
    assert made


@pytest.mark.parametrize(
    "kinds", [("plain", "gang"), ("unknown", "wide"), ("plain", "untold-gang"), ("plain", "elastic")]
)
def test_a_burst_is_started_in_many_steps_as_in_one_plan(kinds: tuple[str, ...]) -> None:
    """Jobs of one GPU do not join others while gangs before them, and free GPUs, are still to be served."""
    core = cluster(POLICY, Size(30, 8, 0, 26))
    come = [submissions(number, 1, 26, kinds[number // 4 % len(kinds)])[0] for number in range(300)]
    core.step(come, 1.0, decides=False)
    at_once = core.policy.plan(ClusterView(core.state, 1.0, explain=JobId(0))).actions
    steps = [core.step([], 1.0).decisions]
    while core.goes_on:
        steps.append(core.step([], 1.0).decisions)
    made = [decision.action for step in steps for decision in step]
    assert max(map(len, steps)) <= 2 * WEIGHED_ACTIONS_MAX
    assert len(at_once) > 3 * WEIGHED_ACTIONS_MAX
    assert [_what(action) for action in made[: len(at_once)]] == [_what(action) for action in at_once]


def test_gpus_that_change_between_two_steps_are_looked_at_anew() -> None:
    """A job ends beside another after every second step; at last nothing is left that a look at everything finds."""
    core = _where_much_pays(30, 1_000, 4)
    ending = [_end(job) for job in core.state.jobs.values() if job.placement is not None][:12]
    core.step([Tick()], 703.0)
    steps = 1
    while core.goes_on:
        steps += 1
        core.step([ending.pop()] if ending and steps % 2 else [], 703.0 + steps / 100)
    waiting = next(job.id for job in core.state.jobs.values() if job.is_waiting)
    assert not ending
    assert core.policy.plan(ClusterView(core.state, 703.0 + steps / 100, explain=waiting)).actions == ()


def _end(job: Job) -> Ended:
    return Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0)


def _what(action: Action) -> tuple[object, ...]:
    return type(action), action.job, action.placement if isinstance(action, Start) else None


def _where_much_pays(nodes: int, queued: int, ends: int) -> Core:
    """Jobs of unknown length that may be stopped have filled all GPUs, and some have ended, which tells of others."""
    made, gpus = cluster(POLICY, Size(nodes, 8, queued, 26)), 8 * nodes
    made.step(submissions(0, queued + gpus, 26, "stoppable"), 1.0, whole=True)
    running = [job for job in made.state.jobs.values() if job.placement is not None]
    made.step([Launched(job.id, job.attempt, 1, 2.0) for job in running], 2.0, whole=True)
    made.step([Tick()], 302.5, whole=True)
    for number, job in enumerate(running[:ends]):
        made.step([_end(job)], 303.0 + number / 10, whole=True)
    return made
