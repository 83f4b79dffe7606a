"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import gate
from tests.adaptor.forks import Forks
from tests.examples import EXAMPLES_UNLESS_SAID, examples

settings.register_profile("colane", examples(EXAMPLES_UNLESS_SAID))
settings.load_profile("colane")

os.environ.setdefault("COLANE_OTHERS", "ignore")
"""Other tests run at the same time: their load must not keep jobs from sharing and from teaching."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts what runs in the background so, and every process of a test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(os.environ.get("COLANE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def papers() -> Path:
    """Folder of the papers' texts, beside the measured tables; tests that need one skip where it is absent."""
    return DATA.parent / "papers"


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of measured tables and traces; tests that need it skip only where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no measured data at {DATA}; set COLANE_DATA")
    return DATA


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A Python that has imported PyTorch, and forks for each script."""
    with Forks() as made:
        yield made


def pytest_collection() -> None:
    """Look for no cycles while tests are read, nor ever among what that leaves: it all stays to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for them again, among what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of the page first: each file of them is one visit in order, and what is last is taken apart.

    Processes that have nothing left to do take tests from the end of what others have.
    """
    gate.leave_out(config, items)
    items.sort(key=lambda item: "web" not in item.path.parts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell `scripts/test` what failed, a line each; of the page the file, as its tests are one visit."""
    measured = os.environ.get("COLANE_DURATIONS")
    if measured and "PYTEST_XDIST_WORKER" not in os.environ:
        every = (report for reports in terminalreporter.stats.values() for report in reports)
        gate.write_durations((report for report in every if isinstance(report, pytest.TestReport)), Path(measured))
    told = os.environ.get("COLANE_TESTS_FAILED")
    if told:
        reports = (report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ()))
        failed = dict.fromkeys(getattr(report, "nodeid", "") for report in reports)
        places = dict.fromkeys(one.partition("::")[0] if one.startswith("tests/web/") else one for one in failed)
        Path(told).write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
