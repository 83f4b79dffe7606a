"""A node on which all users' jobs fail at their start is taken out; one user's broken script does not do that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, GpusObserved, Launched, NodeRegistered, Submitted, Tick
from colane.core.reducers.suspicions import CLOSED_S
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import make_node

RUNS_S = 60.0
Fails = Callable[[Job, str], bool]


class Site:
    """Nodes of one GPU on which jobs run a minute, or fail within a second where `fails` says so."""

    def __init__(self, fails: Fails, nodes: int = 3) -> None:
        self.fails = fails
        self.now_s = 0.0
        self.ended: dict[JobId, Job] = {}
        self._ends: dict[JobId, tuple[float, bool]] = {}
        self._next = 1
        self.core = Core(create("fifo"), ClusterState(Beliefs()))
        self.step(*[NodeRegistered(make_node(f"n{number}", 1)) for number in range(nodes)])

    def submit(self, user: str, family: str, count: int = 1) -> None:
        for _ in range(count):
            self.step(Submitted(JobId(self._next), JobSpec(name="j", family=family, user=user)))
            self._next += 1

    def step(self, *events: object) -> None:
        outcome = self.core.step(list(events), self.now_s)  # type: ignore[arg-type]
        audit(self.core.state)
        for job in outcome.jobs:
            if job.has_ended:
                self.ended[job.id] = job
            elif job.state is JobState.ASSIGNED and job.placement is not None:
                fails = self.fails(job, job.placement.node)
                self._ends[job.id] = self.now_s + (1.0 if fails else RUNS_S), fails
                self.step(Launched(job.id, job.attempt, 1, self.now_s))

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._ends and min(self._ends.values())[0] <= until_s:
            due = min(self._ends, key=lambda job: (self._ends[job], job))
            self.now_s, fails = self._ends.pop(due)
            job = self.core.state.jobs[due]
            assert job.placement is not None
            ends = Ended(due, job.attempt, "exited", Exit(int(fails), None), job.start_s, self.now_s, None)
            self.step(replace_node(ends, job.placement.node))
        self.now_s = until_s
        self.step(Tick())

    @property
    def closed(self) -> list[str]:
        return [name for name, known in self.core.state.nodes.items() if known.node.closed is not None]

    def failed(self) -> set[JobId]:
        return {job.id for job in self.ended.values() if job.state is JobState.FAILED}


def replace_node(event: Ended, node: str) -> Ended:
    return Ended(event.job, event.attempt, event.outcome, event.exit, event.start_s, event.end_s, None, node)


def on_n0(_job: Job, node: str) -> bool:
    return node == "n0"


def everybody(site: Site, rounds: int) -> None:
    for _ in range(rounds):
        for user in ("ann", "bob", "eve"):
            site.submit(user, f"of-{user}")


def test_a_node_on_which_the_jobs_of_several_users_fail_though_they_run_elsewhere_is_taken_out() -> None:
    site = Site(on_n0)
    everybody(site, 10)
    site.pass_time(10.0)
    assert site.closed == ["n0"]
    closed = site.core.state.nodes["n0"].node.closed
    assert closed is not None
    assert closed.why.startswith("5 jobs in a row of 3 users failed within 20 s here")
    assert len(site.failed()) == 4  # the fifth is queued again
    site.pass_time(CLOSED_S - 20.0)
    assert len(site.failed()) == 4
    site.pass_time(15 * RUNS_S)
    assert (len(site.ended), len(site.failed()) <= 8) == (30, True)
    assert any(line.reason.why is Why.NODE_FAULT for job in site.ended.values() for line in job.story)


def test_it_is_tried_again_and_taken_out_for_longer_until_it_is_well() -> None:
    site = Site(on_n0)
    everybody(site, 10)
    site.pass_time(RUNS_S * 12)
    first = site.core.state.nodes["n0"].node.closed
    assert first is not None
    site.pass_time(first.until_s - site.now_s)
    assert site.closed == []
    everybody(site, 4)
    site.pass_time(2 * RUNS_S)
    again = site.core.state.nodes["n0"].node.closed
    assert again is not None
    assert again.until_s - site.now_s > CLOSED_S
    site.fails = lambda _job, _node: False
    site.pass_time(again.until_s - site.now_s)
    everybody(site, 4)
    before = len(site.failed())
    site.pass_time(20 * RUNS_S)
    assert (site.closed, len(site.failed())) == ([], before)


@pytest.mark.parametrize("families", [1, 5])
def test_a_user_s_broken_sweep_takes_no_node_out(families: int) -> None:
    site = Site(lambda job, _node: job.spec.user == "ann")
    site.submit("bob", "good", 3)
    for number in range(60):
        site.submit("ann", f"sweep-{number % families}")
    site.pass_time(100 * RUNS_S)
    assert site.closed == []
    assert len(site.failed()) == 60


def test_a_sweep_that_ran_before_it_was_broken_takes_no_node_out() -> None:
    site = Site(lambda job, _node: job.spec.user == "ann" and job.id > 20)
    for number in range(20):
        site.submit("ann", f"sweep-{number % 4}")
    site.pass_time(20 * RUNS_S)
    site.submit("bob", "long", 2)
    for number in range(60):
        site.submit("ann", f"sweep-{number % 4}")
    site.pass_time(100 * RUNS_S)
    assert site.closed == []


def test_what_everybody_s_scripts_lack_everywhere_takes_no_node_out() -> None:
    site = Site(lambda _job, _node: True)
    everybody(site, 20)
    site.pass_time(RUNS_S)
    assert site.closed == []


def test_the_last_node_of_a_pool_is_never_taken_out() -> None:
    site = Site(lambda job, node: node == "n0" and job.id > 6, nodes=2)
    everybody(site, 2)
    site.pass_time(6 * RUNS_S)
    site.step(GpusObserved("n1", tuple([replace(gpu, healthy=False) for gpu in make_node("n1", 1).gpus])))
    everybody(site, 6)
    site.pass_time(RUNS_S)
    assert site.closed == []


def test_it_stays_out_when_the_scheduler_or_its_agent_is_started_again_and_its_gpus_are_seen_to_be_well() -> None:
    site = Site(on_n0)
    everybody(site, 10)
    site.pass_time(RUNS_S * 12)
    state = site.core.state
    nodes = [(known.node, known.generation) for known in state.nodes.values()]
    site.core = Core(create("fifo"), ClusterState.restore(nodes, state.jobs.values(), Beliefs()))
    site.step(NodeRegistered(make_node("n0", 1)))
    assert site.closed == ["n0"]
    everybody(site, 1)
    assert not site.core.state.nodes["n0"].jobs
    site.pass_time(CLOSED_S)
    assert site.closed == []


def test_it_can_be_left_out() -> None:
    site = Site(on_n0)
    site.core = Core(create("fifo"), ClusterState(Beliefs()), CoreConfig(black_holes=False))
    site.step(*[NodeRegistered(make_node(f"n{number}", 1)) for number in range(3)])
    everybody(site, 20)
    site.pass_time(20 * RUNS_S)
    assert site.closed == []
    assert len(site.failed()) > 5
