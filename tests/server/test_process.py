"""The scheduler as a process: one per state directory, found by a file, stopped by a signal, killed at any moment."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from colane.server.config import ServerConfig
from colane.server.main import ServerError, serve
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import ASSIGNED_JOBS, LAUNCH_SPECS, SUBMITTED_JOBS
from tests.server.harness import DEADLINE_S, SLEEP, node
from tests.server.processes import Scheduler, scheduler

pytestmark = pytest.mark.live


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Scheduler]:
    with scheduler(tmp_path / "state") as started:
        yield started


def test_clients_find_it_by_a_file_and_it_tidies_up(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with scheduler(state) as started:
        published = json.loads((state / "server.json").read_text())
        assert published == {
            "url": started.url,
            "pid": started.process.pid,
            "socket": str(state / "socket"),
        }
        assert started.line == f"colane scheduler listens on {started.url} (policy fifo, state {state})\n"
        assert started.http.get("/health").json()["status"] == "ok"
        assert started.stop(signal.SIGTERM) == 0
    assert not (state / "server.json").exists()
    assert not (state / "socket").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_though_a_client_listens_to_events(running: Scheduler, number: signal.Signals) -> None:
    with running.http.stream("GET", "/events?after=0", timeout=DEADLINE_S) as events:
        running.http.post("/job", json=SLEEP).raise_for_status()
        lines = events.iter_lines()
        assert next(lines) == "id: 1"
        assert running.stop(number) == 0
        assert all(not line.startswith("id:") for line in lines)
    assert running.errors() == ""


def test_a_second_one_on_the_same_state_is_refused(running: Scheduler) -> None:
    expected = rf"another scheduler \(pid {running.process.pid}\) uses .*; stop it, or choose another --state"
    with pytest.raises(ServerError, match=expected):
        asyncio.run(serve(ServerConfig(state_dir=running.state, port=0)))
    assert running.http.get("/health").status_code == 200


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port: cannot listen on 127.0.0.1:{port}: .*choose another --port"):
            asyncio.run(serve(ServerConfig(state_dir=tmp_path, port=port)))


def test_a_state_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerError, match=r"state: .*file/x cannot be used: Not a directory"):
        asyncio.run(serve(ServerConfig(state_dir=tmp_path / "file" / "x", port=0)))


def test_after_a_kill_it_starts_on_what_was_left(tmp_path: Path) -> None:
    with scheduler(tmp_path) as first:
        first.http.post("/jobs", json=[SLEEP, SLEEP]).raise_for_status()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(DEADLINE_S)
    assert (tmp_path / "server.json").exists()
    with scheduler(tmp_path) as second:
        assert [job["id"] for job in second.http.get("/jobs").json()] == [1, 2]
        assert second.http.post("/job", json=SLEEP).json() == {"id": 3}


@pytest.mark.faults
@pytest.mark.parametrize("after", [5, 60, 200])
def test_everything_acknowledged_is_there_after_a_kill_under_submission(tmp_path: Path, after: int) -> None:
    acknowledged: list[int] = []
    enough = threading.Event()

    def submit(running: Scheduler) -> None:
        with httpx.Client(base_url=running.url, headers=running.http.headers) as client:
            try:
                while True:
                    body = client.post("/jobs", json=[SLEEP, SLEEP]).raise_for_status().json()
                    acknowledged.extend(body["ids"])
                    if len(acknowledged) >= after:
                        enough.set()
            except httpx.HTTPError:
                return

    with scheduler(tmp_path) as started:
        started.http.post("/node", json=node(gpus=3)).raise_for_status()
        workers = [threading.Thread(target=submit, args=(started,)) for _ in range(8)]
        for worker in workers:
            worker.start()
        assert enough.wait(DEADLINE_S)
        started.process.send_signal(signal.SIGKILL)
        for worker in workers:
            worker.join(DEADLINE_S)
    store = SqliteStore(tmp_path / "colane.db")
    queued = {body["id"] for _, body in store.read_all(SUBMITTED_JOBS)}
    assigned = {body["id"] for _, body in store.read_all(ASSIGNED_JOBS)}
    assert not queued & assigned
    assert set(acknowledged) <= queued | assigned
    assert len(acknowledged) == len(set(acknowledged))
    assert len(queued | assigned) % 2 == 0
    assert store.count(LAUNCH_SPECS) == len(queued | assigned)
    assert queued | assigned == set(range(1, len(queued | assigned) + 1))
    store.close()
    with scheduler(tmp_path) as again:
        assert len(again.http.get("/live_jobs").json()) == len(queued | assigned)


def test_a_token_is_made_for_the_owner_and_demanded_of_everybody(tmp_path: Path) -> None:
    with scheduler(tmp_path) as first:
        assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
        for path in ("/jobs", "/nodes", "/job/1/launch", "/events"):
            assert httpx.get(f"{first.url}{path}").status_code == 401
        assert httpx.post(f"{first.url}/job", json=SLEEP).status_code == 401
        assert first.http.post("/job", json=SLEEP).json() == {"id": 1}
        token = first.token
    with scheduler(tmp_path) as second:
        assert second.token == token


def test_headers_that_do_not_come_are_not_waited_for(tmp_path: Path) -> None:
    code = "from colane.listening import protocol; protocol.HEADERS_MAX_S = 0.2\n"
    with scheduler(tmp_path / "state", before=code) as started:
        host, port = started.url.removeprefix("http://").split(":")
        for begun in (b"", b"GET /health HTTP/1.1\r\nHost: local"):
            with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as slow:
                slow.sendall(begun)
                assert slow.recv(1) == b"", "hung up on"
        assert started.http.get("/health").status_code == 200


def test_requests_that_the_end_cuts_off_are_one_line(tmp_path: Path) -> None:
    code = "import colane.server.http.listening as listening; listening.SHUTDOWN_S = 1\n"
    with scheduler(tmp_path / "state", before=code) as started:
        host, port = started.url.removeprefix("http://").split(":")
        asked = f"POST /job HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {started.token}\r\n"
        body = "Content-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as slow:
            slow.sendall((asked + body).encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 100 ")  # its body is waited for now
            assert started.stop() == 0
        assert started.errors().splitlines() == ["Cancel 1 running task(s), timeout graceful shutdown exceeded"]
