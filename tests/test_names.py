"""One word for one idea: no class name stands for two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "colane"


def test_every_class_name_is_unique() -> None:
    homes = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert len(homes) > 100
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
