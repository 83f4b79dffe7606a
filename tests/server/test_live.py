"""`/live`: a screen once whole, then what of it has changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from colane.api.seeing import LiveChangeObject
from colane.server.ground.access import Caller, Role
from colane.server.views import live as lives
from colane.server.views.live import ScreenWanted, changed, live, screen
from colane.server.views.rows import RowsWanted
from tests.server.harness import World, launched, node, report, world

ALL = ScreenWanted(RowsWanted(0, 100), overview=True)
CHANGES: TypeAdapter[LiveChangeObject] = TypeAdapter(LiveChangeObject)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as can be: what a look took does not count."""
    monkeypatch.setattr(lives, "PERIOD_S", 0.001)
    monkeypatch.setattr(lives, "BEAT_S", 0.0)
    monkeypatch.setattr(lives, "WATCHER_RATIO_MAX", 1e6)


def told(w: World, wanted: ScreenWanted = ALL, known: list[bool] | None = None) -> AsyncIterator[bytes]:
    sight = w.service.sight(Caller("op", Role.OPERATOR))
    is_known = (lambda: True) if known is None else (lambda: known[0])
    return live(w.service.overviews, sight, wanted, screen(w.service.overviews, sight, wanted), is_known)


def read(event: bytes) -> tuple[str, Any]:
    kind, data = event.decode().removesuffix("\r\n\r\n").split("\r\n")
    body = json.loads(data.removeprefix("data: "))
    if kind == "event: change":
        CHANGES.validate_python(body, strict=True, extra="forbid")
    return kind.removeprefix("event: "), body


async def change(events: AsyncIterator[bytes]) -> Any:
    """The next one that is no beat."""
    async for event in events:
        kind, body = read(event)
        if kind != "beat":
            assert kind == "change"
            return body
    raise AssertionError("it has ended")


async def test_first_all_then_what_has_changed_then_signs_of_life() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(name="first")
        w.service.overviews.shared_max_s = 0.0
        events = told(w)
        kind, whole = read(await anext(events))
        assert (kind, [row["name"] for row in whole["rows"]]) == ("whole", ["first"])
        await w.submit(name="second")
        said = await change(events)
        assert ([row["name"] for row in said["rows"]], said["ids"], said["count"]) == (["second"], [1, 2], 2)
        assert said["overview"]["waiting"] == 1
        assert "devices" not in said["overview"]
        assert "user" not in said
        steps = {"at_s": 2.0, "first_step_s": 1.0, "steps": 5, "steps_total": 10, "step_mean_s": 0.5}
        await w.good("POST", "/node/n1/report", report(launched(1, progress=steps)))
        said = await change(events)
        while "rows" not in said or said["rows"][0]["run"]["done_ratio"] is None:
            said = await change(events)
        assert [(row["id"], row["run"]["done_ratio"]) for row in said["rows"]] == [(1, 0.5)]
        assert "ids" not in said
        await w.good("DELETE", "/job/2")
        while "ids" not in said:
            said = await change(events)
        assert said["ids"] == [1]


async def test_nothing_is_looked_at_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        await w.submit()
        events, looks = told(w, ScreenWanted(RowsWanted(0, 10))), list[int]()

        def looked(*asked: Any) -> Any:
            looks.append(1)
            return screen(*asked)

        monkeypatch.setattr(lives, "screen", looked)
        kinds = [read(await anext(events))[0] for _ in range(5)]
        assert (kinds, looks) == (["whole", *["beat"] * 4], [])


async def test_it_ends_with_the_token_and_with_the_scheduler() -> None:
    async with world() as w:
        known = [True]
        events = told(w, known=known)
        await anext(events)
        known[0] = False
        assert [event async for event in events] == []
        last = told(w)
        await anext(last)
        w.service.end_streams()
        assert [event async for event in last] == []


async def test_it_is_answered_as_a_stream_and_refused_as_the_rows_are() -> None:
    async with world() as w:
        assert (await w.http.get("/live?limit=501")).status_code == 422
        w.service.end_streams()
        answer = await w.http.get("/live?limit=0")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert read(answer.content)[0] == "whole"


def test_what_is_as_before_is_not_said() -> None:
    before: Any = {"event": 1, "user": "a", "is_operator": True, "first": 0, "count": 0, "rows": []}
    assert changed(before, before) == {}
    later: Any = {**before, "event": 2}
    assert changed(before, later) == {"event": 2}


async def test_only_the_callers_own() -> None:
    async with world() as w:
        for user in ("ann", "op", "op"):
            await w.submit(user=user)
        mine = ScreenWanted(RowsWanted(0, 10, is_mine=True))
        assert [row["id"] for row in read(await anext(told(w, mine)))[1]["rows"]] == [2, 3]
