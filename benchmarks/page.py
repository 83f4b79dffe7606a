"""How soon the page's queue of many jobs is painted, and how many frames a second it draws while it is scrolled.

    python -m benchmarks.page [--jobs 10000]

A real scheduler, and Debian's chromium without a screen; figures by the browser's own performance entries.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright
from tests.server.harness import SLEEP, node
from tests.server.processes import Scheduler, scheduler
from tests.web.browser import FLAGS, link

TIMES: Final = 5
AT_ONCE: Final = 2_000
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SCROLLED: Final = """() => new Promise(resolve => {
  const began = performance.now(), gaps = [], many = 300;
  let last = began;
  function frame(now) {
    gaps.push(now - last);
    last = now;
    scrollBy(0, 400);
    if (gaps.length < many) requestAnimationFrame(frame);
    else resolve([many / (performance.now() - began) * 1e3, gaps.slice(1)]);
  }
  requestAnimationFrame(frame);
})"""


def painted_ms(browser: Browser, running: Scheduler) -> tuple[float, float]:
    """First contentful paint, and when the first row is there, of a browser that is signed in and has no file yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(link(running))
    fresh = browser.new_context(viewport={"width": 1280, "height": 800}, storage_state=context.storage_state())
    page = fresh.new_page()
    page.goto(f"{running.url}/#/queue")
    page.locator(".row").first.wait_for()
    rows = page.evaluate("performance.now()")
    found = page.evaluate(PAINTED)
    fresh.close()
    context.close()
    return float(found), float(rows)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, scheduler(Path(state)) as running, sync_playwright() as playwright:
        running.http.post("/node", json=node()).raise_for_status()
        for first in range(0, asked.jobs, AT_ONCE):
            running.http.post("/jobs", json=[SLEEP] * min(AT_ONCE, asked.jobs - first)).raise_for_status()
        files = (Path(__file__).parents[1] / "src/colane/server/web/static").iterdir()
        size = sum(len(gzip.compress(one.read_bytes())) for one in files if one.suffix in {".js", ".css", ".html"})
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS.split())
        took = [painted_ms(browser, running) for _ in range(TIMES)]
        print(f"{asked.jobs} jobs; the page's files: {size / 1e3:.0f} kB gzip")
        for name, of in (("first contentful paint", 0), ("first row there", 1)):
            values = [one[of] for one in took]
            print(f"{name}: median {statistics.median(values):.0f} ms, longest {max(values):.0f} ms of {TIMES}")
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(link(running))
        page.goto(f"{running.url}/#/queue")
        page.locator(".row").first.wait_for()
        rates = []
        for _ in range(TIMES):
            page.evaluate("scrollTo(0, 0)")
            rate, gaps = page.evaluate(SCROLLED)
            rates.append((rate, statistics.quantiles(gaps, n=20)[-1]))
        rate, worst = statistics.median([one for one, _ in rates]), statistics.median([one for _, one in rates])
        elements = page.locator("body *").count()
        print(f"scrolled by 400 px a frame: {rate:.0f} frames/s, 95 % within {worst:.0f} ms; {elements} elements")
        browser.close()


if __name__ == "__main__":
    main()
