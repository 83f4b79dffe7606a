"""`fair` is better than `jct` in what it is for: owners who want less than their share wait less for one who floods."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from statistics import fmean
from typing import NamedTuple

from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling import registry
from tests.simulate.scenes import cluster, job, workload

GPUS, LOAD = 8, 1.2
LENGTHS_S = (60.0, 300.0, 900.0, 2400.0)
HEAVY, LIGHT = "heavy", "abcd"
"""One has three fifths of all jobs, the four others a tenth each."""


class Fared(NamedTuple):
    """How many times as long as alone jobs took on average: of the light owner that fared worst, and of the heavy one.

    Attributes:
        light: Of the light owner.
        heavy: Of the heavy one.
        jct_s: Mean time to the end, of all.
    """

    light: float
    heavy: float
    jct_s: float


def fared(objective: str, seed: int) -> Fared:
    rng, at_s, jobs = Random(seed), 0.0, []
    for number in range(1, 161):
        length_s = rng.choice(LENGTHS_S)
        user = HEAVY if rng.random() < 0.6 else rng.choice(LIGHT)
        jobs.append(job(number, at_s, length_s, steps=int(length_s), user=user, share=False))
        at_s += rng.expovariate(GPUS * LOAD / fmean(LENGTHS_S))
    machines, world = cluster(GPUS // 2, GPUS // 2), NeutralWorld()
    beliefs = make_beliefs(Belief.ORACLE, world, jobs, machines, noise=0.0, seed=0)
    policy = registry.create(f"colane:objective={objective}")
    rows = simulate(
        Inputs(cluster=machines, workload=workload(*jobs), world=world, policy=policy, beliefs=beliefs)
    ).ledger.rows
    slowdowns = defaultdict[str, list[float]](list)
    for number, submit_s, end_s in zip(rows.id, rows.submit_s, rows.end_s, strict=True):
        traced = jobs[int(number) - 1]
        slowdowns[traced.spec.user].append((end_s - submit_s) / (traced.duration_s or 1.0))
    means = {user: fmean(found) for user, found in slowdowns.items()}
    jct_s = fmean([end_s - submit_s for submit_s, end_s in zip(rows.submit_s, rows.end_s, strict=True)])
    return Fared(max([means[user] for user in LIGHT]), means[HEAVY], jct_s)


def test_owners_of_little_wait_less_for_one_who_floods_at_a_price_in_the_mean() -> None:
    jct, fair = ([fared(objective, seed) for seed in (0, 1)] for objective in ("jct", "fair"))
    waits = [fmean([each.light for each in found]) - 1.0 for found in (jct, fair)]
    assert waits[1] < waits[0] / 2
    assert all(after.light < before.light for before, after in zip(jct, fair, strict=True))
    assert fmean([each.heavy for each in fair]) < 3.0, "what is given to others leaves the flood its share"
    assert fmean([each.jct_s for each in fair]) < 1.2 * fmean([each.jct_s for each in jct])
