"""The scheduler's page in a real browser, and its way in."""

from __future__ import annotations

import hashlib
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import until
from tests.server.harness import SLEEP, launched, node, report
from tests.server.processes import Scheduler, scheduler
from tests.web.browser import SMALLEST, Watched, fits, link, signed_in

pytestmark = pytest.mark.live
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
NAMES = ["<script>window.hit = 1</script>", "<img src=x onerror='window.hit=1'>", "\u202eevil", "🦊", "n" * 200]


@pytest.fixture(scope="module")
def busy(running: Scheduler) -> Scheduler:
    """With a node, a job that runs there, and many that wait: whichever of these tests comes first in its process."""
    running.http.post("/node", json=node()).raise_for_status()
    jobs = [{**SLEEP, "name": name} for name in NAMES] + [SLEEP] * 300
    running.http.post("/jobs", json=jobs).raise_for_status()
    told = launched(1, start_s=time.time() - 10)
    running.http.post("/node/n1/report", json=report(told, at_s=time.time())).raise_for_status()
    return running


def test_without_a_node_it_is_said(tmp_path: Path, chromium: Any) -> None:
    with scheduler(tmp_path) as empty:
        page = chromium.new_page()
        page.goto(link(empty))
        page.get_by_text("No node is here yet.").wait_for()
        page.close()


def test_a_link_signs_in_once_and_a_change_needs_the_header(running: Scheduler) -> None:
    path = link(running)
    with httpx.Client(base_url=running.url) as browser:
        assert browser.get("/overview").status_code == 401
        cookie = browser.get(path).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert browser.get("/overview").status_code == 200
        assert browser.delete("/job/999").status_code == 403
        assert browser.delete("/job/999", headers={"X-Colane-Page": "1"}).status_code == 404
        page = browser.get("/")
        assert page.headers["content-security-policy"].startswith("default-src 'self';")
    with httpx.Client(base_url=running.url) as other:
        other.get(path)
        assert other.get("/overview").status_code == 401
        assert other.get("/page/..%2f__init__.py").status_code == 404


def test_a_session_ends_with_the_token_it_came_by(running: Scheduler) -> None:
    digest = hashlib.sha256(b"ann's").hexdigest()
    made = running.http.post("/tokens", json={"digest": digest, "user": "ann"}).raise_for_status().json()["id"]
    asked = httpx.post(f"{running.url}/page_link", json={}, headers={"Authorization": "Bearer ann's"}).json()
    with httpx.Client(base_url=running.url) as browser:
        browser.get(asked["path"])
        assert browser.get("/listing").status_code == 200
        running.http.delete(f"/token/{made}").raise_for_status()
        assert browser.get("/listing").status_code == 401


@pytest.mark.parametrize("name", ["\x1b[31mred", "n" * 4096])
def test_a_name_that_no_screen_can_show_is_refused(running: Scheduler, name: str) -> None:
    answer = running.http.post("/job", json={**SLEEP, "name": name})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["field"] == "name"


