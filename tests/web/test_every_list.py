"""No list ends in silence: whatever is cut, on the page or in the API, pages or says how many are not shown.

What is cut is found in the code, so that a list that is new fails until it has a row here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest

from tests.server.harness import SLEEP, finished, gpu, launched, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link
from tests.web.test_nodes import wired

WAITING, NODES, ENDED = 130, 70, 8
ALL: Final = NODES + WAITING
FIRST: Final = ENDED + 1  # of those that live
LIVE: Final = range(FIRST, FIRST + ALL)
Json = Any
Change = Callable[[Json], Json]
NOW_S: Final = float(int(time.time()))
TEXT: Final = "a text or a number, of which its title or its page tells the whole"
PARTS: Final = "all of it, part by part"


class Listed(NamedTuple):
    """A list of the page with more than it shows."""

    path: str  # of the page, behind the `#`
    said: str  # what the page says of the rest, a pattern
    answers: Mapping[str, Change] = MappingProxyType(
        {}
    )  # by pattern of the address, what is made of the scheduler's answer
    click: str = ""  # a button to press first
    more: str = ""  # a button that brings the rest, and then is gone


def spans(many: int, wide_s: float, gpus: int = 1) -> list[dict[str, Json]]:
    """Jobs that had devices one after another, each for so long."""
    begun = [NOW_S - (many - at) * wide_s for at in range(many)]
    return [
        {"id": 9000 + at, "name": f"run-{at}", "user": "ann", "state": "succeeded",
         "spans": [{"gpus": [f"n1/{at % gpus}"], "since_s": since_s, "until_s": since_s + 0.9 * wide_s}]}
        for at, since_s in enumerate(begun)
    ]  # fmt: skip


def drawn(many: int, wide_s: float, left_out: int = 0, nodes: int = 0) -> Change:
    """The answer of the timeline."""
    jobs = spans(many, wide_s)
    for at in range(nodes):
        jobs[at]["spans"][0]["gpus"] = [f"gone-{at}/0"]
    more = {"marks": [], "left_out": left_out > 0, "left_out_count": left_out}
    return lambda _: {"since_s": NOW_S - 21_600, "until_s": NOW_S, "jobs": jobs, **more}


def reserved(many: int, nodes: int = 1) -> Change:
    def change(told: Json) -> Json:
        kept = [
            {"name": f"r{at}", "users": ["ann"], "from_s": NOW_S + 9000 * (at + 1), "to_s": NOW_S + 9000 * (at + 1.5)}
            for at in range(many)
        ]
        return [{**one, "reservations": [{**each, "by": "op"} for each in kept] if at < nodes else []}
                for at, one in enumerate(told)]  # fmt: skip

    return change


def day(many: int, **fields: Json) -> Change:
    own = {"user": ME, "jobs": 30, "gpu_h": 1.0, "took_h": 2.0, "alone_h": [3.0, 3.0, 3.0], "slowed": 30,
           "slowed_ratio": 1.5, "slowed_jobs": [{"job": at + 1, "ratio": 1.5} for at in range(many)]}  # fmt: skip
    return lambda _: [{"start_s": NOW_S - 86_400, "users": [{**own, **fields}]}]


ME: Final = "the one who looks"
NOTE: Final = {"jobs": 1, "what": "cores", "sentence": "asks for more than it uses", "flag": "", "gpu_s": 1.0}
LISTS: Final[dict[str, Listed]] = {
    "devices' blocks": Listed("/timeline", r"The 100 shortest of 500 blocks", {"**/timeline?*": drawn(500, 40)}),
    "devices' rows": Listed(
        "/timeline", r"; \d+ rows? more: choose a node", {"**/timeline?*": drawn(60, 300, nodes=50)}
    ),
    "jobs of the timeline": Listed(
        "/timeline", "youngest 20 jobs are drawn, 77 older ones are not", {"**/timeline?*": drawn(20, 300, 77)}
    ),
    "decisions": Listed("/timeline", "the last 8 before it, and the next after it"),
    "reservations to come": Listed("/timeline", "; 4 more: colane reserve", {"**/nodes": reserved(7)}),
    "nodes of a reservation": Listed("/timeline", r"n1, n2, n3 and 67 more", {"**/nodes": reserved(1, 70)}),
    "reservations of a node": Listed("/nodes", r"reserved later \+2", {"**/nodes": reserved(3)}),
    "nodes": Listed("/nodes", "", more="10 more"),
    "nodes that are alike": Listed("/nodes", "and 66 more"),
    "kinds of nodes": Listed("/nodes", "1 more kinds: filter them", {
        "**/nodes": lambda told: [{**one, "gpus": [{**each, "type": f"T{at}"} for each in one["gpus"]]}
                                  for at, one in enumerate(told[:4])],
    }),
    "what needs a look": Listed("/", "7 more", {}),
    "users": Listed("/usage", "20 users more", {"**/usage?*": lambda _: [
        {"user": f"u{at}", "jobs": 1, "failed": 0, "gpu_s": 9.0, "gpu_busy_ratio": None, "running": 0, "waiting": 0}
        for at in range(70)
    ]}),
    "budgets": Listed("/usage", "5 more: colane usage", {"**/usage/budgets": lambda _: [
        {"name": f"u{at}", "gpu_s": 9.0, "used_gpu_s": 1.0, "until_s": NOW_S + 9} for at in range(55)
    ]}),
    "reasons of waiting": Listed("/usage", "4 reasons more, 4 min in all", {"**/usage/waiting?*": lambda _: [
        {"user": ME, "why": f"why-{at}", "waited_s": 60.0} for at in range(12)
    ]}),
    "notes": Listed("/usage", "7 notes more, of jobs with less GPU time", {"**/usage/used?*": lambda _: [
        {"user": ME, "jobs": 12, "ratios": {}, "notes_left_out": 7,
         "notes": [{**NOTE, "job": at + 1, "name": "x"} for at in range(5)]}
    ]}),
    "slowed jobs": Listed("/usage", r"[0-9] . and 27 more\.", {"**/usage/shared": day(3)}),
    "jobs that ended": Listed("/reports", "These are the last 8; 55 more ended before", {
        "**/usage/ended?*": lambda told: {**told, "left_out": True, "left_out_count": 55},
    }),
    "co-runners": Listed(f"/job/{FIRST}", "9 jobs came later, and are not shown", {f"**/job/{FIRST}": lambda told: {
        **told, "first_start_s": NOW_S - 900, "attempts": [{"spans": spans(1, 900)[0]["spans"]}],
    }, f"**/job/{FIRST}/co_runners?*": lambda told: {
        **told, "since_s": NOW_S - 900, "until_s": NOW_S, "jobs": spans(20, 30), "left_out": True, "left_out_count": 9,
    }}),
    "story": Listed(f"/job/{FIRST}", "57 before are not shown", {f"**/job/{FIRST}": lambda told: {
        **told, "story": [told["story"][-1]] * 150, "story_left_out": 7,
    }}),
    "lines of a log": Listed(f"/job/{FIRST}", "its last 40 lines · all of it"),
    "jobs that it would help": Listed(f"/job/{FIRST}", "and 492 more", {f"**/job/{FIRST}/cost": lambda told: {
        **told, "helps": list(range(200, 220)), "helped": 500,
    }}, click="Cancel…"),
    "jobs on a device": Listed("/node/n1", r"\d \+3", {"**/node/n1": lambda told: {
        **told, "jobs": [{**told["jobs"][0], "id": at + 1} for at in range(6)],
    }}),
    "jobs across sockets": Listed("/node/n70", r"▲ 2 \+3", {"**/node/n70": lambda told: {
        **told, "jobs": [{"id": at + 1, "slots": [{"gpu": 0, "lane": at}, {"gpu": 2, "lane": at}], "on_host": False,
                          "cores": [], "memory": None, "paused": False, "run": True} for at in range(5)],
    }}),
}  # fmt: skip

ELSEWHERE: Final = {
    "jobs beside a node's devices": "test_jobs_beside_the_devices_of_a_node_are_counted",
    "jobs": "test_all_jobs_that_wait_can_be_reached",
    "refused jobs": "test_refused_acts_are_counted",
    "ended jobs": "test_the_count_of_a_state_is_what_its_list_comes_to",
}
"""Lists that have a test of their own."""

CUTS: Final = {
    "acts.js": {
        "jobs.slice(at, at + AT_ONCE)": PARTS, "ids.slice(at, at + AT_ONCE)": PARTS,
        "helps.slice(0, TOLD)": "jobs that it would help", "refused.slice(0, TOLD)": "refused jobs",
    },
    "cells.js": {"name.slice(0, 3)": TEXT, "name.slice(-4)": TEXT},
    "charts.js": {'gpu.slice(0, gpu.lastIndexOf("/"))': TEXT, "gpu.slice(node.length + 1)": TEXT},
    "cluster.js": {"rows.slice(0, at + 1)": PARTS, "others.slice(0, 3)": "jobs beside a node's devices"},
    "common.js": {
        "unknown.slice(at, at + NAMES_AT_ONCE)": PARTS, "limit=${NAMES_AT_ONCE": PARTS, "all.slice(0, most / 2)": TEXT,
        "all.slice(1 - most / 2)": TEXT,
    },
    "job.js": {
        'path.slice("#/job/".length)': TEXT, "limit=${CO_RUNNERS": "co-runners", "words.slice(11)": TEXT,
        "all.slice(0, CHARS)": TEXT, "lines.slice(-LOG_LINES - 1)": "lines of a log", "story.slice(-STORY)": "story",
        "now.slice(1)": PARTS,
    },
    "live.js": {".slice(7)": TEXT, "data.slice(6)": TEXT},
    "look.js": {"all.slice(TOLD)": "what needs a look", "all.slice(0, TOLD)": "what needs a look"},
    "nodes.js": {
        "path.slice(NODE.length)": TEXT, "some.slice(0, rows)": "nodes", "nodes.slice(0, TOLD)": "nodes that are alike",
        "reserved(node).slice(0, 1)": "reservations of a node", "[...alike.values()].slice(0, TOLD)": "kinds of nodes",
    },
    "queue.js": {
        "gpu.slice(0, at)": TEXT, "gpu.slice(at + 1)": TEXT,
        "rows.slice(from - part.first, first + many - part.first)": "jobs",
    },
    "reports.js": {"limit: LAST": "ended jobs"},
    "timeline.js": {
        'gpu.slice(0, gpu.lastIndexOf("/"))': TEXT, "node.slice(0, 4)": TEXT, "node.slice(-4)": TEXT,
        "all.slice(0, Math.ceil(most / 2) - 1)": TEXT, "all.slice(-Math.floor(most / 2))": TEXT,
        "String(job.id).slice(0, most)": TEXT, "limit=${JOBS": "jobs of the timeline", "limit=${MOVES": "decisions",
        "wides.slice(0, BLOCKS)": "devices' blocks", "all.slice(0, ROWS)": "devices' rows",
        "later.slice(0, LATER)": "reservations to come", "names.slice(0, LATER)": "nodes of a reservation",
    },
    "topology.js": {
        "all.slice(i + 1)": PARTS, "mine.slice(i + 1)": PARTS, "places.slice(i + 1)": PARTS, "sockets.slice(1)": PARTS,
        "far.slice(0, FAR)": "jobs across sockets", "ids.slice(0, IDS)": "jobs on a device",
    },
    "usage.js": {
        "budgets.slice(0, USERS)": "budgets", "rows.slice(0, USERS)": "users",
        "waits.slice(0, WHYS)": "reasons of waiting", "waits.slice(WHYS)": "reasons of waiting",
    },
    "whatif.js": {"part.slice(6)": TEXT},
}  # fmt: skip
"""What the page's code cuts, and the list that this is, or why it is none."""

