"""The boxes of devices in a real browser: as high as what is in them."""

from __future__ import annotations

import time
from itertools import pairwise

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


def test_a_gang_is_one_block_and_what_is_the_same_of_a_node_is_one_row(running: Scheduler, watched: Watched) -> None:
    http = running.http
    busy = [{**gpu(at, type="A100", uuid=f"g{at}", memory_bytes=80 * GB), "others_ratio": 0.5} for at in range(4)]
    http.post("/node", json={**node("n2", agent_id="a2", pool="gang"), "gpus": busy}).raise_for_status()
    gang = {**SLEEP, "gpus": 3, "gpu_memory_bytes": 40 * GB, "pool": "gang", "name": "gang"}
    number = http.post("/job", json=gang).raise_for_status().json()["id"]
    held = {int(one.split("/")[1]) for one in http.get(f"/job/{number}").json()["gpus"]}
    assert held == {0, 1, 2}
    now_s = time.time()
    use = [{"index": at, "busy_ratio": 0.25, "used_bytes": 2 * GB} for at in range(4)]
    told = report(launched(number, start_s=now_s), agent_id="a2", at_s=now_s, devices=use)
    http.post("/node/n2/report", json=told).raise_for_status()
    page = watched.page
    page.goto(link(running))
    parts = page.locator(f"a.s[href='#/job/{number}']")
    parts.first.wait_for()
    for width, rows in ((1280, (0, 3)), (390, (0, 3))):
        page.set_viewport_size({"width": width, "height": 800})
        boxes = [parts.nth(at).bounding_box() for at in range(*rows)]
        assert [round(one["y"]) for one in boxes] == [round(boxes[0]["y"])] * 3
        assert all(left["x"] + left["width"] >= right["x"] for left, right in pairwise(boxes))
    assert [parts.nth(at).locator("b").is_visible() for at in range(3)] == [True, False, False]
    assert "25 %" in page.locator(".node", has_text="n2").locator(".dh").first.inner_text()
    rows = page.locator(".look li", has_text="of n2/")
    assert rows.count() == 1
    assert "and 3 like it" in rows.inner_text()
    fits(page)


def test_jobs_beside_the_devices_of_a_node_are_counted(running: Scheduler, watched: Watched) -> None:
    """Those of the first three names are shown, with how many more there are."""
    http = running.http
    http.post("/node", json={**node("n3", agent_id="a3", pool="cores"), "cores": list(range(8))}).raise_for_status()
    http.post("/jobs", json=[{**SLEEP, "gpus": 0, "cores": 1, "pool": "cores"}] * 7).raise_for_status()
    page = watched.page
    page.goto(link(running))
    side = page.locator(".node", has=page.get_by_role("link", name="n3")).locator(".side")
    side.get_by_text("4 more").wait_for()
    assert side.locator(".cj").count() == 3