def test_names_are_text_and_pages_fit(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    page.goto(running.url + "/#/queue")
    page.locator(".row").first.wait_for()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for view in ("#/", "#/queue"):
            page.goto(f"{running.url}/{view}")
            page.locator("footer").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
            assert page.evaluate(SMALLEST) >= 11, (width, view)
    assert [page.locator(".row bdi").nth(2 * at).get_attribute("title") for at in range(len(NAMES))] == NAMES
    assert len({row.bounding_box()["height"] for row in page.locator(".row").all()}) == 1
    reason = "<img src=x onerror='window.hit=1'>" * 5
    running.http.post("/node", json=node("n2", agent_id="a2", pool="other")).raise_for_status()
    running.http.post("/node/n2/drain", json={"reason": reason}).raise_for_status()
    page.goto(f"{running.url}/#/")
    page.get_by_text(f"drains: {reason}").wait_for()
    running.http.delete("/node/n2").raise_for_status()
    assert page.evaluate("window.hit") is None
    assert page.locator("main img, main script").count() == 0
    assert page.locator("body *").count() < 1500


def test_only_rows_that_are_seen_are_told_and_nothing_is_asked_for_again(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    page.goto(running.url + "/#/queue")
    page.locator(".row").first.wait_for()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = running.http.get("/page_rows?limit=0").json()["count"]
    page.locator(".row", has_text=str(last)).wait_for()
    assert page.locator(".row").count() < 100
    assert not [path for path in watched.asked if path.startswith(("/listing", "/page_rows?first"))]
    watched.asked.clear()
    running.http.post("/job", json={**SLEEP, "name": "late"}).raise_for_status()
    page.get_by_text(f"{last + 1}", exact=True).first.wait_for()
    assert watched.asked == []  # what was open has told it
    page.goto(running.url + "/#/queue?text=LATE")
    page.get_by_text("1 by this filter").wait_for()
    page.get_by_label("Id, name, user or reason").fill("no such job")
    page.get_by_text("No job is like this.").wait_for()


def test_mine_are_a_filter_of_their_own(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    digest = hashlib.sha256(b"mia's").hexdigest()
    running.http.post("/tokens", json={"digest": digest, "user": "mia"}).raise_for_status()
    mias = {"Authorization": "Bearer mia's"}
    job = httpx.post(f"{running.url}/job", json={**SLEEP, "name": "mias"}, headers=mias).json()["id"]
    page.goto(signed_in(running, "mia's"))
    page.goto(running.url + "/#/queue")
    page.locator(".row").first.wait_for()
    page.get_by_role("link", name="Mine").click()
    page.get_by_text("1 by this filter").wait_for()
    assert page.locator(".row bdi").first.get_attribute("title") == "mias"
    page.get_by_role("link", name="Mine").click()
    page.locator(".row", has_text="queued").nth(2).wait_for()
    httpx.delete(f"{running.url}/job/{job}", headers=mias).raise_for_status()


def test_a_tab_that_is_not_seen_has_no_stream(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    page.locator(".box").first.wait_for()
    watched.asked.clear()
    with page.expect_event("requestfailed", lambda request: "/live" in request.url):
        page.evaluate(HIDE, True)
    assert watched.asked == []
    with page.expect_request("**/live*"):
        page.evaluate(HIDE, False)
    page.locator(".banner").wait_for(state="detached")


def test_a_scheduler_that_does_not_answer_is_told_and_heard_again(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.clock.install()
    page.goto(link(running))
    page.locator(".box").first.wait_for()
    running.process.send_signal(signal.SIGSTOP)
    page.clock.fast_forward(8001)
    page.get_by_text("The scheduler is not heard: no answer within 8 s.").wait_for()
    assert page.locator(".box").count() == 1
    running.process.send_signal(signal.SIGCONT)
    with page.expect_request("**/live*"):
        page.clock.fast_forward(3001)
    page.locator(".banner").wait_for(state="detached")


def test_a_job_has_its_page(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    now_s = time.time()
    sample = {"at_s": now_s, "first_step_s": now_s - 5, "steps": 250, "steps_total": 1000, "step_mean_s": 0.1}
    use = {"busy_ratio": 0.5, "device_bytes": 10**9, "cpu_cores": 1.5, "host_bytes": 10**8, "steps_per_s": 10.0}
    told = launched(1, start_s=now_s - 10, progress=sample, use=use)
    running.http.post("/node/n1/report", json=report(told, at_s=now_s)).raise_for_status()
    page.locator("a.s").first.click()
    page.get_by_text("250 of 1,000 steps").wait_for()
    page.get_by_text("1 min 15 s left").wait_for()
    page.get_by_text("10 steps/s").wait_for()
    assert page.locator("h1 bdi").text_content() == NAMES[0]
    assert page.evaluate("document.querySelector('.bar i').style.width") == "25%"
    shown = running.http.get("/job/1").json()
    assert page.locator(".story li").count() == len(shown["story"])
    assert page.locator(".story bdi").last.text_content() == shown["story"][-1]["sentence"]
    for width in (320, 390, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    page.goto(running.url + "/#/queue")
    going = page.locator(".row", has_text="running").first
    for said in ("n1/0", "25 %", "10 /s", "1 min 15 s"):  # of 1,000 steps 750 are left
        going.get_by_text(said, exact=False).first.wait_for()
    page.locator(".row", has_text="queued").first.locator("a").first.click()
    page.get_by_text(running.http.get("/job/2/why").json()["sentence"]).first.wait_for()
    assert page.locator("h1 .pill").text_content() == "queued"
    page.reload()
    page.locator("h1 .pill", has_text="queued").wait_for()
    assert page.evaluate("window.hit") is None


def test_samples_are_lines_with_gaps(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    values = {key: [None] * 6 for key in ("busy_ratio", "device_bytes", "cpu_cores", "host_bytes", "share_ratio")}
    now = {**dict.fromkeys(values), "steps_per_s": 12.5}
    samples = {"id": 1, "start_s": time.time() - 30, "step_s": 10.0, "now": now, **values}
    samples["steps_per_s"] = [5.0, 10.0, None, 20.0, None, 10.0]
    page.route("**/samples/jobs/1", lambda route: route.fulfill(json=samples))
    page.goto(running.url + "/#/job/1")
    page.locator("figure .plot").wait_for()
    assert page.locator("figure .plot").count() == 1  # what is not known has no line, rather than one of zeros
    held = [one.text_content() for one in page.locator(".places span").all()]
    assert held == ["n1/0" for _ in running.http.get("/job/1").json()["attempts"][0]["spans"]]
    assert page.locator("figure path").first.get_attribute("d").count("L") == 1
    assert page.locator("figure .dot").get_attribute("d").count("M") == 2  # points between two gaps
    told = running.http.get("/job/1").json()["facts"]["now_steps_per_s"]
    assert page.locator("figcaption em").text_content() == ("" if told is None else f"{told:g} per s")


def test_co_runners_lie_on_the_axis_of_the_jobs_own_time(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    shown = running.http.get("/job/1").json()
    (own,) = shown["attempts"][0]["spans"]
    since_s = own["since_s"] - 3600
    shown["attempts"][0]["spans"] = [{**own, "since_s": since_s}]
    until_s = since_s + 4000
    half = {"gpus": ["n1/0"], "since_s": since_s + 1000, "until_s": since_s + 3000}
    co_runners = [
        {"id": 7, "name": NAMES[0], "user": "ann", "state": "succeeded", "spans": [half]},
        {"id": 8, "name": "a", "user": "ann", "state": "running", "spans": [{**half, "until_s": None}]},
    ]
    told = {"id": 1, "since_s": since_s, "until_s": until_s, "jobs": co_runners, "hidden": 2, "left_out": False}
    page.route("**/job/1", lambda route: route.fulfill(json=shown))
    page.route("**/job/1/co_runners?*", lambda route: route.fulfill(json=told))
    page.goto(running.url + "/#/job/1")
    page.locator(".co-runners").wait_for()
    whole, *bars = page.locator(".track i").evaluate_all(
        "all => all.map(one => [one.getBoundingClientRect(), one.parentElement.getBoundingClientRect()])"
        ".map(([bar, all]) => [(bar.x - all.x) / all.width, bar.width / all.width])"
    )
    assert whole == pytest.approx([0, 1], abs=0.01)
    assert bars[0] == pytest.approx([0.25, 0.5], abs=0.01)
    assert bars[1] == pytest.approx([0.25, 0.75], abs=0.01)
    assert page.locator(".co-runners a").all_text_contents() == ["7", "8"]
    page.get_by_text("2 jobs of other users").wait_for()
    fits(page)
    page.route("**/job/1/co_runners?*", lambda route: route.fulfill(json={**told, "jobs": [], "hidden": 0}))
    page.reload()
    page.get_by_text("It has had its devices to itself.").wait_for()
    assert page.evaluate("window.hit") is None


def test_a_job_that_is_not_there_is_said_to_be_so(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    for name in ("99999", "x", "1e99"):
        page.goto(f"{running.url}/#/job/{name}")
        page.get_by_text("There is no such job.").wait_for()
    assert all("404" in told for told in watched.wrong)
    watched.wrong.clear()  # browsers tell of every 404 in their console


def test_an_act_says_its_cost_and_asks_first(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    lost_s = running.http.get("/job/1/cost").json()["lost_s"]
    assert lost_s > 0
    page.goto(running.url + "/#/job/1")
    page.get_by_role("button", name="Requeue…").click()
    page.get_by_text("of run time has to be made again, unless the state is saved now: since it started").wait_for()
    page.get_by_text("1 device comes free.").wait_for()
    page.keyboard.press("Escape")
    cancel = page.get_by_role("button", name="Cancel…")
    cancel.click()
    page.get_by_text("of run time is lost: since it started").wait_for()
    page.get_by_text("1 device comes free.").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Keep it as it is"
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Cancel…"
    assert running.http.get("/job/1").json()["state"] != "stopping"
    cancel.click()
    page.get_by_role("button", name="Cancel job 1").click()
    page.locator("h1 .pill", has_text="stopping").wait_for()
    assert running.http.get("/job/1").json()["state"] == "stopping"
    page.goto(running.url + "/#/job/3")
    page.get_by_role("button", name="Hold…").click()
    page.get_by_role("button", name="Hold job 3").click()
    page.get_by_role("button", name="Release…").click()
    assert running.http.get("/job/3").json()["suspended"]
    page.get_by_role("button", name="Release job 3").click()
    page.get_by_role("button", name="Hold…").wait_for()
    assert not running.http.get("/job/3").json()["suspended"]


def test_several_rows_are_changed_at_once_and_refusals_are_told(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    page.goto(running.url + "/#/queue")
    for job in (4, 5, 6):
        page.get_by_label(f"Job {job}", exact=True).check()
    page.get_by_text("3 jobs chosen").wait_for()
    running.http.delete("/job/5").raise_for_status()
    page.locator(".bulk").get_by_role("button", name="Cancel…").click()
    page.get_by_text("Nothing is lost: no job of these has started.").wait_for()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    page.locator("dialog").wait_for(state="detached")
    for job in (4, 5, 6):
        assert running.http.get(f"/job/{job}").json()["state"] == "cancelled"
    page.get_by_label("Job 7", exact=True).check()
    running.http.delete("/job/7").raise_for_status()
    page.locator(".bulk").get_by_role("button", name="Hold…").click()
    page.get_by_role("button", name="Hold job 7").click()
    page.get_by_text("0 of 1 job suspended").wait_for()
    page.locator("dialog li", has_text="7: ").wait_for()
    page.get_by_role("button", name="Close").click()
    assert all("404" in told or "409" in told for told in watched.wrong)
    watched.wrong.clear()


def test_what_is_anothers_has_no_acts(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    digest = hashlib.sha256(b"eve's").hexdigest()
    running.http.post("/tokens", json={"digest": digest, "user": "eve"}).raise_for_status()
    asked = httpx.post(f"{running.url}/page_link", json={}, headers={"Authorization": "Bearer eve's"}).json()
    page.goto(running.url + asked["path"])
    page.goto(running.url + "/#/queue")
    page.locator(".row").first.wait_for()
    assert page.locator(".row input").count() == 0
    for job in (8, 1):
        page.goto(f"{running.url}/#/job/{job}")
        page.locator("h1", has_text=f"{job} ").locator(".pill").wait_for()
        assert page.locator("button").count() == 0


def test_the_end_of_a_log_is_read_when_asked_for_and_is_text(busy: Scheduler, watched: Watched) -> None:
    running, page = busy, watched.page
    page.goto(link(running))
    lines = [*map(str, range(100)), "<script>window.hit = 1</script>", "\x1b[31mred\x1b[0m\x07", "10 %\r20 %\r", ""]
    page.route("**/job/1/log*", lambda route: route.fulfill(body="\n".join(lines)))
    page.goto(running.url + "/#/job/1")
    page.get_by_role("button", name="Read it", exact=True).click()
    page.get_by_label("Log", exact=True).get_by_text("red").wait_for()
    shown = page.locator("pre").text_content().split("\n")
    assert shown[-3:] == ["<script>window.hit = 1</script>", "red", "20 %"]
    assert len(shown) == 40
    is_at_end = "(p => p.scrollTop + p.clientHeight >= p.scrollHeight - 1)(document.querySelector('pre'))"
    until(lambda: page.evaluate(is_at_end), "the log is scrolled to its end")
    assert page.evaluate("window.hit") is None
    page.unroute_all()
    page.get_by_role("button", name="Read it again").click()
    page.locator("pre", has_text="It cannot be read: ").wait_for()  # the node of this test has no agent
    assert [told for told in watched.wrong if "Failed to load resource" not in told] == []
    watched.wrong.clear()