OF_OTHERS: Final = ("preact.js", "htm.js")
WHOLE: Final = {"jobs that ended": "/usage/ended", "notes": "/usage/used", "slowed jobs": "/usage/shared"}
"""Lists that the scheduler cuts, not the page."""
CUT: Final = re.compile(
    r"(?:\[\.\.\.[\w.]+\(\)\]|\w*(?:\([\w.]*\))?)\.slice\((?:[^()]|\([^()]*\))*\)"
    r"|limit[=:] ?(?:\$\{)?[A-Z_]+|limit=[1-9]\d*"
)


def test_whatever_the_page_cuts_has_a_row_here() -> None:
    static = files("colane.server.web") / "static"
    found = {
        one.name: set(CUT.findall(one.read_text()))
        for one in static.iterdir()
        if one.name.endswith(".js") and one.name not in OF_OTHERS
    }
    assert {name: cuts for name, cuts in found.items() if cuts} == {name: set(cuts) for name, cuts in CUTS.items()}
    lists = {what for cuts in CUTS.values() for what in cuts.values()} - {TEXT, PARTS}
    assert lists | set(WHOLE) == set(LISTS) | set(ELSEWHERE)
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in tests] == []


@pytest.fixture(scope="module")
def filled(running: Scheduler) -> Scheduler:
    """Seventy nodes, of which eight are drained and one has devices that lie far apart; jobs that run and wait."""
    http = running.http
    http.post("/node", json=node("n1", gpus=1)).raise_for_status()
    http.post("/jobs", json=[{**SLEEP, "gpus": 0}] * ENDED).raise_for_status()
    for number in range(1, FIRST):
        http.post("/finished_job", json=finished(number)).raise_for_status()
    http.post("/job", json=SLEEP).raise_for_status()
    for number in range(2, NODES):
        described = {**node(f"n{number}", agent_id=f"a{number}"), "gpus": [gpu(0, uuid=f"{number}")]}
        http.post("/node", json=described).raise_for_status()
    http.post("/node", json=wired(f"n{NODES}")).raise_for_status()
    for number in range(NODES - 12, NODES):
        http.post(f"/node/n{number}/drain", json={"reason": f"fan {number}"}).raise_for_status()
    http.post("/jobs", json=[SLEEP] * 100).raise_for_status()
    http.post("/jobs", json=[SLEEP] * (ALL - 101)).raise_for_status()
    http.post("/node/n1/report", json=report(launched(FIRST, start_s=NOW_S - 900))).raise_for_status()
    return running


