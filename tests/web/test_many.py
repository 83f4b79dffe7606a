"""A cluster of many nodes in a real browser, and whether what is drawn can be told apart."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

import pytest

from tests.server.harness import SLEEP, gpu, node, report
from tests.server.processes import Scheduler
from tests.web.browser import Watched, fits, link

NODES: Final = 13
TEXTS: Final = ("ink", "ink2", "ink3", "ac", "wa", "ba")
"""Tokens of text on the page's ground and on the ground of what is chosen."""


@pytest.mark.live
def test_of_more_than_twelve_nodes_each_device_is_a_cell(running: Scheduler, watched: Watched) -> None:
    http = running.http
    for number in range(NODES):
        gpus = [gpu(at, type="A100", uuid=f"{number}-{at}") for at in range(8)]
        described = {**node(f"n{number}", agent_id=f"a{number}"), "gpus": gpus}
        http.post("/node", json=described).raise_for_status()
    http.post("/jobs", json=[SLEEP] * 20).raise_for_status()
    broken = {**gpu(7, type="A100", uuid="12-7"), "healthy": False}
    http.post("/node/n12/report", json=report(agent_id="a12", gpus=[broken])).raise_for_status()
    http.post("/node/n11/drain", json={"reason": "new fan"}).raise_for_status()
    page = watched.page
    page.goto(link(running))
    page.locator("svg.all").wait_for()
    counts = http.get("/overview").json()["devices"]
    told = str(page.locator("svg.all").get_attribute("aria-label"))
    assert told.startswith("104 devices of 13 nodes: ")
    for word, key in (("held", "working"), ("free,", "closed"), ("✕ broken", "broken")):
        assert f"{counts[key]} {word}" in told
    drawn = page.locator("svg.all path").evaluate_all(
        "all => all.map(one => one.getAttribute('d').split('M').length - 1)"
    )
    assert sum(drawn[:6]) == NODES * 8
    assert page.locator("svg.all text").all_text_contents() == [f"n{number}" for number in range(NODES)]
    assert not [path for path in watched.asked if path == "/nodes"]  # much too much for a screen of thousands
    assert page.locator("body *").count() < 300
    fits(page)
    page.locator("svg.all").click(position={"x": 70, "y": 8})
    page.wait_for_url("**/#/node/n1")
    page.locator("h1", has_text="n1").wait_for()


def tokens() -> list[dict[str, str]]:
    """Each token's colour, as `#rrggbb`: light ones, dark ones."""
    style = (files("colane.server.web") / "static" / "style.css").read_text()
    found = re.findall(r"--(\w+):light-dark\((#\w+),(#\w+)\)", style)
    assert len(found) > 15
    return [{name: whole(pair[scheme]) for name, *pair in found} for scheme in (0, 1)]


def whole(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(digit * 2 for digit in colour[1:])


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_as_wcag_counts_it() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_edges_stand_out(scheme: int) -> None:
    of = tokens()[scheme]
    grounds = [("ink", ground) for ground in ("bg", "sf", "bk", "act")] + [(text, "bg") for text in TEXTS]
    grounds += [("ink2", "sf"), ("ink3", "sf"), ("wa", "wat"), ("acink", "ac"), ("ink", "wat")]
    for text, ground in grounds:
        assert contrast(of[text], of[ground]) >= 4.5, (text, ground)
    assert contrast("#ffffff", of["baf"]) >= 4.5  # what is broken is white on red
    for edge, ground in (("ln2", "bg"), ("fl", "bg"), ("ac", "bg"), ("wal", "bg"), ("baf", "bg"), ("fl", "tr")):
        assert contrast(of[edge], of[ground]) >= 3, (edge, ground)
