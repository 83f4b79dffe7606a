"""`colane drain` and `colane undrain` at a real scheduler."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Colane

pytestmark = pytest.mark.live


def test_a_node_is_drained_shown_and_undrained(live: Colane) -> None:
    said = live("drain", "here", "--deadline", "10m", "--reason", "new fan")
    try:
        assert said.code == 0, said
        assert "here: drained; drained by" in said.out
        assert "(new fan), until" in said.out
        shown = live("nodes").out
        assert "drained" in shown.splitlines()[1]
        assert "(new fan), until" in shown
        job = live("submit", "--", "true").out.split()[-1]
        assert "ReqNodeNotAvail" in live("why", job).out
    finally:
        undrained = live("undrain", "here", "--json")
    assert undrained.json == [{"name": "here", "state": "up", "drain": None, "notice": None}]
    assert live("drain", "here", "--wait", "--json").json[0]["state"] == "drained"
    assert live("undrain", "here").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drain"], "Missing argument"),
        (["drain", "here", "nowhere"], "there is no node nowhere; colane nodes lists those there are"),
        (["drain", "here", "--deadline", "soon"], "--deadline"),
        (["drain", "here", "--reason", "a\nb"], "reason"),
        (["undrain", "nowhere"], "there is no node nowhere"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_drains_nothing(live: Colane, words: list[str], said: str) -> None:
    found = live(*words)
    assert found.code == 2
    assert said in found.err
    assert len(found.err.splitlines()) == 1
    assert live("nodes", "--json").json[0]["state"] == "up"


def test_a_node_is_reserved_listed_and_let_go(live: Colane) -> None:
    said = live(
        "reserve", "--nodes", "here", "--from", "now+1h", "--to", "now+2h", "--users", "ann", "--name", "course"
    )
    assert said.code == 0, said
    try:
        assert "course" in live("reserve").out
        assert "here: kept from" in live("nodes").out
        again = live("reserve", "--nodes", "here", "--to", "now+2h", "--users", "bob")
        assert (again.code != 0, "here is kept for reservation course of ann" in again.err) == (True, True), again
        job = live("submit", "--", "true").out.split()[-1]
        assert "reserved for others: here (reservation course of ann)" in live("why", job).out
        assert live("cancel", job).code == 0
    finally:
        assert live("reserve", "--cancel", "course").code == 0
    assert live("reserve", "--json").json == []
    for words, wrong in (
        (["--nodes", "here"], "--to is missing: say --nodes, --to and --users"),
        (["--cancel", "course", "--nodes", "here"], "--cancel NAME goes alone"),
        (["--cancel", "course"], "there is no reservation 'course'"),
    ):
        told = live("reserve", *words)
        assert (told.code != 0, wrong in told.err) == (True, True), told
