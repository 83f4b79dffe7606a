"""What comes at once keeps nobody waiting: no turn of the scheduler decides for long, by CPU time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Up

pytestmark = pytest.mark.live

JOBS, FAMILIES = 500, 26

ENDS = 40
"""So many of them are to have ended, each of which teaches how long those of its family run."""

LONGEST_CPU_S = 0.05
"""No turn decides for longer; on 2026-11-30 the longest took 0.018 of the CPU, so that a busy machine breaks it not."""


def test_a_burst_of_unknown_length_is_decided_in_short_turns(make_up: Callable[..., Up], tmp_path: Path) -> None:
    up = make_up("--devices", "cpu:2")
    job = {"command": ["true"], "gpus": 1, "workdir": str(tmp_path), "env": {"PATH": os.environ["PATH"]}}
    with up.client as client:
        jobs = client.submit_batch([{**job, "family": f"f{number % FAMILIES}"} for number in range(JOBS)])
        ended = set[int]()
        for event in client.events(0):
            if event.kind == "job" and event.body["state"] == "succeeded":
                ended.add(event.body["job"])
            if len(ended) >= ENDS:
                break
        longest_s = client.health()["longest_decision_cpu_s"]
        assert len(ended) == ENDS
        assert ended <= set(jobs)
    assert 0.0 < longest_s <= LONGEST_CPU_S
    assert up.end(signal.SIGINT)[0] == 0
