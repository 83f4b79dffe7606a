"""The door: token, Host, content type, size."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute
from uvicorn.server import ServerState

from colane.client.hosts import host_name, is_loopback
from colane.listening.protocol import FRAME_MAX_BYTES, BoundedProtocol
from colane.server.config import ServerConfig
from colane.server.ground.access import Callers, Role, digest_of
from colane.server.http.door import LARGE_PATHS, OPEN_PATHS, WITH_BODY, GateRules, is_of_agents
from colane.server.http.listening import uvicorn_config
from colane.server.main import ServerError, serve
from tests.server.harness import OPERATOR, SLEEP, TOKEN, rules_of, world
from tests.server.processes import DEADLINE_S, scheduler

JSON = {"Content-Type": "application/json"}


class TestToken:
    @pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer s3cret "])
    async def test_without_it_nothing_but_health(self, header: str | None) -> None:
        async with world(rules=GateRules(callers=Callers(token="s3cret!"))) as w:
            headers = {} if header is None else {"Authorization": header}
            for path in ("/jobs", "/nodes", "/job/1/launch", "/openapi.json", "/docs", "/events"):
                answer = await w.http.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert (await w.http.post("/job", json=SLEEP, headers=headers)).status_code == 401
            assert (await w.http.get("/health", headers=headers)).status_code == 200

    async def test_a_wrong_one_is_told_from_none(self) -> None:
        async with world(rules=GateRules(callers=Callers(token="s3cret!"))) as w:
            del w.http.headers["Authorization"]
            _, none = await w.refused("GET", "/jobs")
            _, wrong = await w.refused("GET", "/jobs", Authorization="Bearer other")
            assert "a token is needed" in none
            for source in ("COLANE_TOKEN,", "--token-file", "COLANE_TOKEN_FILE", "colane.toml"):
                assert source in none
                assert source in wrong
            assert "the token given is not this scheduler's" in wrong

    async def test_with_it_all(self) -> None:
        async with world(rules=GateRules(callers=Callers(token="s3cret!"))) as w:
            headers = {"Authorization": "Bearer s3cret!"}
            assert (await w.http.post("/job", json=SLEEP, headers=headers)).json() == {"id": 1}

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])  # noqa: S104 - must be refused
    async def test_beyond_loopback_it_must_be_set(self, host: str, tmp_path: Path) -> None:
        with pytest.raises(ServerError, match=r"reachable from other machines, so a token is needed"):
            await serve(ServerConfig(state_dir=tmp_path / "state", host=host, port=0))
        assert not (tmp_path / "state").exists()

    def test_it_is_not_in_the_configuration_shown(self, tmp_path: Path) -> None:
        assert "s3cret" not in repr(ServerConfig(state_dir=tmp_path, token="s3cret!"))


class TestHost:
    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "192.0.2.1:8642"])
    async def test_a_name_that_is_not_ours_is_refused(self, host: str) -> None:
        async with world() as w:
            status, detail = await w.refused("GET", "/jobs", Host=host)
            assert (status, detail) == (421, "this scheduler answers to its loopback names only")

    @pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1", "[::1]:8642", "LOCALHOST"])
    async def test_ours_pass(self, host: str) -> None:
        async with world() as w:
            assert (await w.http.get("/jobs", headers={"Host": host})).status_code == 200

    @pytest.mark.parametrize(
        ("header", "name"), [("a:1", "a"), ("[::1]:2", "::1"), ("A", "a"), ("", ""), ("[::1", "::1")]
    )
    def test_names(self, header: str, name: str) -> None:
        assert host_name(header) == name

    def test_loopback(self) -> None:
        assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
        assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.org", "")))  # noqa: S104


class TestBody:
    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
    async def test_only_json_is_taken(self, kind: str) -> None:
        async with world() as w:
            answer = await w.http.post("/job", content=b'{"command": ["a"]}', headers={"Content-Type": kind})
            assert (answer.status_code, answer.json()["detail"]) == (415, "Content-Type must be application/json")
            assert await w.good("GET", "/jobs") == []

    async def test_a_charset_is_fine(self) -> None:
        async with world() as w:
            headers = {"Content-Type": "application/json; charset=utf-8"}
            assert (await w.http.post("/job", content=b'{"command": ["a"]}', headers=headers)).status_code == 200

    async def test_one_that_does_not_come_is_not_waited_for(self) -> None:
        async with world(rules=rules_of(body_max_s=0.01)) as w:
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/job",
                "headers": [
                    (b"host", b"localhost"),
                    (b"authorization", OPERATOR["Authorization"].encode()),
                    (b"content-type", b"application/json"),
                ],
            }
            said: list[Any] = []

            async def nothing() -> Any:
                await asyncio.Event().wait()

            async def note(message: Any) -> None:
                said.append(message)

            await w.app(scope, nothing, note)
            assert said[0]["status"] == 408
            assert (b"connection", b"close") in said[0]["headers"]
            assert b"the body did not come within 0.01 s" in said[1]["body"]

    async def test_one_too_large_is_refused_before_it_is_read(self) -> None:
        async with world(rules=rules_of(body_bytes_max=100)) as w:
            read = 0

            async def endless() -> AsyncIterator[bytes]:
                nonlocal read
                while True:
                    read += 50
                    yield b" " * 50

            declared = await w.http.post("/jobs", content=b" " * 101, headers=JSON)
            streamed = await w.http.post("/jobs", content=endless(), headers=JSON)
            assert declared.status_code == streamed.status_code == 413
            assert "larger than 100 bytes" in streamed.json()["detail"]
            assert read <= 200
            assert (await w.http.post("/jobs", content=b"[]" + b" " * 98, headers=JSON)).status_code == 200

    async def test_all_send_forms_where_they_send_no_jobs_and_agents_say_nothing(self) -> None:
        """The end of a job of many steps is large, and was told in vain for ever."""
        large = {"unknown": "x" * 100_000}
        bearers = {Role.USER: "user", Role.AGENT: "agent", Role.OPERATOR: TOKEN}
        made = {"user": {"user": "ann"}, "agent": {"node": "n1"}}
        async with world() as w:
            for text, of in made.items():
                await w.good("POST", "/tokens", {"digest": digest_of(text), **of})
            known = [route for route in w.app.routes if isinstance(route, APIRoute)]
            pairs = ((re.sub(r"{.*?}", "1", route.path), method) for route in known for method in route.methods or ())
            routes = {(path, method) for path, method in pairs if method in WITH_BODY}
            assert len(routes) > 15
            for path, method in sorted(routes):
                for role, token in bearers.items():
                    answer = await w.http.request(
                        method, path, json=large, headers={"Authorization": f"Bearer {token}"}
                    )
                    is_form = path not in LARGE_PATHS | OPEN_PATHS
                    is_form &= role is Role.USER or not is_of_agents(path)
                    assert (answer.status_code == 413) == is_form, (path, method, role)

    async def test_all_that_come_at_once_are_bounded_together(self) -> None:
        async with world(rules=rules_of(bodies_bytes_max=150)) as w:
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def slow() -> AsyncIterator[bytes]:
                yield b"[" + b" " * 99
                begun.set()
                await go_on.wait()
                yield b"]"

            first = asyncio.create_task(w.http.post("/jobs", content=slow(), headers=JSON))
            await begun.wait()
            refused = await w.http.post("/jobs", content=b"[]" + b" " * 98, headers=JSON)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert (await w.http.post("/jobs", content=b"[]", headers=JSON)).status_code == 200
            go_on.set()
            assert (await first).status_code == 200
            for _ in range(3):  # what has come is counted no more, nor what was refused
                answer = await w.http.post("/jobs", content=b"[]" + b" " * 98, headers=JSON)
                assert answer.status_code == 200


class Way:
    """A connection's transport, as far as the protocol uses it."""

    def __init__(self) -> None:
        self.ended = False

    def get_extra_info(self, *_: object) -> None:
        return None

    def write(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 400"), "said where it is no HTTP at all"

    def abort(self) -> None:
        self.ended = True

    close = abort

    def is_closing(self) -> bool:
        return self.ended


async def connection() -> tuple[BoundedProtocol, Way]:
    config = uvicorn_config(None)
    config.load()
    protocol, way = BoundedProtocol(config, ServerState(), {}), Way()
    protocol.connection_made(cast("asyncio.Transport", way))
    return protocol, way


class TestHeaders:
    @pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"GET /"], ids=["in headers", "in the first line"])
    @pytest.mark.parametrize("piece", [b"x: " + b"y" * 997 + b"\r\n", b"x" * 1000], ids=["many", "one long"])
    async def test_endless_ones_are_not_kept(self, start: bytes, piece: bytes) -> None:
        protocol, way = await connection()
        protocol.data_received(start)
        sent = 0
        while not way.ended and sent < 4 * FRAME_MAX_BYTES:
            protocol.data_received(piece)
            sent += len(piece)
        assert way.ended
        assert sent <= FRAME_MAX_BYTES + len(piece)
        protocol.connection_lost(None)

    async def test_those_of_a_usual_request_are_taken_in_any_pieces(self) -> None:
        protocol, way = await connection()
        for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"c" * 8000:
            protocol.data_received(bytes([byte]))
        assert not way.ended
        protocol.connection_lost(None)


