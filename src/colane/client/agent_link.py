"""The agent's side of the scheduler's REST API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import httpx

from colane.api.nodes import FinishedAnswer, LaunchObject, NodeObject
from colane.api.reports import FinishedObject, RegistrationObject, ReportObject
from colane.client.client import address_of
from colane.client.errors import Refused, SchedulerUnreachable, refused
from colane.client.keep_alive import Answered, KeepAliveTransport, Origin, origin_of
from colane.client.tls import trusted

TIMEOUT_S: Final = 10.0
"""A busy scheduler commits within milliseconds; after this it is as good as gone, and the agent asks again."""


class AgentLink:
    """Talks to one scheduler; keeps its connection open. Every method may be repeated safely.

    Every method raises `SchedulerUnreachable` when there is no answer and `Refused` when it is a refusal.

    Args:
        url: Base URL of the scheduler.
        token: Sent where the scheduler wants one.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._base, socket = address_of(self._url)
        self._transport = KeepAliveTransport(trusted(), socket)
        self._limits: dict[str, float | None] = {"connect": timeout_s, "read": timeout_s}
        self._heading: _Heading | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.aclose()

    async def register(self, node: RegistrationObject) -> NodeObject:
        """Make a node known; refused with 409 while another live agent has its name."""
        answer: NodeObject = await self._ask("POST", "/node", node)
        return answer

    async def report(self, name: str, report: ReportObject) -> NodeObject:
        """Tell what is there, and return the node object: what shall be."""
        answer: NodeObject = await self._ask("POST", f"/node/{name}/report", report)
        return answer

    async def launch_info(self, job_id: int) -> LaunchObject:
        """Return what is needed to start a job."""
        answer: LaunchObject = await self._ask("GET", f"/job/{job_id}/launch")
        return answer

    async def finished(self, finished: FinishedObject) -> FinishedAnswer:
        """Tell that an attempt has ended; to be repeated until it is heard."""
        answer: FinishedAnswer = await self._ask("POST", "/finished_job", finished)
        return answer

    async def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - an object
        try:
            answer = await self._exchange(method, path, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SchedulerUnreachable(self._url, str(error) or type(error).__name__) from error
        content = _json(answer)
        if not 200 <= answer.status < 300:
            raise refused(answer.status, content)
        if not isinstance(content, dict):
            raise Refused(answer.status, refused(answer.status, None).problems)
        return content

    async def _exchange(self, method: str, path: str, body: Mapping[str, object] | None) -> Answered:
        if self._heading is None:
            self._heading = _heading(httpx.URL(self._base), self._token)
        origin, before, headers = self._heading
        data = b"" if body is None else json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        first = b"%b %b%b HTTP/1.1\r\n" % (method.encode(), before, quote(path).encode())
        last = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(data) if data else b""
        return await self._transport.exchange(origin, b"".join([first, headers, last, b"\r\n", data]), self._limits)


class _Heading(NamedTuple):
    """What all requests to a scheduler begin with: the server, what its paths begin with, the headers they share."""

    origin: Origin
    path: bytes
    headers: bytes


def _heading(url: httpx.URL, token: str | None) -> _Heading:
    pairs = {"Host": url.netloc.decode("ascii"), "Accept": "application/json", "Connection": "keep-alive"}
    if token:
        pairs["Authorization"] = f"Bearer {token}"
    lines = b"".join(b"%b: %b\r\n" % pair for pair in httpx.Headers(pairs).raw)
    return _Heading(origin_of(url), url.raw_path.rstrip(b"/"), lines)


def _json(answer: Answered) -> Any:  # noqa: ANN401 - whatever JSON the answer holds
    try:
        return json.loads(answer.body)
    except ValueError:
        return None
