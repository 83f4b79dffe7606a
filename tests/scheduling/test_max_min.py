"""Max-min fair share over time: parts even out, GPU types are used where they count, pairs share where it pays."""

from __future__ import annotations

from collections import Counter

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import NodeRegistered, ProfileDeclared, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.times import RunTimes
from colane.scheduling.mechanisms.fairness.shares import FairShares, fair_level
from colane.scheduling.registry import preset
from tests.core.worlds import GIB, make_node, make_profile

from .life import Coming, Life, job, step_time

FAST = preset("max-min", quantum_s=10.0)


def had(life: Life, number: int, until_s: float) -> float:
    return sum(max(0.0, min(end_s, until_s) - start_s) for start_s, end_s in life.spans[number])


def lasting(at_s: float, run_s: float, **needs: object) -> Coming:
    return job(at_s, run_s, preemptible=True, **needs)


def test_two_jobs_take_turns_on_one_gpu() -> None:
    life = Life(FAST, [make_node("n0", 1)], [lasting(0, 200), lasting(0, 200)]).run()
    assert len(life.spans[1]) > 3
    for until_s in (100, 200, 300):
        assert had(life, 1, until_s) == pytest.approx(until_s / 2, abs=20)


def test_three_jobs_on_two_gpus_each_have_two_thirds() -> None:
    life = Life(FAST, [make_node("n0", 2)], [lasting(0, 1000) for _ in range(3)]).run()
    for number in (1, 2, 3):
        assert had(life, number, 600) == pytest.approx(400, abs=25)


def test_a_newcomer_is_served_soon_and_does_not_get_what_the_old_ones_have_had() -> None:
    life = Life(FAST, [make_node("n0", 1)], [lasting(0, 5000), lasting(1000, 5000)]).run()
    assert life.starts(2)[0] <= 1010
    assert had(life, 2, 1200) < 200, "it does not run alone until it has caught up"
    assert had(life, 2, 3000) == pytest.approx(3000 * 2000 / (2000 + 3000), rel=0.1), "parts go by age"


def test_a_gang_gets_as_many_gpu_seconds_as_single_jobs() -> None:
    jobs = [lasting(0, 3000, gpus=2), lasting(0, 3000), lasting(0, 3000)]
    life = Life(FAST, [make_node("n0", 2)], jobs).run()
    received = [2 * had(life, 1, 1500), had(life, 2, 1500), had(life, 3, 1500)]
    assert received == pytest.approx([1000, 1000, 1000], rel=0.1)


def test_no_job_is_stopped_before_a_quantum_or_when_none_waits() -> None:
    life = Life(FAST, [make_node("n0", 2)], [lasting(0, 100), lasting(3, 100)]).run()
    assert life.spans == {1: [(0, 100)], 2: [(3, 103)]}
    life = Life(FAST, [make_node("n0", 1)], [lasting(0, 100), lasting(3, 100)]).run()
    assert min(end - start for spans in life.spans.values() for start, end in spans) >= 10


def test_jobs_that_cannot_be_stopped_run_to_their_end() -> None:
    life = Life(FAST, [make_node("n0", 1)], [job(0, 100), lasting(1, 50)]).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 150)]}


def test_the_level_fills_like_water() -> None:
    assert fair_level(Counter({1: 4}), 2) == 0.5
    assert fair_level(Counter({1: 2, 4: 1}), 4) == 2
    assert fair_level(Counter({1: 2, 8: 2}), 10) == 4
    assert fair_level(Counter({1: 1}), 8) == 1
    assert fair_level(Counter(), 8) == 0


def two_types() -> Core:
    """One V100 and one K80; family big is 10 times as fast on the V100, small twice."""
    core = Core(FAST, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1, "K80")), NodeRegistered(make_node("n1", 1, "V100"))], 0.0)
    steps = {("big", "K80"): 1.0, ("big", "V100"): 0.1, ("small", "K80"): 1.0, ("small", "V100"): 0.5}
    core.step([ProfileDeclared(step_time(s, kind, family)) for (family, kind), s in steps.items()], 0.0)
    return core


def test_seconds_count_by_throughput_over_that_of_equal_time_on_all_gpus() -> None:
    core = two_types()
    core.step([Submitted(JobId(1), JobSpec(name="j", family="big", gpus=2))], 1.0)
    view = ClusterView(core.state, 1.0)
    shares = FairShares(view, "default", RunTimes(Draft(view)))
    small = JobSpec(name="j", family="small")
    assert shares.speed(small, "V100") == pytest.approx(2 / 1.5)
    assert shares.speed(small, "K80") == pytest.approx(1 / 1.5)
    assert shares.speed(JobSpec(name="j", family="never-seen"), "K80") == 1.0


@pytest.mark.parametrize("first", ["big", "small"])
def test_each_goes_where_it_is_fastest_against_the_others(first: str) -> None:
    core = two_types()
    second = "small" if first == "big" else "big"
    core.step([Submitted(JobId(k), JobSpec(name="j", family=f)) for k, f in enumerate((first, second), 1)], 1.0)
    places = {j.spec.family: j.placement.node for j in core.state.jobs.values() if j.placement is not None}
    assert places == {"big": "n1", "small": "n0"}


def test_time_on_a_slow_gpu_counts_for_less_so_the_other_is_stopped() -> None:
    nodes = [make_node("n0", 1, "K80"), make_node("n1", 1, "V100")]
    profiles = [step_time(1.0, "K80"), step_time(0.25, "V100")]
    life = Life(FAST, nodes, [lasting(0, 500), lasting(0, 500), lasting(5, 500)], profiles).run()
    assert life.nodes_used[3][0] == "n1", "job 1 took the V100 and has had four times as much as job 2"
    assert life.spans[1][0] == (0, 10)
    assert life.spans[2][0][1] > 10


def packed(*families: str, packed: bool = True) -> Core:
    core = Core(preset("max-min", packed=packed), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    light = {"light": 2e6, "heavy": 1.9e7}
    core.step([ProfileDeclared(make_profile(f, "V100", load, 2 * GIB)) for f, load in light.items()], 0.0)
    specs = [JobSpec(name="j", family=family, batch_size=64) for family in families]
    core.step([Submitted(JobId(k), spec) for k, spec in enumerate(specs, 1)], 1.0)
    return core


def test_pairs_share_where_it_pays_and_never_three() -> None:
    core = packed("light", "light", "light")
    assert [load.jobs for load in core.state.gpus.values()] == [(1, 2)]
    assert core.state.jobs[JobId(2)].story[-1].reason.why is Why.SHARES


def test_without_packing_no_job_shares() -> None:
    core = packed("light", "light", packed=False)
    assert [load.jobs for load in core.state.gpus.values()] == [(1,)]


def test_the_best_partner_is_taken() -> None:
    core = Core(preset("max-min", packed=True), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 2))], 0.0)
    core.step([ProfileDeclared(make_profile("light", "V100", 2e6, 2 * GIB, step_s=0.1))], 0.0)
    core.step([ProfileDeclared(make_profile("heavy", "V100", 4e7, 2 * GIB, step_s=0.2))], 0.0)
    specs = [JobSpec(name="j", family=family, batch_size=64) for family in ("heavy", "light", "heavy")]
    core.step([Submitted(JobId(k), spec) for k, spec in enumerate(specs, 1)], 1.0)
    assert [load.jobs for load in core.state.gpus.values()] == [(1,), (2, 3)]