@pytest.mark.live
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_who_leaves_in_the_middle_of_a_body_leaves_no_traceback(tmp_path: Path, method: str) -> None:
    with scheduler(tmp_path) as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        ask = f"{method} /jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {running.token}\r\n"
        more = "Idempotency-Key: once\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n["
        for _ in range(3):
            with socket.create_connection((host, int(port))) as one:
                one.sendall((ask + more).encode())
        assert running.http.get("/jobs").json() == []
        assert running.stop() == 0
        assert "Traceback" not in running.errors()


def health(url: str) -> int:
    """The answer on a connection of its own."""
    return httpx.get(f"{url}/health", timeout=DEADLINE_S).status_code


def open_ones(held: list[socket.socket]) -> int:
    """Connections that the other side has not closed."""
    for one in held:
        one.setblocking(False)
    found = 0
    for one in held:
        try:
            found += one.recv(1) != b""
        except BlockingIOError:
            found += 1
        except OSError:
            pass
    return found


@pytest.mark.live
def test_idle_connections_take_no_more_descriptors_than_there_are_to_spare(tmp_path: Path) -> None:
    with scheduler(tmp_path) as running:
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (400, 400))
        assert running.http.get("/nodes").status_code == 200  # an operator's, as an agent's: it is kept
        host, _, port = running.url.removeprefix("http://").partition(":")
        held = []
        for number in range(1000):
            held.append(socket.create_connection((host, int(port)), timeout=DEADLINE_S))
            if number % 100 == 99:
                assert health(running.url) == 200
        assert open_ones(held) <= 400 // 2
        kept = next(iter(running.http._transport._pool.connections))  # type: ignore[attr-defined]
        assert running.http.get("/nodes").status_code == 200
        assert next(iter(running.http._transport._pool.connections)) is kept, "its connection was closed for others"  # type: ignore[attr-defined]
        assert running.http.post("/job", json={**SLEEP, "user": "ann"}).status_code == 200, "its store has descriptors"
        for one in held:
            one.close()
        assert "Traceback" not in running.errors()
