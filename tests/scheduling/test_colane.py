"""The policy `colane`: which jobs it puts together, whose place it gives away, and which it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.profile import SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import UnknownPolicyError, create, preset
from tests.core.worlds import GIB, make_node, make_profile

from .life import Coming, Life, known, step_time
from .machines import disturbing, end, machine, places, start, submit

EAGER = preset("colane", quantum_s=0.0, move_s=0.0)
ONE = [make_node("n0", 1)]
STEP = [step_time(1.0), step_time(1.0, gpus=2)]


def test_a_shorter_job_takes_the_place_of_a_longer_one_which_goes_on_later() -> None:
    life = Life(EAGER, ONE, [known(0, 100), known(20, 10)], STEP).run()
    assert life.spans == {1: [(0, 20), (30, 110)], 2: [(20, 30)]}


@pytest.mark.parametrize(
    ("power", "spans"), [(0.75, {2: (170, 270), 3: (50, 170)}), (0.0, {2: (50, 150), 3: (150, 270)})]
)
def test_a_gang_goes_by_what_it_has_left_times_a_power_of_its_gpus(
    power: float, spans: dict[int, tuple[float, float]]
) -> None:
    jobs = [known(0, 50, gpus=2), known(10, 100, gpus=2), known(10, 120), known(10, 120)]
    policy = preset("colane", quantum_s=0.0, move_s=0.0, gpus_power=power)
    life = Life(policy, [make_node("n0", 2)], jobs, STEP).run()
    assert {job: life.spans[job][0] for job in spans} == spans


def test_others_leave_at_once_for_a_gang_that_has_waited_too_long() -> None:
    jobs = [known(0, 5000), known(0, 9000), known(10, 20_000, gpus=2)]
    life = Life(create("colane:max_wait_s=1000"), [make_node("n0", 2)], jobs, STEP).run()
    assert life.spans[3][0][0] == pytest.approx(1010, abs=1)
    assert life.spans[1][0] == (0, life.spans[3][0][0])


def test_none_leaves_for_one_that_has_waited_too_long_if_it_would_lose_its_work() -> None:
    jobs = [known(0, 5000, preemptible=False), known(0, 9000), known(10, 20_000, gpus=2)]
    life = Life(create("colane:max_wait_s=1000"), [make_node("n0", 2)], jobs, STEP).run()
    assert life.spans[3][0][0] == 5000


def test_for_the_makespan_the_longer_job_takes_the_place_of_the_shorter() -> None:
    policy = create("colane:objective=makespan,quantum_s=0,move_s=0,keeps_min=1.25")
    life = Life(policy, ONE, [known(0, 40), known(20, 100)], STEP).run()
    assert life.spans[2][0] == (20, 120)


def test_the_fastest_type_is_taken_first_whatever_its_name() -> None:
    nodes = [make_node("n0", 1, "K80"), make_node("n1", 1)]
    life = Life(EAGER, nodes, [known(0, 100)], [step_time(1.0), step_time(4.0, "K80")]).run()
    assert life.spans == {1: [(0, 100)]}


def test_a_job_on_a_slow_type_moves_to_a_fast_one_that_falls_free() -> None:
    nodes = [make_node("n0", 1, "K80"), make_node("n1", 1)]
    steps = [step_time(1.0), step_time(4.0, "K80")]
    jobs = [known(0, 100), known(0, 400)]
    life = Life(EAGER, nodes, jobs, steps, lambda _spec, kind: 0.25 if kind == "K80" else 1.0).run()
    assert life.spans == {1: [(0, 100)], 2: [(0, 100), (100, 475)]}


def test_an_unknown_objective_is_named() -> None:
    with pytest.raises(UnknownPolicyError, match="objective must be one of jct, makespan, fair, drf, got 'cheap'"):
        create("colane:objective=cheap")


SPEEDS = [step_time(s, kind, gpus=gpus) for s, kind in ((1.0, "V100"), (4.0, "K80")) for gpus in (1, 2)]


def on_two_types(jobs: list[Coming]) -> Life:
    nodes = [make_node("n0", 2, "K80"), make_node("n1", 2)]
    return Life(EAGER, nodes, jobs, SPEEDS, lambda _spec, kind: 0.25 if kind == "K80" else 1.0).run()


def test_a_job_of_several_gpus_starts_on_the_fastest_type_whatever_its_name() -> None:
    assert on_two_types([known(0, 100, gpus=2)]).spans == {1: [(0, 100)]}


def test_a_job_of_several_gpus_moves_to_a_faster_type_that_falls_free() -> None:
    life = on_two_types([known(0, 100, gpus=2), known(0, 400, gpus=2)])
    assert life.spans == {1: [(0, 100)], 2: [(0, 100), (100, 475)]}
    assert life.nodes_used[2] == ["n0", "n1"]


def test_a_job_keeps_away_from_neighbours_that_disturb_it() -> None:
    core = start(create("colane"), [machine()], disturbing(("a", "b", 1.5)))
    submit(core, 1, family="b")
    submit(core, 2, family="a")
    assert places(core) == {1: "n0/0", 2: "n0/2"}


def test_a_job_waits_below_its_least_utility_and_one_of_its_class_that_asks_for_none_starts() -> None:
    core = start(create("colane"), [machine()])
    for number in (1, 2, 3, 4):
        submit(core, number)
    end(core, 2, 1.0)
    end(core, 3, 1.0)
    submit(core, 5, 2.0, gpus=2, utility_min=0.5)
    submit(core, 6, 2.0, gpus=2)
    assert {job: place for job, place in places(core).items() if job > 4} == {6: "n0/1 n0/2"}
    assert sentence_of(core.why(JobId(5), 2.0)).startswith("Resources: ")


@pytest.mark.parametrize(("objective", "together"), [("jct", (1, 2)), ("makespan", (1,))])
def test_under_makespan_no_job_joins_the_one_that_takes_longest(objective: str, together: tuple[int, ...]) -> None:
    core = Core(create(f"colane:objective={objective}"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([ProfileDeclared(make_profile("light", "V100", 1.3e8, 2 * GIB, step_s=1.0))], 0.0)
    specs = [JobSpec(name="j", family="light", batch_size=64, steps_total=steps) for steps in (100, 60)]
    for number, spec in enumerate(specs, 1):
        core.step([Submitted(JobId(number), spec)], float(number))
    assert [load.jobs for load in core.state.gpus.values()] == [together]


def crowd(
    jobs: int,
    slowdowns: Mapping[int, float],
    policy: str = "colane",
    sharing: str = "mps",
    *,
    stops: bool = False,
) -> Core:
    """One GPU, alike jobs with time alone and memory known, and what sharing among so many was seen to cost each.

    Args:
        jobs: So many come, one each second.
        slowdowns: By the number of those who share.
        policy: By name.
        sharing: How the GPU is shared.
        stops: Whether they save their state when they are stopped.
    """
    core, node = Core(create(policy), ClusterState(Beliefs())), make_node("n0", 1)
    core.step([NodeRegistered(replace(node, gpus=(replace(node.gpus[0], sharing=sharing),)))], 0.0)
    gpu_group = replace(make_profile("light", "V100", 0.0, GIB // 2, step_s=1.0), occupancy=None, bandwidth=None)
    core.step([ProfileDeclared(gpu_group)], 0.0)
    for count, slowdown in slowdowns.items():
        seen = SetMeasurement(
            keys=(gpu_group.key,) * count, sharing=sharing, step_alone_s=(1.0,) * count,
            step_together_s=(slowdown,) * count, steps=(50,) * count, delta=1.0, delta_general=1.0, at_s=0.0,
        )  # fmt: skip
        core.state.knowledge.learn_set(seen)
    for number in range(1, jobs + 1):
        spec = JobSpec(name="j", family="light", batch_size=64, steps_total=1000, preemptible=stops)
        core.step([Submitted(JobId(number), spec)], float(number))
    return core


def on_the_gpu(core: Core) -> int:
    return sum(len(load.jobs) for load in core.state.gpus.values())


def test_more_than_two_share_where_each_of_them_brings_something() -> None:
    core = crowd(40, {**{count: 1 + 0.1 * count for count in range(2, 6)}, 6: 2.0})
    assert on_the_gpu(core) == 5
    assert sentence_of(core.why(JobId(40), 50.0)).startswith("Resources: ")


def test_under_makespan_alike_jobs_share_as_long_as_their_work_takes_longer_than_any_of_them() -> None:
    assert on_the_gpu(crowd(8, {2: 1.4, 3: 5.0}, "colane:objective=makespan")) == 2


def test_a_third_joins_only_while_so_many_wait_that_all_end_earlier_by_it() -> None:
    seen = {2: 1.6, 3: 2.3, 4: 4.0}
    assert on_the_gpu(crowd(4, seen)) == 2
    assert on_the_gpu(crowd(40, seen)) == 3


@pytest.mark.parametrize("sharing", ["mps", "time-slice"])
def test_of_what_nothing_is_known_one_pair_at_a_time_is_tried_once_its_first_makes_steps(sharing: str) -> None:
    core = crowd(3, {}, sharing=sharing)
    assert on_the_gpu(core) == 1
    job = core.state.jobs[JobId(1)]
    core.step([Launched(job.id, job.attempt, 1, 4.0)], 4.0)
    core.step([Progressed(job.id, job.attempt, Progress(at_s=5.0, steps=2, first_step_s=4.5))], 5.0)
    core.step([Submitted(JobId(4), core.state.jobs[JobId(3)].spec)], 6.0)
    together = next(iter(core.state.gpus.values())).jobs
    reason = core.state.jobs[together[-1]].reason
    assert len(together) == 2
    assert reason is not None
    assert reason.why is Why.TRIES_SHARING


def beside(slowdown: float, left: Mapping[int, int], gpus: int = 4, policy: str = "colane", **needs: object) -> Core:
    """Jobs, alike but for their length, that come one after another; pairs are slowed so much, larger sets far more."""
    core = Core(create(policy), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", gpus))], 0.0)
    gpu_group = replace(make_profile("light", "V100", 0.0, GIB // 2, step_s=1.0), occupancy=None, bandwidth=None)
    core.step([ProfileDeclared(gpu_group)], 0.0)
    for count, slowed in ((2, slowdown), (3, 10.0)):
        seen = SetMeasurement(
            keys=(gpu_group.key,) * count, sharing="mps", step_alone_s=(1.0,) * count,
            step_together_s=(slowed,) * count, steps=(50,) * count, delta=1.0, delta_general=1.0, at_s=0.0,
        )  # fmt: skip
        for _ in range(50):
            core.state.knowledge.learn_set(seen)
    for number, steps in left.items():
        spec = JobSpec(name="j", family="light", batch_size=64, steps_total=steps, **needs)  # type: ignore[arg-type]
        core.step([Submitted(JobId(number), spec)], 0.1 * number)
    return core


LONG_AND_SHORT = {1: 100, 2: 100, 3: 100, 4: 100, 5: 1000, 6: 60}
"""Four that fill four GPUs, and what is left then takes 200 s at best: the fifth ends sooner by waiting so long."""


@pytest.mark.parametrize("policy", ["colane", "colane:usage_half_life_s=86400"])
def test_a_long_job_that_cannot_go_elsewhere_waits_rather_than_be_bound_to_co_runners(policy: str) -> None:
    core = beside(1.4, LONG_AND_SHORT, policy=policy)
    assert core.state.jobs[JobId(5)].is_waiting
    assert not core.state.jobs[JobId(6)].is_waiting


def test_one_that_may_be_stopped_joins_and_goes_elsewhere_later() -> None:
    assert not any(job.is_waiting for job in beside(1.4, LONG_AND_SHORT, preemptible=True).state.jobs.values())


def test_no_job_joins_those_that_would_end_later_by_it_than_by_waiting() -> None:
    core = beside(1.7, {**dict.fromkeys(range(1, 5), 1000), 5: 10})
    assert core.state.jobs[JobId(5)].is_waiting
