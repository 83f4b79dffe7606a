"""Nodes that are drained, given notice, lost and back while jobs run in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.node_events import NodeEvent, NodeEventKind
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import KeptFor
from colane.scheduling.registry import create
from tests.simulate.scenes import cluster, job, random_cluster, random_jobs, workload

DRAIN, UNDRAIN, NOTICE = NodeEventKind.DRAIN, NodeEventKind.UNDRAIN, NodeEventKind.NOTICE
LOST, BACK = NodeEventKind.LOST, NodeEventKind.BACK


def simulated(
    jobs: Sequence[TraceJob], events: Sequence[NodeEvent], gpus: Sequence[int], policy: str = "fifo", **costs: float
) -> Run:
    driver = DriverConfig(node_events=tuple(events), **costs)  # type: ignore[arg-type]
    return simulate(
        Inputs(
            cluster=cluster(*gpus),
            workload=workload(*jobs),
            world=NeutralWorld(),
            policy=create(policy),
            driver=driver,
        )
    )


def ends(run: Run) -> dict[int, float]:
    return dict(zip(run.ledger.rows.id, run.ledger.rows.end_s, strict=True))


def stays(run: Run, number: int) -> list[tuple[str, float, float]]:
    return [(stay.gpus[0].node, stay.start_s, stay.end_s) for stay in run.ledger.stays if stay.job == number]


def test_a_job_that_saves_leaves_a_drained_node_and_goes_on_elsewhere() -> None:
    run = simulated([job(1, 0.0, 100.0)], [NodeEvent(40.0, "n0", DRAIN)], (1, 1), stop_s=5.0)
    assert stays(run, 1) == [("n0", 0.0, 45.0), ("n1", 45.0, 105.0)]


def test_one_that_may_not_be_stopped_finishes_unless_there_is_a_deadline() -> None:
    rigid = [job(1, 0.0, 100.0, preemptible=False)]
    assert ends(simulated(rigid, [NodeEvent(40.0, "n0", DRAIN)], (1, 1))) == {1: 100.0}
    assert ends(simulated(rigid, [NodeEvent(40.0, "n0", DRAIN, 10.0)], (1, 1))) == {1: 150.0}


def test_no_job_starts_on_a_drained_node_until_it_takes_jobs_again() -> None:
    events = [NodeEvent(0.0, "n0", DRAIN), NodeEvent(60.0, "n0", UNDRAIN)]
    assert stays(simulated([job(1, 10.0, 20.0)], events, (1,)), 1) == [("n0", 60.0, 80.0)]


RESERVED = NodeEvent(0.0, "n0", NodeEventKind.RESERVE, kept=KeptFor("course", ("ann",), 50.0, 90.0, "op"))


@pytest.mark.parametrize("policy", ["fifo", "easy-backfill", "srtf", "colane"])
def test_jobs_of_others_start_on_a_reserved_node_only_if_they_end_before(policy: str) -> None:
    for limit_s, user, begins in ((None, "bob", 90.0), (60.0, "bob", 90.0), (30.0, "bob", 10.0), (None, "ann", 10.0)):
        one = job(1, 10.0, 20.0, time_limit_s=limit_s, user=user)
        assert stays(simulated([one], [RESERVED], (1,), policy), 1) == [("n0", begins, begins + 20.0)], (limit_s, user)
    lost = [RESERVED, NodeEvent(5.0, "n0", LOST), NodeEvent(15.0, "n0", BACK)]
    assert stays(simulated([job(1, 10.0, 20.0)], lost, (1,), policy), 1) == [("n0", 90.0, 110.0)], "back, it is kept"


def test_with_its_node_a_job_loses_what_it_has_not_saved() -> None:
    """Stopped by the drain of n0 at 30 it has saved; n1 is lost 20 s later, so it goes on from there."""
    events = [NodeEvent(30.0, "n0", DRAIN), NodeEvent(40.0, "n0", UNDRAIN), NodeEvent(50.0, "n1", LOST)]
    run = simulated([job(1, 0.0, 100.0)], events, (1, 1))
    assert stays(run, 1) == [("n0", 0.0, 30.0), ("n1", 30.0, 50.0), ("n0", 50.0, 120.0)]
    assert run.ledger.lost_s == {1: 20.0}
    rigid = simulated([job(1, 0.0, 100.0, preemptible=False)], [NodeEvent(50.0, "n0", LOST)], (1, 1))
    assert ends(rigid) == {1: 150.0}


def test_jobs_wait_for_a_lost_node_to_come_back_and_its_gpus_are_not_idle_meanwhile() -> None:
    run = simulated([job(1, 0.0, 10.0)], [NodeEvent(0.0, "n0", LOST), NodeEvent(70.0, "n0", BACK)], (4,))
    assert stays(run, 1) == [("n0", 70.0, 80.0)]
    assert max(run.ledger.curve.stranded_gpus) == 0
    assert run.stuck == ""


def test_a_spot_node_goes_at_the_end_of_its_notice_with_jobs_that_have_not_saved() -> None:
    notice = [NodeEvent(40.0, "n0", NOTICE, 30.0, "spot"), NodeEvent(200.0, "n0", BACK)]
    saved = simulated([job(1, 0.0, 100.0)], notice, (1, 1), stop_s=5.0)
    assert stays(saved, 1) == [("n0", 0.0, 45.0), ("n1", 45.0, 105.0)]
    too_late = simulated([job(1, 0.0, 100.0)], notice, (1, 1), stop_s=50.0)
    assert stays(too_late, 1) == [("n0", 0.0, 70.0), ("n1", 70.0, 170.0)]
    assert too_late.ledger.lost_s == {1: 40.0}


def test_notice_of_a_node_that_was_lost_before_and_is_back_means_nothing() -> None:
    events = [
        NodeEvent(10.0, "n0", NOTICE, 90.0), NodeEvent(20.0, "n0", LOST), NodeEvent(30.0, "n0", BACK)
    ]  # fmt: skip
    assert stays(simulated([job(1, 30.0, 200.0)], events, (1,)), 1) == [("n0", 30.0, 230.0)]


def test_a_job_whose_node_is_lost_again_and_again_fails() -> None:
    events = [
        event for at in range(10, 60, 10) for event in (NodeEvent(at, "n0", LOST), NodeEvent(at + 5.0, "n0", BACK))
    ]
    run = simulated([job(1, 0.0, 100.0)], events, (1,))
    assert [STATES[code] for code in run.ledger.rows.state] == ["failed"]
    assert run.ledger.curve.waiting[-1] == 0


def random_events(seed: int, nodes: int) -> list[NodeEvent]:
    """Each node goes and comes back in one way or another, twice at most; the first is there in the end."""
    random, events = Random(seed), list[NodeEvent]()
    for number in range(nodes):
        name, at_s = f"n{number}", random.uniform(0, 60)
        for _ in range(random.randint(0, 2)):
            kind, within_s = random.choice((DRAIN, NOTICE, LOST)), random.choice((5.0, 40.0))
            over = UNDRAIN if kind is DRAIN else BACK
            events.append(NodeEvent(at_s, name, kind, None if kind is LOST else within_s))
            at_s += random.uniform(41, 120)
            events.append(NodeEvent(at_s, name, over))
            at_s += random.uniform(1, 60)
    return sorted(events, key=lambda event: event.at_s)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "f-sched", "colane", "colocate", "pack"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_to_nodes_every_job_ends_and_none_is_where_no_node_is(policy: str, seed: int) -> None:
    machines = random_cluster(seed)
    events = random_events(seed, len(machines.nodes))
    jobs = tuple(replace(one, spec=replace(one.spec, preemptible=seed % 2 == 0)) for one in random_jobs(seed))
    run = simulated(jobs, events, [len(node.gpus) for node in machines.nodes], policy, launch_s=1.0, stop_s=2.0)
    assert {STATES[code] for code in run.ledger.rows.state} <= {"succeeded", "failed"}
    assert not run.ledger.flaws
    assert (run.ledger.curve.waiting[-1], run.ledger.curve.running[-1]) == (0, 0)
    assert min(run.ledger.curve.stranded_gpus) >= 0
    for name, gone_s, back_s in absences(events):
        there = [stay for stay in run.ledger.stays for gpu in stay.gpus if gpu.node == name]
        assert not [stay for stay in there if stay.start_s < back_s and stay.end_s > gone_s], (name, gone_s, back_s)


def absences(events: Sequence[NodeEvent]) -> list[tuple[str, float, float]]:
    """When nodes were gone."""
    found = []
    for number, event in enumerate(events):
        if event.kind in {LOST, NOTICE}:
            back_s = next(e.at_s for e in events[number:] if e.node == event.node and e.kind is BACK)
            found.append((event.node, event.at_s + (event.within_s or 0.0), back_s))
    return found
