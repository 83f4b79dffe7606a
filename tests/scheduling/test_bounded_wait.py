"""No job waits for ever: under a stream of newcomers, of higher priority too, a large job starts within its bound."""

from __future__ import annotations

from typing import Any

import pytest

from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.registry import NAMES, create
from tests.simulate.scenes import GIB, cluster, job, run

NEWCOMER_S = 600.0
GAP_S = 120.0
"""More newcomers than four GPUs can serve."""

BOUNDS_S = {
    **dict.fromkeys(
        ("fifo:max_wait_s=3600", "fcfs:max_wait_s=3600", "easy-backfill:max_wait_s=3600", "las:max_wait_s=3600"), 3600.0
    ),
    "fifo-skip:usage_half_life_s=600,max_wait_s=3600": 3600.0,
    **dict.fromkeys(("colocate", "pack", "fair", "salus-srtf", "salus-code"), 3600.0),
    **dict.fromkeys(("topo-aware", "topo-aware-p", "topo-aware-share"), 3600.0),
    **dict.fromkeys(
        (
            f"{name}:max_wait_s=3600"
            for name in (
                "fifo-skip",
                "best-fit",
                "sjf",
                "srtf",
                "srsf",
                "drf",
                "max-min",
                "max-min-packed",
                "finish-time-fair",
                "f-sched",
                "colane",
                "slurm-fifo",
                "coda",
            )
        ),
        3600.0,
    ),
}
"""After this wait a job goes before all others; then those that run have to end."""


def test_every_policy_is_held_to_its_bound() -> None:
    assert {name.partition(":")[0] for name in BOUNDS_S} == set(NAMES)
    for name in NAMES:
        assert any(isinstance(rule, Ageing) and rule.max_wait_s is not None for rule in create(name).admits)


@pytest.mark.parametrize("priority", [0, 1])
@pytest.mark.parametrize("name", BOUNDS_S)
def test_a_large_job_starts_within_its_bound(name: str, priority: int) -> None:
    wants: dict[str, Any] = {"gpu_memory_bytes": 12 * GIB, "time_limit_s": 2 * NEWCOMER_S}
    large = job(4, 3 * GAP_S, 1200.0, gpus=4, steps=1200, **wants)
    stream = [
        job(n, n * GAP_S, NEWCOMER_S, steps=int(NEWCOMER_S), priority=priority, **wants)
        for n in (1, 2, 3, *range(5, 90))
    ]
    done = run([*stream[:3], large, *stream[3:]], cluster(4), create(name), NeutralWorld())
    start_s = dict(zip(done.ledger.rows.id, done.ledger.rows.first_start_s, strict=True))[large.id]
    assert start_s - large.submit_s <= BOUNDS_S[name] + NEWCOMER_S