def told(changes: Mapping[str, Change], page: Any, me: str) -> None:
    """Have the scheduler's answers be changed so."""

    def change(made: Change) -> Callable[[Any], None]:
        def answer(route: Any) -> None:
            route.fulfill(body=json.dumps(made(route.fetch().json())).replace(ME, me), content_type="application/json")

        return answer

    for pattern, made in changes.items():
        page.route(pattern, change(made))


@pytest.mark.live
@pytest.mark.parametrize("name", LISTS)
def test_a_list_says_how_many_it_leaves_out_or_brings_them(filled: Scheduler, watched: Watched, name: str) -> None:
    listed, page = LISTS[name], watched.page
    page.goto(link(filled))
    told(listed.answers, page, filled.http.get("/page_rows?limit=0").json()["user"])
    page.goto(f"{filled.url}/#{listed.path}")
    if listed.click:
        page.get_by_role("button", name=listed.click).click()
    if listed.more:
        page.get_by_role("button", name=listed.more).click()
        page.get_by_role("button", name=listed.more).wait_for(state="detached")
    page.locator("body", has_text=re.compile(listed.said)).wait_for()
    if not listed.click:
        fits(page)


@pytest.mark.live
def test_all_jobs_that_wait_can_be_reached(filled: Scheduler, watched: Watched) -> None:
    """However far down, and by a filter that the scheduler is asked for."""
    page, last = watched.page, LIVE[-1]
    page.goto(link(filled))
    page.goto(f"{filled.url}/#/queue")
    page.get_by_role("table", name="Jobs").wait_for()
    there = int(page.get_by_role("table", name="Jobs").get_attribute("aria-rowcount")) - 1
    assert there == ALL
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator(f".row a[href='#/job/{last}']").first.wait_for()
    page.evaluate("scrollTo(0, 0)")
    page.get_by_placeholder("Id, name").fill(str(last))
    page.get_by_text("1 by this filter").wait_for()
    assert any(f"text={last}" in asked for asked in watched.asked)
    page.goto(f"{filled.url}/#/timeline?node=n2")
    page.locator("h1", has_text="of n2").wait_for()
    assert any("/timeline?" in asked and "node=n2" in asked for asked in watched.asked)


