"""Every number that a policy can be given, at its ends: a small world is simulated, or one line refuses it."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest

from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.options import _kinds
from colane.scheduling.registry import NAMES, UnknownPolicyError, create
from tests.simulate.scenes import cluster, job, workload

JOBS = [job(1 + k, 7.0 * k, (60.0, 300.0, 900.0)[k % 3], gpus=(1, 1, 2, 4)[k % 4], steps=100) for k in range(14)]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_number_at_its_end_ends_no_policy(name: str) -> None:
    numbers = [option for option, kind in _kinds(create(name)).items() if {int, float} & {kind, *get_args(kind)}]
    for option in sorted(numbers):
        for value in ("0", "1e308"):
            policy = _policy(name, option, value)
            if policy is None:
                with pytest.raises(UnknownPolicyError, match=f"{option} must be a number from"):
                    create(f"{name}:{option}={value}")
                continue
            given = Inputs(cluster=cluster(2, 4), workload=workload(*JOBS), world=NeutralWorld(), policy=policy)
            run = simulate(given)
            assert not run.ledger.flaws, (option, value)
            assert all(end_s > 0 for end_s in run.ledger.rows.end_s), (option, value)


def _policy(name: str, option: str, value: str) -> Composed | None:
    with suppress(UnknownPolicyError):
        return create(f"{name}:{option}={value}")
    return None
