"""Usage and reports in a real browser."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colane.foresee.judged import Foretold, judged, judged_rows
from colane.foresee.said import QuoteBounds, StartQuote
from tests.server.harness import SLEEP, finished, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link, signed_in

pytestmark = pytest.mark.live
EVIL = "<img src=x onerror='window.hit=1'>"


def answer(body: Any, route: Any) -> None:
    route.fulfill(json=body)


@pytest.fixture(scope="module")
def filled(running: Scheduler) -> Scheduler:
    http = running.http
    http.post("/node", json=node(gpus=2)).raise_for_status()
    digest = hashlib.sha256(b"ann's").hexdigest()
    http.post("/tokens", json={"digest": digest, "user": "ann"}).raise_for_status()
    for user, name in (("ann", EVIL), ("eve", "run-1"), ("ann", "run-2")):
        http.post("/job", json={**SLEEP, "user": user, "name": name, "workdir": "/srv"}).raise_for_status()
    http.post("/node/n1/report", json=report(launched(1, start_s=1.0), launched(2, start_s=1.0))).raise_for_status()
    http.post("/finished_job", json=finished(1, exit_code=3)).raise_for_status()
    return running


def test_usage_is_told_as_the_api_tells_it(filled: Scheduler, watched: Watched) -> None:
    now_s = time.time()
    day_s = now_s - now_s % 86_400

    def had(back: int, user: str, hours: float) -> dict[str, Any]:
        return {
            "start_s": day_s - back * 86_400,
            "user": user,
            "gpu_s": hours * 3600,
            "lost_gpu_s": hours * 360,
            "ended": 1,
        }

    days = [had(1, "eve", 30.0), had(0, "ann", 10.0)]
    note = {"job": 1, "name": EVIL, "jobs": 3, "what": "gpu-memory", "flag": "--gpu-memory 3GB", "gpu_s": 1.0}
    used = [
        {"user": "ann", "jobs": 3, "ratios": {"gpu": 0.5, "cores": 0.1}, "notes": [{**note, "sentence": "ask for 3GB"}]}
    ]
    waited = [{"user": "eve", "why": "behind", "waited_s": 9.0}, {"user": "ann", "why": "behind", "waited_s": 7200.0}]
    page = watched.page
    for path, body in (("days", days), ("used", used), ("waiting", waited)):
        page.route(f"**/usage/{path}*", partial(answer, body))
    page.goto(signed_in(filled, "ann's"))
    page.get_by_role("link", name="Usage", exact=True).click()
    page.get_by_text("You used 10 device hours in 28 days, 25 % of all.").wait_for()
    own, others = page.locator("svg rect.fa"), page.locator("svg rect.ot")
    assert (own.count(), others.count()) == (1, 1)
    high = [float(one.get_attribute("height")) for one in (own, others)]
    assert high[1] / high[0] == pytest.approx(3, rel=0.05)
    assert page.locator("svg rect.lo").count() == 2  # a tenth of each day was made again
    assert page.get_by_text("Budgets").count() == 0, "there are none"
    month = {"until_s": now_s + 86_400.0}
    budgets = [
        {"name": "group lab", "gpu_s": 3600.0 * 100, "used_gpu_s": 3600.0 * 40, **month},
        *[{"name": f"user u{i}", "gpu_s": 3600.0, "used_gpu_s": 7200.0, **month} for i in range(60)],
    ]
    page.route("**/usage/budgets", partial(answer, budgets))
    page.reload()
    page.get_by_text("40 of 100 h used").wait_for()
    assert page.get_by_text("▲ 2 of 1 h used").count() == 49
    page.get_by_text("11 more:").wait_for()
    row = page.locator("tr.mine")
    assert "1 h" in row.locator("td").nth(6).inner_text()
    assert "50 %" in row.inner_text()
    assert row.locator(".wa").inner_text() == "\N{BLACK UP-POINTING TRIANGLE} 10 %"
    assert row.get_by_text("unknown").count() == 3  # never a 0 where nothing is known
    page.get_by_text("and 2 like it").wait_for()
    assert page.locator(".half td").last.inner_text() == "2 h"
    fits(page)
    page.get_by_role("link", name="7 d").click()
    page.get_by_text("in 7 days").wait_for()
    assert page.evaluate("window.hit") is None


def test_nothing_has_been_used(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    for path in ("days", "used", "waiting"):
        page.route(f"**/usage/{path}*", lambda route: route.fulfill(json=[]))
    page.goto(link(filled))
    page.goto(filled.url + "/#/usage")
    page.get_by_text("No job held a device in these days.").wait_for()
    page.get_by_text("No job of yours has waited for a minute.").wait_for()


def test_ended_jobs_are_told_and_submitted_again_by_their_owner(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(signed_in(filled, "ann's"))
    page.get_by_role("link", name="Reports").click()
    page.get_by_text("1 job ended in 7 days, 0 with success.").wait_for()
    shown = filled.http.get("/usage/ended").json()["jobs"][0]
    assert page.locator(".en tbody .jl").inner_text() == shown["reason"]
    assert page.locator(".en tbody bdi").first.get_attribute("title") == EVIL
    fits(page)
    page.locator(".look a", has_text="failed").click()
    page.get_by_text("failed: 1 of 1").wait_for()
    page.get_by_label("Job 1", exact=True).check()
    page.get_by_role("button", name="Submit again…").click()
    page.get_by_role("button", name="Submit again job 1").click()
    page.wait_for_url("**/#/job/4")
    again = filled.http.get("/job/4").json()
    assert (again["name"], again["user"]) == (EVIL, "ann")
    page.goto(link(filled))
    page.goto(filled.url + "/#/reports")
    page.locator(".en tbody tr").first.wait_for()
    assert page.locator(".en input").count() == 0  # another's
    assert page.evaluate("window.hit") is None


def test_the_report_shows_how_good_quotes_of_starts_were(filled: Scheduler, watched: Watched, tmp_path: Path) -> None:
    bounds = [QuoteBounds(50.0, one, 200.0, 20, 0.2) for one in (100.0, 100.0, 900.0, 90.0, 120.0)]
    quotes = [
        Foretold(StartQuote(n, 0.0, tuple(bounds), bounds[0], is_told=True), 60.0 + 3 * n, 900.0) for n in range(100)
    ]
    rows = [*judged_rows("fifo", judged(quotes)), *judged_rows("srtf", judged(quotes[:90]))]
    page = watched.page
    page.goto(link(filled))
    page.route("**/health", partial(answer, {**filled.http.get("/health").json(), "foreseen": rows}))
    page.goto(filled.url + "/#/reports?days=28")
    page.get_by_text("What was foreseen").wait_for()
    shown = page.locator(".fs tbody tr")
    assert shown.count() == len(rows)
    assert shown.nth(4).inner_text().split("\t")[:4] == ["fifo", "foreseen", "50", f"{round(100 * rows[4]['holds'])} %"]
    assert page.locator(".fs b").count() == 2
    fits(page)
    page.screenshot(path=str(tmp_path / "reports.png"), full_page=True)
