"""What-ifs on the page, and what they may cost: one for each user, niced, on one core, ended with its asker."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from colane.server.planning.asides import Asides
from tests.server.harness import SLEEP, finished, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def filled(running: Scheduler) -> Scheduler:
    http = running.http
    http.post("/node", json=node(gpus=1)).raise_for_status()
    now_s = time.time()
    job = {**SLEEP, "user": "ann", "name": "run", "workdir": "/srv", "share": False}
    for _ in range(5):
        http.post("/job", json=job).raise_for_status()
    http.post("/node/n1/report", json=report(launched(1, start_s=now_s - 90))).raise_for_status()
    http.post("/finished_job", json=finished(1, end_s=now_s - 10)).raise_for_status()
    http.post("/node/n1/report", json=report(launched(2, start_s=now_s - 9))).raise_for_status()
    return running


def asides(scheduler: Scheduler) -> list[int]:
    """What-ifs under way, by process: those that the scheduler has started from whichever thread."""
    pid = json.loads((scheduler.state / "server.json").read_text())["pid"]
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    return [one for one in found if b"whatif" in command(one)]


def until(look: Callable[[], list[int]], are: bool) -> list[int]:
    """Look until there are some, or none."""
    begun_s = time.monotonic()
    while bool(found := look()) != are:
        assert time.monotonic() < begun_s + 60
    return found


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_change_is_asked_for_and_told_in_words_and_a_table(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.get_by_role("link", name="What if", exact=True).click()
    page.get_by_label("Nodes").fill("+1")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="What it would do").wait_for()
    assert page.locator("table.wi th").all_inner_texts() == ["", "as it is", "--nodes +1"]
    assert page.locator("table.wi tbody tr").count() == 5
    assert "with --nodes +1: " in page.locator(".notes").inner_text()
    assert page.get_by_role("button", name="Stop").count() == 0
    fits(page)


def test_what_is_wrong_is_said_with_the_field(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.get_by_role("link", name="What if", exact=True).click()
    wrong = (("two", "--nodes: must be as +2, -1 or big:+2, got 'two'"), ("", "say what is to change"))
    for text, said in wrong:
        page.get_by_label("Nodes").fill(text)
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("alert").get_by_text(said).wait_for()


def test_it_is_niced_on_one_core_and_ends_with_its_asker(filled: Scheduler) -> None:
    asked = {"nodes": "+1", "since": "7d"}
    with filled.http.stream("GET", "/whatif", params=asked) as answer:
        assert answer.status_code == 200
        # A process has its command before it is niced.
        (pid,) = until(lambda: [one for one in asides(filled) if os.getpriority(os.PRIO_PROCESS, one) == 19], are=True)
        assert len(os.sched_getaffinity(pid)) == 1
        second = filled.http.get("/whatif", params=asked)
        assert (second.status_code, "being worked out" in second.text) == (429, True)
    until(lambda: asides(filled), are=False)
    assert done(filled.http, asked)[-1].keys() == {"found"}, "and another may be asked for"


def test_what_sharing_did_is_worked_out_for_a_day_and_told_each_user(filled: Scheduler, tmp_path: Path) -> None:
    reached = {"COLANE_URL": filled.url, "COLANE_TOKEN": filled.token}
    config = SimpleNamespace(reached_by=reached, shared=tmp_path / "shared.json", nightly=True)
    nights = Asides(SimpleNamespace(config=config))  # type: ignore[arg-type]
    now_s = time.time()
    with ThreadPoolExecutor(1) as aside:  # in this thread a browser has a loop
        for many in (0, 7 * 86_400):
            aside.submit(asyncio.run, nights.work_out(now_s - many - 3600, now_s - many)).result()
    (day,) = nights.told(lambda user: user in {"ann", "all"})
    ann, every = day["users"]
    assert (ann["user"], ann["jobs"], every["user"], every["jobs"]) == ("ann", 1, "all", 1)
    assert ann["gpu_h"] == every["gpu_h"] > 0
    assert [one["user"] for one in nights.told(lambda user: user == "all")[0]["users"]] == ["all"]
    assert len(json.loads((tmp_path / "shared.json").read_text())) == 2, "a day without jobs is not asked for again"


def test_the_page_tells_a_user_what_sharing_did(filled: Scheduler, watched: Watched) -> None:
    own = {"jobs": 3, "gpu_h": 2.0, "took_h": 4.0, "alone_h": [6.0, 5.0, 7.0], "slowed": 1, "slowed_ratio": 1.2}
    users = [
        {**own, "user": "root", "slowed_jobs": [{"job": 1, "ratio": 1.2}]},
        {**own, "user": "all", "slowed_jobs": []},
    ]
    page = watched.page
    day = [{"start_s": time.time() - 86_400, "users": users}]
    page.route("**/usage/shared", lambda route: route.fulfill(json=day))
    page.goto(link(filled))
    page.get_by_role("link", name="Usage", exact=True).click()
    page.get_by_role("heading", name="What sharing did for you").wait_for()
    text = page.locator("main").inner_text()
    assert "Your 3 jobs had 2 GPU hours and took 4 h from submission to end" in text
    assert "alone on its GPUs in FIFO they would have taken 6 h (5 to 7)" in text
    assert "One was slowed: 1 1.20" in text
    assert page.locator("table.sh tbody tr").count() == 2
    fits(page)


def done(http: httpx.Client, asked: dict[str, Any]) -> list[dict[str, Any]]:
    text = http.get("/whatif", params=asked, timeout=120).raise_for_status().text
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("policy", ["/srv/own.py:Own", "own.py:Own", "fastest"])
def test_no_file_of_a_user_runs_in_the_place_of_a_policy(filled: Scheduler, policy: str) -> None:
    refused = filled.http.get("/whatif", params={"policy": policy})
    assert (refused.status_code, refused.json()["detail"][0]["field"]) == (422, "policy")
    assert not asides(filled)
