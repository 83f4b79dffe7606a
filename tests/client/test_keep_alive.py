"""Connections that are kept: one for many requests, a new one where the other side has gone, an error for nonsense."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from colane.client.agent_link import AgentLink
from colane.client.keep_alive import KeepAliveTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


class Host:
    """Answers what it is given, in order, and counts who comes."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self._closes = closes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.asked.append(head + await reader.readexactly(length))
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self._closes:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            self.gone.set()


class SilentHost(Host):
    """Says nothing until its client has gone."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def client(host: Host, timeout_s: float = 30.0) -> AsyncIterator[httpx.AsyncClient]:
    listener = await asyncio.start_server(host.serve, "127.0.0.1")
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    transport = KeepAliveTransport(ssl.create_default_context())
    async with listener, httpx.AsyncClient(transport=transport, base_url=url, timeout=timeout_s) as http:
        yield http


async def test_many_requests_take_one_connection() -> None:
    host = Host(OK, OK, OK)
    async with client(host) as http:
        for number in range(3):
            answer = await http.post("/a", json={"number": number}, headers={"X-Token": "t"})
            assert (answer.status_code, answer.json()) == (200, {})
    assert host.connections == 1
    assert host.asked[2].startswith(b"POST /a HTTP/1.1\r\n")
    assert b"X-Token: t\r\n" in host.asked[2]
    assert host.asked[2].endswith(b'{"number":2}')


async def test_an_agent_asks_below_the_address_that_it_was_given() -> None:
    host = Host(OK, OK)
    async with client(host) as http, AgentLink(f"{http.base_url}/colane/", "t") as link:
        told: Any = {"jobs": []}
        answers: list[Any] = [await link.report("n 1/é\r\nX: y", told), await link.launch_info(7)]
        assert answers == [{}, {}]
    first, second = host.asked
    assert first.startswith(b"POST /colane/node/n%201/%C3%A9%0D%0AX%3A%20y/report HTTP/1.1\r\n")
    assert b"Authorization: Bearer t\r\n" in first
    assert first.endswith(b'\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"jobs":[]}')
    assert second.startswith(b"GET /colane/job/7/launch HTTP/1.1\r\n")
    assert second.endswith(b"\r\n\r\n")
    assert host.connections == 1


async def test_requests_at_once_take_connections_of_their_own() -> None:
    host = Host(OK, OK, OK, OK)
    async with client(host) as http:
        answers = await asyncio.gather(*[http.get("/a") for _ in range(4)])
    assert [answer.status_code for answer in answers] == [200] * 4
    assert host.connections == 4


async def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    host = Host(OK, OK, closes=True)
    async with client(host) as http:
        await http.get("/a")
        await host.gone.wait()
        assert (await http.get("/b")).status_code == 200
    assert host.connections == 2
    assert len(host.asked) == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed before the answer was whole"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "closed before the answer was whole"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "no HTTP"),
    ],
)
async def test_what_is_no_answer_is_an_error_of_its_own(answer: bytes, says: str) -> None:
    async with client(Host(answer, closes=True)) as http:
        with pytest.raises(httpx.RemoteProtocolError, match=says):
            await http.get("/a")


async def test_an_answer_in_pieces_is_put_together() -> None:
    chunked = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with client(Host(chunked, OK)) as http:
        answer = await http.get("/a")
        assert (answer.status_code, answer.content) == (404, b"abcde")
        assert (await http.get("/a")).json() == {}


async def test_who_does_not_answer_in_time_is_given_up() -> None:
    async with client(SilentHost(), timeout_s=0.05) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/a")


async def test_no_server_there_is_an_error_of_connecting(tmp_path: Path) -> None:
    transport = KeepAliveTransport(ssl.create_default_context(), str(tmp_path / "none"))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://localhost/a")