@pytest.mark.live
def test_refused_acts_are_counted(filled: Scheduler, watched: Watched) -> None:
    page = watched.page
    page.goto(link(filled))
    page.route(re.compile(r"/job/\d+$"), lambda route: route.fulfill(status=409, json={"detail": "not now"}))
    page.goto(f"{filled.url}/#/queue")
    page.locator(".row input").first.wait_for()
    for box in page.locator(".row input").all()[:12]:
        box.check()
    page.locator(".bulk").get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 12 jobs").click()
    page.locator("dialog li", has_text="4 more").wait_for()
    watched.wrong.clear()  # the browser's own word of each refusal


def pages(http: Any, path: str) -> list[int]:
    """All ids of a list of which each answer is a part."""
    found, after = list[int](), 0
    while part := http.get(path, params={"limit": 60, "after": after}).raise_for_status().json():
        found += [one["id"] for one in part]
        after = found[-1]
    return found


def counted(http: Any, path: str, **asked: Any) -> int:
    """How many jobs there are by what one answer tells: those that are shown, and those that are not."""
    answer = http.get(path, params={"limit": 3, **asked}).raise_for_status().json()
    assert len(answer["jobs"]) == min(3, len(answer["jobs"]) + answer["left_out_count"])
    assert answer["left_out"] is (answer["left_out_count"] > 0)
    return len(answer["jobs"]) + int(answer["left_out_count"])


