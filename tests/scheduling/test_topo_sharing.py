"""topo-aware policies where GPUs may be shared: which job joins which, and what a neighbour makes felt."""

from __future__ import annotations

import pytest

from colane.core import Core
from colane.core.cluster.view import ClusterView
from colane.core.events import ProfileDeclared
from colane.core.policy import Policy
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobSpec
from colane.model.profile import ProfileKey, SetMeasurement
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import WORST_MIN
from colane.perf.rate import Situation
from colane.perf.topology import flat
from colane.perf.utility import NEUTRAL, gpu_harm, job_utility
from colane.scheduling.mechanisms.topology.node_fit import Neighbour, Question, judge
from colane.scheduling.registry import create, preset
from tests.core.audit import audit
from tests.core.worlds import World, make_profile
from tests.perf.test_rate import measured
from tests.scheduling.machines import GIB, disturbing, machine, places, start, submit


def sharing(policy: Policy, occupancy: float) -> Core:
    """One GPU under MPS, and a family that keeps so much of it busy."""
    gpu = Gpu(index=0, uuid="g", type="V100", memory_bytes=16 * GIB, sharing="mps")
    core = start(policy, [Node(name="n0", gpus=(gpu,))])
    core.step([ProfileDeclared(make_profile("f", "V100", occupancy, 2 * GIB))], 0.0)
    for number in (1, 2, 3):
        submit(core, number, batch_size=64, utility_min=0.15 if number == 2 else 0.0)
    return core


def test_a_job_that_would_wait_joins_another_where_both_gain() -> None:
    core = sharing(create("topo-aware-share"), 1e6)
    assert places(core) == {1: "n0/0", 2: "n0/0"}
    assert core.state.jobs[JobId(2)].story[-1].reason.why is Why.SHARES
    assert core.why(JobId(3), 0.0).why is Why.NO_FREE_GPU


def test_without_a_gain_no_job_shares() -> None:
    core = sharing(create("topo-aware-share"), 2.4e7)
    assert places(core) == {1: "n0/0"}
    assert places(sharing(create("topo-aware"), 1e6)) == {1: "n0/0"}


def test_sharing_a_gpu_counts_as_interference() -> None:
    """Two jobs with a speed-up of 1.6 take 1.25 times as long each: 0.25 of the worst, 0.3."""
    mine, other = (ProfileKey(family, 1, 1, "P100") for family in "ab")
    beliefs = Beliefs(measurements=[measured(other, mine, delta=1.6, sharing="mps")])
    rate = beliefs.rate(JobSpec(name="", family="a", batch_size=1), Situation("P100", sharing="mps", beside=(other,)))
    shared = gpu_harm(rate, WORST_MIN)
    assert shared is not None
    assert shared == pytest.approx(0.25 / 0.3, rel=0.01)
    free, beside = Question(flat((0,)), 1, (), 1), Question(flat((0,)), 1, (), 1, shared=shared)
    assert judge(free, (0,)).job == pytest.approx(1.0)
    assert judge(beside, (0,)).job == pytest.approx(job_utility(0.0, shared))
    near = (Neighbour(1, 0.95, 0.0),)
    assert judge(beside._replace(neighbours=near), (0,)).job == pytest.approx(job_utility(0.0, 0.95))


def test_a_job_that_asks_for_a_least_utility_does_not_share_below_it() -> None:
    policy = preset("topo-aware", name="both", postpones=True, jobs_per_gpu_max=2)
    gpu = Gpu(index=0, uuid="g", type="V100", memory_bytes=16 * GIB, sharing="mps")
    core = start(policy, [Node(name="n0", gpus=(gpu,))])
    core.step([ProfileDeclared(make_profile("f", "V100", 1.4e7, 2 * GIB))], 0.0)
    submit(core, 1, batch_size=64, utility_min=0.9)
    submit(core, 2, batch_size=64, utility_min=0.9)
    assert places(core) == {1: "n0/0"}


@pytest.mark.parametrize(("asked", "shares"), [(0.9, False), (0.05, True)])
def test_no_job_is_joined_that_would_fall_below_its_own_least(asked: float, shares: bool) -> None:
    """The newcomer is not slowed, the one he joins takes twice as long: what counts is that one's own slowdown."""
    mine, other = (ProfileKey(family, 64, 1, "P100") for family in ("new", "here"))
    pair = SetMeasurement(
        keys=(mine, other), sharing="mps", step_alone_s=(0.1, 0.1), step_together_s=(0.1, 0.2), steps=(99, 99),
        delta=1.0, delta_general=1.0, at_s=0.0,
    )  # fmt: skip
    policy = preset("topo-aware", name="both", postpones=True, jobs_per_gpu_max=2)
    gpu = Gpu(index=0, uuid="g", type="P100", memory_bytes=16 * GIB, sharing="mps")
    core = start(policy, [Node(name="n0", gpus=(gpu,))])
    core.step([ProfileDeclared(make_profile(f, "P100", 1e6, 2 * GIB)) for f in ("new", "here")], 0.0)
    core.state.knowledge.learn_set(pair)
    submit(core, 1, family="here", batch_size=64, utility_min=asked)
    submit(core, 2, family="new", batch_size=64)
    assert (2 in places(core)) is shares


def test_what_a_neighbour_makes_felt_outweighs_fragmentation() -> None:
    """On n0 nothing would be left free, but its neighbour slows by 5 %; the paper's equal weights take it."""
    for policy, node in ((create("topo-aware"), "n1"), (preset("topo-aware", weights=NEUTRAL), "n0")):
        core = start(policy, [machine("n0"), machine("n1")], disturbing(("b", "a", 1.05)))
        for number, family in enumerate(("c", "c", "a"), 1):
            submit(core, number, family=family)
        submit(core, 4, family="b")
        assert places(core)[4].startswith(node)


@pytest.mark.parametrize("seed", range(10))
def test_hasty_ageing_keeps_every_plan_legal(seed: int) -> None:
    world = World(preset("topo-aware", name="hasty", postpones=True, jobs_per_gpu_max=3, max_wait_s=5.0), seed)
    for _ in range(80):
        outcome = world.step(world.random_event(), world.random_event())
        assert outcome.rejected is None
        audit(world.core.state)
        again = world.policy.plan(ClusterView(world.core.state, world.now_s))
        assert again.actions == ()
    world.settle()
    assert all(load.is_free for load in world.core.state.gpus.values())
