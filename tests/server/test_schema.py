"""schemathesis over the OpenAPI: whatever is sent, no answer is a 5xx and every answer is what the schema says.

The operations are listed, as every process that runs tests reads all of their files: making the application and its
schema for their names alone took each of them 3 s of a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.examples import examples
from tests.server.harness import SLEEP, node, rules_of
from tests.server.processes import Scheduler, scheduler

if TYPE_CHECKING:
    from schemathesis import GenerationMode

pytestmark = pytest.mark.live

EXAMPLES_PER_OPERATION = 5
METHODS = {
    "/node/{name}/report": "POST",
    "/finished_job": "POST",
    "/finished_jobs": "POST GET DELETE",
    "/node": "POST",
    "/jobs": "POST GET DELETE",
    "/job": "POST",
    "/job/{number}/launch": "GET",
    "/agent_settings": "GET",
    "/pools": "GET",
    "/qos": "GET",
    "/nodes": "GET DELETE",
    "/node/{name}": "GET DELETE PUT",
    "/node/{name}/drain": "POST DELETE",
    "/plan": "POST",
    "/job/{number}": "GET DELETE",
    "/job/{number}/requeue": "POST",
    "/job/{number}/change": "POST",
    "/job/{number}/suspend": "POST",
    "/job/{number}/resume": "POST",
    "/job/{number}/why": "GET",
    "/job/{number}/start": "GET",
    "/job/{number}/request": "GET",
    "/live_jobs": "GET",
    "/listing": "GET",
    "/last_job": "GET",
    "/profiles": "GET PUT DELETE",
    "/measurements": "GET",
    "/usage": "GET",
    "/health": "GET",
    "/hand_over": "POST",
    "/config/reload": "POST",
    "/state": "GET",
    "/store/behind": "GET",
    "/store/adopt": "POST",
    "/tokens": "POST GET",
    "/token/{token}": "DELETE",
    "/samples/cluster": "GET",
    "/samples/nodes/{name}": "GET",
    "/samples/jobs/{number}": "GET",
    "/overview": "GET",
    "/metrics": "GET",
    "/timeline": "GET",
    "/timeline/moves": "GET",
    "/job/{number}/efficiency": "GET",
    "/job/{number}/co_runners": "GET",
    "/job/{number}/cost": "GET",
    "/reservations": "GET POST",
    "/reservation/{name}": "DELETE",
    "/usage/days": "GET",
    "/usage/budgets": "GET",
    "/usage/shared": "GET",
    "/usage/used": "GET",
    "/usage/waiting": "GET",
    "/usage/ended": "GET",
    "/page_link": "POST",
    "/page_rows": "GET",
}
LABELS = [f"{method} {path}" for path, methods in METHODS.items() for method in methods.split()]


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    import schemathesis  # noqa: PLC0415 - every process that runs tests would import it

    from colane.server.assembly import make_service  # noqa: PLC0415 - as above
    from colane.server.config import ServiceConfig  # noqa: PLC0415
    from colane.server.http.app import create_app  # noqa: PLC0415
    from tests.memory_store import MemoryStore  # noqa: PLC0415

    service = make_service(MemoryStore(), ServiceConfig(policy="fifo", workdir="/srv"))
    schema = schemathesis.openapi.from_dict(create_app(service, rules_of(service)).openapi())
    # A body of many long names is refused at the door, before it is judged by its schema.
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]
    # Event streams do not end, and logs, stacks and terminals belong to agents.
    found = schema.exclude(path_regex="^/events$|^/live$|^/whatif$|/log$|/stacks$|/terminal$").get_all_operations()
    return {operation.label: operation for operation in (each.ok() for each in found)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state")) as started:
        started.http.post("/node", json=node()).raise_for_status()
        started.http.post("/jobs", json=[SLEEP] * 3).raise_for_status()
        yield started
        assert started.http.get("/health").json()["status"] == "ok"
        silent = "no node of pool default is heard: its jobs wait for them where they are\n"  # on a busy machine
        assert started.errors().replace(silent, "") == ""


def test_all_operations_are_listed(operations: dict[str, Any]) -> None:
    assert sorted(operations) == sorted(LABELS)


@pytest.mark.parametrize("label", LABELS)
def test_every_answer_is_foreseen(running: Scheduler, operations: dict[str, Any], label: str) -> None:
    from schemathesis import GenerationMode  # noqa: PLC0415 - as above

    operation = operations[label]
    judge(running, operation, GenerationMode.POSITIVE)
    if operation.body or operation.query or operation.path_parameters:
        judge(running, operation, GenerationMode.NEGATIVE)


def judge(running: Scheduler, operation: Any, mode: GenerationMode) -> None:
    """Send requests as its schema wants them, or as it does not."""
    from schemathesis.checks import positive_data_acceptance  # noqa: PLC0415 - as above

    # Admission judges more than a schema can say: fields against one another, and against the hardware.
    beyond = [positive_data_acceptance]

    @given(operation.as_strategy(generation_mode=mode))
    @settings(examples(EXAMPLES_PER_OPERATION), database=None, suppress_health_check=list(HealthCheck))
    def answered(case: Any) -> None:
        case.call_and_validate(base_url=running.url, headers=dict(running.http.headers), excluded_checks=beyond)

    answered()
