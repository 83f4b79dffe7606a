"""The pages of nodes in a real browser: all of them, how they are wired, one of them, and drains."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from tests.server.harness import GB, SLEEP, gpu, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link, signed_in

pytestmark = pytest.mark.live
EVIL = "<img src=x onerror='window.hit=1'>"
SELF, NEAR, FAR = ("X", 0, 0.0), ("PIX", 0, 24e9), ("SYS", 0, 9e9)


def wired(name: str) -> Any:
    """A node of two sockets with a PCIe switch each, behind which are two devices."""
    sockets = [0, 0, 1, 1]
    links = [
        [SELF if a == b else NEAR if one == two else FAR for b, two in enumerate(sockets)]
        for a, one in enumerate(sockets)
    ]
    cores = ([0, 1], [2, 3])
    gpus = [gpu(at, socket=at // 2, cores=cores[at // 2], uuid=f"{name}-{at}", type="A100") for at in range(4)]
    topology = {"links": links, "sockets": sockets, "switches": sockets, "nvswitch": False}
    return {**node(name, agent_id=name), "gpus": gpus, "topology": topology}


@pytest.fixture(scope="module")
def filled(running: Scheduler) -> Scheduler:
    for name in ("n1", "n2"):
        running.http.post("/node", json=wired(name)).raise_for_status()
    running.http.post("/node", json=node("other", agent_id="o", pool="other")).raise_for_status()
    for gpus in (4, 1):  # the first goes from socket to socket
        running.http.post("/job", json={**SLEEP, "name": EVIL, "gpus": gpus}).raise_for_status()
    running.http.post("/job", json={**SLEEP, "name": "cores", "gpus": 0, "cores": 1}).raise_for_status()
    return running


def test_nodes_that_are_alike_are_drawn_once(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_text("3 of 3 nodes are up.").wait_for()
    assert page.locator("tbody tr").count() == 3
    assert page.locator("svg[role=img]").count() == 2
    assert page.locator("svg").first.get_attribute("aria-label") == "2 sockets with 2 and 2 devices"
    fits(page)
    page.locator("tbody a", has_text="n2").click()
    page.locator("h1", has_text="n2").wait_for()


def test_a_node_has_its_page(filled: Scheduler, watched: Watched) -> None:
    now_s = time.time()
    use = {"busy_ratio": 0.5, "used_bytes": GB, "power_w": 250.0, "temperature_c": 61.0}
    devices = [{"index": 0, **use, "throttle": ["thermal"]}]
    said = report(agent_id="n1", at_s=now_s, devices=devices, messages=[f"an agent says {EVIL}"])
    filled.http.post("/node/n1/report", json=said).raise_for_status()
    page = watched.page
    page.goto(link(filled))
    page.goto(filled.url + "/#/node/n1")
    page.locator("h1", has_text="n1").wait_for()
    shown = filled.http.get("/node/n1").json()
    row = page.locator("tbody tr").first
    row.get_by_text("50 %").wait_for()
    assert row.get_by_text("▲ heat").count() == 1
    assert "1 GB of 2 GB" in row.inner_text()
    assert "unknown" in page.locator("tbody tr").nth(1).inner_text()  # of which nothing is known: a word, and no 0
    far = [job["id"] for job in shown["jobs"] if len(job["slots"]) == 4]
    assert far
    assert page.locator("svg .wt").all_text_contents() == [f"▲ {job}" for job in far]
    assert page.locator("svg .gp.wr").count() == 4
    widths = page.locator(".cr a").evaluate_all("all => all.map(one => one.style.flexGrow)")
    assert sum(map(int, widths)) == sum(len(job["cores"]) for job in shown["jobs"])
    page.get_by_text(f"an agent says {EVIL}").wait_for()
    fits(page)
    page.reload()
    page.locator("h1", has_text="n1").wait_for()
    assert page.evaluate("window.hit") is None
    assert page.locator("main img").count() == 0


def test_a_node_that_is_not_there_is_said_to_be_so(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    for name in ("none", "a%2Fb", "n" * 200):
        page.goto(f"{filled.url}/#/node/{name}")
        page.get_by_text("There is no such node.").wait_for()
    assert all("404" in told or "422" in told for told in watched.wrong)
    watched.wrong.clear()


def test_an_operator_drains_a_node_after_a_question(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.goto(filled.url + "/#/node/other")
    page.get_by_role("button", name="Drain…").click()
    page.get_by_text("It takes no new jobs.").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Keep it as it is"
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert filled.http.get("/node/other").json()["drain"] is None
    page.get_by_role("button", name="Drain…").click()
    page.get_by_label("Why").fill("new fan")
    page.get_by_label("Deadline").select_option("1h")
    page.get_by_role("button", name="Drain it").click()
    page.get_by_text("other drains").wait_for()
    drain = filled.http.get("/node/other").json()["drain"]
    assert drain["reason"] == "new fan"
    assert 3500 < drain["deadline_s"] - drain["since_s"] <= 3600
    page.goto(filled.url + "/#/")
    page.locator(".look").get_by_role("button", name="Undrain…").click()
    page.get_by_role("button", name="Undrain it").click()
    page.get_by_text("other drains").wait_for(state="detached")
    assert filled.http.get("/node/other").json()["drain"] is None


def test_who_is_no_operator_drains_nothing(filled: Scheduler, watched: Watched) -> None:
    digest = hashlib.sha256(b"kim's").hexdigest()
    filled.http.post("/tokens", json={"digest": digest, "user": "kim"}).raise_for_status()
    page = watched.page
    page.goto(signed_in(filled, "kim's"))
    page.goto(filled.url + "/#/node/n1")
    page.locator("h1", has_text="n1").wait_for()
    assert page.get_by_role("button").count() == 0


def test_a_job_that_has_ended_is_submitted_again_by_its_owner(filled: Scheduler, watched: Watched) -> None:
    digest = hashlib.sha256(b"lea's").hexdigest()
    filled.http.post("/tokens", json={"digest": digest, "user": "lea"}).raise_for_status()
    own = {"Authorization": "Bearer lea's"}
    asked = {**SLEEP, "name": "once more", "workdir": "/srv", "hold": True}
    job = filled.http.post("/job", json=asked, headers=own).raise_for_status().json()["id"]
    filled.http.delete(f"/job/{job}", headers=own).raise_for_status()
    page = watched.page
    page.goto(link(filled))
    page.goto(f"{filled.url}/#/job/{job}")
    page.locator("h1 .pill", has_text="cancelled").wait_for()
    assert page.get_by_role("button").count() == 0  # it would run as who submits it: not even an operator
    page.goto(signed_in(filled, "lea's"))
    page.goto(f"{filled.url}/#/job/{job}")
    page.get_by_role("button", name="Submit again…").click()
    page.get_by_text("Environment variables are not kept").wait_for()
    page.get_by_role("button", name=f"Submit again job {job}").click()
    page.wait_for_url(f"**/#/job/{job + 1}")
    page.locator("h1 .pill", has_text="held").wait_for()
    again = filled.http.get(f"/job/{job + 1}").json()
    assert (again["name"], again["user"]) == ("once more", "lea")
