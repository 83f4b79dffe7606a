"""Each room has a budget of lines: who needs more changes `budgets.toml` and says there for what."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.house.measure import Private, Size, privates, rooms

BUDGETS = Path(__file__).with_name("budgets.toml")
SLACK_RATIO, SLACK_LINES = 0.02, 20
"""So far below its budget a room may stand: what became less stays less."""


def complaints(sizes: Mapping[str, Size], budgets: Mapping[str, int]) -> list[str]:
    """Say what is wrong, a line each, with the file to change."""
    where = f"tests/house/{BUDGETS.name}"
    said = [f"the room {room} has no budget: give it one in {where}" for room in sizes.keys() - budgets.keys()]
    said += [f"there is no room {room}: take it out of {where}" for room in budgets.keys() - sizes.keys()]
    for room in sizes.keys() & budgets.keys():
        lines, budget = sizes[room].lines, budgets[room]
        if lines > budget:
            said.append(f"{room} has {lines} lines, {lines - budget} over its budget: say in {where} for what, or less")
        elif lines * (1 + SLACK_RATIO) + SLACK_LINES < budget:
            said.append(f"{room} has only {lines} lines: lower its budget of {budget} in {where}")
    return sorted(said)


def test_no_room_is_larger_than_its_budget() -> None:
    table = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
    assert complaints(rooms(), table["lines"]) == []


def test_private_functions_with_one_caller_become_fewer() -> None:
    table = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
    every = list(privates())
    once = [one for one in every if one.uses == 1]
    assert len(once) / len(every) <= table["private"]["one_caller_max"]
    assert sum(one.statements <= 2 for one in once) <= table["private"]["one_caller_of_two_statements_max"]


def test_what_is_wrong_is_said_with_the_file_to_change() -> None:
    sizes = {"core": Size(110, 1), "new": Size(5, 1), "slim": Size(50, 1), "same": Size(100, 2)}
    assert complaints(sizes, {"core": 100, "slim": 100, "same": 100, "gone": 7}) == [
        "core has 110 lines, 10 over its budget: say in tests/house/budgets.toml for what, or less",
        "slim has only 50 lines: lower its budget of 100 in tests/house/budgets.toml",
        "the room new has no budget: give it one in tests/house/budgets.toml",
        "there is no room gone: take it out of tests/house/budgets.toml",
    ]


def test_a_caller_is_a_use_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def _once():\n    'Say.'\n    return 1\n\ndef f():\n    return _once()\n")
    assert list(privates(tmp_path)) == [Private("a.py:1 _once", 1, 1)]
