"""A test that is left out says why: what it needs, and which this machine lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
WAYS = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip")


def _left_out() -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (way := ast.unparse(node.func)) in WAYS:
                yield f"{path.relative_to(TESTS)}:{node.lineno}", way, node


def _reason(way: str, call: ast.Call) -> str:
    said = {word.arg: word.value for word in call.keywords}
    told = said.get("reason", call.args[0] if way == "pytest.skip" and call.args else None)
    return "" if told is None or ast.unparse(told) in {"''", '""'} else ast.unparse(told)


def test_each_says_why() -> None:
    found = list(_left_out())
    assert len(found) > 30
    assert [place for place, way, call in found if not _reason(way, call)] == []


def test_none_is_left_out_whatever_the_machine_has() -> None:
    assert [place for place, way, _ in _left_out() if way == "pytest.mark.skip"] == []
