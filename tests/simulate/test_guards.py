"""What guards of ours decide in a simulation is counted; policies as published have none."""

from __future__ import annotations

import pytest

from colane.lab.simulate.beliefs import Belief, declare_lengths, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.run import GuardCounts, Inputs, Run, simulate
from colane.lab.traces.workload import TraceJob
from colane.scheduling.registry import create
from tests.simulate.scenes import cluster, job, workload


def ends(run: Run) -> dict[int, float]:
    rows = run.ledger.rows
    return {int(job): round(end_s, 6) for job, end_s in zip(rows.id, rows.end_s, strict=True)}


def ran(policy: str, jobs: list[TraceJob], gpus: int = 1, launch_s: float = 0.0, *, as_published: bool = False) -> Run:
    known = declare_lengths(jobs, Belief.ORACLE, noise=0.0, seed=0)
    beliefs = make_beliefs(Belief.ORACLE, FactorsWorld(), known, cluster(gpus), noise=0.0, seed=0)
    return simulate(
        Inputs(
            cluster=cluster(gpus), workload=workload(*known), world=FactorsWorld(), beliefs=beliefs,
            policy=create(policy, as_published=as_published), driver=DriverConfig(launch_s=launch_s),
        )
    )  # fmt: skip


def test_a_gain_that_is_asked_for_keeps_a_shorter_job_waiting() -> None:
    jobs = [job(1, 0, 200), job(2, 70, 110)]
    live, published = ran("srtf", jobs), ran("srtf", jobs, as_published=True)
    assert (ends(live), live.guards) == ({1: 200, 2: 310}, GuardCounts(hysteresis=1))
    assert (ends(published), published.guards) == ({1: 310, 2: 180}, None)
    assert published.is_as_published


def test_a_job_that_has_hardly_begun_is_spared() -> None:
    jobs = [job(1, 0, 200), job(2, 5, 10)]
    live, published = ran("srtf", jobs), ran("srtf", jobs, as_published=True)
    assert (ends(live), live.guards) == ({1: 210, 2: 70}, GuardCounts(protection=1))
    assert (ends(published), published.guards) == ({1: 210, 2: 15}, None)


def test_jobs_are_not_protected_after_their_launch_as_published() -> None:
    jobs = [job(1, 0, 200, steps=200), job(2, 30, 10, steps=10)]
    live, published = ran("srtf", jobs, launch_s=20), ran("srtf", jobs, launch_s=20, as_published=True)
    assert ends(published)[2] == 60
    assert ends(live)[2] > 60
    assert live.guards == GuardCounts(protection=1)


@pytest.mark.parametrize(("strict", "aged"), [("no", 1), ("yes", 0)])
def test_a_job_that_waited_too_long_has_gpus_kept_for_it_where_others_may_pass_it(strict: str, aged: int) -> None:
    jobs = [job(1, 0, 100), job(2, 1, 10, gpus=2), *(job(number, number, 100) for number in (3, 4))]
    live = ran(f"fifo:strict={strict},max_wait_s=50", jobs, gpus=2)
    assert live.guards == GuardCounts(ageing=aged)
    assert ends(live)[2] == {"no": 113, "yes": 110}[strict]
