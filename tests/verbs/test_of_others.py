"""Verbs on nodes, tokens and what is kept: route, reference and client are as their rows say, and who may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from colane.client.client import Client
from colane.verbs.of_others import OTHER_VERBS, Verb
from tests.server.harness import world
from tests.server.test_users import guest

INTERFACES = (Path(__file__).parents[2] / "docs/reference/interfaces.md").read_text()
EACH = pytest.mark.parametrize("verb", OTHER_VERBS.values(), ids=lambda verb: verb.name)
ASKED: dict[str, Any] = {
    "make_token": {"digest": "0" * 64, "user": "ann"},
    "declare_profile": {"key": {"family": "anns", "gpu_type": "cpu"}, "step_s": 0.5},
    "store_adopt": {"lost": 5},
    "reserve": {"nodes": "n1", "to": "now+1h", "users": ["ann"]},
}


@EACH
async def test_its_route_is_as_its_row_says(verb: Verb) -> None:
    async with world() as w:
        openapi = await w.good("GET", "/openapi.json")
    route = openapi["paths"][verb.path][verb.method.lower()]
    assert route["description"] == verb.does
    asked = {each["name"] for each in route.get("parameters", ()) if each["in"] == "query"}
    assert asked == verb.in_query, f"verbs/of_others.py: {verb.name} has arguments that its route does not take"


@EACH
def test_the_reference_has_its_path(verb: Verb) -> None:
    assert re.search(rf"`{re.escape(verb.path)}(\?[^`]*)?`", INTERFACES)


@EACH
async def test_what_operators_alone_may_is_refused_to_users_in_its_words(verb: Verb) -> None:
    async with world() as w:
        ann = await guest(w, "ann's", user="ann")
        query = "?family=f" if "family" in verb.in_query else ""
        path = verb.path_of("0" * 12 if verb.path.startswith("/token/") else "n1")
        status, said = await ann.ask(verb.method, path + query, ASKED.get(verb.name, {}))
        assert (f"only an operator may {verb.operators}" in str(said)) == bool(verb.operators)
        assert status == 403 or not verb.operators


@EACH
def test_the_client_sends_what_the_route_takes(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(Client, "_change", lambda _self, *said: sent.append(said))
    query = dict.fromkeys(verb.in_query, "1")
    body = None if verb.method == "DELETE" else {"other": 2}
    with Client("http://localhost:1") as client:
        given: dict[str, Any] = {**query, **(body or {}), "none": None}
        client.act(verb, "n1", **given)
    assert sent == [(verb.method, verb.path_of("n1"), body, query)]
    assert "{" not in verb.path_of("n1")
