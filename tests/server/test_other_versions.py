"""An agent of another version: what it says besides is left aside, wherever it says it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from colane.server.http.wire_nodes import FinishedBody, NodeBody, ReportBody
from tests.server.harness import finished, gpu, launched, node, report, world

TOPOLOGY = {"links": [[["X", 0, 0]]], "sockets": [0]}
NODE = node(topology=TOPOLOGY)
REPORT = report(
    launched(1, progress={"at_s": 1.0, "steps": 3}),
    gpus=[gpu(0)],
    bandwidth={"by_job": {"1": 0.5}},
    notice={"reason": "maintenance", "left_s": 9.0},
)
FINISHED = finished(1, progress={"at_s": 1.0, "steps": 3})
MAPPINGS = frozenset({"by_job"})
"""Objects whose keys are data: what is added there is no unknown field."""


def newer(value: Any, name: str = "") -> Any:
    """Add a field to each object within."""
    if isinstance(value, dict):
        more = {} if name in MAPPINGS else {"said_by_newer_ones": [{"x": 1}]}
        return {**{key: newer(each, key) for key, each in value.items()}, **more}
    return [newer(each) for each in value] if isinstance(value, list) else value


def models_within(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of an annotation, and of their fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from models_within(field.annotation)
    for part in typing.get_args(kind):
        yield from models_within(part)


@pytest.mark.parametrize(
    ("kind", "body"), [(NodeBody, NODE), (ReportBody, REPORT), (FinishedBody, FINISHED)], ids=["node", "report", "end"]
)
class TestWhatAgentsSay:
    def test_unknown_fields_change_nothing(self, kind: type[BaseModel], body: dict[str, Any]) -> None:
        assert newer(body) != body
        assert kind.model_validate(newer(body)) == kind.model_validate(body)

    def test_none_of_its_parts_refuses_them(self, kind: type[BaseModel], body: dict[str, Any]) -> None:
        parts = set(models_within(kind))
        assert len(parts) > 1, f"it has parts, as {', '.join(body)}"
        assert {part.__name__ for part in parts if part.model_config.get("extra") != "ignore"} == set()


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
