"""Decayed-usage fair share before the order of any policy: who has used least of late is asked first."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, NodeRegistered, Submitted
from colane.core.usage import UsageBook, UsedGpus, counted_gpu_s
from colane.model.hardware import GpuId
from colane.model.job import Attempt, Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.placement import Placement, Slot
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import POLICIES, create
from tests.core.worlds import GIB, make_node
from tests.scheduling.life import Life, job, known, step_time

DAY_S = 24 * 3600.0
ON_ONE = (make_node("n0", 1),)


def holding(gpus: int, assigned_s: float) -> Job:
    slots = tuple(Slot(GpuId("n0", number), 0) for number in range(gpus))
    spec = JobSpec(name="j", family="f", user="ann", gpus=gpus)
    run = Attempt(assigned_s=assigned_s)
    return Job(JobId(1), spec, 0.0, JobState.RUNNING, placement=Placement(slots=slots), run=run)


def test_use_is_counted_while_it_happens_and_half_of_it_after_a_half_life() -> None:
    book = UsageBook(half_life_s=100.0)
    book.charge(holding(2, 1000.0), 1000.001)
    assert book.of("ann", 1000.001) == pytest.approx(0.002, rel=1e-3)
    assert book.of("ann", 1100.001) == pytest.approx(0.001, rel=1e-3)
    assert book.of("bob", 1100.0) == 0.0


def test_a_long_use_counts_as_much_in_one_piece_as_in_two() -> None:
    whole, halves = UsageBook(half_life_s=50.0), UsageBook(half_life_s=50.0)
    whole.charge(holding(1, 0.0), 200.0)
    halves.charge(holding(1, 0.0), 80.0)
    halves.charge(holding(1, 80.0), 200.0)
    assert halves.of("ann", 200.0) == pytest.approx(whole.of("ann", 200.0))
    assert whole.of("ann", 200.0) == pytest.approx(counted_gpu_s(holding(1, 0.0), 200.0, 50.0))


@pytest.mark.parametrize(
    "name", ["fifo", "fifo-skip", "easy-backfill", "best-fit", "srtf", "las", "colocate", "colane"]
)
def test_the_user_who_has_used_less_goes_first_though_he_came_later(name: str) -> None:
    long_ago = [known(0.0, 1000.0, user="ann")]
    waiting = [known(10.0, 500.0, user="ann"), known(20.0, 500.0, user="bob")]
    policy = create(f"{name}:usage_half_life_s={7 * DAY_S:.0f}")
    assert Life(policy, ON_ONE, [*long_ago, *waiting]).run().order == [1, 3, 2]


def test_use_is_forgotten_after_some_half_lives() -> None:
    once = [job(0.0, 1000.0, user="ann"), job(100_000.0, 100.0, user="bob")]
    waiting = [job(100_050.0, 10.0, user="ann"), job(100_051.0, 10.0, user="bob")]
    forgets, remembers = (
        Life(create(f"fifo:usage_half_life_s={half_life_s}"), ON_ONE, [*once, *waiting]).run().order
        for half_life_s in (600, 1_000_000)
    )
    assert (forgets, remembers) == ([1, 2, 3, 4], [1, 2, 4, 3])


def test_priorities_go_before_shares_and_a_user_s_own_jobs_keep_the_policy_s_order() -> None:
    jobs = [
        known(0.0, 1000.0, user="ann"),
        known(1.0, 300.0, user="bob"),
        known(2.0, 100.0, user="bob"),
        known(3.0, 50.0, user="ann", priority=1),
    ]
    policy = create("sjf:usage_half_life_s=600000")
    assert Life(policy, ON_ONE, jobs, [step_time(1.0)]).run().order == [1, 4, 3, 2]


def test_a_user_s_inference_goes_before_his_training_where_the_policy_says_so() -> None:
    jobs = [
        job(0.0, 100.0, user="ann", gpu_memory_bytes=GIB),
        job(1.0, 100.0, user="bob", gpu_memory_bytes=GIB),
        job(2.0, 100.0, user="bob", gpu_memory_bytes=GIB, kind=JobKind.INFERENCE, family="g"),
        job(3.0, 100.0, user="ann", gpu_memory_bytes=GIB, kind=JobKind.INFERENCE, family="g"),
    ]
    policy = create("pack:share_when=never,usage_half_life_s=600000")
    assert Life(policy, ON_ONE, jobs).run().order == [1, 3, 4, 2]


def test_no_running_job_is_stopped_for_a_share() -> None:
    jobs = [known(0.0, 5000.0, user="ann"), known(100.0, 5000.0, user="bob")]
    assert Life(create("srtf:usage_half_life_s=600000"), ON_ONE, jobs).run().spans[1] == [(0.0, 5000.0)]


def test_what_was_used_before_a_restart_counts_after_it() -> None:
    policy = create("fifo:usage_half_life_s=600000")
    state = ClusterState.restore([], [], Beliefs(), used=[UsedGpus("ann", 5000.0, 0.0)])
    core = Core(policy, state)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f", user="ann"))], 10.0)
    core.step([Submitted(JobId(2), JobSpec(name="j", family="f", user="bob"))], 11.0)
    core.step([NodeRegistered(make_node("n0", 1))], 12.0)
    assert core.state.jobs[JobId(2)].state is JobState.ASSIGNED
    outcome = core.step([Ended(JobId(2), 1, "exited", Exit(0, None), 12.0, 112.0)], 112.0)
    assert [(used.user, used.at_s) for used in outcome.used] == [("bob", 112.0)]
    assert outcome.used[0].gpu_s == pytest.approx(100.0, rel=1e-3)


@pytest.mark.parametrize(("policy", "charged"), [("fifo", []), ("fifo:usage_half_life_s=600000", ["ann"])])
def test_a_run_that_nobody_goes_on_from_charges_users_where_its_policy_goes_by_that(
    policy: str, charged: list[str]
) -> None:
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(is_kept=False))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f", user="ann"))], 1.0)
    outcome = core.step([Ended(JobId(1), 1, "exited", Exit(0, None), 1.0, 101.0)], 101.0)
    assert [used.user for used in outcome.used] == charged
    assert outcome.lengths == ()
    assert core.state.knowledge.lengths.of_family("f") is not None


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_takes_it(name: str) -> None:
    jobs = [known(10.0 * k, 100.0, user=f"user-{k % 3}") for k in range(9)]
    Life(create(f"{name}:usage_half_life_s=600"), (make_node("n0", 2),), jobs).run()
