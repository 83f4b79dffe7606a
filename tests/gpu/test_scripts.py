"""The GPU scripts run for real, scaled down for a CPU; and they end well where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs

needs("torch", "the scripts train with PyTorch")

ROOT = Path(__file__).parents[2]


def run(script: str, *words: object, **env: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a script; give its exit code and the lines it printed."""
    command = [sys.executable, str(ROOT / "gpu" / script), *map(str, words)]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=False, cwd=ROOT, timeout=560
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.live
@pytest.mark.timeout(600)
def test_paper_a_in_small(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("paper_a.py", *where)
    assert code == 0, lines
    assert [line["status"] for line in lines[:-1]] == ["complete"] * 4
    whole = read(tmp_path / "out" / "paper_a.json")
    assert whole["failed_checks"] == []
    assert whole["environment"]["gpus"] == ["cpu"]
    verdicts = {claim["id"]: claim["verdict"] for claim in whole["claims"]}
    assert verdicts["A-a"] != "not measured"
    assert verdicts["A-b"] == "not measured"
    pairs = read(tmp_path / "out" / "paper_a" / "pairs-64.json")
    assert pairs["measured"] == pairs["sets"] == 1
    assert [key["family"] for key in pairs["measurements"][0]["keys"]] == ["resnet18", "vgg11"]
    best = read(tmp_path / "out" / "paper_a" / "best-2.json")
    assert set(best["groups"]) == {"FIFO", "co-location"}
    assert best["groups"]["FIFO"]["jobs"] == 2
    for picture in ("figures/speedup_2_cpu.png", "figures/plane_cpu.png", "best-2/timeline.png"):
        assert (tmp_path / "out" / "paper_a" / picture).read_bytes().startswith(b"\x89PNG")
    # What is complete is not run again: this takes no more than reading the results.
    code, lines = run("paper_a.py", *where)
    assert code == 0
    assert [line["status"] for line in lines[:-1]] == ["complete already"] * 4


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_check_of_the_agent_in_small(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("nvml_checks.py", "--part", "out-of-memory", *where)
    assert code == 0, lines
    found = read(tmp_path / "out" / "nvml_checks" / "out-of-memory.json")
    assert found["status"] == "complete"
    assert [check["passed"] for check in found["checks"]] == [True] * 3
    code, lines = run("nvml_checks.py", "--part", "admission", *where)
    assert code == 0, lines


@pytest.mark.live
@pytest.mark.timeout(600)
def test_turns_in_small(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("turns.py", "--part", "by-step", *where)
    assert code == 0, lines
    found = read(tmp_path / "out" / "turns" / "by-step.json")
    assert found["status"] == "complete"
    assert found["handoffs"] > 0 == found["overlaps"]


@pytest.mark.live
@pytest.mark.timeout(600)
def test_lanes_in_small(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("lanes.py", "--part", "overhead", *where)
    assert code == 0, lines
    assert all(check["passed"] for check in read(tmp_path / "out" / "lanes" / "overhead.json")["checks"])
    code, lines = run("lanes.py", "--part", "pairs-64", *where)
    assert code == 0, lines
    found = read(tmp_path / "out" / "lanes" / "pairs-64.json")
    assert (found["status"], list(found["sets"])) == ("complete", ["resnet18+vgg11"])
    for way in found["sets"]["resnet18+vgg11"].values():
        assert len(way["slowdowns"]) == 2
        assert way["delta"] > 0


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_part_without_time_says_so_and_stops_what_it_started(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    run("paper_a.py", "--part", "pairs-64", "--minutes", "0.01", *where)
    found = read(tmp_path / "out" / "paper_a" / "pairs-64.json")
    assert found["status"] == "incomplete"
    assert "time is used up" in found["failures"][0]


@pytest.mark.parametrize(
    "script", ["paper_a.py", "nvml_checks.py", "turns.py", "loops.py", "lanes.py", "suspend.py", "facts.py"]
)
def test_without_a_gpu_there_is_one_line(script: str, tmp_path: Path) -> None:
    code, lines = run(script, "--out", tmp_path, CUDA_VISIBLE_DEVICES="")
    assert code == 0
    assert lines == [{"script": script.removesuffix(".py"), "status": "no GPU"}]
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_part_is_refused() -> None:
    assert run("paper_a.py", "--part", "nonsense") == (2, [])
    assert run("paper_a.py", "--minutes", "0") == (2, [])


def test_suspending_in_small(tmp_path: Path) -> None:
    code, lines = run("suspend.py", "--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    assert code == 0, lines
    whole = read(tmp_path / "out" / "suspend.json")
    assert whole["failed_checks"] == []
    features = read(tmp_path / "out" / "suspend" / "features.json")
    assert features["can"] or features["because"]


def test_what_the_machine_is(tmp_path: Path) -> None:
    """A driver that hangs costs seconds, and what is not there is told as absent."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n[ $1 = -q ] && echo 'Driver Version : 580.95' || exit 9\n")
    tool.chmod(0o755)
    where = ("--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("facts.py", "--tiny", *where, PATH=f"{tool.parent}:{os.environ['PATH']}")
    assert code == 0, lines
    found = read(tmp_path / "out" / "facts" / "machine.json")
    assert found["said"]["nvidia-smi -q"] == "Driver Version : 580.95\n"
    assert found["libcuda"] is not None or "no NVIDIA driver" in found["cannot_suspend"]
