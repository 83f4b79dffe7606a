"""What older versions said is played against this one, and what this one says is held against what they took.

A set is recorded by `python -m tests.versions.record VERSION`; every one of them is played here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from colane.agent.link.messages import read_desired
from colane.agent.reconcile import Key
from colane.client.knowledge import decode_profile
from colane.model.versions import own_version
from colane.server.board.clock import Clocks
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.server.harness import World, world
from tests.versions.record import FOLDER, FROM_AGENTS, JOBS

SETS = sorted(path.stem for path in FOLDER.glob("*.json"))
ECHOED = {"cluster_id": "cluster_id", "epoch": "epoch", "events_seen": "events", "version_seen": "store_version"}
"""What an agent says because its scheduler has said it, and under which name: another hears its own words."""
CONFIGURED = ".settings."
"""What is told because it was set for the recording alone."""


@pytest.fixture(params=SETS)
def frozen(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{request.param}.json").read_text())
    return found


def test_there_is_a_set_and_all_jobs_are_in_it() -> None:
    assert SETS
    for name in SETS:
        jobs = json.loads((FOLDER / f"{name}.json").read_text())["jobs"]
        assert {job["name"] for job in jobs} <= {job["name"] for job in JOBS}
        assert {job["state"] for job in jobs} >= {"succeeded", "failed", "cancelled"}


async def test_an_older_agent_and_client_are_served(frozen: dict[str, Any]) -> None:
    """Each request is taken, each job ends as it did, and no answer lacks what the older one has said."""
    times = [entry["request"]["at_s"] for entry in frozen["messages"] if "at_s" in (entry["request"] or {})]
    now_s = times[0]
    async with world(clocks=Clocks(wall=lambda: now_s, steady=lambda: now_s)) as w:
        lacking, heard = [], dict[str, Any]()
        for entry in frozen["messages"]:  # as slowly as they were said, or what is measured by then is not
            now_s = max(now_s, (entry["request"] or {}).get("at_s", now_s))
            lacking += [lack async for lack in _played(w, entry, heard)]
        states = {job["id"]: await w.state(job["id"]) for job in frozen["jobs"]}
    assert not lacking
    assert states == {job["id"]: job["state"] for job in frozen["jobs"]}


async def _played(w: World, entry: dict[str, Any], heard: dict[str, Any]) -> Any:
    body = entry["request"]
    if isinstance(body, dict):
        known = {name: value for name, value in body.items() if name in ECHOED and value is not None}
        body = {**body, **{name: heard.get(ECHOED[name], value) for name, value in known.items()}}
    answer = await w.good(entry["method"], entry["path"], body)
    if isinstance(answer, dict):
        heard.update({name: answer[name] for name in ECHOED.values() if name in answer})
    for path in sorted(set(_paths(entry["answer"])) - set(_paths(answer))):
        if not path.startswith(CONFIGURED):
            yield f"{entry['method']} {entry['path']} answers without {path}"


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of an answer and their types; what is empty or null tells nothing of its inside."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield f"{path}.{name}"
            yield from _paths(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _paths(each, f"{path}[]")
    elif value is not None:
        yield f"{path}: {'number' if type(value) in {int, float} else type(value).__name__}"


def test_orders_of_an_older_scheduler_are_read(frozen: dict[str, Any]) -> None:
    orders = [entry["answer"] for entry in frozen["messages"] if entry["path"].endswith("/report")]
    read = [read_desired(order) for order in orders]
    for order, desired in zip(orders, read, strict=True):
        assert [(job.key, job.run) for job in desired.jobs] == [
            (Key(job["id"], job["attempt"]), job["run"]) for job in order["jobs"]
        ]
    assert {job.key.job for desired in read for job in desired.jobs} == {job["id"] for job in frozen["jobs"]}
    assert any(not job.run for desired in read for job in desired.jobs)


def test_profiles_of_an_older_scheduler_are_read(frozen: dict[str, Any]) -> None:
    bodies = next(entry["answer"] for entry in frozen["messages"] if entry["path"] == "/profiles")
    assert {decode_profile(body).key.family for body in bodies} == {body["key"]["family"] for body in bodies} != set()


class OlderScheduler(FakeScheduler):
    """Gives the orders of one job as an older scheduler gave them, and keeps what it is told."""

    def __init__(self, frozen: dict[str, Any], name: str) -> None:
        super().__init__()
        self.job = next(job["id"] for job in frozen["jobs"] if job["name"] == name)
        said = frozen["messages"]
        self.order = next(
            entry["answer"]
            for entry in said
            if entry["path"].endswith("/report") and [job["id"] for job in entry["answer"]["jobs"]] == [self.job]
        )
        self.launch = next(entry["answer"] for entry in said if entry["path"] == f"/job/{self.job}/launch")
        self.said: dict[str, list[Any]] = {name: [] for name in FROM_AGENTS}

    async def register(self, node: Any) -> Any:
        self.said["NodeBody"].append(node)
        return await super().register(node)

    async def report(self, name: str, report: Any) -> Any:
        self.said["ReportBody"].append(report)
        await super().report(name, report)
        over = {**self.order, "jobs": [], "generation": self.order["generation"] + 1}
        return over if self.said["FinishedBody"] else self.order

    async def launch_info(self, job_id: int) -> Any:
        assert job_id == self.job
        own = self.nodes and next(iter(self.nodes.values()))["runs_as"]
        return {**self.launch, "user": own or "", "workdir": "/"}

    async def finished(self, finished: Any) -> Any:
        self.said["FinishedBody"].append(finished)
        return {"believed": True}


@pytest.mark.parametrize(
    ("job", "outcome"), [("says-hello", "exited"), ("fails", "exited"), ("is-not-there", "not-started")]
)
async def test_an_agent_of_today_runs_jobs_of_an_older_scheduler(
    frozen: dict[str, Any], tmp_path: Path, job: str, outcome: str
) -> None:
    fake = OlderScheduler(frozen, job)
    async with running(tmp_path / "agent", fake, devices="cpu:2:2GB") as agent:
        await agent.until(lambda: fake.said["FinishedBody"], f"the end of {job}")
    assert fake.said["FinishedBody"][0]["outcome"] == outcome
    for name, bodies in fake.said.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": frozen["schemas"]}}
        judge = jsonschema_rs.validator_for(schema)
        assert bodies
        assert [error.message for body in bodies for error in judge.iter_errors(json.loads(json.dumps(body)))] == []


async def test_an_agent_logs_once_that_its_scheduler_is_of_another_version(
    frozen: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = OlderScheduler(frozen, "says-hello")
    fake.order = {**fake.order, "scheduler_version": "0.0.1"}
    async with running(tmp_path / "agent", fake, devices="cpu:2:2GB") as agent:
        await agent.until(lambda: fake.said["FinishedBody"] and len(fake.said["ReportBody"]) > 3, "some reports")
    told = [message for message in caplog.messages if "0.0.1" in message]
    assert told == [f"the scheduler is Colane 0.0.1, this agent {own_version()}"]


def test_a_field_that_an_older_scheduler_needs_is_missed(frozen: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/FinishedBody", "components": {"schemas": frozen["schemas"]}}
    end = next(entry["request"] for entry in frozen["messages"] if entry["path"] == "/finished_job")
    judge = jsonschema_rs.validator_for(schema)
    assert judge.is_valid(end)
    assert not judge.is_valid({name: value for name, value in end.items() if name != "outcome"})


def test_an_answer_that_lacks_what_was_said_is_found() -> None:
    said = {"jobs": [{"id": 1, "gang": None, "cores": []}], "generation": 3}
    assert set(_paths(said)) - set(_paths({"jobs": [{"id": 2}], "generation": "3"})) == {
        ".jobs[].gang", ".jobs[].cores", ".generation: number",
    }  # fmt: skip
