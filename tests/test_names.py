"""One word for one idea: no class name stands for two things."""

from __future__ import annotations

import ast
import re
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


PERSONS = re.compile(r"\b(nobody|somebody|someone|anybody|everybody|whom)\b", re.IGNORECASE)
"""Words for persons that stand for a job, a request or a part of the code: a noun says which."""


def test_a_noun_says_what_is_meant() -> None:
    paths = [*SOURCES.rglob("*.py"), *SOURCES.rglob("README.md")]
    assert len(paths) > 500
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
        for path in sorted(paths)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PERSONS.search(line)
    ]
    assert found == []


REFERENCES = re.compile(r"See (`|the (module|class))")


def test_no_docstring_only_points_elsewhere() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and REFERENCES.match(ast.get_docstring(node) or "")
    ]
    assert found == [], "say in a line what it is"