def rows(http: Any) -> int:
    first = http.get("/page_rows", params={"limit": 3}).raise_for_status().json()
    then = http.get("/page_rows", params={"limit": 3, "first": first["count"] - 1}).raise_for_status().json()
    assert (len(first["rows"]), len(then["rows"])) == (3, 1)
    return int(first["count"])


def ended(http: Any) -> list[int]:
    """Ids of jobs that ended, page by page."""
    found, count = list[int](), http.get("/usage/ended", params={"limit": 0}).json()["count"]
    while len(found) < count:
        part = http.get("/usage/ended", params={"limit": 3, "first": len(found)}).json()["jobs"]
        assert part
        found += [one["id"] for one in part]
    return sorted(found)


def listing(http: Any) -> int:
    answer = http.get("/listing", params={"limit": 3}).raise_for_status().json()
    return len(answer["jobs"]) + int(answer["left_out"]["running"]) + int(answer["left_out"]["queued"])


API: Final[dict[str, Callable[[Any], bool]]] = {
    "/live_jobs": lambda http: pages(http, "/live_jobs") == list(LIVE),
    "/jobs": lambda http: len(set(pages(http, "/jobs"))) == http.get("/overview").json()["waiting"],
    "/finished_jobs": lambda http: pages(http, "/finished_jobs") == list(range(1, FIRST)),
    "/listing": lambda http: listing(http) == ALL,
    "/page_rows": lambda http: rows(http) == ALL,
    "/live": lambda _: True,  # the same, as it changes: `/page_rows` is its first event
    "/timeline": lambda http: counted(http, "/timeline") == len(http.get("/timeline").json()["jobs"]) > 3,
    "/timeline/moves": lambda http: len(http.get("/timeline/moves?limit=50").json()["before"]) == 50,  # about a moment
    "/job/{number}/co_runners": lambda http: counted(http, f"/job/{FIRST}/co_runners") == 0,
    "/usage/ended": lambda http: ended(http) == list(range(1, FIRST)),
    "/job/{number}/log": lambda _: True,  # tests/server/test_logs.py: ranges, and a header that tells where to go on
}
"""By its path, whether all of a list that has a limit is told, or counted."""


@pytest.mark.live
def test_each_list_of_the_api_with_a_limit_has_a_row(filled: Scheduler) -> None:
    described = filled.http.get("/openapi.json").json()["paths"]
    limited = {
        path
        for path, methods in described.items()
        if any(one["name"] == "limit" for one in methods.get("get", {}).get("parameters", ()))
    }
    assert limited == set(API)


@pytest.mark.live
@pytest.mark.parametrize("path", API)
def test_all_of_a_list_with_a_limit_is_reached_or_counted(filled: Scheduler, path: str) -> None:
    assert API[path](filled.http)
