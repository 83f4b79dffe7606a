"""schemathesis over the OpenAPI: whatever is sent, no answer is a 5xx and every answer is what the schema says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.http.app import create_app
from colane.server.store.memory import MemoryStore
from tests.examples import examples
from tests.server.harness import SLEEP, node, rules_of
from tests.server.processes import Scheduler, scheduler

pytestmark = pytest.mark.live

EXAMPLES_PER_OPERATION = 5
BEYOND_THE_SCHEMA = [positive_data_acceptance]
"""Admission judges more than a schema can say: fields against one another, and against the hardware."""


def operations() -> dict[str, Any]:
    service = make_service(MemoryStore(), ServiceConfig(policy="fifo", workdir="/srv"))
    schema = schemathesis.openapi.from_dict(create_app(service, rules_of(service)).openapi())
    # Event streams do not end, and logs and stacks belong to agents.
    found = schema.exclude(path_regex="^/events$|^/live$|/log$|/stacks$").get_all_operations()
    return {operation.label: operation for operation in (each.ok() for each in found)}


OPERATIONS = operations()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state")) as started:
        started.http.post("/node", json=node()).raise_for_status()
        started.http.post("/jobs", json=[SLEEP] * 3).raise_for_status()
        yield started
        assert started.http.get("/health").json()["status"] == "ok"
        assert started.errors() == ""


def test_the_schema_has_all_operations() -> None:
    assert len(OPERATIONS) == 60


def negatable(label: str) -> bool:
    operation = OPERATIONS[label]
    return bool(operation.body or operation.query or operation.path_parameters)


@pytest.mark.parametrize(
    ("label", "mode"),
    [(label, GenerationMode.POSITIVE) for label in OPERATIONS]
    + [(label, GenerationMode.NEGATIVE) for label in OPERATIONS if negatable(label)],
)
def test_every_answer_is_foreseen(running: Scheduler, label: str, mode: GenerationMode) -> None:
    @given(OPERATIONS[label].as_strategy(generation_mode=mode))
    @settings(examples(EXAMPLES_PER_OPERATION), database=None, suppress_health_check=list(HealthCheck))
    def judge(case: Any) -> None:
        case.call_and_validate(
            base_url=running.url, headers=dict(running.http.headers), excluded_checks=BEYOND_THE_SCHEMA
        )

    judge()
