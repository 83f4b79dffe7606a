"""Record what a scheduler, an agent and a client of this version say to each other, for versions to come.

    python -m tests.versions.record 0.3.0

runs both for a minute, with a proxy between them, and writes `tests/versions/0.3.0.json`: the messages in their order,
and the schema of what this scheduler takes from agents. `tests/versions/test_frozen.py` plays every such file against
the code of its day. With `--scheduler` and `--agent` each may be of another tree of sources: that is how two versions
are tried on each other.
"""

from __future__ import annotations

import argparse
import getpass
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

FOLDER: Final = Path(__file__).parent
SOURCES: Final = Path(__file__).parents[2]
FROM_AGENTS: Final = ("NodeBody", "ReportBody", "FinishedBody")
DEADLINE_S: Final = 120.0
NODE: Final = "node-1"
OVER: Final = frozenset({"succeeded", "failed", "cancelled", "out-of-memory"})
STEPS: Final = """
import time, colane.adaptor as colane
steps = colane.attach(total_steps=20)
for _ in range(20):
    time.sleep(0.1)
    steps.step(loss=1.0)
"""
SAVES: Final = "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85)); time.sleep(600)"
JOBS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "says-hello", "command": ["sh", "-c", "echo hello"], "labels": {"run": "a"}},
    {"name": "fails", "command": ["sh", "-c", "exit 3"], "retries": 1},
    {"name": "is-not-there", "command": ["/no/such/program"]},
    {"name": "steps", "command": [sys.executable, "-c", STEPS], "gpu_memory": "500MB"},
    {"name": "ranks", "command": ["sh", "-c", "echo $RANK"], "gpus": 2, "ranks": "per-gpu", "priority": 3},
    {"name": "sleeps", "command": ["sleep", "600"], "time_limit": "1h"},
    {"name": "saves", "command": [sys.executable, "-c", SAVES], "checkpoint": "plain", "checkpoint_lead": "5s"},
    {"name": "no-gpu", "command": ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], "gpus": 0, "cores": 0},
)
LAST_CANCELLED: Final = ("sleeps", "saves")


class Proxy(ThreadingHTTPServer):
    """Passes requests on, and keeps what was said."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        self.target = urlsplit(url)
        self.said: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Passing)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: text for name, text in self.headers.items() if name.lower() not in {"host", "connection"}}
        link = http.client.HTTPConnection(str(self.server.target.hostname), self.server.target.port, timeout=60)
        link.request(self.command, self.path, body, kept)
        answer = link.getresponse()
        data = answer.read()
        entry = {"method": self.command, "path": self.path, "request": _json(body)}
        with self.server.lock:
            self.server.said.append({**entry, "status": answer.status, "answer": _json(data)})
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815 - names of the library's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Say nothing."""


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None


