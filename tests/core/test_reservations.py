"""Reservations: jobs of others start there only if they end before, under any policy, and simulated alike."""

from __future__ import annotations

from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, LimitsChanged, NodeLost, NodeRegistered, NodeReserved, Submitted
from colane.model.hardware import KeptFor
from colane.model.job import Exit, JobId, JobSpec
from colane.model.job_spec import NewLimit
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .worlds import make_node

KEPT = KeptFor("course", ("ann",), 1000.0, 2000.0, "op")
POLICIES = (
    "fifo",
    "fifo-skip",
    "easy-backfill",
    "colocate",
    "srtf",
    "las",
    "colane",
    "max-min",
    "drf",
    "coda",
    "pack",
    "topo-aware",
)
KINDS: dict[str, dict[str, Any]] = {
    "one GPU": {"gpus": 1},
    "several": {"gpus": 2, "share": False},
    "several sizes": {"gpus": 2, "sizes": (1, 2)},
    "without GPUs": {"gpus": 0, "cores": 1},
    "over nodes": {"gpus": 2, "multi_node": True},
}


def made(policy: str, *nodes: str) -> Core:
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(make_node(name, 4)) for name in nodes], 0.0)
    core.step([NodeReserved("n1", (KEPT,))], 0.0)
    return core


def submit(core: Core, number: int, now_s: float, user: str = "bob", **needs: object) -> tuple[str, ...]:
    """Where it starts."""
    spec = JobSpec(name=f"j{number}", family=f"f{number}", user=user, **needs)  # type: ignore[arg-type]
    core.step([Submitted(JobId(number), spec)], now_s)
    return where(core, number)


def where(core: Core, number: int) -> tuple[str, ...]:
    placement = core.state.jobs[JobId(number)].placement
    return () if placement is None else placement.nodes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_starts_there_only_if_it_ends_before(policy: str, kind: str) -> None:
    for at_s, limit_s, user, starts in (
        (0.0, None, "bob", False),
        (0.0, 1500.0, "bob", False),
        (0.0, 900.0, "bob", True),
        (100.0, 900.0, "bob", False),  # at the very moment, which is looked at once
        (200.0, 900.0, "bob", False),
        (1500.0, 1.0, "bob", False),
        (2000.0, None, "bob", True),
        (0.0, None, "ann", True),
        (1500.0, None, "ann", True),
    ):
        core = made(policy, "n1")
        core.step([], at_s)
        found = submit(core, 1, at_s, user, time_limit_s=limit_s, **KINDS[kind])
        assert found == (("n1",) if starts else ()), (at_s, limit_s, user)
        if not starts:
            why = core.why(JobId(1), at_s)
            assert why.why is Why.NODES_RESERVED, why
            assert sentence_of(why).startswith(
                "ReqNodeNotAvail: reserved for others: n1 (reservation course of ann); it might not"
            )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_goes_elsewhere_or_waits_until_it_is_over_or_cancelled(policy: str, kind: str) -> None:
    core = made(policy, "n1", "n2")
    assert submit(core, 1, 0.0, **KINDS[kind]) == ("n2",), "another node is there"
    for ends in ("by itself", "cancelled", "shorter limit"):
        core = made(policy, "n1")
        assert submit(core, 1, 0.0, **KINDS[kind]) == ()
        if ends == "by itself":
            assert core.step([], 1999.0).wake_s == 2000.0
            core.step([], 2000.0)
        elif ends == "cancelled":
            core.step([NodeReserved("n1", ())], 1.0)
        else:
            core.step([LimitsChanged(JobId(1), "bob", NewLimit(500.0))], 1.0)
        assert where(core, 1) == ("n1",), ends


@pytest.mark.parametrize("policy", POLICIES)
def test_a_reservation_holds_over_a_restart_and_a_node_that_comes_back(policy: str) -> None:
    core = made(policy, "n1")
    assert submit(core, 1, 0.0, gpus=1) == ()
    jobs, nodes = list(core.state.jobs.values()), [(one.node, 1) for one in core.state.nodes.values()]
    again = Core(create(policy), ClusterState.restore(nodes, jobs, Beliefs()), CoreConfig(runs_at_once=True))
    again.step([], 10.0)
    assert where(again, 1) == ()
    again.step([NodeRegistered(make_node("n1", 4))], 11.0)
    assert where(again, 1) == (), "registered anew it is kept still"
    again.step([], 2000.0)
    assert where(again, 1) == ("n1",)
    kept = core.state.nodes["n1"].node
    core.step([NodeLost("n1")], 20.0)
    core.step([NodeRegistered(kept)], 30.0)
    assert where(core, 1) == ()
    core.step([], 2000.0)
    assert where(core, 1) == ("n1",)


def test_a_job_that_runs_there_goes_on_and_does_not_come_back_there() -> None:
    core = Core(create("fifo-skip"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(make_node("n1", 4))], 0.0)
    assert submit(core, 1, 0.0, gpus=1) == ("n1",)
    core.step([NodeReserved("n1", (KEPT,))], 1.0)
    assert where(core, 1) == ("n1",)
    core.step([], 1500.0)
    assert where(core, 1) == ("n1",), "reserved all the same, it goes on"
    attempt = core.state.jobs[JobId(1)].attempt
    core.step([Ended(JobId(1), attempt, "node-fault", Exit(None, 9), 0.0, 1600.0)], 1600.0)
    assert where(core, 1) == (), "begun anew, it might not end before"
    core.step([], 2000.0)
    assert where(core, 1) == ("n1",)


@pytest.mark.parametrize(("elsewhere", "passes"), [({}, True), ({"n2": 4}, False), ({"n2": 1}, True)])
def test_one_that_waits_for_reserved_nodes_alone_holds_up_no_other(elsewhere: dict[str, int], passes: bool) -> None:
    """Under `fifo`, too: what those behind it take is nothing that it could have."""
    core = made("fifo", "n1")
    core.step([NodeRegistered(make_node(name, gpus)) for name, gpus in elsewhere.items()], 0.0)
    if elsewhere:
        assert submit(core, 1, 0.0, gpus=elsewhere["n2"], share=False) == ("n2",)
    assert submit(core, 2, 1.0, gpus=2, share=False) == (), "n1 is kept, and n2 is too small, or full"
    assert submit(core, 3, 2.0, gpus=1, share=False, time_limit_s=100.0) == (("n1",) if passes else ())
    assert submit(core, 4, 3.0, gpus=1, share=False, user="ann") == (("n1",) if passes else ())
