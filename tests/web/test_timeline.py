"""The timeline in a real browser: who was on which device when, and what was decided around a moment."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.server.harness import SLEEP, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

pytestmark = pytest.mark.live
EVIL = "<img src=x onerror='window.hit=1'>"


def faked(now_s: float) -> dict[str, Any]:
    """Six hours: a job on two devices all the time, two that shared one for an hour, one on a node that is gone."""

    def job(number: int, *spans: Any, **fields: Any) -> dict[str, Any]:
        told = [
            {"gpus": gpus, "since_s": now_s - since, "until_s": until and now_s - until} for gpus, since, until in spans
        ]
        return {"id": number, "name": f"run-{number}", "user": "ann", "state": "running", "spans": told, **fields}

    jobs = [
        job(4, (["n1/2"], 7200, 3600), name=EVIL),
        job(3, (["n1/2"], 7200, 3600)),
        job(2, (["gone/0"], 7200, 3600)),
        job(1, (["n1/0", "n1/1"], 90_000, 1800)),
        job(5, (["n1/1"], 900, None)),
    ]
    marks = [
        {"gpu": "n1/3", "kind": "broken", "job": None, "since_s": now_s - 3600, "until_s": None},
        {"gpu": "n1/3", "kind": "kept", "job": 1, "since_s": now_s - 7200, "until_s": now_s - 3600},
    ]
    return {"since_s": now_s - 21_600, "until_s": now_s, "jobs": jobs, "marks": marks, "left_out": False}


def test_lanes_lie_where_their_times_are(running: Scheduler, watched: Watched) -> None:
    now_s = float(int(time.time()))
    running.http.post("/node", json=node(gpus=4)).raise_for_status()
    page = watched.page
    page.goto(link(running))
    page.route("**/timeline?*", lambda route: route.fulfill(json=faked(now_s)))
    page.goto(f"{running.url}/#/timeline")
    page.locator("svg.tl").wait_for()
    boxes = {
        re.match(r"\d+", str(title)).group(): place  # type: ignore[union-attr]
        for title, *place in page.locator("svg.tl a rect.gp").evaluate_all(
            "all => all.map(r => [r.textContent, ...['x', 'y', 'width', 'height'].map(k => Number(r.getAttribute(k)))])"
        )
    }
    assert set(boxes) == {"1", "2", "3", "4", "5"}
    assert page.locator("svg.tl a[href='#/job/1']").count() == 1  # over both its devices
    assert boxes["1"][3] > 2 * boxes["5"][3]
    whole = boxes["1"][2] * 21_600 / (21_600 - 1800)
    broken, kept = (page.locator(f"svg.tl rect.{kind}") for kind in ("bd", "kp"))
    assert float(broken.get_attribute("width")) == pytest.approx(whole / 6, abs=2)
    assert "kept for job 1" in kept.text_content()
    for shared in ("3", "4"):
        assert boxes[shared][2] == pytest.approx(whole / 6, abs=2)
        assert boxes[shared][0] - boxes["1"][0] == pytest.approx(whole * 4 / 6, abs=2)
    assert boxes["4"][1] - boxes["3"][1] == pytest.approx(16)  # at once: below one another
    assert page.locator("svg.tl text", has_text="broken").count() == 1
    assert page.locator("svg.tl .tt", has_text="gone").count() == 1
    page.goto(f"{running.url}/#/timeline?at={now_s - 5400:.0f}")
    page.locator("h1", has_text="4 devices worked").wait_for()
    assert page.evaluate("window.hit") is None


def test_a_moment_is_pointed_at_and_its_decisions_are_told(running: Scheduler, watched: Watched) -> None:
    page = watched.page
    running.http.post("/node", json=node(gpus=4)).raise_for_status()
    for number in range(3):
        running.http.post("/job", json={**SLEEP, "name": f"{EVIL}{number}"}).raise_for_status()
    running.http.post("/node/n1/report", json=report(launched(1, start_s=1.0))).raise_for_status()
    page.goto(link(running))
    page.get_by_role("link", name="Timeline").click()
    page.locator(".moves li").first.wait_for()
    told = running.http.get("/timeline/moves").json()
    assert page.locator(".moves li").count() == len(told["before"]) + 1
    page.get_by_role("link", name="← decision").click()
    page.wait_for_url("**at=*")
    page.locator("svg.tl").click(position={"x": 400, "y": 40})
    page.get_by_text("you are here").wait_for()
    page.locator("h1", has_text="At ").wait_for()
    at = page.url
    page.reload()
    page.get_by_text("you are here").wait_for()
    assert page.url == at
    page.get_by_role("link", name="24 h").click()
    page.get_by_role("link", name="24 h", exact=True).and_(page.locator("[aria-current]")).wait_for()
    page.get_by_label("Node").select_option("n1")
    page.wait_for_url("**node=n1*")
    fits(page)
    assert page.evaluate("window.hit") is None
    assert page.locator("body *").count() < 1500


def test_reservations_are_seen_where_they_are_now_and_said_where_they_come(
    running: Scheduler, watched: Watched
) -> None:
    http, page = running.http, watched.page
    for name in ("r1", "r2"):
        http.post("/node", json=node(name=name, gpus=2)).raise_for_status()
    for name, begins, nodes in (("course", "now", "r1"), ("later", "now+3h", "r[1-2]")):
        asked = {"nodes": nodes, "from": begins, "to": "now+9h", "users": ["ann"], "name": name}
        asked |= {"to": "now+2h"} if begins == "now" else {}
        http.post("/reservations", json=asked).raise_for_status()
    job = http.post("/job", json={**SLEEP, "user": "ann", "nodes": "r1"}).json()["id"]
    report_of = report(launched(job, start_s=time.time()))
    http.post("/node/r1/report", json=report_of).raise_for_status()
    for wide in (1280, 390):
        page.set_viewport_size({"width": wide, "height": 900})
        page.goto(link(running))
        page.goto(f"{running.url}/#/timeline?node=r1&span=3600")
        page.locator("svg.tl rect.kp title", has_text="reserved, course: ").first.wait_for(state="attached")
        assert page.locator("svg.tl rect.kp").count() == 2, "each device of r1, beside the job"
        page.get_by_text("Reserved later: later: ").wait_for()
        assert "(r1, r2)" in page.get_by_text("Reserved later: later: ").inner_text()
        fits(page)
        page.goto(f"{running.url}/#/nodes")
        row = page.locator("tr", has_text="r1")
        row.get_by_text("reserved", exact=True).wait_for()
        page.locator("tr", has_text="r2").get_by_text("reserved later").wait_for()
        page.goto(f"{running.url}/#/node/r1")
        page.get_by_text("Reserved, so that jobs of others start here only if they end before: course: ").wait_for()
        fits(page)
