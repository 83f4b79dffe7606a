"""Jobs parked for others through `colane up`: they continue with every step once and every bit equal."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Colane, Up, until

pytestmark = pytest.mark.live

JOB = """
import os, random, sys, time
import colane.adaptor as colane
steps, draw, total, number = colane.attach(), random.Random(7), 0.0, 0
with open(sys.argv[1], "a", buffering=1) as notes:
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.002)
        number, total = number + 1, total * 0.999 + draw.gauss(0, 1)
        notes.write(f"{number} {total.hex()}\\n")
        steps.step()
"""


def undisturbed(count: int) -> list[str]:
    """What a job notes that is not interrupted."""
    draw, total, notes = random.Random(7), 0.0, []
    for number in range(1, count + 1):
        total = total * 0.999 + draw.gauss(0, 1)
        notes.append(f"{number} {total.hex()}")
    return notes


@pytest.mark.parametrize(
    ("policy", "patient", "urgent"),
    [
        ("srtf:quantum_s=0.1", ["--time-limit", "10h"], ["--time-limit", "1h"]),
        ("colocate", ["--no-share"], ["--no-share", "--priority", "5"]),
    ],
)
def test_a_job_is_parked_for_a_more_urgent_one_and_goes_on(
    make_up: Callable[..., Up],
    colane: Colane,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    policy: str,
    patient: list[str],
    urgent: list[str],
) -> None:
    up = make_up("--devices", "cpu:1:1GB", "--policy", policy)
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)

    def notes(job: int) -> list[str]:
        path = tmp_path / f"notes-{job}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def submit(job: int, options: list[str]) -> None:
        words = [sys.executable, "-c", JOB, str(tmp_path / f"notes-{job}"), str(tmp_path / f"enough-{job}")]
        said = colane("submit", *options, "--", *words)
        assert (said.code, said.out.split()[-1]) == (0, str(job)), said

    def end(job: int) -> None:
        (tmp_path / f"enough-{job}").touch()
        ended = up.wait_for(job, "succeeded", "failed")
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)

    submit(1, patient)
    up.wait_for(1, "running")
    submit(2, urgent)
    until(lambda: len(notes(2)) > 5, "job 2 has the device")
    parked = len(notes(1))
    with up.client as client:
        assert "parked" in [line["why"] for line in client.job(1)["story"]]
    assert colane("why", "1").code == 0
    until(lambda: len(notes(2)) > 20, "job 2 goes on")
    assert len(notes(1)) == parked > 0
    end(2)
    until(lambda: len(notes(1)) > parked + 5, "job 1 goes on")
    end(1)
    assert notes(1) == undisturbed(len(notes(1)))
