"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import EXAMPLES_UNLESS_SAID, examples

settings.register_profile("colane", examples(EXAMPLES_UNLESS_SAID))
settings.load_profile("colane")

os.environ.setdefault("COLANE_OTHERS", "ignore")
"""Other tests run at the same time: their load must not keep jobs from sharing and from teaching."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the page first: each file of them is one visit in order, and what is last is taken apart.

    Processes that have nothing left to do take tests from the end of what others have.
    """
    items.sort(key=lambda item: "web" not in item.path.parts)
