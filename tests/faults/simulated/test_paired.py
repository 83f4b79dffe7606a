"""Seeds of faults over a scheduler and its standby: never two that speak, none lost, none twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colane.server.writer.lead import Lead
from tests.faults.simulated.paired import LEADER_LEASE_S, survive_paired

SEEDS = int(os.environ.get("COLANE_FAULT_SEEDS", "20"))
TRIED_MAX = 40
POLICIES = ("fifo", "colane")


@pytest.mark.parametrize("policy", POLICIES)
def test_laws_hold_whichever_scheduler_fails(policy: str, tmp_path: Path) -> None:
    for seed in range(SEEDS // 4):
        problems, story = survive_paired(policy, seed, folder(tmp_path, seed))
        assert not problems, "\n".join([f"{policy} seed {seed}:", *problems, *story])


def test_no_attempt_ends_because_schedulers_changed(tmp_path: Path) -> None:
    changes = 0
    for seed in range(SEEDS // 4):
        problems, story = survive_paired("fifo", seed, folder(tmp_path, seed), calm=True)
        assert not problems, "\n".join([f"seed {seed}:", *problems, *story])
        changes += sum(" leads" in line for line in story)
    assert changes > SEEDS // 4, "each world has one that leads at first"


def test_a_leader_that_speaks_beyond_its_lease_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lead, "is_held", property(lambda lead: lead.now_s() - lead._renewed_s < 9 * LEADER_LEASE_S))
    for seed in range(TRIED_MAX):
        problems, _ = survive_paired("fifo", seed, folder(tmp_path, seed))
        if problems:
            assert "lead at once" in problems[0], problems
            return
    pytest.fail("two that lead at once were not seen")


def folder(root: Path, number: int) -> Path:
    (root / str(number)).mkdir()
    return root / str(number)
