"""What the page tells of starts that are not foreseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.harness import SLEEP, node
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

pytestmark = pytest.mark.live


def test_a_job_of_which_no_start_is_foreseen_says_why(running: Scheduler, watched: Watched, tmp_path: Path) -> None:
    running.http.post("/node", json=node("n1", gpus=1)).raise_for_status()
    kept = {**SLEEP, "share": False, "name": "kept"}
    ids = running.http.post("/jobs", json=[kept, {**kept, "name": "waits"}]).raise_for_status().json()["ids"]
    told = running.http.get(f"/job/{ids[1]}/start").raise_for_status().json()["expected_start"]["sentence"]
    assert told == "not known: fewer than 10 such waits seen"
    page = watched.page
    page.goto(link(running))
    page.goto(f"{running.url}/#/queue")
    page.locator(".row", has_text="waits").locator(".q", has_text=f"start {told}").wait_for()
    fits(page)
    page.screenshot(path=str(tmp_path / "queue-1280.png"))
    page.set_viewport_size({"width": 390, "height": 800})
    page.screenshot(path=str(tmp_path / "queue-390.png"))
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{running.url}/#/job/{ids[1]}")
    page.get_by_text(told).first.wait_for()
    page.screenshot(path=str(tmp_path / "job-1280.png"))
