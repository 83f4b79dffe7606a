"""A large batch is judged before its turn, a few jobs at a time, and taken whole or not at all as ever."""

from __future__ import annotations

import asyncio
from typing import Any

from colane.api.job_request import JobRequest
from colane.server.submitting import admission
from colane.server.submitting.admission import SLICE, admit_all, judge_in_slices
from colane.server.submitting.hardware import Hardware
from colane.server.submitting.lookup import Families
from tests.server.harness import SLEEP, Agents, node, world

MANY = 8 * SLICE + 1
BODY: list[Any] = [{**SLEEP, "name": f"j{number}"} for number in range(MANY)]


def requests(**fields: Any) -> list[JobRequest]:
    return [JobRequest.model_validate({**body, **fields}) for body in BODY]


async def test_others_go_on_while_a_batch_is_judged() -> None:
    went_on = 0

    async def go_on() -> None:
        nonlocal went_on
        while True:
            went_on += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(go_on())
    found = await judge_in_slices(requests(), Hardware(), "/srv", Families())
    other.cancel()
    assert found is not None
    assert found.admitted == admit_all(requests(), Hardware(), "/srv")
    assert went_on >= MANY // SLICE


async def test_what_depends_on_its_turn_or_is_wrong_is_left_to_it() -> None:
    assert await judge_in_slices(requests()[:SLICE], Hardware(), "/srv", Families()) is None
    assert await judge_in_slices(requests(begin="now+1hour"), Hardware(), "/srv", Families()) is None
    assert await judge_in_slices([*requests(), *requests(workdir="here")], Hardware(), "/srv", Families()) is None


async def test_one_bad_job_of_many_is_named_and_nothing_is_stored() -> None:
    async with world() as w:
        status, detail = await w.refused("POST", "/jobs", [*BODY, {**SLEEP, "workdir": "here"}])
        assert status == 422
        assert [each["field"] for each in detail] == [f"jobs[{MANY}].workdir"]
        assert await w.good("GET", "/jobs") == []


async def test_a_batch_judged_before_a_node_came_is_judged_anew(monkeypatch: Any) -> None:
    """Without nodes nothing is known of hardware; the node that comes has less memory than is asked for."""
    async with world(agents=Agents()) as w:
        judged_early = asyncio.Event()
        wait = asyncio.Event()

        async def judge_and_wait(*args: Any) -> admission.JudgedBatch | None:
            found = await judge_in_slices(*args)
            assert found is not None
            judged_early.set()
            await wait.wait()
            return found

        monkeypatch.setattr("colane.server.service.judge_in_slices", judge_and_wait)
        posting = asyncio.create_task(w.post("/jobs", [{**body, "gpu_memory": "1TB"} for body in BODY]))
        await judged_early.wait()
        await w.good("POST", "/node", node())
        wait.set()
        answer = await posting
        assert answer.status_code == 422, answer.text
        assert "gpu_memory" in answer.text
        assert await w.good("GET", "/jobs") == []


async def test_a_large_batch_is_taken_and_given_once_for_a_key() -> None:
    async with world() as w:
        first = await w.post("/jobs", BODY, **{"Idempotency-Key": "once"})
        again = await w.post("/jobs", BODY, **{"Idempotency-Key": "once"})
        assert first.json() == again.json() == {"ids": list(range(1, MANY + 1))}
