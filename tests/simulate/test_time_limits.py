"""Sharing has no job end at its time limit that would have ended before it alone."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from colane.lab.simulate.beliefs import Belief, declare_lengths, make_beliefs
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobState
from colane.scheduling.registry import create

from .scenes import workload
from .test_guarantees import of_two_groups


def limited(seed: int, jobs: list[TraceJob], *, preemptible: bool) -> list[TraceJob]:
    """Seven of ten may take up to 1.6 times what they take alone."""
    draws, found = np.random.default_rng([seed, 2]), []
    for one in jobs:
        limit_s = float(ceil((one.duration_s or 0.0) * draws.uniform(1.0, 1.6) + 1.0))
        spec = replace(one.spec, preemptible=preemptible, time_limit_s=limit_s if draws.random() < 0.7 else None)
        found.append(replace(one, spec=spec))
    return found


@pytest.mark.parametrize("preemptible", [True, False])
def test_no_job_is_ended_at_its_time_limit_because_it_shares(*, preemptible: bool) -> None:
    for seed in range(8):
        machines, jobs = of_two_groups(seed)
        jobs = limited(seed, jobs, preemptible=preemptible)
        world, told = FactorsWorld(0.3, jobs), declare_lengths(jobs, Belief.ORACLE, noise=0.0, seed=0)
        beliefs = make_beliefs(Belief.ORACLE, world, told, machines, noise=0.0, seed=0)
        done = simulate(
            Inputs(
                cluster=machines, workload=workload(*told), world=world, policy=create("colane"), beliefs=beliefs,
            )
        )  # fmt: skip
        assert {STATES[code] for code in done.ledger.rows.state} == {JobState.SUCCEEDED}, seed
