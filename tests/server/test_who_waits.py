"""Reports that say no more than how jobs go on let others go first, and are not kept waiting by them for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from colane.api.wire_nodes import ReportBody
from colane.core.events import Tick
from colane.model.job import JobState
from colane.server.board.turn import Turn
from colane.server.writer import changes, driver
from tests.server.harness import World, finished, gpu, launched, node, report, world

STEPPED: dict[str, Any] = {"steps": 5, "at_s": 1.0, "first_step_s": 0.5, "last_step_s": 1.0}


async def test_who_may_wait_lets_others_go_first() -> None:
    async with world() as w:
        order: list[str] = []
        change = w.service.driver.change
        waits = asyncio.create_task(change(lambda _: order.append("may wait"), may_wait=True))
        await asyncio.gather(*(change(lambda _: order.append("others")) for _ in range(3)), waits)
        assert order == ["others"] * 3 + ["may wait"]


async def test_who_may_wait_is_served_though_others_never_cease() -> None:
    async with world() as w:
        waits = asyncio.create_task(w.service.driver.change(lambda _: "served", may_wait=True))
        while not waits.done():
            await w.service.driver.change(lambda _: None)
        assert waits.result() == "served"


@pytest.mark.parametrize(("events", "turns"), [(1, [4, 2, 1, 1]), (3, [4, 3, 1]), (100, [8])])
async def test_a_turn_takes_those_that_may_wait_up_to_its_events_and_of_more_the_half(
    monkeypatch: pytest.MonkeyPatch, events: int, turns: list[int]
) -> None:
    monkeypatch.setattr(driver, "LINE_EVENTS_PER_TURN_MAX", events)
    async with world() as w:
        seen: list[Turn] = []

        def prepare(turn: Turn) -> None:
            turn.events.append(Tick())
            seen.append(turn)

        await asyncio.gather(*(w.service.driver.change(prepare, may_wait=True) for _ in range(8)))
        assert list(Counter(map(id, seen)).values()) == turns


async def running(w: World) -> None:
    await w.good("POST", "/node", node())
    await w.submit()
    await w.good("POST", "/node/n1/report", report(launched(1, progress=STEPPED)))


@pytest.mark.parametrize(
    ("is_routine", "told"),
    [
        (True, report(launched(1, progress=STEPPED | {"steps": 6}))),
        (True, report()),
        (False, report(messages=["no space left"])),
        (False, report(notice={"reason": "spot", "left_s": 100.0})),
        (False, report(gpus=[gpu(0, healthy=False)])),
    ],
    ids=["steps", "nothing", "message", "notice", "devices"],
)
async def test_only_what_changes_nothing_else_may_wait(is_routine: bool, told: Any) -> None:
    async with world() as w:
        await running(w)
        turn = Turn(w.service.read_model, w.service.driver.now(), 0, w.service.driver.progress)
        assert changes.is_routine(turn, "n1", ReportBody.model_validate(told)) is is_routine


async def test_a_start_and_a_first_step_do_not_wait() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit()
        for told in (launched(1), launched(1, progress=STEPPED)):
            turn = Turn(w.service.read_model, w.service.driver.now(), 0, w.service.driver.progress)
            assert not changes.is_routine(turn, "n1", ReportBody.model_validate(report(told)))
            await w.good("POST", "/node/n1/report", report(told))


async def test_who_waits_in_the_queue_is_counted_as_jobs_come_start_and_end() -> None:
    async with world() as w:

        def counted() -> Counter[str]:
            queued = [one for one in w.service.read_model.jobs.values() if one.state is JobState.QUEUED]
            assert w.service.read_model.queued == Counter(one.spec.user for one in queued)
            return w.service.read_model.queued

        for user in ("ann", "ann", "bob"):
            await w.submit(user=user)
        assert counted() == Counter(ann=2, bob=1)
        await w.good("POST", "/node", node())
        assert counted() == Counter(ann=1, bob=1)
        await w.good("POST", "/finished_job", finished(1))
        await w.good("DELETE", "/job/3")
        assert counted() == Counter()
