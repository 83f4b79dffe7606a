"""The board and the alert rules ask for what /metrics has, by the labels that it has."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import yaml

from colane.integrations.grafana import ALERTS, PANELS, alerts, board
from colane.model.reason import Why
from tests.server.harness import finished, launched, node, report, world
from tests.server.test_metrics import SEEN, USE, scrape

EXPRESSIONS = [expression for panel in PANELS for expression, _ in panel.queries] + [one.expression for one in ALERTS]
NAME = re.compile(r"\bcolane_[a-z_]+")
LABEL = re.compile(r'[{,]([a-z_]+)(?:=|!~)"')
BY = re.compile(r"by \(([a-z_, ]+)\)")
OF_SPEED = {"slowdown_actual", "slowdown_predicted", "speed_ratio"}
SHOWN = re.compile(r"{{ ?(?:\$labels\.)?([a-z]+) ?}}")


async def test_every_name_and_label_is_in_real_output() -> None:
    async with world(policy="colane", idle_after_s=0.0) as w:
        await w.good("POST", "/node", node(gpus=2))
        for number in range(6):
            await w.submit(user="ann", name=f"j{number}", family="f", gpu_memory="500MB")
        running = [job.id for job in w.service.read_model.jobs.values() if job.placement is not None]
        saved = {"at_s": 9.0, "steps": 9, "step_mean_s": 0.1, "saves": True, "saved_s": 5.0, "steps_saved": 5}
        for _ in range(2):
            told = [launched(job, start_s=1.0, progress=saved, use={**USE, "busy_ratio": 0.0}) for job in running]
            devices = [{**SEEN, "index": index} for index in range(2)]
            await w.good("POST", "/node/n1/report", report(*told, devices=devices))
        await w.good("POST", "/finished_job", finished(running[-1]))
        found = await scrape(w)
    labels = {label for samples in found.values() for at in samples for label, _ in at} | {"value"}
    # These are of jobs whose speed, or what sharing does to it, is known, which no short test brings about. That they
    # are written is tested.
    of_sharing = {f"colane_job_{name}" for name in OF_SPEED} | {"colane_sharing_gain_ratio"}
    for expression in EXPRESSIONS:
        names = set(NAME.findall(expression))
        assert names, expression
        assert names <= found.keys() | of_sharing, expression
        assert {*LABEL.findall(expression)} <= labels
        assert {one.strip() for by in BY.findall(expression) for one in by.split(",")} <= labels
    legends = [legend for panel in PANELS for _, legend in panel.queries] + [one.summary for one in ALERTS]
    assert {name for legend in legends for name in SHOWN.findall(legend)} <= labels


def test_the_names_of_sharing_are_written_somewhere() -> None:
    from colane.server.metrics.own import JOB_VALUES  # noqa: PLC0415

    assert JOB_VALUES.keys() >= OF_SPEED


@pytest.mark.parametrize(
    ("why", "is_counted"),
    [("no-free-gpu", True), ("would-delay", True), ("held", False), ("limit", False), ("budget", False),
     ("begins-later", False), ("after", False), ("array-limit", False), ("nodes-reserved", False)],
)  # fmt: skip
def test_jobs_that_wait_by_someones_word_raise_no_alert(why: str, *, is_counted: bool) -> None:
    (rule,) = [one for one in ALERTS if one.name == "ColaneJobsWaitBesideFreeDevices"]
    found = re.search(r'colane_waiting_jobs_by_reason{why!~"([^"]+)"}', rule.expression)
    assert found is not None
    assert Why(why)
    assert (re.fullmatch(found[1], why) is None) is is_counted


def test_panels_lie_beside_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_command_prints_both() -> None:
    def ran(*words: str) -> str:
        command = [sys.executable, "-m", "colane.cli", "manifest", "grafana", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert json.loads(ran())["title"] == "Colane"
    assert yaml.safe_load(ran("--alerts")) == alerts()
