"""Made-up files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write a small file and return its path."""

    def write(text: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
