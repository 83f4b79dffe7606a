"""Sessions of the commands that do something, over a real scheduler: what each asks of it, prints and exits with.

`python -m tests.verbs.sessions` records them anew, where they are meant to change.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx

from colane.agent.launch.users import own_account
from colane.cli.app import run
from colane.client.client import Client
from tests.server.harness import World, finished, launched, node, report, world

RECORDED: Final = Path(__file__).parent / "sessions.json"
ANSWER_MAX_S: Final = 60.0
STEPS: Final = {"at_s": 1.0, "steps": 3, "first_step_s": 0.5, "last_step_s": 0.9}
SAID: Final = (
    "suspend 1",
    "suspend --to-host 1",
    "resume 1 --json",
    "requeue 1",
    "requeue 2",
    "suspend 2",
    "release 2",
    "release 2 --at tomorrow",
    "change 2 --time-limit 2h",
    "change 2 --time-limit never",
    "change 2 --time-limit none",
    "cancel 2 3",
    "cancel 2",
    "cancel 4[1]",
    "again 2",
    "submit -- true",
    "submit --gpus 99 -- true",
    "submit --gpus many -- true",
    "suspend 9",
    "resume 9",
    "requeue 9",
    "requeue",
    "requeue one",
    "change 9 --time-limit 2h",
    "cancel 9",
    "drain n1 --deadline 10m --reason fan",
    "drain n1 --deadline soon",
    "drain n9",
    "undrain n1 --json",
    "undrain n9",
    "node remove n1 --forget",
    "node remove n2 --forget",
    "node remove n9 --forget",
    "token make --node n3",
    "token make --user ann --role operator",
    "token make --node n3 --user ann",
    "token list --json",
    "token revoke ID",
    "token revoke 0123456789ab",
    "token revoke short",
)
"""In order: each finds what the others left."""
HIDDEN: Final = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "TOKEN-ID"),
    (re.compile(r"^[\w-]{43}$"), "TOKEN"),
    (re.compile(r"\b\d{9,}\.\d+\b"), "MOMENT"),
    (re.compile(r"\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(rf"\b{re.escape(own_account().name)}\b"), "USER"),
)
"""What is another each time, and elsewhere."""
ENVIRONMENT: Final = {
    "COLANE_URL": "http://127.0.0.1:1",
    "COLUMNS": "100",
    "HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "NO_COLOR": "1",
    "PATH": "/usr/bin:/bin",
    "TERM": "dumb",
}


class Bridge(httpx.BaseTransport):
    """Carries what a command asks to the scheduler, which runs in the loop of another thread, and notes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, there: World, asked: list[str]) -> None:
        self._loop, self._there, self._asked = loop, there, asked

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            self._asked.append(f"{request.method} {request.url.raw_path.decode()} {request.content.decode()}".strip())
        headers = {name: value for name, value in request.headers.items() if name == "content-type"}
        path = request.url.raw_path.decode()
        asking = self._there.http.request(request.method, path, content=request.content, headers=headers)
        answer = asyncio.run_coroutine_threadsafe(asking, self._loop).result(ANSWER_MAX_S)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def _session(words: list[str], transport: Callable[[list[str]], Bridge]) -> dict[str, Any]:
    asked: list[str] = []
    out, err = io.StringIO(), io.StringIO()
    http = httpx.Client(transport=transport(asked))
    with (
        patch.dict(os.environ, ENVIRONMENT, clear=True),
        patch.object(Client, "_http", lambda _self, _place: http),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run(words)
    said = {"asked": asked, "out": out.getvalue().splitlines(), "err": err.getvalue().splitlines()}
    return {"code": code, **{name: [_hidden(line) for line in lines] for name, lines in said.items()}}


def _hidden(line: str) -> str:
    line = line.replace(str(Path.cwd()), "DIRECTORY")
    for pattern, word in HIDDEN:
        line = pattern.sub(word, line)
    return line


async def sessions() -> dict[str, dict[str, Any]]:
    """Return what each command asks, prints and exits with."""
    found: dict[str, dict[str, Any]] = {}
    loop = asyncio.get_running_loop()
    async with world() as w:
        for name in ("n1", "n2"):
            await w.good("POST", "/node", node(name, agent_id=f"a-{name}", address=""))
        running = await w.submit(user="ann")
        await w.good("POST", "/node/n1/report", report(launched(running, progress=STEPS), agent_id="a-n1"))
        for fields in ({"gpus": 1, "hold": True}, {"gpus": 1, "hold": True}, {"gpus": 1, "hold": True, "array": "0-2"}):
            await w.submit(user="ann", **fields)
        for words in SAID:
            if words == "token revoke ID":
                known = await w.good("GET", "/tokens")
                given = ["token", "revoke", known[0]["id"]]
            else:
                given = words.split()
            if words == "drain n1 --deadline 10m --reason fan":
                await w.good("POST", "/finished_job", finished(running, agent_id="a-n1"))
            told = await asyncio.to_thread(_session, given, lambda asked: Bridge(loop, w, asked))
            found[words] = told
    return found


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(asyncio.run(sessions()), indent=1) + "\n")
