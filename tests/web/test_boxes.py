"""The boxes of devices in a real browser: as high as what is in them."""

from __future__ import annotations

import time

import pytest

from tests.server.harness import GB, SLEEP, gpu, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

pytestmark = pytest.mark.live
HIGH = 94


def test_a_lane_is_as_high_as_its_part_of_the_memory(running: Scheduler, watched: Watched) -> None:
    http = running.http
    device = gpu(0, type="A100", uuid="a", memory_bytes=80 * GB, foreign_bytes=8 * GB)
    free = gpu(1, type="A100", uuid="b", memory_bytes=80 * GB)
    described = {**node(cores=list(range(8)), host_memory_bytes=100 * GB), "gpus": [device, free]}
    http.post("/node", json=described).raise_for_status()
    http.post("/job", json={**SLEEP, "gpu_memory_bytes": 40 * GB, "cores": 2, "host_memory": "25GB"}).raise_for_status()
    http.post("/job", json={**SLEEP, "gpus": 0, "cores": 1, "name": "no devices"}).raise_for_status()
    now_s = time.time()
    told = [launched(job, start_s=now_s) for job in (1, 2)]
    http.post("/node/n1/report", json=report(*told, at_s=now_s)).raise_for_status()
    (job,) = [one for one in http.get("/node/n1").json()["jobs"] if one["slots"]]
    page = watched.page
    page.goto(link(running))
    page.locator(".box").first.wait_for()
    boxes = page.locator(".box")
    on = job["slots"][0]["gpu"]
    lane = boxes.nth(on).locator(".lane")
    part = sum(job["memory"]) / (80 * GB)
    assert part == 0.5
    assert lane.bounding_box()["height"] == pytest.approx(part * HIGH, abs=2)
    assert boxes.nth(0).locator(".xt").inner_text() == "not Colane's 8 GB"
    assert boxes.nth(1 - on).get_by_text("free").count() == 1
    side = page.locator(".side")
    assert "3 / 8" in side.inner_text()
    assert "25 / 100 GB" in side.inner_text()
    assert side.get_by_text("no devices").count() == 1
    fits(page)
