"""Real jobs on cores that work outside Colane uses all the time: how a pair goes there is learnt, and it shares."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colane.client.client import Client
from colane.model.hardware import BESIDE_OTHERS, CPU_DEVICE_TYPE
from tests.cli.conftest import START_MAX_S, Up, start_up, until

SPINS = "while True: pass"
JOB = f"""
import subprocess, sys, time
import colane.adaptor as colane

steps = colane.attach()
subprocess.Popen([sys.executable, "-c", {SPINS!r}])
while True:
    time.sleep(0.05)
    steps.step()
"""
"""Takes its part of the cores, and steps at a pace that others hardly change."""


@contextmanager
def others() -> Iterator[None]:
    """As many processes as there are cores want all of them."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Up]:
    up = start_up(tmp_path / "state", "--devices", "cpu:1:4GB", COLANE_OTHERS="respect")
    with others():
        yield up
    assert up.end(15)[0] == 0


def submit(up: Up, family: str) -> int:
    with up.client as client:
        wanted: dict[str, Any] = {"command": [sys.executable, "-c", JOB], "family": family, "preemptible": True}
        return client.submit({**wanted, "env": {"PATH": os.environ["PATH"]}})


def _has_ended(client: Client, job: int) -> bool:
    return client.job(job)["state"] == "cancelled"


def cancel(up: Up, *jobs: int) -> None:
    with up.client as client:
        for job in jobs:
            client.cancel(job)
            until(partial(_has_ended, client, job), "its end")


@pytest.mark.live
def test_a_pair_is_learnt_and_shared_beside_a_steady_load_of_others(watched: Up) -> None:
    up = watched
    with up.client as client:
        until(lambda: client.nodes()[0]["gpus"][0]["others_ratio"] >= 0.25, "the load of others")
        for family in ("a", "b"):
            job = submit(up, family)
            known = until(
                lambda: [p for p in client.profiles() if p["key"]["family"] == family and p["step_s"]],  # noqa: B023
                "how fast it is, of what others leave", 3 * START_MAX_S,
            )  # fmt: skip
            assert known[0]["step_s"]["source"] == "predicted"
            if family == "a":
                cancel(up, job)
        first, second = job, submit(up, "a")
        until(lambda: client.job(second)["sharing"], "it is tried beside the other")
        measured = until(client.measurements, "how they go together, beside others", 3 * START_MAX_S)
        assert measured[0]["sharing"] == CPU_DEVICE_TYPE + BESIDE_OTHERS
        cancel(up, first, second)
