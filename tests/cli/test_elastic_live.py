"""Elastic jobs through `colane up`: one shrinks for a newcomer and grows when it has gone, each step made once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Colane, Up, until
from tests.needs import two_cores

pytestmark = pytest.mark.live
CORES = len(os.sched_getaffinity(0))
"""Of two cpu devices; of one half of them."""

JOB = """
import os, signal, sys, time
import colane.adaptor as colane
notes, enough, saved, leaves = sys.argv[1], sys.argv[2], sys.argv[3], []
signal.signal(signal.SIGTERM, lambda *_: leaves.append(1))
number, cores = int(open(saved).read()) if os.path.exists(saved) else 0, len(os.sched_getaffinity(0))
steps = colane.attach()
with open(notes, "a", buffering=1) as lines:
    while not os.path.exists(enough):
        time.sleep(0.04 / cores**2)
        number += 1
        lines.write(f"{number} {cores}\\n")
        steps.step()
        if leaves:
            with open(saved + ".new", "w") as file:
                file.write(str(number))
            os.replace(saved + ".new", saved)
            sys.exit(75)
"""


@two_cores
def test_a_job_shrinks_for_a_newcomer_and_grows_again(
    make_up: Callable[..., Up], colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:2:1GB", "--policy", "f-sched:rise_ratio_min=0,pays_back=no")
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)

    def lines(job: int) -> list[str]:
        path = tmp_path / f"notes-{job}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def notes(job: int) -> list[tuple[int, int]]:
        """Number of each step, and cores it was made with."""
        return [(int(number), int(cores)) for number, cores in map(str.split, lines(job))]

    def submit(job: int) -> None:
        words = [str(tmp_path / f"{what}-{job}") for what in ("notes", "enough", "saved")]
        said = colane(
            "submit", "--gpus", "1..2", "--preemptible", "--family", "net", "--", sys.executable, "-c", JOB, *words
        )
        assert (said.code, said.out.split()[-1]) == (0, str(job)), said

    def cores(job: int) -> int:
        """With how many cores its latest step was made."""
        return int(lines(job)[-1].split()[1]) if lines(job) else 0

    submit(1)
    until(lambda: len(lines(1)) > 30, "job 1 has taught what two devices give")
    assert cores(1) == max(count for _, count in notes(1)) == CORES
    submit(2)
    until(lambda: 0 < cores(2) < CORES and cores(1) < CORES, "each has one device")
    until(lambda: len(lines(2)) > 30, "one device has taught what it gives")
    (tmp_path / "enough-2").touch()
    up.wait_for(2, "succeeded")
    until(lambda: cores(1) == CORES, "job 1 has both devices again")
    (tmp_path / "enough-1").touch()
    assert up.wait_for(1, "succeeded", "failed")["state"] == "succeeded"
    assert [number for number, _ in notes(1)] == list(range(1, len(notes(1)) + 1)), "each step once"
    with up.client as client:
        assert {"shrunk", "grown"} <= {line["why"] for line in client.job(1)["story"]}


BY_LINES = """
import os, sys, time
import colane.adaptor as colane
notes, enough, saved = sys.argv[1:4]

def write(steps):
    with open(saved + ".new", "w") as file:
        file.write(str(steps))
    os.replace(saved + ".new", saved)

steps, cores = colane.attach(), len(os.sched_getaffinity(0))
steps.restore(lambda: int(open(saved).read()) if os.path.exists(saved) else None)
with open(notes, "a", buffering=1) as lines:
    while not os.path.exists(enough):
        time.sleep(0.04 / cores**2)
        lines.write(f"{steps.steps_done + 1} {cores}\\n")
        steps.step()
        steps.save(write)
"""


@two_cores
def test_a_job_with_the_three_lines_keeps_its_size_while_its_disk_refuses_its_state(
    make_up: Callable[..., Up], colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:2:1GB", "--policy", "f-sched:rise_ratio_min=0,pays_back=no")
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)
    room = tmp_path / "states"

    def notes(job: int) -> list[list[int]]:
        path = tmp_path / f"notes-{job}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [[int(word) for word in line.split()] for line in lines]

    def submit(job: int, *options: str) -> None:
        words = [str(tmp_path / f"notes-{job}"), str(tmp_path / f"enough-{job}"), str(room / str(job))]
        family = ("--gpus", "1..2", "--family", "net")
        said = colane("submit", *family, *options, "--", sys.executable, "-c", BY_LINES, *words)
        assert said.code == 0, said

    def whys(job: int) -> list[str | None]:
        with up.client as client:
            return [line["why"] for line in client.job(job)["story"]]

    def contract(job: int) -> str | None:
        with up.client as client:
            found = client.job(job)["constraints"].get("checkpoint")  # learnt, not declared
        return found["signal"] if found else None

    submit(1, "--checkpoint", "plain", "--checkpoint-lead", "10s")  # its answer comes with a report of its agent
    until(lambda: len(notes(1)) > 30, "job 1 has taught what two devices give")
    submit(2)
    until(lambda: "checkpoint-failed" in whys(1), "there is no directory for its state yet")
    with up.client as client:
        found = client.job(1)
    assert (len(found["gpus"]), found["attempt"]) == (2, 1)
    assert "No such file or directory; it goes on with 2 GPUs, as before" in str(found["story"])
    room.mkdir()
    until(lambda: notes(2) and notes(1)[-1][1] < CORES, "each has one device")
    until(lambda: contract(2) == "SIGUSR1", "the lines alone say that job 2 saves its state")
    (tmp_path / "enough-2").touch()
    up.wait_for(2, "succeeded")
    (tmp_path / "enough-1").touch()
    ended = up.wait_for(1, "succeeded", "failed")
    assert ended["state"] == "succeeded"
    assert ended["needs"]["checkpoint"] is not None
    assert (ended["needs"]["checkpoint"]["lead_s"], ended["needs"]["preemptible"]) == (10.0, True)
    assert [number for number, _ in notes(1)] == list(range(1, len(notes(1)) + 1)), "each step once"
    assert ended["steps_kept"] > 30
    assert "checkpointing" in {line["state"] for line in ended["story"]}
