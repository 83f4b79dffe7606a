"""A whole service in the test's event loop, agents that answer in memory, and ways to wait for what happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.ground.access import Callers
from colane.server.http.app import create_app
from colane.server.http.door import GateRules
from colane.server.service import Service
from colane.server.store.store import AuditLine, Store, StoreError, StoreWriter, Transaction
from tests.memory_store import MemoryStore
from tests.server.answers import AnswerJudge, judge_events

Found = TypeVar("Found")

DEADLINE_S = 60.0
EVENTS_JUDGED_MAX = 1_000
GB = 10**9
TOKEN = "the operator's"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
SLEEP = {"command": ["sleep", "5"]}


@dataclass
class Agents(httpx.AsyncBaseTransport):
    """Every agent there is: counts nudges and serves logs, and stacks by host and path."""

    nudged: list[str] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    stacks: dict[str, httpx.Response] = field(default_factory=dict)
    down: bool = False
    piece_bytes: int = 1 << 20
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    read: asyncio.Event = field(default_factory=asyncio.Event)
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            self.refused.set()
            raise httpx.ConnectError("connection refused")
        if request.url.path == "/run":
            self.nudged.append(request.url.host)
            self.changed.set()
            return httpx.Response(200, json={"accepted": True})
        if request.url.path.startswith("/stacks/"):
            return self.stacks.get(f"{request.url.host}{request.url.path}", httpx.Response(404))
        return self._log(request)

    def _log(self, request: httpx.Request) -> httpx.Response:
        self.read.set()
        data = self.logs.get(request.url.path)
        if data is None:
            return httpx.Response(404, json={"detail": "no log"})
        offset, limit = int(request.url.params["offset"]), int(request.url.params["limit"])
        start = max(0, len(data) + offset) if offset < 0 else offset
        part = data[start : start + min(limit, self.piece_bytes)]
        return httpx.Response(200, content=part, headers={"X-Colane-Next-Offset": str(start + len(part))})


class CountingStore(MemoryStore):
    """Counts commits."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        self.commits += 1
        return super().commit(transaction, writer)


class SteadyClock:
    """Goes on only when it is told to, a little each time it is read, so that whoever looks at it misses nothing."""

    def __init__(self, step_s: float = 0.05) -> None:
        self.now_s = self.until_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s = min(self.now_s + self.step_s, self.until_s)
        return self.now_s

    def go_on(self, seconds: float) -> None:
        """Let so much time pass."""
        self.until_s += seconds

    def skip(self, seconds: float) -> None:
        """Let so much time pass at once, as for a process that was paused."""
        self.until_s += seconds
        self.now_s = self.until_s


@dataclass
class World:
    """A running service and a client of it."""

    service: Service
    app: FastAPI
    http: httpx.AsyncClient
    agents: Agents
    judge: AnswerJudge

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.http.post(path, json=body, headers=headers)

    async def good(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, **fields: Any) -> int:
        return int((await self.good("POST", "/job", {**SLEEP, **fields}))["id"])

    async def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        answer = await self.http.request(method, path, json=body, headers=headers)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["detail"]

    async def state(self, job: int) -> str:
        return str((await self.good("GET", f"/job/{job}"))["state"])

    async def line(self, wanted: Callable[[AuditLine], bool], after: int = 0) -> AuditLine:
        """Wait for a change."""
        async with asyncio.timeout(DEADLINE_S):
            async for line in self.service.feed.follow(after):
                if wanted(line):
                    return line
        raise AssertionError("the feed ended")

    def everything_stored(self) -> str:
        """Return all audit lines as text."""
        return json.dumps([line.body for line in self.service.store.audit(0, 100_000)])


def rules_of(service: Service | None = None, **settings: Any) -> GateRules:
    """The door of a scheduler that knows one operator, and whoever its board has tokens of."""
    tokens: Callable[[], Any] = dict if service is None else (lambda: service.read_model.tokens)
    callers = Callers(token=TOKEN, tokens=tokens)
    if service is not None:
        callers = replace(callers, job_caller=service.nodes.tokens.caller)
    return GateRules(callers=callers, **settings)


@asynccontextmanager
async def world(
    store: Store | None = None, *, rules: GateRules | None = None, agents: Agents | None = None, **settings: Any
) -> AsyncIterator[World]:
    clocks = settings.pop("clocks", None)
    reached = agents or Agents()
    config = ServiceConfig(**{"policy": "fifo", "workdir": "/srv", **settings})
    service = make_service(store or MemoryStore(), config, agents=reached, clocks=clocks)
    app = create_app(service, rules or rules_of(service))
    driving = asyncio.create_task(service.run())
    transport = httpx.ASGITransport(app)
    judge = AnswerJudge(app)
    judged: dict[str, list[Callable[..., Any]]] = {"response": [judge]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=OPERATOR, event_hooks=judged
    ) as http:
        try:
            yield World(service, app, http, reached, judge)
            with suppress(StoreError):  # a test may have taken it away
                judge_events(service.store.audit(0, EVENTS_JUDGED_MAX))
        finally:
            service.stop()
            async with asyncio.timeout(DEADLINE_S):
                await driving


def node(name: str = "n1", gpus: int = 1, *, agent_id: str = "a1", **fields: Any) -> Any:
    return {
        "name": name,
        "agent_id": agent_id,
        "address": f"http://{name}:1",
        "gpus": [gpu(index) for index in range(gpus)],
        "cores": list(range(4)),
        "host_memory_bytes": 8 * GB,
        **fields,
    }


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"cpu-{index}", "type": "cpu", "memory_bytes": 2 * GB, **fields}


def launched(job: int, attempt: int = 1, **fields: Any) -> Any:
    return {"id": job, "attempt": attempt, "phase": "launched", "pid": 42, **fields}


def report(*jobs: dict[str, Any], agent_id: str = "a1", **fields: Any) -> Any:
    return {"agent_id": agent_id, "at_s": 1.0, "jobs": list(jobs), **fields}


def finished(job: int, attempt: int = 1, **fields: Any) -> Any:
    return {
        "id": job,
        "attempt": attempt,
        "node": "n1",
        "agent_id": "a1",
        "end_s": 2.0,
        "outcome": "exited",
        "exit_code": 0,
        **fields,
    }


def without_own(job: dict[str, Any]) -> dict[str, Any]:
    """A job without what it alone is asked for, and without what goes by the clock."""
    facts = {name: value for name, value in job["facts"].items() if name not in BY_CLOCK}
    kept = {
        name: value for name, value in job.items() if name not in {"may", "attempts", "command", "workdir", "output"}
    }
    return {**kept, "facts": facts}


BY_CLOCK = {"ran_s", "spent_s", "saved_ago_s", "limit_left_s", "time_spent"}


async def beside(doing: Awaitable[Found]) -> tuple[Found, int]:
    """What comes of it, and how often others on the loop went on meanwhile."""
    went_on = 0

    async def go_on() -> None:
        nonlocal went_on
        while True:
            went_on += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(go_on())
    found = await doing
    other.cancel()
    return found, went_on
