"""A verb is said once: route, reference, client, command, assistant, Slurm's words and buttons are as its row says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colane.cli.app import NOUNS
from colane.client.client import Client
from colane.integrations.assistant import DEEDS
from colane.integrations.slurm.scontrol import CHANGES
from colane.scheduling.registry import NAMES
from colane.verbs.of_jobs import JOB_VERBS, Deed, JobVerb
from colane.verbs.of_others import DRAIN, UNDRAIN
from tests.server.harness import world

ROOT = Path(__file__).parents[2]
INTERFACES = (ROOT / "docs/reference/interfaces.md").read_text()
EACH = pytest.mark.parametrize("verb", JOB_VERBS.values(), ids=lambda verb: verb.deed)


async def openapi() -> dict[str, Any]:
    async with world() as w:
        found: dict[str, Any] = await w.good("GET", "/openapi.json")
        return found


@EACH
async def test_its_route_is_as_its_row_says(verb: JobVerb) -> None:
    route = (await openapi())["paths"][f"/job/{{number}}{verb.suffix}"][verb.method.lower()]
    assert route["description"] == verb.does
    asked = {each["name"] for each in route["parameters"] if each["in"] == "query"}
    assert asked == {"by", *verb.in_query}, f"verbs/of_jobs.py: {verb.deed} has arguments that its route does not take"


@EACH
def test_the_reference_has_its_path(verb: JobVerb) -> None:
    assert f"| `/job/{{id}}{verb.suffix}` |" in INTERFACES


@EACH
def test_it_is_a_command(verb: JobVerb) -> None:
    assert verb.deed in NOUNS
    assert bool(verb.help) == NOUNS[verb.deed].endswith(f":{verb.deed}")


@EACH
def test_the_client_sends_what_the_route_takes(verb: JobVerb, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(Client, "_change", lambda _self, *said: sent.append(said))
    given = {**dict.fromkeys(verb.in_query, "1"), **({} if verb.method == "DELETE" else {"other": 2, "none": None})}
    with Client("http://localhost:1") as client:
        client.act(verb, 7, "ann", **given)
    body = None if verb.method == "DELETE" else {"other": 2}
    query = {"by": "ann", **dict.fromkeys(verb.in_query, "1")}
    assert sent == [(verb.method, f"/job/7{verb.suffix}", body, query)]


def test_assistants_may_what_has_words_for_them() -> None:
    assert {verb.deed: verb.would for verb in JOB_VERBS.values() if verb.would} == DEEDS


def test_each_of_slurms_words_means_one_verb() -> None:
    words = [word for verb in JOB_VERBS.values() for word in verb.slurm]
    assert sorted(words) == sorted(set(words)) == sorted(CHANGES)


async def test_the_page_has_a_button_for_all_that_may_be_done() -> None:
    async with world() as w:
        text = (await w.http.get("/page/verbs.js")).text
    rows, of_nodes, policies = [json.loads(line.partition(" = ")[2].rstrip(";")) for line in text.splitlines()]
    assert policies == list(NAMES)
    assert [of_nodes[row.name]["label"] for row in (DRAIN, UNDRAIN)] == [DRAIN.label, UNDRAIN.label]
    assert [row["verb"] for row in rows] == [verb.deed for verb in JOB_VERBS.values() if verb.label]
    assert {*Deed} - {row["verb"] for row in rows} == {Deed.CHANGE, Deed.AGAIN}
