"""A request that the scheduler cannot handle, for whatever reason, costs itself alone: the others' are carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.view import ClusterView
from colane.model.job import JobId
from colane.model.plan import Plan
from colane.scheduling import registry
from colane.server.assembly import make_service
from colane.server.board.turn import Turn
from colane.server.config import ServiceConfig
from colane.server.ground.problems import RefusedError
from colane.server.writer import changes
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.server.harness import DEADLINE_S, OPERATOR, SLEEP, World, node, world


class Choking:
    """A policy with a fault: it raises as long as a job of a certain name waits."""

    name = "choking"

    def __init__(self) -> None:
        self._real = registry.create("colane")
        self.turns = self._real.turns
        self.min_runtime_before_preemption_s = 0.0

    def plan(self, view: ClusterView) -> Plan:
        if any(job.spec.name == "poison" for job in view.jobs.values()):
            raise ZeroDivisionError("float division by zero")
        return self._real.plan(view)


def at_once(_turn: Turn) -> Any:
    raise RecursionError("maximum recursion depth exceeded")


def half_done(turn: Turn) -> Any:
    """What raises between two things that belong together."""
    turn.record("half", of="a thing")
    changes.resume(turn, JobId(1), "a user")
    raise KeyError("jobs")


FAULTS: dict[str, Callable[[Turn], Any]] = {"at once": at_once, "half done": half_done}


async def ask(w: World, names: Sequence[str]) -> list[int | str]:
    """Send everything at the same time: ids of jobs that were taken, and what the others were told."""

    async def one(name: str) -> int | str:
        if name in FAULTS:
            with pytest.raises(RefusedError) as refused:
                await w.service.driver.change(FAULTS[name])
            assert refused.value.status == 500
            return str(refused.value)
        answer = await w.post("/job", {**SLEEP, "name": name}, **{"Idempotency-Key": f"{name} {next(numbers)}"})
        assert answer.status_code == (500 if name == "poison" else 200), answer.text
        return int(answer.json()["id"]) if answer.status_code == 200 else str(answer.json()["detail"])

    numbers = count()
    return await asyncio.gather(*map(one, names))


@given(st.sampled_from([*FAULTS, "poison"]), st.integers(1, 3), st.integers(1, 12), st.randoms(use_true_random=False))
@examples(60)
def test_one_request_that_raises_costs_itself_alone(fault: str, bad: int, good: int, draw: Random) -> None:
    """Wherever it stands among the others of its turn, and however many there are of its kind."""
    names = [f"honest-{i}" for i in range(good)] + [fault] * bad
    draw.shuffle(names)
    asyncio.run(costs_itself_alone(names))


async def costs_itself_alone(names: Sequence[str]) -> None:
    async with world() as w:
        w.service.driver.decider = Choking()
        w.service.driver.load()
        await w.good("POST", "/node", node("n1"))
        await w.submit(name="before")
        answers = await ask(w, names)
        taken = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, int)}
        assert set(taken) == {name for name in names if name.startswith("honest")}
        listed = {int(job.id): job.spec.name for job in w.service.read_model.jobs.values()}
        assert listed == {1: "before"} | {answer: name for name, answer in taken.items()}
        told = [str(answer) for answer in answers if not isinstance(answer, int)]
        assert all("fault of its own" in text and "changed nothing" in text for text in told)
        assert "half" not in {line.kind for line in w.service.store.audit(0, 1_000)}
        await w.submit(name="after")


async def test_a_repeated_fault_writes_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    """A client may repeat it a thousand times a second."""
    async with world() as w:
        with caplog.at_level(logging.ERROR):
            for _ in range(5):
                with pytest.raises(RefusedError, match="RecursionError at test_boundary"):
                    await w.service.driver.change(at_once)
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False, False, False]


async def test_a_fault_that_no_request_brings_ends_the_scheduler() -> None:
    """What supervises it starts it anew, from the store; requests that come with it get 503, as at any other end."""
    store = MemoryStore()
    async with world(store) as w:
        await w.good("POST", "/node", node("n1"))
        await w.submit(name="first")
        await w.submit(name="poison")
    service = make_service(store, ServiceConfig(policy="fifo", workdir="/srv"))
    service.driver.decider = Choking()
    service.driver.load()
    waiting = asyncio.create_task(service.driver.change(lambda turn: turn.record("innocent")))
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(DEADLINE_S):
            await service.run()
    with pytest.raises(RefusedError) as refused:
        await waiting
    assert refused.value.status == 503


async def test_an_answer_that_fails_is_one_of_ours_too() -> None:
    """What raises outside a turn has the shape of every other error, and no traceback in it."""
    async with world() as w:

        @w.app.get("/broken")
        async def broken() -> None:
            raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "invalid start byte")

        transport = httpx.ASGITransport(w.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OPERATOR) as http:
            answer = await http.get("/broken")
        assert (answer.status_code, "UnicodeDecodeError at test_boundary" in answer.json()["detail"]) == (500, True)
