"""Plans made of the wrong things: the core never sees them, says what is wrong, and decides once they are gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import Launched, NodeRegistered, Submitted, Tick
from colane.model.hardware import GpuId
from colane.model.job import JobId, JobSpec
from colane.model.placement import Placement, Slot, Turns
from colane.model.plan import Park, Plan, Replan, SetCores, SetThrottle, Start, Stop
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.policyfiles.guard import GuardedPolicy, StrictPolicy
from colane.scheduling.registry import create
from tests.core.worlds import make_node

WHY = Reason(Why.SUBMITTED)
RUNNING, WAITING = JobId(1), JobId(2)
GPU = GpuId("a", 1)


def anything(value: object) -> Any:
    """What a user may write where something else is expected."""
    return cast("Any", value)


def start(*rest: object, lane: int = 0) -> dict[str, Any]:
    return {"actions": (Start(WAITING, Placement((Slot(GPU, lane),), *anything(rest)), WHY),)}


NONSENSE: dict[str, Callable[[], dict[str, Any]]] = {
    "plans a tuple again": lambda: {"replan": ("default",)},
    "plans again by a number": lambda: {"replan": {"default": 5.0}},
    "plans again at a word": lambda: {"replan": {"default": Replan(anything("never"))}},
    "plans perhaps while idle": lambda: {"replan": {"default": Replan(while_idle=anything("perhaps"))}},
    "is full up to a word": lambda: {"replan": {"default": Replan(newcomers_only=True, full_up_to=anything("x"))}},
    "a lane below 0": lambda: start(lane=-1),
    "cores elsewhere": lambda: start((), 5),
    "a port": lambda: start((), (), "x"),
    "other cores": lambda: {"actions": (SetCores(RUNNING, anything(5), (), WHY),)},
    "cores of a list": lambda: {"actions": (SetCores(RUNNING, anything(([],)), (), WHY),)},
    "other cores elsewhere": lambda: {"actions": (SetCores(RUNNING, (0,), anything(5), WHY),)},
    "a throttle": lambda: {"actions": (SetThrottle(RUNNING, anything(5), WHY),)},
    "a stop for no job": lambda: {"actions": (Stop(RUNNING, WHY, anything([])),)},
    "a parking for a word": lambda: {"actions": (Park(RUNNING, WHY, anything("him")),)},
    "a stop that perhaps saves": lambda: {"actions": (Stop(RUNNING, WHY, save=anything("perhaps")),)},
    "waits that raise": lambda: {"waits": type("Waits", (dict,), {"items": lambda _: 1 // 0})()},
}


class Nonsense:
    """Plans as FIFO does, until it plans something else."""

    name, turns, min_runtime_before_preemption_s = "nonsense", Turns(), 0.0

    def __init__(self) -> None:
        self.made: Callable[[], dict[str, Any]] | None = None

    def plan(self, view: ClusterView) -> Plan:
        """See `Policy`."""
        return create("fifo").plan(view) if self.made is None else Plan(view.version, **self.made())


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_decides_nothing_and_is_said(case: str) -> None:
    policy = Nonsense()
    guarded = GuardedPolicy(StrictPolicy(policy, Path("mine.py")), 0.0)
    core = Core(guarded, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("a", 2)), Submitted(RUNNING, JobSpec(name="1", family="f"))], 0.0)
    core.step([Launched(RUNNING, 1, 7, 1.0)], 1.0)
    policy.made = NONSENSE[case]
    for job in (2, 3):
        outcome = core.step([Submitted(JobId(job), JobSpec(name="n", family="f", gpus=job - 1))], float(job))
        guarded.settle(outcome.rejected)
        assert (outcome.decisions, outcome.rejected) == ((), None)
        assert guarded.problem
        assert core.why(WAITING, float(job)).why is Why.POLICY_FAILED
    policy.made = None
    assert [decision.action.job for decision in core.step([Tick()], 9.0).decisions] == [WAITING]
