"""fcfs, topo-aware and topo-aware-p on machines small enough to work out by hand."""

from __future__ import annotations

import pytest

from colane.core import Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import Tick
from colane.core.policy import Policy
from colane.model.hardware import Gpu, Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.scheduling.mechanisms.topology.placement import PlacementSearch
from colane.scheduling.mechanisms.topology.sites import SITES_MIN, Site, SiteIndex
from colane.scheduling.mechanisms.topology.utility_placer import BestPlaces
from colane.scheduling.registry import create, preset
from tests.core.worlds import World
from tests.scheduling.machines import GIB, disturbing, end, machine, places, start, submit


def test_fcfs_takes_sockets_in_order_and_blocks() -> None:
    core = start(create("fcfs"), [machine(sockets=(0, 1, 0, 1), linked=False)])
    submit(core, 1, gpus=2)
    submit(core, 2, gpus=3)
    submit(core, 3)
    assert places(core) == {1: "n0/0 n0/2"}
    assert core.why(JobId(3), 0.0).jobs == (2,)


def test_places_made_in_the_middle_of_a_plan_follow_what_was_decided_before() -> None:
    core = start(create("topo-aware"), [machine()])
    draft = Draft(ClusterView(core.state, 0.0))
    free = draft.free_gpus(draft.view.nodes["n0"], "P100")
    draft.start(Job(JobId(1), JobSpec(name="1", family="f"), 0.0), free[:1], Reason(Why.FREE_GPU))
    places = BestPlaces(draft, "default")
    pair = places.best(JobSpec(name="2", family="f", gpus=2), 0.0)
    assert pair is not None
    assert [str(load.id) for load in pair.loads] == ["n0/2", "n0/3"]
    draft.start(Job(JobId(2), JobSpec(name="2", family="f", gpus=2), 0.0), pair.loads, Reason(Why.FREE_GPU))
    assert places.best(JobSpec(name="3", family="f", gpus=2), 0.0) is None
    last = places.best(JobSpec(name="4", family="f"), 0.0)
    assert last is not None
    assert last.loads == (free[1],)


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
    assert sentence_of(reason) == "n0/2,3: utility 1.00, one socket, beside no other job"


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
    said = sentence_of(core.why(JobId(5), 0.0))
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
    assert places(core) == {1: "n0/0", 2: "n0/1"}, "a job that asks for no utility is placed at any"
    end(core, 2, 1.0)
    submit(core, 3, 1.0, family="b", utility_min=0.1)
    assert 3 not in places(core)
    reason = core.why(JobId(3), 1.0)
    assert (reason.why, reason.jobs) == (Why.WOULD_HARM, (1,))
    assert "job 1 would fall to utility 0.18, below its 0.40" in sentence_of(reason)
    end(core, 1, 2.0)
    assert places(core) == {3: "n0/0"}


def test_a_job_that_waits_longest_has_gpus_kept_so_that_small_jobs_cannot_pass_for_ever() -> None:
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


def test_where_no_job_may_pass_overdue_jobs_pass_a_job_no_node_can_hold() -> None:
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
