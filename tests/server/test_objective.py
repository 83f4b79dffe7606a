"""Objectives of servers at submission: one that no policy could keep is refused."""

from __future__ import annotations

import pytest

from colane.core.events import Event, ProfileDeclared
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from tests.server.harness import SLEEP, node, world

SERVER = {**SLEEP, "family": "net", "kind": "inference"}


def answers_in(step_s: float) -> Event:
    known = Value(step_s, ValueSource.MEASURED, 10)
    return ProfileDeclared(Profile(key=ProfileKey("net", None, 1, "cpu"), step_s=known))


@pytest.mark.parametrize("latency_s", [0.004, 0.0079])
async def test_a_server_that_answers_later_than_it_may_even_alone_is_refused(latency_s: float) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        w.service.driver.core.step([answers_in(0.008)], 1.0)
        status, detail = await w.refused("POST", "/jobs", [SLEEP, {**SERVER, "latency_s": latency_s}])
        assert (status, detail[0]["field"]) == (422, "jobs[1].latency_s")
        assert "takes 0.008 s alone on cpu: ask for more, or leave it out" in detail[0]["message"]
        assert await w.good("GET", "/jobs") == []


@pytest.mark.parametrize("server", [{"latency_s": 0.01}, {}, {"latency_s": 0.001, "family": "new"}])
async def test_one_that_may_keep_it_is_taken(server: dict[str, object]) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        w.service.driver.core.step([answers_in(0.008)], 1.0)
        assert await w.good("POST", "/jobs", [{**SERVER, **server}]) == {"ids": [1]}
