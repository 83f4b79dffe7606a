"""Gangs that wait among smaller jobs: these do not pass them for as long as they come, and no mean gets worse."""

from __future__ import annotations

from functools import cache
from math import exp, log
from random import Random
from statistics import fmean
from typing import NamedTuple

import pytest

from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.simulate.scenes import cluster, run
from tests.simulate.scenes import job as trace_job

from .life import Life, job, step_time

HOUR_S = 3600.0
LARGE = 4
"""GPUs of the largest gangs, half of all there are."""


class Hours(NamedTuple):
    """Of many draws: what all jobs take from submission to end, and how long the largest gangs waited in sum."""

    mean: float
    waits: float


@cache
def hours(policy: str, draws: int, *, tells: bool) -> Hours:
    """Of 120 jobs of one, two and four GPUs, of 10 families, at a load of 1.25 on two nodes of four."""
    means, waits = list[float](), list[float]()
    for draw in range(draws):
        random, at_s, jobs = Random(draw), 0.0, []
        middles_s = [exp(random.uniform(log(600.0), log(86_400.0))) for _ in range(10)]
        lasts_s, gpus = list[float](), list[int]()
        for number in range(1, 121):
            at_s += random.expovariate(8 * 1.25 / (1.6 * fmean(middles_s)))
            family, size = random.randrange(10), random.choices((1, 2, LARGE), (0.7, 0.15, 0.15))[0]
            lasts_s.append(middles_s[family] * random.lognormvariate(0.0, 0.5))
            gpus.append(size)
            limit_s, named = lasts_s[-1] if tells else None, f"f{family}-{size}"
            made = trace_job(number, at_s, lasts_s[-1], gpus=size, family=named, share=False, time_limit_s=limit_s)
            jobs.append(made)
        rows = run(jobs, cluster(4, 4), create(policy), NeutralWorld(), DriverConfig(restart_s=60.0)).ledger.rows
        took_s = [end_s - submit_s for submit_s, end_s in zip(rows.submit_s, rows.end_s, strict=True)]
        numbers = [int(number) - 1 for number in rows.id]
        means.append(fmean(took_s) / HOUR_S)
        waits += [
            (took - lasts_s[number]) / HOUR_S
            for took, number in zip(took_s, numbers, strict=True)
            if gpus[number] == LARGE
        ]
    return Hours(fmean(means), sum(waits))


@pytest.mark.parametrize(("tells", "most"), [(True, 0.97), (False, 0.9)], ids=["told", "learnt"])
def test_large_gangs_wait_less_and_all_jobs_end_no_later(tells: bool, most: float) -> None:
    bounded, without = (hours(policy, 4, tells=tells) for policy in ("colane", "colane:gang_wait_ratio=none"))
    assert bounded.mean <= 1.01 * without.mean
    assert bounded.waits <= most * without.waits


@pytest.mark.parametrize("priority", [0, 1])
def test_a_gang_starts_once_it_has_waited_five_times_its_run_and_six_hours(priority: int) -> None:
    """Behind jobs of a higher priority it waits on; those that came before it end first."""
    small = [job(900.0 * n, HOUR_S, steps_total=3600, priority=priority) for n in range(160)]
    gang = job(600.0, 2 * HOUR_S, steps_total=7200, gpus=4)
    profiles = [step_time(1.0, gpus=gpus) for gpus in (1, 4)]
    life = Life(create("colane"), [make_node("n0", 4)], [gang, *small], profiles).run()
    waited_h = (life.spans[1][0][0] - 600.0) / HOUR_S
    assert waited_h <= 11.0 if priority == 0 else waited_h > 35.0
