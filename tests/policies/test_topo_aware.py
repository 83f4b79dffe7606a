"""fcfs, topo-aware and topo-aware-p on machines small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Submitted, Tick
from colane.core.policy import Policy
from colane.core.view import ClusterView
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.profile import ProfileKey, SetMeasurement
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import WORST_MIN, Beside, NeighbourBeliefs
from colane.perf.situation import Situation
from colane.perf.topology import flat
from colane.perf.utility import NEUTRAL, job_utility
from colane.perf.views import gpu_harm
from colane.policies.indexes.sites import SITES_MIN, Site, SiteIndex
from colane.policies.placing.node_fit import Neighbour, Question, judge
from colane.policies.registry import create, preset
from colane.policies.sources.utility_placer import PlacementSearch
from colane.traces.topologies import PRESETS
from tests.core.audit import audit
from tests.core.worlds import World, make_profile
from tests.perf.test_rate import measured

GIB = 2**30


def machine(name: str = "n0", sockets: tuple[int, ...] = (0, 0, 1, 1), *, linked: bool = True) -> Node:
    """A Minsky, or a machine of these sockets."""
    gpus = tuple(
        Gpu(index=i, uuid=f"{name}-{i}", type="P100", memory_bytes=16 * GIB, socket=s) for i, s in enumerate(sockets)
    )
    topology = PRESETS["minsky"]() if linked and sockets == (0, 0, 1, 1) else None
    return Node(name=name, gpus=gpus, cores=tuple(range(16)), host_memory_bytes=64 * GIB, topology=topology)


def disturbing(*pairs: tuple[str, str, float]) -> NeighbourBeliefs:
    """Jobs of one GPU: the first is slowed so much beside the second."""
    key = {family: ProfileKey(family, 1, 1, "P100") for pair in pairs for family in pair[:2]}
    return NeighbourBeliefs({Beside(key[a], key[b]): slowdown for a, b, slowdown in pairs})


def start(policy: Policy, nodes: Iterable[Node], neighbours: NeighbourBeliefs | None = None) -> Core:
    core = Core(policy, ClusterState(Beliefs(neighbours=neighbours)), CoreConfig(opaque_after_s=0.0))
    core.step([NodeRegistered(node) for node in nodes], 0.0)
    return core


def submit(core: Core, number: int, at_s: float = 0.0, **needs: object) -> None:
    spec = JobSpec(**{"name": "j", "family": "f", "batch_size": 1, **needs})  # type: ignore[arg-type]
    assert core.step([Submitted(JobId(number), spec)], at_s).rejected is None


def end(core: Core, number: int, at_s: float) -> None:
    job = core.state.jobs[JobId(number)]
    core.step([Launched(job.id, job.attempt, 1, at_s)], at_s)
    outcome = core.step([Ended(job.id, job.attempt, "exited", Exit(0, None), at_s, at_s)], at_s)
    assert outcome.rejected is None


def places(core: Core) -> dict[int, str]:
    return {j.id: " ".join(map(str, j.placement.gpus)) for j in core.state.jobs.values() if j.placement}


def test_fcfs_takes_sockets_in_order_and_blocks() -> None:
    core = start(create("fcfs"), [machine(sockets=(0, 1, 0, 1), linked=False)])
    submit(core, 1, gpus=2)
    submit(core, 2, gpus=3)
    submit(core, 3)
    assert places(core) == {1: "n0/0 n0/2"}
    assert core.why(JobId(3), 0.0).jobs == (2,)


def test_best_fit_takes_the_fullest_socket() -> None:
    core = start(create("best-fit"), [machine()])
    for number in (1, 2, 3):
        submit(core, number)
    end(core, 1, 1.0)
    end(core, 2, 1.0)
    submit(core, 4, 2.0)
    assert places(core) == {3: "n0/2", 4: "n0/3"}


@pytest.mark.parametrize("placer", PlacementSearch)
def test_a_pair_lies_on_one_socket(placer: PlacementSearch) -> None:
    core = start(preset("topo-aware", placer=placer), [machine()])
    submit(core, 1)
    submit(core, 2, gpus=2)
    assert places(core) == {1: "n0/0", 2: "n0/2 n0/3"}
    reason = core.state.jobs[JobId(2)].story[-1].reason
    assert reason.sentence() == "n0/2,3: utility 1.00, one socket, beside no other job"


def test_of_two_nodes_the_one_that_needs_no_crossing_is_taken() -> None:
    core = start(create("topo-aware"), [machine("n0"), machine("n1")])
    for number, gpus in ((1, 1), (2, 2), (3, 1)):
        submit(core, number, gpus=gpus)
    assert places(core) == {1: "n0/0", 2: "n0/2 n0/3", 3: "n0/1"}
    end(core, 1, 1.0)
    submit(core, 4, 2.0, gpus=2)
    assert places(core)[4] == "n1/0 n1/1"


def test_a_node_whose_links_are_unknown_is_judged_by_its_sockets() -> None:
    core = start(create("topo-aware"), [machine(sockets=(0, 1, 0, 1), linked=False)])
    submit(core, 1, gpus=2)
    assert places(core) == {1: "n0/0 n0/2"}


def test_neighbours_that_disturb_are_kept_apart_others_share_a_socket() -> None:
    core = start(create("topo-aware"), [machine()], disturbing(("a", "b", 1.3), ("b", "a", 1.2)))
    submit(core, 1, family="a")
    submit(core, 2, family="b")
    submit(core, 3, family="c")
    assert places(core) == {1: "n0/0", 2: "n0/2", 3: "n0/1"}


def test_topo_aware_places_whatever_fits_and_passes_what_does_not() -> None:
    core = start(create("topo-aware"), [machine()])
    for number, gpus in ((1, 1), (2, 2), (3, 3), (4, 1)):
        submit(core, number, gpus=gpus, utility_min=1.0)
    assert places(core) == {1: "n0/0", 2: "n0/2 n0/3", 4: "n0/1"}
    assert core.why(JobId(3), 0.0).why is Why.NO_FREE_GPU


def test_strict_order_blocks_behind_a_job_that_does_not_fit() -> None:
    core = start(preset("topo-aware", strict=True), [machine()])
    for number, gpus in ((1, 2), (2, 3), (3, 1)):
        submit(core, number, gpus=gpus)
    assert places(core) == {1: "n0/0 n0/1"}
    assert core.why(JobId(3), 0.0).why is Why.BEHIND


def crossing(policy: Policy, at_s: float = 0.0) -> Core:
    """Jobs 1 and 3 hold GPUs 0 and 3; job 5 wants two GPUs that do not lie across sockets."""
    core = start(policy, [machine()])
    for number in (1, 2, 3, 4):
        submit(core, number)
    end(core, 2, at_s)
    end(core, 3, at_s)
    assert places(core) == {1: "n0/0", 4: "n0/3"}
    submit(core, 5, at_s, gpus=2, utility_min=0.5)
    return core


def test_a_job_is_postponed_below_its_least_utility_and_told_why() -> None:
    core = crossing(create("topo-aware-p"))
    assert 5 not in places(core)
    said = core.why(JobId(5), 0.0).sentence()
    assert said == (
        "Resources: postponed: best utility 0.25 below 0.50; GPUs 1,2 of n0 are on two sockets; waits for jobs 1, 4"
    )
    submit(core, 6, 1.0)
    assert 6 in places(core), "others may pass"
    end(core, 4, 2.0)
    assert places(core)[5] == "n0/2 n0/3"


def test_after_waiting_long_enough_it_starts_all_the_same() -> None:
    core = crossing(preset("topo-aware", postpones=True, max_wait_s=60.0), at_s=10.0)
    outcome = core.step([], 69.0)
    assert 5 not in places(core)
    assert outcome.wake_s == pytest.approx(70.0)
    core.step([], 70.0)
    assert places(core)[5] == "n0/1 n0/2"


def test_without_ageing_it_waits_for_good() -> None:
    core = crossing(preset("topo-aware", postpones=True, max_wait_s=None))
    core.step([Tick()], 1e6)
    assert 5 not in places(core)


def test_a_job_that_harms_a_neighbour_below_its_least_is_postponed() -> None:
    core = start(create("topo-aware-p"), [machine(sockets=(0, 0))], disturbing(("a", "b", 1.3)))
    submit(core, 1, family="a", utility_min=0.4)
    submit(core, 2, family="b")
    assert places(core) == {1: "n0/0", 2: "n0/1"}, "who asks for no utility heeds nobody"
    end(core, 2, 1.0)
    submit(core, 3, 1.0, family="b", utility_min=0.1)
    assert 3 not in places(core)
    reason = core.why(JobId(3), 1.0)
    assert (reason.why, reason.jobs) == (Why.WOULD_HARM, (1,))
    assert "job 1 would fall to utility 0.18, below its 0.40" in reason.sentence()
    end(core, 1, 2.0)
    assert places(core) == {3: "n0/0"}


def test_who_waits_longest_has_gpus_kept_so_that_small_jobs_cannot_pass_for_ever() -> None:
    core = start(preset("topo-aware", max_wait_s=100.0), [machine()])
    submit(core, 1)
    submit(core, 2, 0.0, gpus=4)
    submit(core, 3, 0.0)
    assert places(core) == {1: "n0/0", 3: "n0/1"}
    submit(core, 4, 200.0)
    assert 4 not in places(core)
    end(core, 1, 300.0)
    assert set(places(core)) == {3}
    end(core, 3, 301.0)
    assert set(places(core)) == {2}


def test_a_job_no_node_can_ever_hold_keeps_nothing_from_others() -> None:
    core = start(preset("topo-aware", max_wait_s=100.0), [machine()])
    submit(core, 1, gpus=8)
    submit(core, 2, 200.0)
    assert places(core) == {2: "n0/0"}


def test_where_nobody_may_pass_those_overdue_pass_a_job_no_node_can_hold() -> None:
    core = start(preset("fcfs", max_wait_s=100.0), [machine()])
    submit(core, 1, gpus=8)
    submit(core, 2, 10.0)
    assert core.step([Tick()], 99.0).wake_s == pytest.approx(100.0)
    assert core.step([], 100.0).wake_s == pytest.approx(110.0)
    assert places(core) == {}
    core.step([], 110.0)
    assert places(core) == {2: "n0/0"}


def test_gpus_that_lack_memory_are_left_out() -> None:
    node = machine()
    small = tuple(
        Gpu(index=g.index, uuid=g.uuid, type=g.type, memory_bytes=GIB, socket=g.socket) for g in node.gpus[:1]
    )
    core = start(create("topo-aware"), [Node(name="n0", gpus=small + node.gpus[1:], topology=node.topology)])
    submit(core, 1, gpu_memory_bytes=8 * GIB)
    assert places(core) == {1: "n0/1"}
    submit(core, 2, gpus=3, gpu_memory_bytes=8 * GIB)
    assert core.why(JobId(2), 0.0).why is Why.NO_MEMORY


def living(index: SiteIndex, view: ClusterView) -> dict[object, dict[Site, int]]:
    """Nodes by kind and site."""
    pools = sorted({node.node.pool for node in view.nodes.values()})
    kinds = [(pool, kind) for pool in pools for kind in view.gpu_types(pool)]
    tables = {kind: index.table(view, kind) for kind in kinds}
    return {kind: {s: n for s, n in zip(t.known, t.nodes, strict=True) if n} for kind, t in tables.items()}


@pytest.mark.parametrize("seed", range(6))
def test_the_index_of_nodes_stays_what_it_would_be_made_anew(seed: int) -> None:
    world = World(create("topo-aware-p"), seed)
    for _ in range(60):
        world.step(*(world.random_event() for _ in range(2)))
        state = world.core.state
        view = ClusterView(state, world.now_s)
        fresh = SiteIndex()
        for order in state.by_order:
            fresh.touched(order)
        assert living(state.derived(SiteIndex), view) == living(fresh, view)


def test_the_index_forgets_sites_of_the_past() -> None:
    core = start(create("topo-aware"), [machine("n0"), machine("n1")])
    jobs = SITES_MIN + 500
    for number in range(1, jobs):
        submit(core, number, float(number), family=f"f{number}")
        end(core, number, number + 0.5)
    view = ClusterView(core.state, float(jobs))
    table = core.state.derived(SiteIndex).table(view, ("default", "P100"))
    assert len(table.known) < 1000
    assert sum(nodes.bit_count() for nodes in table.nodes) == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_scheduler_that_remembers_decides_as_one_that_was_just_started(seed: int) -> None:
    runs = []
    for forgets in (False, True):
        world = World(create("topo-aware-p"), seed)
        for _ in range(60):
            if forgets:
                world.core.state._derived.clear()
            world.step(world.random_event(), world.random_event())
        runs.append([decision for outcome in world.outcomes for decision in outcome.decisions])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("policy", ["topo-aware", "topo-aware-p"])
def test_a_job_that_may_span_nodes_takes_as_few_as_it_can(policy: str) -> None:
    core = start(create(policy), [machine(f"n{k}") for k in range(3)])
    submit(core, 1, gpus=3)
    submit(core, 2, gpus=4, multi_node=True)
    submit(core, 3, gpus=5, multi_node=True, cores=5, host_memory_bytes=5 * GIB)
    assert places(core) == {
        1: "n0/0 n0/1 n0/2", 2: "n1/0 n1/1 n1/2 n1/3", 3: "n2/0 n2/1 n2/2 n2/3 n0/3",
    }  # fmt: skip
    assert core.state.jobs[JobId(3)].story[-1].reason.facts["where"] == "2 nodes"
    submit(core, 4, gpus=6, multi_node=True)
    reason = core.why(JobId(4), 0.0)
    assert (reason.why, reason.jobs) == (Why.NO_FREE_GANG, (1, 2, 3))


def test_ranks_that_must_lie_apart_get_a_node_each() -> None:
    core = start(create("topo-aware"), [machine("n0"), machine("n1")])
    submit(core, 1, gpus=2, multi_node=True, anti_collocation=True)
    submit(core, 2, gpus=3, multi_node=True, anti_collocation=True)
    assert places(core) == {1: "n0/0 n1/0"}
    assert core.state.jobs[JobId(1)].story[-1].reason.facts["utility"] == pytest.approx(1.0)


def test_crossing_machines_is_postponed_below_the_least_utility() -> None:
    core = start(create("topo-aware-p"), [machine("n0"), machine("n1")])
    for number in (1, 2):
        submit(core, number, gpus=3)
    submit(core, 3, gpus=2, multi_node=True, utility_min=0.3)
    assert 3 not in places(core)
    assert core.why(JobId(3), 0.0).why is Why.POSTPONED
    end(core, 1, 1.0)
    assert places(core)[3] == "n0/0 n0/1"


def test_nodes_are_kept_for_a_job_over_several_that_has_waited_long() -> None:
    core = start(preset("topo-aware", max_wait_s=100.0), [machine("n0"), machine("n1")])
    submit(core, 1)
    submit(core, 2, gpus=8, multi_node=True)
    submit(core, 3, 200.0)
    assert places(core) == {1: "n0/0"}
    end(core, 1, 300.0)
    assert set(places(core)) == {2}


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


def test_without_a_gain_nobody_shares() -> None:
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


def test_who_asks_for_a_least_utility_does_not_share_below_it() -> None:
    policy = preset("topo-aware", name="both", postpones=True, company_max=2)
    gpu = Gpu(index=0, uuid="g", type="V100", memory_bytes=16 * GIB, sharing="mps")
    core = start(policy, [Node(name="n0", gpus=(gpu,))])
    core.step([ProfileDeclared(make_profile("f", "V100", 1.4e7, 2 * GIB))], 0.0)
    submit(core, 1, batch_size=64, utility_min=0.9)
    submit(core, 2, batch_size=64, utility_min=0.9)
    assert places(core) == {1: "n0/0"}


@pytest.mark.parametrize(("asked", "shares"), [(0.9, False), (0.05, True)])
def test_nobody_is_joined_who_would_fall_below_his_own_least(asked: float, shares: bool) -> None:
    """The newcomer is not slowed, the one he joins takes twice as long: what counts is that one's own slowdown."""
    mine, other = (ProfileKey(family, 64, 1, "P100") for family in ("new", "here"))
    pair = SetMeasurement(
        keys=(mine, other), sharing="mps", step_alone_s=(0.1, 0.1), step_together_s=(0.1, 0.2), steps=(99, 99),
        delta=1.0, delta_general=1.0, at_s=0.0,
    )  # fmt: skip
    policy = preset("topo-aware", name="both", postpones=True, company_max=2)
    gpu = Gpu(index=0, uuid="g", type="P100", memory_bytes=16 * GIB, sharing="mps")
    core = start(policy, [Node(name="n0", gpus=(gpu,))])
    core.step([ProfileDeclared(make_profile(f, "P100", 1e6, 2 * GIB)) for f in ("new", "here")], 0.0)
    core.state.beliefs.learn_set(pair)
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
    world = World(preset("topo-aware", name="hasty", postpones=True, company_max=3, max_wait_s=5.0), seed)
    for _ in range(80):
        outcome = world.step(world.random_event(), world.random_event())
        assert outcome.rejected is None
        audit(world.core.state)
        again = world.policy.plan(ClusterView(world.core.state, world.now_s))
        assert again.actions == ()
    world.settle()
    assert all(load.is_free for load in world.core.state.gpus.values())
