"""What no decision depends on: the clock's zero, users' names, and GPUs that no job may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.scheduling import registry
from tests.simulate.scenes import node, random_cluster, random_jobs, workload

POLICIES = (*registry.NAMES, "colane:arrays=yes")
SEEDS = range(4)
LATER_S = 777.0
"""No multiple of a round, a quantum or a lease; whole, as all times here, so that no sum is rounded otherwise."""

RENAMED = {"ann": "zoe", "bob": "max", "carol": "dan"}


def jobs_of(seed: int) -> tuple[TraceJob, ...]:
    """Long enough for rounds and leases to matter, of three users: gangs, jobs of several sizes, and without GPUs."""
    random = Random(seed)
    return tuple(
        replace(
            job, submit_s=13.0 * job.submit_s, duration_s=97.0 * (job.duration_s or 0.0),
            spec=replace(job.spec, user=random.choice(sorted(RENAMED)), **of_a_kind(random, job.spec.gpus)),
        )
        for job in random_jobs(seed, most_gpus=4, with_steps=True)
    )  # fmt: skip


def of_a_kind(random: Random, gpus: int) -> dict[str, Any]:
    """Most are as they were drawn."""
    draw = random.random()
    if draw < 0.15:
        return {"gpus": 0, "cores": random.choice((1, 3)), "abortable": random.random() < 0.5, "steps_total": None}
    if draw < 0.3:
        return {"multi_node": True}
    return {"sizes": tuple(range(1, gpus + 1))} if gpus > 1 and draw < 0.5 else {}


def outcome(policy: str, cluster: Cluster, jobs: Iterable[TraceJob]) -> dict[int, tuple[float, float, float, int]]:
    """When each job started first and last, when it ended, and how often it started."""
    given = Inputs(
        cluster=cluster, workload=workload(*jobs), world=NeutralWorld(), policy=registry.create(policy)
    )  # fmt: skip
    rows = simulate(given).ledger.rows
    columns = zip(rows.first_start_s, rows.start_s, rows.end_s, rows.attempts, strict=True)
    return dict(zip(rows.id, columns, strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_clock_may_begin_anywhere(policy: str) -> None:
    for seed in SEEDS:
        jobs = jobs_of(seed)
        later = outcome(policy, random_cluster(seed), [replace(job, submit_s=job.submit_s + LATER_S) for job in jobs])
        then = {job: (*(at_s - LATER_S for at_s in row[:3]), row[3]) for job, row in later.items()}
        assert then == outcome(policy, random_cluster(seed), jobs), seed


@pytest.mark.parametrize("policy", POLICIES)
def test_users_may_have_any_name(policy: str) -> None:
    for seed in SEEDS:
        jobs = jobs_of(seed)
        renamed = [replace(job, spec=replace(job.spec, user=RENAMED[job.spec.user])) for job in jobs]
        assert outcome(policy, random_cluster(seed), renamed) == outcome(policy, random_cluster(seed), jobs), seed


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_that_no_job_may_use_change_nothing(policy: str) -> None:
    """Of another type in the same pool, while every job names its own, and of the same type in another pool."""
    for seed in SEEDS:
        drawn = [job for job in jobs_of(seed) if job.spec.gpus]
        jobs = [replace(job, spec=replace(job.spec, gpu_type="v100")) for job in drawn]
        cluster = random_cluster(seed)
        alone = outcome(policy, cluster, jobs)
        for more in (node("other-type", 4, gpu_type="k80"), node("other-pool", 4, pool="other")):
            assert outcome(policy, Cluster("test", (*cluster.nodes, more)), jobs) == alone, (seed, more.name)
