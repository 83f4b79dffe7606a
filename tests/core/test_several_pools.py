"""Jobs of several pools wait in each of them, and start in the first that can start them."""

from __future__ import annotations

from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import CancelRequested, Ended, NodeDrained, NodeLost, NodeRegistered, NodeReserved, Submitted
from colane.model.arrays import array_of, parse_array
from colane.model.hardware import Drain, KeptFor
from colane.model.job import Exit, Job, JobId, JobSpec
from colane.model.job_spec import PoolWay
from colane.model.phases import Dependency, DependsOn, Hold, HoldKind
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from colane.server.store.documents import JOB

from .audit import audit
from .test_reservations import POLICIES
from .worlds import make_node

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"gpus": 1},
    "gang": {"gpus": 6, "multi_node": True},
    "element": {"gpus": 1},
    "elastic": {"gpus": 2, "sizes": (1, 2)},
    "dependent": {"gpus": 1},
    "without GPUs": {"gpus": 0, "cores": 4},
}
ASKED = JobId(100)


def made(policy: str) -> Core:
    """A core with two nodes of two pools each, all in use."""
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(make_node(f"{pool}{i}", 4, pool=pool, cores=8)) for pool in "ab" for i in (1, 2)], 0.0)
    for number, pool in enumerate("aabb", 1):
        spec = JobSpec(name=f"full{number}", family=f"full{number}", user="op", gpus=4, pool=pool, whole_node=True)
        core.step([Submitted(JobId(number), spec)], 0.0)
        assert core.state.jobs[JobId(number)].placement is not None
    return core


def submit(core: Core, kind: str, at_s: float = 10.0, limit_b_s: float | None = None) -> Job:
    """The job that is asked about, which waits in both pools."""
    needs = KINDS[kind]
    ways = (PoolWay("a", needs["gpus"], None), PoolWay("b", needs["gpus"], limit_b_s))
    spec = JobSpec(name="j", family="j", user="bob", share=False, pool="a", pools=ways, **needs)
    if kind == "element":
        core.step([Submitted(ASKED, spec, array=array_of(parse_array("0-1")))], at_s)
        return core.state.jobs[JobId(ASKED + 1)]
    if kind == "dependent":
        hold = Hold(HoldKind.AFTER, "", after=Dependency(DependsOn.ANY, 99))
        first = JobSpec(name="first", family="first", user="op", pool="a", gpus=1)
        core.step([Submitted(JobId(99), first), Submitted(ASKED, spec, (hold,))], at_s)
        core.step([CancelRequested(JobId(99), "op")], at_s)
    else:
        core.step([Submitted(ASKED, spec)], at_s)
    return core.state.jobs[ASKED]


def pool_of(core: Core, job: Job) -> str:
    """The pool it runs in; empty while it waits."""
    now = core.state.jobs[job.id]
    pools = {core.state.nodes[name].node.pool for name in (now.placement.nodes if now.placement else ())}
    assert pools in ({now.spec.pool}, set()), "its place is in the pool that it says it is in"
    return "".join(pools)


