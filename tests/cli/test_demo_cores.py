"""The demo of paper D: what it looks at, and what it draws of that."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, cast

import pytest

from colane.client.client import Client
from colane.lab.demo import cores as demo_cores
from colane.lab.demo.cores import Watching, has_settled, publish
from colane.lab.report.mixed import CoreSample
from colane.settings.table import CORE_TUNER, DEVICES
from tests.cli.conftest import Colane


class Scheduler:
    """Answers as one whose only job is looked at again and again."""

    def __init__(self, *looks: dict[str, Any]) -> None:
        self.looks = list(looks)

    def submit(self, request: dict[str, Any]) -> int:
        assert request["env"]["OMP_NUM_THREADS"] == "1"
        return 7

    def live_jobs(self) -> list[dict[str, Any]]:
        return [{"id": 7, **self.looks.pop(0)}, {"id": 8}]


def look(steps: int, at_s: float, cores: list[int], *told: tuple[str, str], **more: Any) -> Any:
    story = [{"why": why, "sentence": sentence} for why, sentence in told]
    progress = {"steps": steps, "last_step_s": at_s}
    return {"state": "running", "throttle": None, "booked_cores": cores, "progress": progress, "story": story, **more}


TRIES = "cores-changed", "has 2 cores instead of 1: tried 1 (100 %) for each GPU; tries 2"
KEPT = "cores-kept", "keeps its 2 cores: tried 1 (50 %), 2 (100 %) for each GPU"


def watched(*looks: dict[str, Any]) -> Watching:
    watching = Watching(cast("Client", Scheduler(*looks)))
    watching.submit("train", {"gpus": 1}, OMP_NUM_THREADS="1")
    for _ in looks:
        watching.look()
    return watching


def test_speed_is_of_the_last_seconds_by_the_jobs_own_clock_and_cores_those_it_may_use() -> None:
    held = {"cores": [1], "withheld_cores": [0], "bandwidth_ratio": 1.0}
    seen = watched(look(0, 0.0, [0]), look(10, 1.0, [0]), look(20, 2.0, [0, 1]), look(60, 6.0, [0], throttle=held)).seen
    assert [one.steps_per_s for one in seen["train"]] == [None, None, 10.0, 10.0]
    assert [one.cores for one in seen["train"]] == [1, 1, 2, 1]


def test_each_change_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    watched(look(1, 1.0, [0], TRIES), look(2, 2.0, [0, 1], TRIES, KEPT), look(3, 3.0, [0, 1], TRIES, KEPT))
    told = capsys.readouterr().err
    assert told.count("tries 2") == told.count("keeps its 2 cores") == 1


def test_a_search_has_ended_when_its_last_word_is_no_try() -> None:
    assert not has_settled(look(1, 1.0, [0]))
    assert not has_settled(look(1, 1.0, [0], TRIES))
    assert has_settled(look(1, 1.0, [0], TRIES, KEPT, ("throttled", "held back; tries are not its matter")))


def test_looks_become_a_table_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watching = watched()
    watching.seen["train"] = [CoreSample(0.0, 1, None), CoreSample(1.0, 1, 5.0), CoreSample(2.0, 2, 9.0)]
    publish(watching, tmp_path, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["jobs"]["train"] == {"cores": [1, 2], "best_steps_per_s": {"1": 5.0, "2": 9.0}}
    assert (tmp_path / "cores.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "cores.csv").open() as file:
        assert [row["cores"] for row in csv.DictReader(file)] == ["1", "1", "2"]


def test_its_jobs_are_tuned_and_paper_b_has_no_demo(colane: Colane) -> None:
    config = demo_cores.stack_config(Path("s"), None)
    assert config.agent[DEVICES] == "cpu:1"
    assert config.server[CORE_TUNER] == "linear"
    assert colane("demo", "--paper", "B").code == 2
