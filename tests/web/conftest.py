"""A scheduler and a browser for each file of tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import needs
from tests.server.processes import Scheduler, scheduler
from tests.web.browser import FLAGS, Watched


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state")) as started:
        yield started


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Not for all files: while Playwright runs, a thread has a loop, in which no test of `asyncio` can run another."""
    needs("playwright", "playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is installed

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def watched(running: Scheduler, chromium: Any) -> Iterator[Watched]:
    """A page of a browser that is not signed in."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    found = Watched(context.new_page())

    def ask(asked: Any) -> None:
        found.asked.append(asked.url.removeprefix(running.url))
        if not asked.url.startswith(running.url + "/"):
            found.wrong.append(asked.url)

    found.page.on("pageerror", lambda error: found.wrong.append(str(error)))
    found.page.on("console", lambda said: found.wrong.append(said.text) if said.type == "error" else None)
    found.page.on("request", ask)
    yield found
    assert found.wrong == []
    context.close()
