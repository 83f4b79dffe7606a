"""The index of nodes by free cores: with every change it is as if all nodes were looked at."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from colane.core import ClusterState
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Gpu, Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Placement
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.cpu.free_cores import FreeCores

POOLS = ("default", "other")


def node(random: Random, name: str, pool: str) -> Node:
    cores, device = random.randint(0, 8), random.randint(0, 2)
    gpu = Gpu(index=0, uuid=name, type="CPU", memory_bytes=1, cores=tuple(range(device)), sharing="cpu")
    return Node(name=name, gpus=(gpu,), cores=tuple(range(cores)), host_memory_bytes=8, pool=pool)


def change(random: Random, state: ClusterState, job: JobId) -> None:
    """A job comes or ends, or a node is described anew, or goes."""
    name = random.choice(list(state.nodes))
    carried = state.nodes[name]
    roll = random.random()
    if roll < 0.5:
        free = [core for core in carried.cores_outside if core not in carried.cores_booked]
        cores = tuple(free[: random.randint(0, 4)])
        spec = JobSpec(name="j", family="f", gpus=0, cores=len(cores), pool=carried.node.pool)
        state.put_job(Job(job, spec, 0.0, placement=Placement((), cores, node=name)))
    elif roll < 0.7 and carried.jobs:
        ended = state.jobs[next(iter(carried.jobs))]
        state.release(ended)
        del state.jobs[ended.id]
    elif roll < 0.85:
        state.put_node(replace(carried.node, pool=random.choice(POOLS) if not carried.jobs else carried.node.pool))
    elif not carried.jobs and len(state.nodes) > 1:
        state.remove_node(name)
    else:
        state.put_node(node(random, f"n{job}", random.choice(POOLS)))


def decide(random: Random, draft: Draft, pool: str, job: JobId) -> None:
    """Take some cores of a node in a draft, if it has any."""
    here = [one for one in draft.view.nodes.values() if one.node.pool == pool]
    if here:
        chosen = random.choice(here)
        cores = draft.cpu_only_free(chosen).cores
        spec = JobSpec(name="j", family="f", gpus=0, cores=min(cores, 2), pool=pool)
        draft.start_on_node(Job(job, spec, 0.0), chosen, Reason(Why.FREE_CORES, {"node": chosen.node.name}))


@pytest.mark.parametrize("seed", range(8))
def test_nodes_come_from_the_fewest_free_cores_as_if_all_were_looked_at(seed: int) -> None:
    random, state = Random(seed), ClusterState(Beliefs())
    for number in range(6):
        state.put_node(node(random, f"first{number}", random.choice(POOLS)))
    for number in range(1, 120):
        change(random, state, JobId(number))
        draft, pool = Draft(ClusterView(state, 0.0)), random.choice(POOLS)
        decide(random, draft, pool, JobId(10**6))
        found = draft.view.derived(FreeCores).in_draft(draft, pool)
        here = [one for one in state.nodes.values() if one.node.pool == pool]
        free = {one.order: draft.cpu_only_free(one).cores for one in here}
        need, among = random.randint(0, 5), random.getrandbits(160)
        expected = [order for order in free if free[order] >= need and among >> order & 1]
        expected.sort(key=lambda order: (free[order], order))
        assert list(found.fullest_first(need, among)) == expected
        assert found.is_any(need, among) is bool(expected)
