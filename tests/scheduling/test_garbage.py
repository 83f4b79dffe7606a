"""What a plan takes is free again at once: simulations hold the collector of cycles."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from colane.core.cluster.view import ClusterView
from colane.core.policy import Planner, ask
from colane.model.plan import Plan
from colane.scheduling.registry import POLICIES, create
from tests.golden.live import Live

PLANS_MAX = 30
"""So many first ones of a life are looked at; a collection takes a few milliseconds."""


class SeenEnoughError(Exception):
    """Ends a life."""


@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_leaves_cycles(name: str) -> None:
    life, left = Live(create(name)), list[int]()

    def asked(planner: Planner, view: ClusterView) -> Plan:
        if len(left) >= PLANS_MAX:
            raise SeenEnoughError
        gc.collect()
        plan = ask(planner, view)
        left.append(gc.collect())
        return plan

    life.core.ask = asked
    gc.freeze()
    gc.disable()
    try:
        with suppress(SeenEnoughError):
            life.run()
    finally:
        gc.enable()
        gc.unfreeze()
    assert left == [0] * PLANS_MAX
