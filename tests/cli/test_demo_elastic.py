"""The demo of paper E: its jobs, what it looks at, and what it draws of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from colane.client.client import Client
from colane.lab.demo import elastic as demo_elastic
from colane.lab.demo.elastic import JOBS, SizeWatch, publish, read_losses, request
from colane.lab.report.measured import ThroughputCurve
from colane.settings.table import DEVICES, TOPOLOGY
from colane.workloads import data_parallel


class Looked:
    """Answers as a scheduler whose only job is looked at again and again, and ends."""

    def __init__(self, *looks: dict[str, Any]) -> None:
        self.looks = list(looks)

    def submit(self, request: dict[str, Any]) -> int:
        assert request["gpus"] == "1..4"
        return 3

    def live_jobs(self) -> list[dict[str, Any]]:
        return [{"id": 3, **self.looks.pop(0)}] if self.looks else []

    def job(self, number: int) -> dict[str, Any]:
        return {"id": number, "state": "succeeded", "attempt": 2}


def look(steps: int, at_s: float, devices: int, attempt: int, *told: str) -> dict[str, Any]:
    story = [{"why": "shrunk", "sentence": sentence} for sentence in told]
    progress = {"steps": steps, "last_step_s": at_s}
    return {"gpus": ["n/0"] * devices, "progress": progress, "attempt": attempt, "story": story}


def watched(folder: Path, *looks: dict[str, Any]) -> SizeWatch:
    watch = SizeWatch(cast("Client", Looked(*looks)))
    watch.submit("wide", request("wide", folder, 4))
    for _ in looks:
        watch.look()
    return watch


def run(folder: Path, devices: int, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NPROC_PER_NODE": str(devices)}
    command = [sys.executable, "-m", "colane.workloads", "data-parallel", "--sample-ms", "0", *words]
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=True)


def test_a_step_is_the_same_on_any_number_of_devices_and_after_a_restart(tmp_path: Path) -> None:
    run(tmp_path, 1, "--steps", "40", "--losses", "whole")
    run(tmp_path, 3, "--steps", "40", "--losses", "three")
    whole, three = (read_losses(tmp_path / name) for name in ("whole", "three"))
    assert [point.loss for point in three] == pytest.approx([point.loss for point in whole])
    assert ([point.devices for point in three], whole[-1].loss < whole[0].loss / 2) == ([3] * 40, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--steps", "0"], "whole number from 1 up"),
        (["--sample-ms", "nan"], "milliseconds from 0 up"),
        (["--losses", "/nowhere/x"], "/nowhere is no directory"),
    ],
)
def test_arguments_that_are_none_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        data_parallel.main(words)
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_devices_over_time_and_speeds_come_of_the_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looks = (
        look(0, 0.0, 4, 1),
        look(10, 1.0, 4, 1),
        look(30, 2.0, 4, 1, "gives two"),
        look(31, 9.0, 2, 2, *["gives two"] * 3),
    )
    watch = watched(tmp_path, *looks)
    assert watch.steps_s() == {"demo-wide": {4: 0.05}}, "not across a restart"
    assert [span.devices for span in watch.spans()["wide"]] == [4, 4, 4, 2]
    assert capsys.readouterr().err.count("gives two") == 1
    assert watch.have_ended(watch.look())
    assert watch.ended["wide"]["attempt"] == 2


@pytest.mark.parametrize("lost", [False, True])
def test_a_step_that_was_made_twice_breaks_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lost: bool
) -> None:
    monkeypatch.setattr(demo_elastic, "JOBS", {"wide": (0.0, 30)})
    watch = watched(tmp_path, look(1, 0.0, 4, 1))
    watch.have_ended({})
    run(tmp_path, 2, "--steps", "30", "--batch", "48", "--seed", "1", "--losses", "wide.losses")
    if lost:
        lines = (tmp_path / "wide.losses").read_text().splitlines(keepends=True)
        (tmp_path / "wide.losses").write_text("".join([*lines[:9], *lines[7:]]))
    curves = {"demo-wide": ThroughputCurve({1: 2.0, 4: 6.0}, {n: 2.0 * n for n in range(1, 5)})}
    assert publish(watch, curves, 4, tmp_path, tmp_path, as_json=True) == int(lost)
    said = json.loads(capsys.readouterr().out)["jobs"]["wide"]
    assert (said["state"], said["devices"], said["is_unbroken"]) == ("succeeded", [2], not lost)
    assert (tmp_path / "elastic.png").read_bytes().startswith(b"\x89PNG")


def test_its_devices_may_share_cores() -> None:
    config = demo_elastic.stack_config(Path("s"), None)
    assert config.agent[DEVICES] == "cpu:4"
    assert (config.agent[TOPOLOGY] is None) == (len(os.sched_getaffinity(0)) >= 4)
    assert set(JOBS) == set(demo_elastic.FAMILIES)
