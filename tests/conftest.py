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
def data() -> Path:
    """Folder of measured tables and traces; tests that need it skip only where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no measured data at {DATA}; set COLANE_DATA")
    return DATA
