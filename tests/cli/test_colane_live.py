"""The policy `colane` on real devices: shorter jobs take places, those who give way go on with every step once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Colane, Up, until
from tests.cli.test_parking import JOB, undisturbed

pytestmark = pytest.mark.live

LIMITS = ("10h", "9h", "2h", "1h", "10m")
"""Of five jobs on two devices: each but the first two has so much less left that it takes a place."""


def test_five_jobs_on_two_devices_the_shortest_first(
    make_up: Callable[..., Up], colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:2:1GB", "--policy", "colane:quantum_s=0.1,move_s=0.1")
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)

    def notes(job: int) -> list[str]:
        path = tmp_path / f"notes-{job}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def waits_for_notes(job: int, had: int) -> None:
        until(lambda: len(notes(job)) > had, f"job {job} has a device")

    def states() -> dict[int, str]:
        with up.client as client:
            return {job: client.job(job)["state"] for job in range(1, len(LIMITS) + 1)}

    for job, limit in enumerate(LIMITS, 1):
        words = [sys.executable, "-c", JOB, str(tmp_path / f"notes-{job}"), str(tmp_path / f"enough-{job}")]
        said = colane("submit", "--no-share", "--time-limit", limit, "--", *words)
        assert (said.code, said.out.split()[-1]) == (0, str(job)), said
        waits_for_notes(job, 5)
    with up.client as client:
        stories = [{line["why"] for line in client.job(job)["story"]} for job in (1, 2)]
    assert all("parked" in story for story in stories), states()
    for job in reversed(range(1, len(LIMITS) + 1)):
        waits_for_notes(job, len(notes(job)))
        (tmp_path / f"enough-{job}").touch()
        ended = up.wait_for(job, "succeeded", "failed")
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
        assert notes(job) == undisturbed(len(notes(job)))
