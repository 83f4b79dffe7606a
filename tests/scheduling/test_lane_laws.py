"""Variants of paper B's policies on random worlds: legal plans, reasons for all, nothing left to do after a plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.view import ClusterView
from colane.model.sentences import sentence_of
from colane.scheduling.registry import create
from tests.core.audit import audit, audit_decisions
from tests.core.worlds import World
from tests.examples import examples

VARIANTS = (
    "fair:share_between=user",
    "fair:share_when=never",
    "pack:share_between=group,share_when=always",
    "pack:take_turns=no,max_wait_s=5",
    "salus-code:share_when=always",
)


@pytest.mark.parametrize("name", VARIANTS)
@examples(10)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_variants_keep_the_laws_of_all_policies(name: str, seed: int) -> None:
    world = World(create(name), seed)
    state = world.core.state
    for _ in range(40):
        outcome = world.step(world.random_event())
        assert outcome.rejected is None
        audit(state)
        audit_decisions(state, outcome)
        assert world.policy.plan(ClusterView(state, world.now_s)).actions == ()
        assert all(sentence_of(world.core.why(job, world.now_s)) for job in list(state.jobs))
    world.settle()
    assert not state.jobs
