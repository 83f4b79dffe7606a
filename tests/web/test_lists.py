"""No list of the page ends without a word: it tells how many there are, and brings the rest."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.server.harness import SLEEP, finished, gpu, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

pytestmark = pytest.mark.live
FAILED, GOOD, NODES, SHORT = 130, 20, 70, 900


@pytest.fixture(scope="module")
def filled(running: Scheduler) -> Scheduler:
    """More ended jobs and more nodes than a list shows at first, and jobs that run and wait."""
    http = running.http
    http.post("/node", json=node("n1", gpus=1)).raise_for_status()
    ended = [{**SLEEP, "name": f"e{number}", "gpus": 0} for number in range(FAILED + GOOD)]
    http.post("/jobs", json=ended[:100]).raise_for_status()
    http.post("/jobs", json=ended[100:]).raise_for_status()
    for number in range(1, FAILED + GOOD + 1):
        http.post("/finished_job", json=finished(number, exit_code=int(number <= FAILED))).raise_for_status()
    for number in range(2, NODES + 1):
        described = {**node(f"n{number}", agent_id=f"a{number}"), "gpus": [gpu(0, uuid=f"{number}")]}
        http.post("/node", json=described).raise_for_status()
    return running


def test_the_count_of_a_state_is_what_its_list_comes_to(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.goto(f"{filled.url}/#/reports")
    for state, there in (("failed", FAILED), ("succeeded", GOOD)):
        page.locator(".look li", has_text=state).get_by_text(str(there), exact=True).wait_for()
        page.locator(".look").get_by_role("link", name=state).click()
        shown = min(there, 100)
        page.get_by_text(f"{state}: {shown} of {there}").wait_for()
        if there > shown:
            page.get_by_role("button", name=f"{there - shown} more").click()
            page.get_by_text(f"{state}: {there} of {there}").wait_for()
        assert page.locator("table.en tbody tr", has_text=state).count() == there
        page.get_by_role("link", name="all states").click()
        page.locator("h2 small", has_text=f"100 of {FAILED + GOOD}").wait_for()


def test_nodes_stand_as_people_count_and_more_of_them_come(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.locator("svg.all").wait_for()
    assert page.locator("svg.all text").all_text_contents()[:11] == [f"n{number}" for number in range(1, 12)]
    page.goto(f"{filled.url}/#/nodes")
    page.get_by_role("button", name=f"{NODES - 60} more").click()
    page.locator("tbody tr", has_text=f"n{NODES}").wait_for()
    names = page.locator("tbody tr td:first-child").all_text_contents()
    assert names == [f"n{number}" for number in range(1, NODES + 1)]


def test_every_time_that_a_device_was_held_is_drawn(filled: Scheduler, watched: Watched) -> None:
    """Hundreds of short jobs on one device, and one on another all the time: what is white was free."""
    now_s = float(int(time.time()))
    page, wide = watched.page, 21_600 / (SHORT + 100)

    def job(number: int, gpu: str, since_s: float, until_s: float | None) -> dict[str, Any]:
        span = {"gpus": [gpu], "since_s": since_s, "until_s": until_s}
        return {"id": number, "name": "x" * 90, "user": "ann", "state": "running", "spans": [span]}

    short = [job(2 + at, "n1/0", now_s - 21_600 + at * wide, now_s - 21_600 + (at + 1) * wide) for at in range(SHORT)]
    told = {"since_s": now_s - 21_600, "until_s": now_s, "marks": [], "left_out": True, "left_out_count": 7}
    page.goto(link(filled))
    page.route("**/timeline?*", lambda route: route.fulfill(json={**told, "jobs": [*short, job(1, "n2/0", 0.0, None)]}))
    page.goto(f"{filled.url}/#/timeline")
    page.locator("svg.tl").wait_for()
    assert page.locator("svg.tl a[href='#/job/1']").count() == 1
    single = page.locator("svg.tl a rect.gp").count()
    joined = page.locator("svg.tl path.gp").evaluate_all(
        "all => all.reduce((n, p) => n + p.getAttribute('d').split('z').length - 1, 0)"
    )
    assert single + joined == SHORT + 1
    row = page.locator("svg.tl a[href='#/job/1'] rect").bounding_box()
    name = page.locator("svg.tl a[href='#/job/1'] svg").bounding_box()
    assert name["x"] + name["width"] <= row["x"] + row["width"], "a name stays in its block"
    assert page.get_by_text(f"Only the youngest {SHORT + 1} jobs are drawn, 7 older ones are not").count() == 1
    fits(page)


def test_jobs_stand_in_order_of_the_column_that_is_clicked(filled: Scheduler, watched: Watched) -> None:
    http, page = filled.http, watched.page
    names = ["run10", "run2", "other"]
    ids = [http.post("/job", json={**SLEEP, "name": name}).raise_for_status().json()["id"] for name in names]
    http.post("/node/n1/report", json=report(launched(ids[0], start_s=1.0))).raise_for_status()
    page.goto(link(filled))
    page.goto(f"{filled.url}/#/queue")
    table = page.get_by_role("table", name="Jobs")
    rows = table.get_by_role("row")

    def shown() -> list[str]:
        return [str(row.get_by_role("cell").nth(2).inner_text()) for row in rows.all()[1:]]

    for clicks, sort, order in (
        (1, "ascending", ["other", "run2", "run10"]), (1, "descending", ["run10", "run2", "other"])
    ):  # fmt: skip
        for _ in range(clicks):
            table.get_by_role("columnheader", name="Name").get_by_role("link").click()
        page.locator(f"[aria-sort={sort}]", has_text="Name").wait_for()
        first = re.compile(rf"^\s*{order[0]}\s*$")
        page.locator(".row:nth-child(1) > span:nth-child(3)", has_text=first).first.wait_for()
        assert shown() == order
    assert table.get_attribute("aria-rowcount") == str(len(names) + 1)
    fits(page)
