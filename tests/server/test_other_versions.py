"""An agent of another version: what it says besides is left aside, wherever it says it, and so are its own words."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from colane.api.nodes import SentGpu, SentTopology
from colane.api.of_record import SentProgress
from colane.api.topologies import decode_topology
from colane.api.wire_nodes import (
    FinishedBody,
    JobReport,
    NodeBody,
    ReportBody,
)
from colane.cli.app import run
from colane.cli.jobs import objects
from colane.client.client import Client
from colane.client.knowledge import decode_profile
from colane.core.reducers import failing, out_of_turns
from colane.model import versions
from colane.model.hardware import LinkKind
from colane.model.profile import Value, ValueSource
from tests.other_versions import TOMORROW, newer
from tests.server.harness import SLEEP, finished, gpu, launched, node, report, world

TOPOLOGY = {"links": [[["X", 0, 0]]], "sockets": [0]}
NODE = node(topology=TOPOLOGY)
REPORT = report(
    launched(1, progress={"at_s": 1.0, "steps": 3}),
    gpus=[gpu(0)],
    bandwidth={"by_job": {"1": 0.5}},
    notice={"reason": "maintenance", "left_s": 9.0},
)
FINISHED = finished(1, progress={"at_s": 1.0, "steps": 3})


def parts_of(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """The schemas of a message and of its parts."""
    schema = kind.model_json_schema()
    return [schema, *schema.get("$defs", {}).values()]


@pytest.mark.parametrize(
    ("kind", "body"), [(NodeBody, NODE), (ReportBody, REPORT), (FinishedBody, FINISHED)], ids=["node", "report", "end"]
)
class TestWhatAgentsSay:
    def test_unknown_fields_change_nothing(self, kind: type[BaseModel], body: dict[str, Any]) -> None:
        assert newer(body) != body
        assert kind.model_validate(newer(body)) == kind.model_validate(body)

    def test_none_of_its_parts_refuses_them(self, kind: type[BaseModel], body: dict[str, Any]) -> None:
        parts = parts_of(kind)
        assert len(parts) > 1, f"it has parts, as {', '.join(body)}"
        assert [part["title"] for part in parts if part.get("additionalProperties") is False] == []

    def test_no_word_of_theirs_is_of_a_closed_set(self, kind: type[BaseModel], body: dict[str, Any]) -> None:
        parts = parts_of(kind)
        fields = {
            f"{part['title']}.{name}": json.dumps(of) for part in parts for name, of in part["properties"].items()
        }
        assert len(fields) > len(body)
        assert {name for name, told in fields.items() if '"enum"' in told or '"const"' in told} == set()


class TestWordsThatAreNotKnown:
    def test_a_way_of_sharing_is_kept(self) -> None:
        assert TypeAdapter(SentGpu).validate_python(gpu(0, sharing=TOMORROW))["sharing"] == TOMORROW

    def test_a_link_is_the_farthest_and_as_wide_as_is_said(self) -> None:
        links = [[["X", 0, 0.0], [TOMORROW, 4, 9e11]], [[TOMORROW, 4, 9e11], ["X", 0, 0.0]]]
        read = TypeAdapter(SentTopology).validate_python({"links": links, "sockets": [0, 0]})
        assert read["links"][0][1] == read["links"][1][0] == ("SYS", 0, 9e11)
        decoded = decode_topology({"links": links, "sockets": [0, 0]})
        assert decoded.links[0][1].kind is LinkKind.SYS

    def test_an_address_of_another_kind_is_none(self) -> None:
        assert NodeBody.model_validate(node(address="file:///etc/passwd")).address == ""
        assert NodeBody.model_validate(node(address="unix:///run/colane/agent.sock")).address == ""
        assert NodeBody.model_validate(node(address="https://gpu-1:8701")).address == "https://gpu-1:8701"
        with pytest.raises(ValidationError, match="address"):
            NodeBody.model_validate(node(address="gpu-1"))

    def test_a_phase_says_that_the_attempt_is_there(self) -> None:
        assert JobReport.model_validate(launched(1, phase=TOMORROW)).phase == "launching"

    def test_how_it_stands_in_its_turns_is_as_others(self) -> None:
        assert TypeAdapter(SentProgress).validate_python({"at_s": 1.0, "turn": TOMORROW})["turn"] == ""

    def test_an_end_is_one_that_is_not_known(self) -> None:
        read = FinishedBody.model_validate(finished(1, outcome=TOMORROW, exit_code=0, detail="too hot"))
        assert (read.outcome, read.detail) == ("unknown", f"'{TOMORROW}': too hot")
        silent = FinishedBody.model_validate(finished(1, outcome="\0", detail=""))
        assert silent.detail == repr("\0")

    def test_the_words_are_those_that_are_used_here(self) -> None:
        """A word that is added elsewhere is added to what may be said, or every agent of this version loses it."""
        assert set(versions.LINKS.known) == {kind.value for kind in LinkKind}
        assert set(versions.ENDS.known) == {*failing.CAUSES, *failing.NOT_ITS_OWN, *failing.BESIDE_OTHERS}
        assert set(versions.TURNS.known) >= {*out_of_turns.WHYS}
        for words in (versions.LINKS, versions.PHASES, versions.TURNS, versions.ENDS, versions.ADDRESS_SCHEMES):
            assert words.read(words.otherwise) == words.otherwise
            assert words.read(TOMORROW) == words.otherwise


async def test_a_newer_agent_with_words_of_its_own_runs_jobs_of_an_older_scheduler() -> None:
    async with world() as w:
        new = gpu(0, sharing=TOMORROW)
        topology = {
            "links": [[["X", 0, 0.0], [TOMORROW, 4, 0.0]], [[TOMORROW, 4, 0.0], ["X", 0, 0.0]]],
            "sockets": [0, 0],
        }
        await w.good("POST", "/node", node(gpus=2, topology=topology, address="carrier-pigeon://gpu-1"))
        job = await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(job, phase=TOMORROW), gpus=[new, gpu(1)]))
        assert await w.state(job) == "assigned"
        progress = {"at_s": 1.0, "steps": 3, "turn": TOMORROW}
        shown = await w.good("POST", "/node/n1/report", report(launched(job, progress=progress), gpus=[new, gpu(1)]))
        assert shown["gpus"][0]["sharing"] == TOMORROW
        assert await w.state(job) == "running"
        await w.good("POST", "/finished_job", finished(job, outcome=TOMORROW, exit_code=0))
        told = await w.good("GET", f"/job/{job}")
        assert (told["attempt"], told["state"]) == (2, "assigned"), "it has not succeeded, whatever that means"
        assert any(TOMORROW in move["sentence"] for move in told["story"])


async def test_an_end_that_is_not_known_is_not_repeated_for_ever() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        for attempt in range(1, 9):
            if await w.state(job) == "failed":
                break
            await w.good("POST", "/finished_job", finished(job, attempt, outcome=TOMORROW))
        assert await w.state(job) == "failed"
        assert attempt == 5


async def test_a_newer_agent_runs_jobs_of_an_older_scheduler() -> None:
    async with world() as w:
        await w.good("POST", "/node", newer(NODE))
        job = await w.submit()
        shown = await w.good("POST", "/node/n1/report", newer(report(gpus=[gpu(0)])))
        assert [each["id"] for each in shown["jobs"]] == [job]
        await w.good("POST", "/node/n1/report", newer(report(launched(job, progress={"at_s": 1.0, "steps": 3}))))
        await w.good("POST", "/finished_job", newer(finished(job)))
        assert (await w.good("GET", f"/job/{job}"))["state"] == "succeeded"


async def test_what_people_ask_is_still_judged_field_by_field() -> None:
    async with world() as w:
        await w.good("POST", "/node", NODE)
        status, detail = await w.refused("POST", "/node/n1/drain", {"resaon": "maintenance"})
        assert (status, detail[0]["field"]) == (422, "resaon")
        status, detail = await w.refused("POST", "/job", {**SLEEP, "said_by_newer_ones": 1})
        told = f"is not a known field of this scheduler, Colane {versions.own_version()}"
        assert (status, detail) == (422, [{"field": "said_by_newer_ones", "message": told}])


class TestVersionsAreShown:
    async def test_of_each_node(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        own = versions.own_version()
        async with world() as w:
            await w.good("POST", "/node", node("old", version="0.0.1"))
            await w.good("POST", "/node", node("silent"))
            told = await w.good("POST", "/node", node("same", version=own))
            assert (told["agent_version"], told["scheduler_version"]) == (own, own)
            assert (await w.good("GET", "/health"))["version"] == own
            nodes = await w.good("GET", "/nodes")
        scheduler = Mock(Client)
        scheduler.nodes.return_value, scheduler.overview.return_value = nodes, {"idle": []}
        scheduler.health.return_value = {}
        monkeypatch.setattr(objects, "client", lambda: nullcontext(scheduler))
        assert run(["nodes"]) == 0
        out = capsys.readouterr().out
        rows = {line.split()[0]: line.split() for line in out.splitlines() if "time-slice" in line}
        shown = {name: row[row.index("free") + 1 :] for name, row in rows.items()}
        assert shown == {"old": ["0.0.1", "!"], "silent": ["?", "!"], "same": [own]}
        assert f"old: its agent is 0.0.1, the scheduler {own}" in out
        assert "same: its agent" not in out
        scheduler.nodes.return_value = [{**each, "scheduler_version": "9.0.0"} for each in nodes]
        assert run(["nodes"]) == 0
        told = capsys.readouterr()
        assert f"the scheduler is Colane 9.0.0, this command {own}" in told.err
        assert f"{own} !" in told.out

    async def test_an_agent_that_was_upgraded_is_shown_so(self) -> None:
        async with world() as w:
            for version in ("0.0.1", "0.0.2"):
                await w.good("POST", "/node", node(version=version))
                assert (await w.good("GET", "/node/n1"))["agent_version"] == version


class TestCommands:
    """What a newer scheduler shows is read as far as it is known."""

    def test_a_profile_with_more_in_it(self) -> None:
        key = {"family": "f", "batch_size": None, "gpus": 1, "gpu_type": "cpu"}
        body = {"key": key, "step_s": {"value": 0.5, "source": "measured", "samples": 3, "by": "n1"}, "users": ["u"]}
        assert decode_profile(newer(body)) == decode_profile(body)

    def test_a_value_whose_source_is_not_known_counts_least(self) -> None:
        key = {"family": "f", "batch_size": None, "gpus": 1, "gpu_type": "cpu"}
        read = decode_profile({"key": key, "step_s": {"value": 0.5, "source": TOMORROW}})
        assert read.step_s == Value(0.5, ValueSource.DEFAULT)

    async def test_jobs_and_nodes_are_shown(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async with world() as w:
            await w.good("POST", "/node", NODE)
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job), gpus=[gpu(0)]))
            shown, why = await w.good("GET", f"/job/{job}"), await w.good("GET", f"/job/{job}/why")
            nodes = await w.good("GET", "/nodes")
            used = await w.good("GET", f"/job/{job}/efficiency")
        told = {**shown["facts"], "word": TOMORROW}
        shown |= {"state": TOMORROW, "facts": told, "why": TOMORROW, "first_start_s": 1.0}
        nodes[0] |= {"state": TOMORROW, "gpus": [{**nodes[0]["gpus"][0], "sharing": TOMORROW}]}
        newer_one = Mock(Client)
        newer_one.job.return_value, newer_one.why.return_value = newer(shown), newer(why)
        newer_one.efficiency.return_value = newer(used)
        newer_one.overview.return_value = newer({"idle": []})
        newer_one.nodes.return_value = newer(nodes)
        newer_one.health.return_value = {"mechanisms": {"mps": TOMORROW}, TOMORROW: TOMORROW}
        monkeypatch.setattr(objects, "client", lambda: nullcontext(newer_one))
        for words, said in ((["show", str(job)], TOMORROW), (["nodes"], TOMORROW), (["topo"], "socket 0")):
            assert run(words) == 0
            assert said in capsys.readouterr().out
