"""How fast a job runs is asked of `Beliefs.rate` alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src/colane"
OTHER_WAYS = re.compile(
    r"beliefs\.(predict|profile|profiles|curve|line|points)\b|\.step_s\.value|beliefs\.neighbours\.(?!version\b|worst\b)"
)
"""Ways round it: predictions of sets, single profiles and pairs of neighbours."""


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("scheduling/**/*.py"), ROOT / "core/planners/guard.py", ROOT / "core/cluster/situations.py"]),
    ids=lambda path: path.stem,
)
def test_who_decides_asks_nothing_else_about_speed(path: Path) -> None:
    assert not OTHER_WAYS.findall(path.read_text())
