"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("always the same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("random" if "COLANE_FUZZ" in os.environ else "always the same")
"""The suite gives one answer everywhere; how long an example takes on a busy machine proves nothing."""

DATA = Path(os.environ.get("COLANE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of measured tables and traces; tests that need it skip only where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no measured data at {DATA}; set COLANE_DATA")
    return DATA
