"""Runs real agents, in this event loop or in a process of their own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from colane.agent.config import AgentConfig
from colane.agent.main import serve
from tests.agent.fake_scheduler import FakeScheduler, make_app
from tests.agent.waiting import DEADLINE_S, until

T = TypeVar("T")

HEARTBEAT_S = 0.05
GRACE_S = 30.0
"""A busy machine may let a job that ends on SIGTERM wait for a core for seconds."""


def config_of(state_dir: Path, **changes: Any) -> AgentConfig:
    settings: dict[str, Any] = {
        "name": "node-1",
        "scheduler_url": "http://fake",
        "state_dir": state_dir,
        "devices": "cpu:1:1GB",
        "heartbeat_s": HEARTBEAT_S,
        "grace_s": GRACE_S,
        "reports_others": False,
    }
    return AgentConfig(**(settings | changes))


@dataclass
class Running:
    """An agent in this event loop."""

    address: str
    task: asyncio.Task[None]
    fake: FakeScheduler

    async def until(self, look: Callable[[], T | None], what: str = "", deadline_s: float = DEADLINE_S) -> T:
        """Look until there is something to see, while the agent goes on."""
        until_s = time.monotonic() + deadline_s
        while not (seen := look()):
            assert not self.task.done(), f"the agent is gone: {self.task.exception()!r}"
            assert time.monotonic() < until_s, f"waited in vain: {what or look}"
            await asyncio.wait({self.task}, timeout=0.005)
        return seen

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask the agent as its scheduler does, unless the headers say otherwise."""
        secret = next((node["secret"] for node in self.fake.nodes.values() if node["address"] == self.address), "")
        known = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.get(self.address + path, headers={**known, **headers})


@asynccontextmanager
async def running(state_dir: Path, fake: FakeScheduler, **changes: Any) -> AsyncIterator[Running]:
    """Run an agent; at the end it goes as by SIGTERM."""
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = config_of(state_dir, **changes)
    task = asyncio.create_task(serve(config, stop=stop, scheduler=fake, on_address=listening.set_result))
    await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield Running(listening.result(), task, fake)
    finally:
        stop.set()
        await task


@contextmanager
def served(fake: FakeScheduler) -> Iterator[str]:
    """Serve a fake scheduler over HTTP from a thread; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(fake), log_config=None, access_log=False, lifespan="off", ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


AGENT = """
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name="node-1", scheduler_url=sys.argv[1], state_dir=Path(sys.argv[2]), devices="cpu:1:1GB",
                      heartbeat_s=float(sys.argv[3]), grace_s=30.0, stop_jobs=len(sys.argv) > 4))
"""


@contextmanager
def agent_process(url: str, state_dir: Path, *extra: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent in a process of its own."""
    argv = [sys.executable, "-c", AGENT, url, str(state_dir), str(HEARTBEAT_S), *extra]
    process = subprocess.Popen(argv, env={**os.environ, "PYTHONWARNINGS": "error"})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
