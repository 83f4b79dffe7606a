"""Seeds of faults over every policy: nobody lost, nobody twice at once, no device booked twice, everybody ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colane.server import leases
from tests.faults.simulated.cluster import NODE_TIMEOUT_S, TRIED, survive

SEEDS = int(os.environ.get("COLANE_FAULT_SEEDS", "20"))
TRIED_MAX = 60


@pytest.mark.parametrize("policy", TRIED)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_laws_hold_whatever_fails(policy: str, seed: int, tmp_path: Path) -> None:
    problems, story = survive(policy, seed, tmp_path)
    assert not problems, "\n".join([*problems, *story])


def test_a_lease_that_outlasts_the_patience_of_the_scheduler_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "lease_s", lambda *_: 2 * NODE_TIMEOUT_S)
    roots = (tmp_path / str(seed) for seed in range(TRIED_MAX))
    for seed, root in enumerate(roots):
        root.mkdir()
        problems, _ = survive("fifo", seed, root)
        if problems:
            assert "at once" in problems[0]
            return
    pytest.fail("two attempts at once were not seen")


def test_a_seed_repeats_what_happened(tmp_path: Path) -> None:
    stories = []
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        stories.append(survive("srtf", 3, tmp_path / name))
    assert stories[0] == stories[1]
    assert len(stories[0][1]) > 5