def end(core: Core, *numbers: int, at_s: float = 100.0) -> None:
    ended = [core.state.jobs[JobId(number)] for number in numbers]
    nodes = [job.placement.nodes[0] for job in ended if job.placement]
    core.step(
        [
            Ended(job.id, job.attempt, "exited", Exit(0, None), 0.0, at_s, node=name)
            for job, name in zip(ended, nodes, strict=True)
        ],
        at_s,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_it_starts_in_whichever_pool_can_first(policy: str, kind: str) -> None:
    for freed, pool in (((1, 2), "a"), ((3, 4), "b"), ((1, 2, 3, 4), "a")):
        core = made(policy)
        job = submit(core, kind)
        assert pool_of(core, job) == ""
        end(core, *freed)
        assert pool_of(core, job) == pool, (freed, core.why(job.id, 100.0))
        audit(core.state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["fifo", "colane"])
@pytest.mark.parametrize("away", ["drained", "lost", "reserved"])
def test_where_nodes_of_one_pool_take_no_jobs_it_starts_in_the_other(away: str, policy: str, kind: str) -> None:
    core = made(policy)
    job = submit(core, kind, limit_b_s=500.0)
    for name in ("a1", "a2"):
        core.step(
            {
                "drained": [NodeDrained(name, Drain("op", "", 50.0, None))],
                "lost": [NodeLost(name)],
                "reserved": [NodeReserved(name, (KeptFor("course", ("ann",), 700.0, 900.0, "op"),))],
            }[away],  # type: ignore[arg-type]
            50.0,
        )
    if away != "lost":
        end(core, 1, 2, at_s=60.0)
        assert pool_of(core, job) == ""
        why = {"drained": Why.NODES_DRAINED, "reserved": Why.NODES_RESERVED}[away]
        assert core.why_in(job.id, "a", 60.0).why is why or kind == "without GPUs"
        assert core.why_in(job.id, "b", 60.0).why not in {why, Why.SUBMITTED}
        assert core.why_in(job.id, "a", 60.0) == core.why_in(job.id, "a", 60.0), "asking moves nothing"
    end(core, 3, 4)
    assert pool_of(core, job) == "b", "it ends there before the other pool's reservation, and is kept off by none"
    assert core.state.jobs[job.id].effective.time_limit_s == 500.0, "it has the limit of the pool that it runs in"
    audit(core.state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_each_pool_is_planned_as_if_it_had_named_that_one_alone(policy: str, kind: str) -> None:
    """It goes before the same jobs and behind the same, and holds up the same, until it has started or is gone."""
    for leaves in (False, True):
        found = []
        for alone in (False, True):
            core = made(policy)
            if alone:  # by another job of the kind in each pool
                for number, pool in ((100, "a"), (110, "b")):
                    spec = JobSpec(name="j", family="j", user="bob", share=False, pool=pool, **KINDS[kind])
                    core.step([Submitted(JobId(number), spec)], 10.0)
            else:
                submit(core, "plain" if kind in {"element", "dependent"} else kind)
            for number, pool in ((120, "a"), (121, "b"), (122, "a"), (123, "b")):
                spec = JobSpec(name=f"j{number}", family=f"j{number}", user="bob", share=False, pool=pool, gpus=4)
                core.step([Submitted(JobId(number), spec)], float(number))
            if leaves:
                core.step([CancelRequested(JobId(number), "bob") for number in (100, 110)], 190.0)
            end(core, 4, at_s=200.0)
            is_gone = any(core.state.jobs[one].placement for one in (JobId(100), JobId(110)) if one in core.state.jobs)
            if alone and is_gone:
                core.step([CancelRequested(JobId(100), "bob")], 200.0)
            end(core, 1, at_s=210.0)
            behind = [core.state.jobs[JobId(number)].placement for number in (120, 121, 122, 123)]
            found.append((is_gone, [place and place.nodes for place in behind]))
        assert found[0] == found[1], leaves


@pytest.mark.parametrize("kind", KINDS)
def test_queued_again_it_waits_in_both_once_more_also_after_a_restart(kind: str) -> None:
    core = made("fifo-skip")
    job = submit(core, kind)
    end(core, 3, 4)
    assert pool_of(core, job) == "b"
    now = core.state.jobs[job.id]
    assert now.placement is not None
    for name in now.placement.nodes:
        core.step([Ended(job.id, now.attempt, "node-fault", Exit(None, 9), 0.0, 120.0, node=name)], 120.0)
    for name in ("b1", "b2"):
        core.step([NodeLost(name)], 130.0)
    assert pool_of(core, job) == ""
    records = [JOB.read(JOB.write(each)) for each in core.state.jobs.values()]
    nodes = [(one.node, one.generation) for one in core.state.nodes.values()]
    again = Core(create("fifo-skip"), ClusterState.restore(nodes, records, Beliefs()), CoreConfig(runs_at_once=True))
    again.step([], 140.0)
    end(again, 1, 2, at_s=150.0)
    assert pool_of(again, job) == "a"
