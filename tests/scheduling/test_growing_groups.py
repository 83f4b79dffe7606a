"""Groups of co-runners under `colane` grow by what was seen: alone first, then one by one; none leaves for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import mean

import pytest

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered, Outcome, ProfileDeclared, Submitted, Tick
from colane.lab.papers.sharing_scenes import Gain, GainWorld, job_of
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.traces import clusters
from colane.lab.traces.workload import Workload
from colane.model.job import JobId, JobSpec, JobState
from colane.model.plan import Start, Stop
from colane.model.profile import Memory, ProfileKey, SetMeasurement
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.loop import Composed, InTurn
from colane.scheduling.mechanisms.cpu.lending import ReclaimLent
from colane.scheduling.mechanisms.preemption.preemption import Preemption
from colane.scheduling.mechanisms.sharing.beside_servers import BesideServers
from colane.scheduling.mechanisms.sharing.beside_unmeasured import BesideUnmeasured
from colane.scheduling.mechanisms.topology.connected import Fastest
from colane.scheduling.presets import POLICIES
from colane.scheduling.registry import create
from tests.core.worlds import GIB, make_node, make_profile
from tests.golden.workloads import sharing

from .test_colane import crowd, on_the_gpu


def test_a_job_never_seen_alone_runs_alone_first_whatever_co_runners_promise() -> None:
    core = crowd(0, {2: 1.05})
    for number in range(1, 4):
        spec = JobSpec(name="j", family="light", batch_size=128, steps_total=1000, gpu_memory_bytes=GIB)
        core.step([Submitted(JobId(number), spec)], float(number))
    assert on_the_gpu(core) == 1


def test_a_job_that_was_never_timed_alone_runs_alone_first_though_its_kernels_were_traced() -> None:
    core, kind = Core(create("colane"), ClusterState(Beliefs())), "Tesla V100-SXM2-16GB"
    core.step([NodeRegistered(make_node("n0", 1, kind))], 0.0)
    light = make_profile("light", kind, 1e6, GIB // 2)
    core.step([ProfileDeclared(light)], 0.0)
    core.step([ProfileDeclared(replace(light, key=light.key._replace(family="traced"), step_s=None))], 0.0)
    for number, family in enumerate(("light", "traced", "light"), 1):
        spec = JobSpec(name="j", family=family, batch_size=64, steps_total=1000)
        core.step([Submitted(JobId(number), spec)], float(number))
    assert next(iter(core.state.gpus.values())).jobs == (1, 3)


def together(core: Core, slowdowns: Mapping[str, float]) -> None:
    """Sets that were measured often, named by their families, and what they cost each."""
    for names, slowdown in slowdowns.items():
        count, keys = len(names), tuple([ProfileKey(name, 64, 1, "V100") for name in names])
        seen = SetMeasurement(
            keys=keys, sharing="mps", step_alone_s=(1.0,) * count, step_together_s=(slowdown,) * count,
            steps=(50,) * count, delta=1.0, delta_general=1.0, at_s=0.0,
        )  # fmt: skip
        for _ in range(50):
            core.state.knowledge.learn_set(seen)


def bad_pair(others: str) -> int:
    """How many are at last on the GPU of two that share badly, among GPUs shared by two of each of the others.

    Eight more wait that make the bad pair's sum 1.25 where it is 1.05; who shares well has 1.8, and 1 with a third.
    """
    core = Core(create("colane"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1 + len(others)))], 0.0)
    gpu_group = replace(make_profile("light", "V100", 0.0, GIB // 2, step_s=1.0), occupancy=None, bandwidth=None)
    for name in ("b", "x", *others):
        core.step([ProfileDeclared(replace(gpu_group, key=gpu_group.key._replace(family=name)))], 0.0)
    together(
        core, {"bb": 1.9, "bbx": 2.4} | {2 * good: 1.1 for good in others} | {f"{2 * good}x": 3.0 for good in others}
    )
    for number, family in enumerate("b" + others + "b" + others + 8 * "x", 1):
        spec = JobSpec(name="j", family=family, batch_size=64, steps_total=1000, preemptible=True)
        core.step([Submitted(JobId(number), spec)], 0.01 * number)
    core.step([Tick()], 30.0)  # everything is looked at again
    return next(len(load.jobs) for load in core.state.gpus.values() if JobId(1) in load.jobs)


def test_no_job_mends_a_bad_pair_where_good_ones_are_usual() -> None:
    assert bad_pair("") == 3
    assert bad_pair("gh") < 3


def test_no_job_joins_several_before_it_was_seen_what_they_do_to_each_other() -> None:
    assert on_the_gpu(crowd(40, {3: 1.2})) == 2
    assert on_the_gpu(crowd(40, {2: 1.1, 3: 1.2})) > 2


def test_two_that_end_where_they_began_share_only_while_so_many_wait_that_all_end_earlier_by_it() -> None:
    seen = {2: 1.6, 3: 4.0}
    assert on_the_gpu(crowd(2, seen)) == 1
    assert on_the_gpu(crowd(2, seen, stops=True)) == 2
    assert on_the_gpu(crowd(40, seen)) == 2


def test_two_that_cannot_be_stopped_do_not_share_for_what_may_be_error() -> None:
    assert on_the_gpu(crowd(40, {2: 1.95, 3: 4.0})) == 1
    assert on_the_gpu(crowd(40, {2: 1.85, 3: 4.0})) == 2


@pytest.mark.parametrize(
    ("jobs", "slowdown", "said"),
    [
        (2, 1.6, "on n0/0 beside job 1 all together would gain +0.24 of a job's speed alone, below 0.33"),
        (40, 1.95, "on n0/0 beside job 1 all together would gain +0.02 of a job's speed alone, below 0.05"),
        (2, 2.2, "needs 1 GPU on one node, at most 0 free; GPUs are held by job 1"),
    ],
)
def test_a_job_that_cannot_be_stopped_and_is_refused_co_runners_is_told_what_it_would_gain(
    jobs: int, slowdown: float, said: str
) -> None:
    core = crowd(jobs, {2: slowdown, 3: 4.0})
    assert said in sentence_of(core.why(JobId(jobs), 100.0))


@dataclass
class Futile:
    """Counts who was stopped for another and started again within a minute while that one still waited."""

    core: Core
    stopped: dict[JobId, tuple[JobId, float]] = field(default_factory=dict)
    stops: int = 0
    count: int = 0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """See `Watcher`."""
        for decision in outcome.decisions:
            action = decision.action
            if isinstance(action, Stop) and action.for_job is not None:
                self.stops += 1
                self.stopped[action.job] = action.for_job, now_s
            if isinstance(action, Start) and action.job in self.stopped:
                taker, since_s = self.stopped.pop(action.job)
                waits = self.core.state.jobs.get(taker)
                self.count += waits is not None and waits.state is JobState.QUEUED and now_s < since_s + 60.0

    def started(self, _process: object, _co_runners: Iterable[object]) -> None:
        """See `Watcher`."""


def mean_end_s(policy: str | Composed, gain: Gain, count: int = 200) -> float:
    """Alike jobs of 100 s on one P100 (paper B's `superres_128`), of which nothing is known before."""
    parts = create(policy) if isinstance(policy, str) else policy
    world = GainWorld({"superres_128": Memory(63 * 10**6, 1041 * 10**6)}, gain)
    jobs = tuple(job_of(number, "superres_128", 500, 0.2) for number in range(1, count + 1))
    cluster, workload = clusters.load("paper-b"), Workload(name="set", jobs=jobs)
    rows = simulate(Inputs(cluster=cluster, workload=workload, world=world, policy=parts)).ledger.rows
    return mean(rows.end_s)


def test_by_time_slicing_too_alike_jobs_come_to_share_where_they_gain_by_it() -> None:
    gain = Gain(lanes=2, rho=1.5)
    assert mean_end_s("colane", gain) < 0.75 * mean_end_s("fifo", gain)


@pytest.mark.parametrize("without", [BesideUnmeasured, Fastest, ReclaimLent, BesideServers, Preemption, InTurn])
def test_alike_jobs_are_tried_together_whatever_other_parts_the_policy_has(without: type) -> None:
    parts, gain = POLICIES["colane"], Gain(lanes=2, rho=1.5)
    sources = tuple(source for source in parts.sources if not isinstance(source, without))
    moving = None if isinstance(parts.moving, without) else parts.moving
    shares = mean_end_s(replace(parts, sources=sources, moving=moving), gain, 40) < 0.8 * mean_end_s("fifo", gain, 40)
    assert shares is (without is not BesideUnmeasured)


def test_co_runners_grow_as_long_as_one_more_pays() -> None:
    """Fourteen go 2.38 times as fast as one: with speeds known all end after 0.44 of FIFO's mean end."""
    gain = Gain(lanes=14, rho=2.38)
    assert mean_end_s("colane", gain) < 0.5 * mean_end_s("fifo", gain)


def test_where_time_slicing_costs_a_fifth_all_that_is_lost_is_one_try() -> None:
    loss = Gain(lanes=2, rho=0.8)
    assert mean_end_s("colane", loss) < 1.005 * mean_end_s("fifo", loss)


def test_no_job_is_stopped_for_one_that_then_declines_the_place() -> None:
    """Over one draw, in which nine are stopped."""
    seen: list[Futile] = []

    def watch(core: Core) -> list[Futile]:
        seen.append(Futile(core))
        return seen

    simulate(sharing(create("colane"), 0), watchers=watch)
    assert seen[0].stops >= 5
    assert seen[0].count == 0
