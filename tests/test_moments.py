"""A moment is a sum, and what is asked for at it is judged by the same sum: differences round otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.draft import ACTIONS_MAX, Draft
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.core import ASKS_MAX
from colane.core.events import Launched, NodeLost, NodeRegistered, Submitted, Tick
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.driver import StandstillError
from colane.lab.simulate.world import NeutralWorld
from colane.model.job import JobId, JobSpec, JobState
from colane.model.placement import Turns
from colane.model.plan import Plan, Remark, Replan
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.simulate.scenes import cluster, job, run

SOURCES = Path(__file__).parents[1] / "src" / "colane"
NOW = frozenset({"now_s", "at_s", "steady_s", "time", "monotonic", "time_ns", "_clock"})
"""What is the time, and what tells it."""
WEEK_S = 7 * 24 * 3600.0


def judged_by_a_difference(path: Path) -> Iterator[str]:
    """Comparisons of `now - since` with a bound."""
    for node in ast.walk(ast.parse(path.read_text())):
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Sub):
                told = side.left.func if isinstance(side.left, ast.Call) else side.left
                name = getattr(told, "id", getattr(told, "attr", ""))
                if name in NOW:
                    yield f"{path.relative_to(SOURCES)}:{side.lineno}"


def test_no_moment_is_judged_by_a_difference() -> None:
    paths = list(SOURCES.rglob("*.py"))
    assert len(paths) > 500
    found = [place for path in sorted(paths) for place in judged_by_a_difference(path)]
    assert found == [], "compare now_s with since_s + bound_s, as timers do"


def test_a_difference_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCES", tmp_path)
    (tmp_path / "a.py").write_text(
        "late = self.draft.now_s - job.since_s >= week_s\nfine = now_s >= since_s + week_s\n"
        "over = 0 <= time.monotonic() - since_s < week_s\n"
    )
    assert list(judged_by_a_difference(tmp_path / "a.py")) == ["a.py:1", "a.py:3"]


def waiting_anew(submit_ms: int, since_ms: int) -> Core:
    """Under a policy that lets no job wait for more than a week, a job that lost its node and waits anew."""
    core = Core(create("colane"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f"))], submit_ms / 1000)
    core.step([Launched(JobId(1), 1, 7, submit_ms / 1000)], submit_ms / 1000)
    core.step([NodeLost("n0")], since_ms / 1000)
    assert core.state.jobs[JobId(1)].since_s == since_ms / 1000
    return core


@given(st.integers(0, 10**9), st.integers(1, 3_000_000))
@example(503_834_390, 271_953)
@example(591_400_507, 245_714)
def test_a_moment_that_was_asked_for_is_over_once_it_has_come(submit_ms: int, ran_ms: int) -> None:
    core = waiting_anew(submit_ms, submit_ms + ran_ms)
    now_s = submit_ms / 1000 + WEEK_S
    wake_s = core.step([Tick()], now_s).wake_s
    asked = 0
    while wake_s is not None:
        assert wake_s > now_s
        now_s, asked = wake_s, asked + 1
        wake_s = core.step([], now_s).wake_s
    assert asked, "it waits longer than a week only from then on"


@dataclass(frozen=True)
class Restless:
    """Wants to be asked again at once, for ever; `remarks` makes it change something each time."""

    remarks: bool
    name: str = "restless"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        running = [one.id for one in view.jobs.values() if one.state is JobState.RUNNING]
        if not self.remarks:
            return Plan(view.version, replan=dict.fromkeys(view.pools, Replan(view.now_s)))
        if not running:
            return create("fifo").plan(view)
        reason = Reason(Why.FREE_GPU, {"gpu": ""})
        return Plan(
            view.version, (Remark(running[0], reason),), replan=dict.fromkeys(view.pools, Replan(after_moves=True))
        )


def test_a_simulation_that_stands_still_ends_with_a_report() -> None:
    with pytest.raises(StandstillError, match=r"time stands still at 5\.0 s under restless: 10\d\d outcomes") as told:
        run((job(1, 5.0, 10.0), job(2, 5.0, 10.0)), cluster(1), Restless(remarks=False), NeutralWorld())
    assert "2 wait, the last outcome: no decision; it wants to be asked again at 5.0 s" in str(told.value)


@dataclass(frozen=True)
class Undecided:
    """Stops whatever runs; `patience_s` lets it run for so long."""

    patience_s: float
    name: str = "undecided"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        there = [one for one in view.jobs.values() if one.placement is not None and not one.has_left_gpus]
        late = [one for one in there if view.now_s >= (one.since_s or one.submit_s) + self.patience_s]
        draft = Draft(view)
        for one in late:
            draft.stop(one, Reason(Why.PREEMPTED, {"because": "a test"}))
        plan = draft.plan() if there else create("fifo").plan(view)
        return plan if late else replace(plan, replan=dict.fromkeys(view.pools, Replan(view.now_s + self.patience_s)))


TWO = (job(7, 0.0, 10.0), job(8, 0.0, 10.0))


def test_a_job_that_is_stopped_and_started_without_end_is_named() -> None:
    """It is stopped while it launches, so that it never makes a step."""
    launches = DriverConfig(launch_s=5, stop_s=1)
    with pytest.raises(
        StandstillError, match=r"job 7 \(job-7\) gets nowhere under undecided: by .* started 1001 times"
    ):
        run(TWO, cluster(1), Undecided(1.0), NeutralWorld(), launches)


def test_one_that_gets_a_little_further_each_time_ends() -> None:
    done = run(TWO, cluster(1), Undecided(0.005), NeutralWorld(), DriverConfig(stop_s=1))
    assert max(done.ledger.rows.attempts) > 1001


def test_a_policy_that_never_has_enough_is_asked_no_more_at_that_instant() -> None:
    core = Core(Restless(remarks=True), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f"))], 1.0)
    outcome, turns = core.step([Submitted(JobId(2), JobSpec(name="k", family="f"))], 2.0), 1
    while outcome.rejected is None:
        assert core.goes_on
        outcome, turns = core.step([], 2.0 + turns), turns + 1
    assert turns <= 1 + ASKS_MAX // ACTIONS_MAX + 1
    assert [flaw.code for flaw in outcome.rejected.flaws] == ["asked-without-end"]
    assert not core.state.changed_pools
