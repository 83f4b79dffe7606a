"""Under `colane` no few small jobs leave GPUs idle that a job of several GPUs could have."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Ended, Event, Launched, NodeRegistered, ProfileDeclared, Progressed, Submitted
from colane.lab.simulate.beliefs import OracleBeliefs, examples
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.workload import TraceJob
from colane.model.job import Exit, JobId, JobKind, JobSpec
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.simulate.scenes import cluster, job, workload

from .life import Life, known, step_time

STEPS = [step_time(1.0), step_time(1.0, gpus=2), step_time(1.0, gpus=4)]
LONG_S = 1000


def starts(jobs_s: list[int], run_s: int = LONG_S, *, preemptible: bool = False) -> dict[int, float]:
    """When each first starts on a server of four GPUs: one has it at first, four GPUs are asked for, then one each."""
    jobs = [
        known(0, 100, gpus=4, preemptible=False),
        known(1, run_s, gpus=4, preemptible=preemptible),
        *[known(2, small_s, preemptible=preemptible) for small_s in jobs_s],
    ]
    life = Life(create("colane:quantum_s=0"), [make_node("n0", 4)], jobs, STEPS).run()
    return {number: spans[0][0] for number, spans in life.spans.items()}


@pytest.mark.parametrize(
    ("small_s", "gang_starts_s"),
    [
        ([LONG_S], 100),  # alike: three GPUs would be idle
        ([LONG_S] * 4, 1100),  # they fill the server
        ([50], 150),  # so short that the gang waits for less than the job would
        ([600] * 2, 700),  # two would wait for 1,000 s each, the gang waits for 600
    ],
)
def test_a_gang_goes_before_those_that_would_leave_its_gpus_idle_where_less_is_waited(
    small_s: list[int], gang_starts_s: float
) -> None:
    assert starts(small_s)[2] == gang_starts_s


def test_of_higher_priority_they_go_first() -> None:
    jobs = [
        known(0, 100, gpus=4, preemptible=False),
        known(1, LONG_S, gpus=4, preemptible=False),
        known(2, LONG_S, preemptible=False, priority=1),
    ]
    life = Life(create("colane:quantum_s=0"), [make_node("n0", 4)], jobs, STEPS).run()
    assert life.spans[3][0][0] == 100


@pytest.mark.parametrize(("small_s", "starts_s"), [(600, 50), (1200, 1100)])
def test_free_gpus_are_kept_for_a_gang_that_others_are_soon_free_for_where_less_is_waited(
    small_s: int, starts_s: float
) -> None:
    """The last of four is free at 100 s; the gang would start at 650 or 1,250 s if the small job went first."""
    jobs = [
        known(0, 100, preemptible=False),
        known(1, LONG_S, gpus=4, preemptible=False),
        known(50, small_s, preemptible=False),
    ]
    life = Life(create("colane:quantum_s=0"), [make_node("n0", 4)], jobs, STEPS).run()
    assert life.spans[3][0][0] == starts_s
    assert life.spans[2][0][0] == (100 if starts_s > 100 else 650)


@pytest.mark.parametrize(("count", "stops"), [(1, False), (4, True)])
def test_a_gang_is_stopped_only_for_as_many_as_use_its_gpus(count: int, stops: bool) -> None:
    """It has 900 s left: one of 880 s would leave three GPUs idle, four of them use all."""
    jobs = [known(0, LONG_S, gpus=4), *[known(100, 880) for _ in range(count)]]
    life = Life(create("colane:quantum_s=0"), [make_node("n0", 4)], jobs, STEPS).run()
    assert (len(life.spans[1]) > 1) is stops


def single_server(seed: int) -> tuple[TraceJob, ...]:
    """Alike jobs of one, two and four GPUs to one server of four, at nine tenths of what it does."""
    random, at_s, jobs = Random(seed), 0.0, list[TraceJob]()
    for number in range(1, 121):
        jobs.append(job(number, at_s, 600.0, gpus=random.choice((1, 1, 1, 2, 4))))
        at_s += random.expovariate(1 / 300.0)
    return tuple(jobs)


@pytest.mark.parametrize("seed", range(4))
def test_on_a_single_server_alike_jobs_end_little_later_than_in_order_of_arrival_with_none_held_up(seed: int) -> None:
    jobs = single_server(seed)

    def mean_s(policy: str) -> float:
        rows = simulate(
            Inputs(
                cluster=cluster(4), workload=workload(*jobs), world=NeutralWorld(), policy=create(policy),
                beliefs=OracleBeliefs(NeutralWorld(), examples(jobs, cluster(4)), jobs),
            )
        ).ledger.rows  # fmt: skip
        came = {int(one.id): one.submit_s for one in jobs}
        return fmean(end_s - came[number] for number, end_s in zip(rows.id, rows.end_s, strict=True))

    assert mean_s("colane") <= 1.05 * mean_s("fifo-skip")  # 1.5 to 1.9 times where small jobs always went first


def test_why_says_for_which_job_free_gpus_are_kept() -> None:
    core = Core(create("colane"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 4))], 0.0)
    for number, (gpus, limit_s) in enumerate(((1, 100.0), (4, 1000.0), (1, 1200.0)), 1):
        spec = JobSpec(name="j", family="f", gpus=gpus, time_limit_s=limit_s)
        core.step([Submitted(JobId(number), spec)], float(number))
    reason = core.why(JobId(3), 3.0)
    assert (reason.why, reason.jobs) == (Why.BEHIND, (JobId(2),))


def test_no_gpu_is_kept_beside_a_server_which_never_ends() -> None:
    core = Core(create("colane"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 4))], 0.0)
    server = JobSpec(name="s", family="s", kind=JobKind.INFERENCE, share=False)
    needs = ((4, 1600.0), (1, 3000.0))
    gang, small = (JobSpec(name="j", family="f", gpus=gpus, time_limit_s=limit_s) for gpus, limit_s in needs)
    for number, spec in enumerate((server, gang, small), 1):
        core.step([Submitted(JobId(number), spec)], float(number))
    assert core.state.jobs[JobId(3)].placement is not None


def small_starts_s(last_s: float, *, is_counted: bool) -> float | None:
    """When a small job starts that came at 50 s, on one of three GPUs that are kept for a gang; None while it waits.

    The gang waits for a job on the fourth GPU that is believed to end at 110 s, and the small job would hold it up for
    1,200 s.

    Args:
        last_s: When the job on the fourth GPU makes its last step. It hangs from then on, unless it ends at 110 s.
        is_counted: Whether it tells of its steps.
    """
    core = Core(create("colane:quantum_s=0"), ClusterState(Beliefs()))
    one, two, three = JobId(1), JobId(2), JobId(3)
    first = JobSpec(name="j", family="f", share=False, steps_total=110)
    gang = JobSpec(name="j", family="g", gpus=4, time_limit_s=1000.0)
    core.step([NodeRegistered(make_node("n0", 4)), ProfileDeclared(step_time(1.0)), Submitted(one, first)], 0.0)
    core.step([Launched(one, 1, 7, 0.0)], 0.0)
    came: dict[float, Event] = {10.0: Submitted(two, gang), 50.0: Submitted(three, replace(first, steps_total=1200))}
    for now_s in map(float, range(10, 1000, 10)):
        events = [came[now_s]] if now_s in came else []
        stepped_s = min(last_s, now_s)
        steps = int(stepped_s)
        sample = Progress(at_s=now_s, steps=steps, first_step_s=1.0, last_step_s=stepped_s, step_mean_s=1.0)
        if stepped_s == 110.0:
            events.append(Ended(one, 1, "exited", Exit(0, None), 0.0, now_s))
        elif is_counted:
            events.append(Progressed(one, 1, sample))
        core.step(events, now_s)
        if core.state.jobs[two].placement is not None:
            assert now_s == 110.0
            return None
        if three in core.state.jobs and core.state.jobs[three].placement is not None:
            return now_s
    return None


@pytest.mark.parametrize("is_counted", [True, False])
def test_gpus_are_kept_beside_a_job_that_ends_as_is_believed(is_counted: bool) -> None:
    assert small_starts_s(110.0, is_counted=is_counted) is None


@pytest.mark.parametrize(("last_s", "is_counted"), [(60.0, True), (109.0, True), (60.0, False)])
def test_gpus_are_no_longer_kept_beside_a_job_that_is_a_minute_past_its_believed_end(
    last_s: float, is_counted: bool
) -> None:
    assert small_starts_s(last_s, is_counted=is_counted) == 170.0
