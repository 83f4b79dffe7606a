"""The least change with which a job that waits would start now: it does, and no smaller one of its kind does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import pytest

from colane.core import Core
from colane.core.cluster.state import ClusterState
from colane.core.config import CoreConfig
from colane.core.events import NodeRegistered, Submitted, Tick
from colane.model.hardware import Node
from colane.model.job import JobId
from colane.model.job_spec import JobSpec, under
from colane.perf.beliefs import Beliefs
from colane.policyfiles.load import create
from colane.server.planning.copies import ask
from colane.server.planning.least import least_changes
from colane.server.planning.plans import GB, SmallerNeed, smaller_than
from tests.core.worlds import World, make_node
from tests.examples import FUZZ

NOW_S = 10.0


def _cluster(policy: str, nodes: list[Node], specs: list[JobSpec]) -> Core:
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(node) for node in nodes], 0.0)
    for number, spec in enumerate(specs, 1):
        core.step([Submitted(JobId(number), spec)], float(number))
    return core


def _asks(**needs: object) -> JobSpec:
    return replace(JobSpec(name="a", family="a", gpus=1, share=False), **needs)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["fifo", "colane"])
@pytest.mark.parametrize(
    ("nodes", "before", "waits", "options"),
    [
        ([make_node("n", 4)], _asks(gpus=2), _asks(gpus=4), ["--gpus 2"]),
        ([make_node("n", 1)], _asks(), _asks(), []),
        ([make_node("n", 1), make_node("m", 2, pool="big")], _asks(), _asks(), ["--pool big"]),
        ([make_node("n", 1, "A100"), make_node("m", 1)], _asks(gpu_type="A100"), _asks(gpu_type="A100"),
         ["any GPU type (no --gpu-type)"]),
        ([make_node("n", 2, cores=8)], _asks(cores=5), _asks(cores=6), ["--cores 3"]),
        ([make_node("n", 2)], _asks(host_memory_bytes=40 * GB), _asks(host_memory_bytes=40 * GB),
         ["--host-memory 28GB"]),
        ([make_node("n", 1), make_node("m", 1)], _asks(nodes="n"), _asks(nodes="n"),
         ["any nodes (no --nodes and --features)"]),
        ([make_node("n", 2)], _asks(), _asks(whole_node=True), ["others on its nodes (no --whole-node)"]),
        ([make_node("n", 2), make_node("m", 2)], _asks(), _asks(gpus=3), ["--gpus 2", "several nodes (--multi-node)"]),
        ([make_node("n", 2), make_node("m", 3)], _asks(gpus=2), _asks(gpus=3, gpus_per_node=1, multi_node=True),
         ["--gpus 1", "any GPUs (no --anti-collocation)"]),
        ([make_node("n", 4), make_node("m", 4)], _asks(gpus=2), _asks(gpus=6, gpus_per_node=3, multi_node=True),
         ["--gpus 3", "any GPUs (no --gpus-per-node)"]),
    ],
)  # fmt: skip
def test_what_is_named_is_the_least(
    policy: str, nodes: list[Node], before: JobSpec, waits: JobSpec, options: list[str]
) -> None:
    core = _cluster(policy, nodes, [before, waits])
    assert core.state.jobs[JobId(2)].is_waiting
    assert [change.option for change in least_changes(core, JobId(2), NOW_S, inf)] == options
    assert core.state.jobs[JobId(2)].is_waiting, "the core itself was not asked"


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "colane", "topo-aware-p"])
def test_in_any_state_what_is_named_starts_it_and_nothing_less_of_its_kind_does(policy: str) -> None:
    """`COLANE_FUZZ=14` looks at more than 1,000 states."""
    named = Counter[str]()
    for seed in range(4 * max(1, FUZZ)):
        odd = seed % 2 == 1
        _name(World(create(policy), seed + 1000 * FUZZ, groups=odd, places=odd, sized=seed % 4 == 2), named)
    states = named.pop("states")
    assert named.total() > states / 5, named


def _name(world: World, named: Counter[str]) -> None:
    """Judge what is named along a world, and count it."""
    for number in range(48):
        world.step(world.random_event())
        if number % 12 != 11:
            continue
        waiting = [job for job in world.core.state.jobs.values() if job.is_waiting and not job.holds]
        for job in world.random.sample(waiting, min(1, len(waiting))):
            found = {one.field: one for one in least_changes(world.core, job.id, world.now_s, inf)}
            named.update(found.keys(), states=1)
            nodes = [one.node for one in world.core.state.nodes.values()]
            for need in smaller_than(job.spec, job.spec.gpus, nodes, step=job.spec.gpus_per_node or 1):
                values, change = list(need.values), found.get(need.field)
                if change is not None:
                    assert _starts(world, job.id, need, change.value), change
                    values = values[values.index(change.value) + 1 :]
                elif need.field == "gpus" and job.spec.sizes:
                    continue
                for smaller in values[:2] + values[-3:]:
                    assert not _starts(world, job.id, need, smaller), (need.field, change, smaller)


def _starts(world: World, job_id: JobId, need: SmallerNeed, value: object) -> bool:
    """Whether a copy of the core starts the job with one need otherwise: written once more, as the test's own."""

    def copied() -> bool:
        changed = world.core.state.jobs[job_id].copied()
        changed.spec = replace(changed.spec, **need.fields(value))
        changed.effective = under(changed.spec, changed.constraints)
        world.core.state.put_job(changed)
        outcome = world.core.step([Tick()], world.now_s)
        assert outcome.rejected is None, outcome.rejected
        return world.core.state.jobs[job_id].placement is not None

    return ask(copied)


def test_a_held_job_and_one_about_to_start_are_told_nothing() -> None:
    core = _cluster("fifo", [make_node("n", 4)], [_asks(gpus=2)])
    assert least_changes(core, JobId(1), NOW_S) == []
