"""What tests of the scheduler's page share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.server.processes import Scheduler

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SMALLEST = (
    "Math.min(...[...document.querySelectorAll('body *')].map(one => parseFloat(getComputedStyle(one).fontSize)))"
)
WIDTHS = (320, 390, 1280, 2560)


@dataclass
class Watched:
    """A page whose errors, and whose requests to elsewhere, fail the test; `asked` is all that it asked for."""

    page: Any
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def link(running: Scheduler) -> str:
    path: str = running.http.post("/page_link", json={}).raise_for_status().json()["path"]
    return running.url + path


def fits(page: Any) -> None:
    """Let a page be of each width: it never scrolls sideways, and no text is too small."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.evaluate(SMALLEST) >= 11, width
    page.set_viewport_size({"width": 1280, "height": 800})


def signed_in(running: Scheduler, token: str) -> str:
    """The link of another user."""
    asked = httpx.post(f"{running.url}/page_link", json={}, headers={"Authorization": f"Bearer {token}"})
    return running.url + str(asked.raise_for_status().json()["path"])
