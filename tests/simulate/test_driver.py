"""The driver on small scenes whose every time is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, cast

import pytest

from colane.core import Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import Outcome
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.driver import Driver
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, admit, prepare, simulate
from colane.lab.simulate.world import NeutralWorld, Running, Startup, World
from colane.lab.traces import clusters
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.costs import Costs
from colane.lab.traces.generate import heavy_load
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId, JobState
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.scheduling.registry import create

from .scenes import GIB, Crowded, Restless, cluster, job, node, run, workload

PAIR: Any = {"family": "a", "gpu_memory_bytes": GIB}


def sharing_by_mps() -> Cluster:
    """One GPU on which kernels of several jobs run at once, so that little work of each lets both gain."""
    (only,) = cluster(1).nodes
    return Cluster("test", (replace(only, gpus=tuple(replace(gpu, sharing="mps") for gpu in only.gpus)),))


class Recorder:
    """Remembers every new value of every job, with the time."""

    def __init__(self) -> None:
        self.moves: dict[int, list[tuple[float, JobState]]] = {}
        self.sharing_beliefs: list[tuple[int, list[int]]] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        for one in outcome.jobs:
            self.moves[one.id] = [(move.at_s, move.state) for move in one.story]

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        self.sharing_beliefs.append((process.id, [other.job.id for other in co_runners]))


def recorded(inputs: Inputs) -> tuple[Run, Recorder]:
    recorder = Recorder()

    def watchers(_core: Core) -> tuple[Recorder]:
        return (recorder,)

    return simulate(inputs, watchers=watchers), recorder


def ends(done: Run) -> dict[int, float]:
    return dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))


def states(done: Run) -> dict[int, JobState]:
    return {id_: STATES[code] for id_, code in zip(done.ledger.rows.id, done.ledger.rows.state, strict=True)}


def test_two_jobs_that_need_more_than_a_gpu_slow_each_other_by_its_work() -> None:
    jobs = [job(1, 0, 20, steps=20, **PAIR), job(2, 20, 60, steps=60, **PAIR), job(3, 30, 30, steps=30, **PAIR)]
    learnt = run(jobs, sharing_by_mps(), create("colocate"), FactorsWorld(0.9))
    # Job 2 is known from job 1, so job 3 is judged: two of 0.9 gain 2 / 1.8 = 1.11. From 30 s on both go at 1 / 1.8.
    assert ends(learnt)[1] == 20
    assert math.isclose(ends(learnt)[3], 30 + 30 * 1.8)
    # Job 2 made 10 steps alone and 30 shared; the other 20 alone.
    assert math.isclose(ends(learnt)[2], 30 + 30 * 1.8 + 20)


class Loading:
    """A world in which job 2 takes 10 s to load, so many of them work of its device."""

    def __init__(self, world: World, work_s: float = 10.0) -> None:
        self._world, self._work_s = world, work_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def startup(self, job: TraceJob) -> Startup:
        return Startup(10.0, self._work_s) if job.id == 2 else Startup(0.0, 0.0)


def test_launching_is_work_where_the_device_is_made_of_cores() -> None:
    def told(gpu_type: str, work_s: float = 10.0) -> dict[int, float]:
        together: Any = {**PAIR, "measurement_group": "both", "measurement_group_size": 2}
        jobs = [job(1, 0, 20, steps=20, **together), job(2, 0, 30, steps=30, **together)]
        machines = Cluster("test", (node("n0", 1, gpu_type=gpu_type),))
        return ends(run(jobs, machines, create("fifo"), cast("World", Loading(FactorsWorld(0.9), work_s))))

    # On cores the one that loads slows the other and is slowed: at 18 s it has loaded, and the other made 10 steps.
    assert told("cpu") == pytest.approx({1: 36, 2: 36 + 20})
    # Half of it is: that takes 5 s more alone and 9 s with half the device, and the other makes 14/1.8 steps meanwhile.
    assert told("cpu", 5.0) == pytest.approx({1: 36, 2: 36 + 30 - (36 - 14) / 1.8})
    # A GPU is not used by loading: the other makes 10 steps in 10 s.
    assert told("v100") == pytest.approx({1: 28, 2: 28 + 20})


def test_a_gang_steps_is_protected_and_is_learnt_from() -> None:
    config = DriverConfig(launch_s=5)
    given = Inputs(
        cluster=cluster(4), workload=workload(job(1, 0, 100, gpus=4, steps=200)), world=FactorsWorld(),
        policy=create("las"), driver=config,
    )  # fmt: skip
    done, seen = recorded(given)
    moves = {state: at_s for at_s, state in seen.moves[1]}
    assert moves[JobState.RUNNING_PROTECTED] == 5.5
    assert moves[JobState.RUNNING] == pytest.approx(5.5 + 3 * 5.5)
    assert ends(done)[1] == 105
    profile = next(p for p in done.profiles if p.key.gpus == 4)
    assert profile.step_s is not None
    assert profile.step_s.value == pytest.approx(0.5)


def test_a_kind_that_was_measured_is_not_sampled_again() -> None:
    first, alike, faster = job(1, 0, 100, steps=200), job(2, 100, 50, steps=100), job(3, 150, 50, steps=200)
    told = events_told(first), events_told(first, alike), events_told(first, alike, faster)
    assert told == (4, 4 + 2, 4 + 2 + 4), "two samples of the first and of the faster one, none of the one alike"
    done = run([first, alike], cluster(1), create("fifo"), FactorsWorld())
    assert list(done.errors.alone) == pytest.approx([0.0]), "of the second start it was known how fast it would be"


def events_told(*jobs: TraceJob) -> int:
    return run(jobs, cluster(1), create("fifo"), FactorsWorld()).ledger.events


def test_under_a_policy_that_stops_no_job_one_runs_from_its_start() -> None:
    moves = {}
    for policy in ("fifo", "las"):
        given = Inputs(
            cluster=cluster(1), workload=workload(job(1, 0, 100, steps=200)), world=FactorsWorld(),
            policy=create(policy),
        )  # fmt: skip
        _, seen = recorded(given)
        moves[policy] = [state for _, state in seen.moves[1]]
    ends_with = [JobState.RUNNING, JobState.SUCCEEDED]
    assert moves["fifo"] == [JobState.QUEUED, JobState.ASSIGNED, JobState.LAUNCHING, *ends_with]
    assert moves["las"] == [*moves["fifo"][:3], JobState.RUNNING_PROTECTED, *ends_with]


def test_a_preempted_job_pays_for_stopping_and_restarting_and_keeps_whole_steps() -> None:
    config = DriverConfig(launch_s=1, restart_s=2, stop_s=4)
    jobs = [job(1, 0, 100, steps=10), job(2, 50, 20, steps=2)]
    done = run(jobs, cluster(1), Restless(most_attempts=2), FactorsWorld(), config)
    stays = [(stay.job, stay.start_s, stay.end_s) for stay in done.ledger.stays]
    # At 50 s it has stepped for 49 s: four steps of 10 s are whole. Stopping takes until 54 s, then job 2 goes first or
    # it goes on; its second attempt launches for 1 + 2 s and makes the other six.
    assert stays[0] == (1, 0, 54)
    second = next(stay for stay in stays[1:] if stay[0] == 1)
    assert second[2] - second[1] == pytest.approx(1 + 2 + 60)
    assert list(done.ledger.rows.attempts)[list(done.ledger.rows.id).index(1)] == 2
    # Without a step: two first launches, the stop, and the launch with its restart; 9 of the 49 s were no whole step.
    assert done.ledger.idle_s == pytest.approx(1 + 1 + 4 + 3)
    assert done.ledger.redone_s == pytest.approx(9)
    first, other = done.ledger.time_spent[1], done.ledger.time_spent[2]
    assert (first.launching_s, first.checkpointing_s, first.running_s) == pytest.approx((1 + 3, 4, 49 + 60))
    assert first.queueing_s + sum(first[1:]) == pytest.approx(second[2])
    assert (other.launching_s, other.running_s) == pytest.approx((1, 20))


@dataclass(frozen=True)
class AbortingPolicy:
    """Stops the first job once, as soon as another waits; the core places jobs without GPUs by itself."""

    name: str = "aborting"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    def plan(self, view: ClusterView) -> Plan:
        draft, first = Draft(view), view.jobs.get(JobId(1))
        waits = any(one.state is JobState.QUEUED for one in view.jobs.values())
        if waits and first is not None and first.state is JobState.RUNNING and first.attempt == 1:
            draft.stop(first, Reason(Why.PREEMPTED, {"because": "a test"}, (JobId(2),)))
        return draft.plan()


@pytest.mark.parametrize(("saves", "redone_s"), [(True, 0), (False, 50)])
def test_only_a_job_that_saves_its_state_goes_on_from_it(saves: bool, redone_s: float) -> None:
    wants: Any = {"gpus": 0, "cores": 6}
    jobs = [job(1, 0, 100, preemptible=saves, abortable=True, **wants), job(2, 50, 20, **wants)]
    done = run(jobs, cluster(1), AbortingPolicy(), NeutralWorld())
    assert done.ledger.flaws == []
    assert max(ends(done).values()) == 120 + redone_s
    assert sum(done.ledger.rows.attempts) == 3
    assert done.ledger.redone_s == pytest.approx(redone_s)


def test_each_node_has_the_costs_its_description_says() -> None:
    slow = Costs(launch_s=3, stop_s=6, restart_s=4)
    config = DriverConfig(launch_s=1, of_nodes={"n1": slow})
    done = run([job(1, 0, 10), job(2, 0, 10)], cluster(1, 1), create("fifo"), NeutralWorld(), config)
    assert ends(done) == {1: 11, 2: 13}
    over_both = [job(1, 0, 10, gpus=2, multi_node=True)]
    assert ends(run(over_both, cluster(1, 1), create("fifo"), NeutralWorld(), config)) == {1: 13}
    again = run([job(1, 0, 10), job(2, 4, 10)], cluster(1), Restless(most_attempts=2), NeutralWorld(),
                DriverConfig(of_nodes={"n0": slow}))  # fmt: skip
    assert max(ends(again).values()) == 10 + 10 + 6 + 3 * 3 + 4 + 0


def test_a_job_started_again_in_the_moment_it_left_runs_its_second_attempt() -> None:
    jobs = [job(1, 0, 10), job(2, 4, 10, gpus=2)]
    done = run(jobs, cluster(1, 2), Restless(most_attempts=3), NeutralWorld())
    assert states(done) == {1: JobState.SUCCEEDED, 2: JobState.SUCCEEDED}


def test_a_time_limit_ends_the_attempt_and_counts_no_success() -> None:
    limited = job(1, 0, 100, time_limit_s=30.0)
    done = run([limited, job(2, 0, 10)], cluster(1), create("fifo"), NeutralWorld(), DriverConfig(stop_s=2))
    assert states(done) == {1: JobState.TIMED_OUT, 2: JobState.SUCCEEDED}
    assert ends(done) == {1: 32, 2: 42}


def test_timers_of_jobs_that_are_gone_do_not_lengthen_the_run() -> None:
    done = run([job(1, 0, 10, time_limit_s=10_000.0)], cluster(1), create("fifo"), NeutralWorld())
    assert done.span_s == 10
    assert done.ledger.curve.at_s[-1] == 10


def test_jobs_no_node_can_hold_or_move_are_refused_with_a_reason_and_the_run_goes_on() -> None:
    jobs = [
        job(1, 0, 10, gpus=5),
        job(2, 0, None, steps=5),
        job(4, 0, 10, pool="elsewhere"),
        job(5, 0, 10, gpu_memory_bytes=99 * GIB),
        job(6, 0, 10),
    ]
    done = run(jobs, cluster(2), create("fifo"), NeutralWorld())
    assert [refusal.job for refusal in done.refused] == [1, 2, 4, 5]
    reasons = [refusal.reason for refusal in done.refused]
    for reason, word in zip(reasons, ("5 GPUs", "no duration", "elsewhere", "memory"), strict=True):
        assert word in reason
    assert states(done) == {6: JobState.SUCCEEDED}
    assert done.jobs == 5


def test_jobs_of_no_length_end_when_they_start() -> None:
    done = run([job(1, 3, 0), job(2, 3, 0, gpus=2)], cluster(2), create("fifo"), NeutralWorld())
    assert ends(done) == {1: 3, 2: 3}


def test_nothing_to_simulate_is_an_empty_run() -> None:
    done = run([job(1, 0, 10, gpus=9)], cluster(1), create("fifo"), NeutralWorld())
    assert len(done.ledger.rows) == 0
    assert done.span_s == 0


def test_a_job_that_no_policy_starts_is_reported_waiting() -> None:
    done = run([job(1, 0, 10), job(2, 1, 10)], cluster(1), _Lazy(), NeutralWorld())
    assert states(done) == {1: JobState.QUEUED, 2: JobState.QUEUED}
    assert all(math.isnan(value) for value in done.ledger.rows.first_start_s)


class _Lazy(Restless):
    """Starts no job."""

    def plan(self, view: ClusterView) -> Plan:
        return Plan(view.version)


def test_co_runners_the_table_says_do_not_fit_cost_the_youngest_its_memory_and_it_runs_alone() -> None:
    known = job(1, 0, None, steps=50, **PAIR)
    jobs = [known, job(2, 60, None, steps=50, **PAIR), job(3, 70, None, steps=50, **PAIR)]
    done = run(jobs, cluster(1), create("colocate"), Crowded())
    assert states(done) == {1: JobState.SUCCEEDED, 2: JobState.SUCCEEDED, 3: JobState.SUCCEEDED}
    assert ends(done) == {1: 50, 2: 110, 3: 160}


def test_stopping_the_driver_keeps_what_was_done_and_says_so() -> None:
    jobs = [job(i, float(i), 10) for i in range(1, 2001)]
    given = Inputs(cluster=cluster(1), workload=workload(*jobs), world=NeutralWorld(), policy=create("fifo"))

    def ready(driver: Driver) -> None:
        driver.on_progress = lambda running: running.stop() if running.ended > 300 else None

    done = simulate(given, on_ready=ready)
    assert done.ledger.interrupted
    finished = done.ledger.rows.count(JobState.SUCCEEDED)
    assert 300 < finished < 2000
    assert len(done.ledger.rows) == done.submitted
    assert done.ledger.rows.count(JobState.RUNNING) == 1


def test_use_of_a_gpu_is_occupancy_times_speed_against_speed_alone() -> None:
    jobs = [job(1, 0, 100, steps=100, **PAIR), job(2, 200, 300, steps=300, **PAIR), job(3, 300, 90, steps=90, **PAIR)]
    done = run(jobs, sharing_by_mps(), create("colocate"), FactorsWorld(0.4))
    curve = done.ledger.curve
    at = dict(zip(curve.at_s, curve.utilized_gpus, strict=True))
    assert at[0] == pytest.approx(0.4)
    assert at[300] == pytest.approx(0.8)
    assert curve.active_gpus[list(curve.at_s).index(300)] == 1


def test_gpus_idle_beside_a_queue_are_counted_in_their_own_pool() -> None:
    two_pools = cluster(2)
    other = replace(two_pools.nodes[0], name="other", pool="other")
    machines = replace(two_pools, nodes=(*two_pools.nodes, other))
    jobs = [job(1, 0, 10), job(2, 0, 10, gpus=2), job(3, 0, 5, pool="other")]
    done = run(jobs, machines, create("fifo"), NeutralWorld())
    stranded = dict(zip(done.ledger.curve.at_s, done.ledger.curve.stranded_gpus, strict=True))
    assert stranded == {0: 1, 5: 1, 10: 0, 20: 0}


def test_the_jobs_already_there_are_told_at_every_start() -> None:
    jobs = [job(1, 0, 20, steps=20, **PAIR), job(2, 30, 50, steps=50, **PAIR), job(3, 40, 50, steps=50, **PAIR)]
    given = Inputs(
        cluster=sharing_by_mps(), workload=workload(*jobs), world=FactorsWorld(0.4), policy=create("colocate")
    )
    _, seen = recorded(given)
    assert seen.sharing_beliefs == [(1, []), (2, []), (3, [2])]


def test_the_garbage_collector_is_given_back_as_it_was() -> None:
    import gc  # noqa: PLC0415

    gc.disable()
    try:
        run([job(1, 0, 1)], cluster(1), create("fifo"), NeutralWorld())
        assert not gc.isenabled()
    finally:
        gc.enable()
    run([job(1, 0, 1)], cluster(1), create("fifo"), NeutralWorld())
    assert gc.isenabled()


def test_a_driver_is_ready_before_it_runs() -> None:
    given = Inputs(cluster=cluster(1), workload=workload(job(1, 5, 1)), world=NeutralWorld(), policy=create("fifo"))
    driver = prepare(given, given.workload.jobs)
    assert (driver.now_s, driver.total, driver.submitted) == (5, 1, 0)


@pytest.mark.parametrize("policy", ["fifo", "easy-backfill", "srtf", "las", "colocate"])
@pytest.mark.parametrize("launch_s", [0.0, 7.0])
def test_jobs_that_run_at_once_run_as_those_whose_start_is_reported(policy: str, launch_s: float) -> None:
    """One step of the core fewer for every start changes nothing of what happens when, or of what is told."""
    machines = clusters.load("paper-a")
    load = heavy_load(jobs=120, gpus=machines.gpus, seed=3, load=1.1)
    config = DriverConfig(launch_s=launch_s)

    def told(*, at_once: bool) -> tuple[list[tuple[Any, ...]], dict[int, list[tuple[float, JobState]]]]:
        given = Inputs(cluster=machines, workload=load, world=NeutralWorld(), policy=create(policy), driver=config)
        recorder = Recorder()
        jobs, _ = admit(load, machines, given.world)
        driver = prepare(given, jobs, (recorder,))
        driver.core.config = replace(driver.core.config, runs_at_once=at_once, opaque_after_s=0.0)
        rows = driver.run().rows
        columns = (rows.id, rows.state, rows.first_start_s, rows.start_s, rows.end_s, rows.attempts, rows.gpu_s)
        return list(zip(*columns, rows.gpus, strict=True)), recorder.moves

    assert told(at_once=True) == told(at_once=False)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "colane"])
def test_jobs_wait_for_those_that_they_waited_for(policy: str) -> None:
    """Three GPUs, room enough: only what they wait for keeps jobs from starting."""
    conditions = {2: "ok:1", 3: "start:2,any:1", 4: "fail:1,start:1", 5: "any:gone"}
    jobs = [job(1, 0.0, 10.0)] + [replace(job(each, 1.0, 5.0), after=after) for each, after in conditions.items()]
    jobs += [replace(job(6, 20.0, 5.0), after="ok:1,start:2"), replace(job(7, 20.0, 5.0), after="any:6")]
    named = [replace(each, spec=replace(each.spec, name=str(each.id))) for each in jobs]
    rows = run(named, cluster(3), create(policy), NeutralWorld()).ledger.rows
    started = dict(zip(rows.id, rows.first_start_s, strict=True))
    assert started == {1: 0.0, 2: 10.0, 3: 10.0, 4: 10.0, 5: 1.0, 6: 20.0, 7: 25.0}


@pytest.mark.parametrize(("changed_s", "end_s"), [(None, 5.0), (2.0, 2.0), (inf, 10.0)])
def test_a_job_ends_at_the_limit_that_it_was_given_since(changed_s: float | None, end_s: float) -> None:
    declared = job(1, 0.0, 10.0)
    limited = replace(declared, spec=replace(declared.spec, time_limit_s=5.0), changed_limit_s=changed_s)
    done = run([limited], cluster(1), create("fifo"), NeutralWorld())
    assert list(done.ledger.rows.end_s) == [end_s]


@pytest.mark.parametrize("steps", [None, 100])
@pytest.mark.parametrize(("retries", "ends_s", "state"), [(2, 4.0 + 3.0 + 10.0, "succeeded"), (1, 7.0, "failed")])
def test_attempts_fail_as_they_did_and_go_on_as_often_as_the_job_may(
    retries: int, ends_s: float, state: str, steps: int | None
) -> None:
    """Nothing of their work is kept, though the job saves its state where it is stopped; another waits meanwhile."""
    fails = replace(job(1, 0.0, 10.0, steps=steps, retries=retries), failed_s=(4.0, 3.0))
    done = run([fails, job(2, 1.0, 5.0, steps=steps and 50, priority=-1)], cluster(1), create("fifo"), NeutralWorld())
    rows = {row: (start_s, end_s) for row, start_s, end_s in zip(
        done.ledger.rows.id, done.ledger.rows.first_start_s, done.ledger.rows.end_s, strict=True
    )}  # fmt: skip
    assert [*rows[JobId(1)], *rows[JobId(2)]] == pytest.approx([0.0, ends_s, ends_s, ends_s + 5.0])
    states = dict(zip(done.ledger.rows.id, done.ledger.rows.state, strict=True))
    assert states[JobId(1)] == STATES.index(JobState(state))


def test_a_job_that_was_held_starts_when_it_was_let_go() -> None:
    held = replace(job(1, 0.0, 10.0), held_s=25.0)
    done = run([held, job(2, 1.0, 5.0)], cluster(1), create("fifo"), NeutralWorld())
    assert dict(zip(done.ledger.rows.id, done.ledger.rows.first_start_s, strict=True)) == {1: 25.0, 2: 1.0}