def main() -> int:
    """Record one set."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions.record", description=__doc__)
    parser.add_argument("name", help="of the version, and of the file")
    parser.add_argument("--scheduler", type=Path, default=SOURCES, help="sources of the scheduler (these)")
    parser.add_argument("--agent", type=Path, default=SOURCES, help="sources of the agent (these)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        found = _record(Path(root), asked.scheduler.resolve(), asked.agent.resolve())
    text = json.dumps({"version": asked.name, **found}, separators=(",", ":"))
    for told, stands_for in _of_this_machine(asked.scheduler, asked.agent, root):
        text = text.replace(told, stands_for)
    path = FOLDER / f"{asked.name}.json"
    path.write_text(_by_line(json.loads(text)))
    states = {job["name"]: job["state"] for job in found["jobs"]}
    sys.stdout.write(f"{path}: {len(found['messages'])} messages; {states}\n")
    refused = [each for each in found["messages"] if each["status"] != 200]
    for each in refused:
        sys.stdout.write(f"{each['method']} {each['path']}: {each['status']} {each['answer']}\n")
    return 1 if refused else 0


def _by_line(found: dict[str, Any]) -> str:
    """Write a message a line, so that a difference can be read."""
    lists = {name: value for name, value in found.items() if isinstance(value, list)}
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items() if name not in lists]
    for name, items in lists.items():
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(item) for item in items) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _of_this_machine(scheduler: Path, agent: Path, root: str) -> Iterator[tuple[str, str]]:
    """What tells of this machine alone, and what stands for it."""
    yield root, "/var/lib/colane"
    yield str(Path(sys.executable).parent), "/venv/bin"
    for sources in (scheduler, agent, SOURCES):
        yield str(sources.resolve()), "/colane"
    yield f'"runs_as":"{getpass.getuser()}"', '"runs_as":""'
    yield f'"{getpass.getuser()}"', '"user"'
    yield f'"{socket.gethostname()}"', '"host"'


def _record(root: Path, scheduler: Path, agent: Path) -> dict[str, Any]:
    with started(scheduler, root, "server", "--policy", "fifo", "--port", "0", "--state", str(root / "s")) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]
        token = (root / "s" / "token").read_text().strip()
        proxy = Proxy(url)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        words = ("agent", "--name", NODE, "--devices", "cpu:2:2GB", "--heartbeat", "0.2", "--stop-jobs")
        where = {"COLANE_URL": proxy.url, "COLANE_TOKEN": token}
        with started(agent, root, *words, "--state", str(root / "a"), **where):
            jobs = _clients_day(Client(url, token), Client(proxy.url, token))
        schemas = Client(url, token).ask("GET", "/openapi.json")["components"]["schemas"]
        proxy.shutdown()
    return {"jobs": jobs, "schemas": _closure(schemas), "messages": _thinned(proxy.said)}


@contextmanager
def started(sources: Path, root: Path, *words: str, log: str = "", **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run one of the service's processes from sources of its own, until it is told to end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COLANE_")}
    env = {**plain, "PYTHONPATH": str(sources / "src"), "COLANE_OTHERS": "ignore", **variables}
    said = root / f"{log or words[0]}.log"
    with said.open("a") as file:
        command = [sys.executable, "-m", "colane.cli", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=env, cwd=sources)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        sys.stderr.write(said.read_text())


class Client:
    """Asks a scheduler of whatever version."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = urlsplit(url), token

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask, and return the answer; one that is refused ends the recording."""
        link = http.client.HTTPConnection(str(self._url.hostname), self._url.port, timeout=60)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        with closing(link):
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {data.decode()}")
        return json.loads(data)

    def until(self, path: str, field: str, values: frozenset[str]) -> None:
        """Look again until it is so."""
        deadline_s = time.monotonic() + DEADLINE_S
        while (found := self.ask("GET", path)[field]) not in values:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{path} has {field} {found}, and not one of {sorted(values)}")
            time.sleep(0.2)


def _clients_day(quiet: Client, heard: Client) -> list[dict[str, Any]]:
    """Submit, look, cancel; what becomes of the jobs. Only what is asked through `heard` is recorded."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not quiet.ask("GET", "/nodes"):
        if time.monotonic() > deadline_s:
            raise SystemExit("no agent has registered")
        time.sleep(0.2)
    env = {"PATH": "/usr/bin:/bin"}
    ids: dict[str, int] = {}
    for job in JOBS:  # one after the other, so that all is in the same order whenever it is played
        ids[job["name"]] = heard.ask("POST", "/job", {"workdir": "/", "family": job["name"], "env": env, **job})["id"]
        if job["name"] in LAST_CANCELLED:
            quiet.until(f"/job/{ids[job['name']]}", "state", frozenset({"running", "running-protected"}))
            time.sleep(1.0)
            heard.ask("DELETE", f"/job/{ids[job['name']]}")
        quiet.until(f"/job/{ids[job['name']]}", "state", OVER)
    for path in ("/nodes", "/health", "/profiles", *(f"/job/{one}{of}" for one in ids.values() for of in ("", "/why"))):
        heard.ask("GET", path)
    return [{"id": one, "name": name, "state": quiet.ask("GET", f"/job/{one}")["state"]} for name, one in ids.items()]


def _closure(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas of what agents say, and all that they refer to."""
    wanted, found = list(FROM_AGENTS), {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = schemas[name]
            wanted += [word for word in schemas if f'"#/components/schemas/{word}"' in json.dumps(found[name])]
    return found


def _thinned(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without reports that differ from the one before in measures alone."""
    kept: list[dict[str, Any]] = []
    before = None
    for entry in said:
        now = json.dumps(_without_measures(entry)) if entry["path"].endswith("/report") else None
        if now is None or now != before:
            kept.append(entry)
        before = now or before
    return kept


def _without_measures(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without_measures(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_measures(each, name) for each in value]
    is_measure = isinstance(value, int | float) and not isinstance(value, bool) and name not in {"id", "attempt"}
    return 0 if is_measure else value


if __name__ == "__main__":
    sys.exit(main())
