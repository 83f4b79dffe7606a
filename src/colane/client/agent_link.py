"""The agent's side of the scheduler's REST API."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import httpx

from colane.client.client import address_of
from colane.client.errors import Refused, SchedulerUnreachable, refused
from colane.client.keep_alive import KeepAliveTransport
from colane.client.tls import trusted

TIMEOUT_S: Final = 10.0
"""A busy scheduler commits within milliseconds; after this it is as good as gone, and the agent asks again."""

Object = dict[str, Any]


class AgentLink:
    """Talks to one scheduler; keeps its connection open. Every method may be repeated safely.

    Every method raises `SchedulerUnreachable` when there is no answer and `Refused` when it is a refusal.

    Args:
        url: Base URL of the scheduler.
        token: Sent where the scheduler wants one.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._base, socket = address_of(self._url)
        transport = KeepAliveTransport(trusted(), socket)
        self._http = httpx.AsyncClient(transport=transport, headers=headers, timeout=timeout_s, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def register(self, node: Object) -> Object:
        """Make a node known; refused with 409 while another live agent has its name."""
        return await self._ask("POST", "/node", node)

    async def report(self, name: str, report: Object) -> Object:
        """Tell what is there, and return the node object: what shall be."""
        return await self._ask("POST", f"/node/{name}/report", report)

    async def launch_info(self, job_id: int) -> Object:
        """Return what is needed to start a job."""
        return await self._ask("GET", f"/job/{job_id}/launch")

    async def finished(self, finished: Object) -> None:
        """Tell that an attempt has ended; to be repeated until it is heard."""
        await self._ask("POST", "/finished_job", finished)

    async def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        try:
            answer = await self._http.request(method, self._base + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SchedulerUnreachable(self._url, str(error) or type(error).__name__) from error
        content = _json(answer)
        if not answer.is_success:
            raise refused(answer.status_code, content)
        if not isinstance(content, dict):
            raise Refused(answer.status_code, refused(answer.status_code, None).problems)
        return content


def _json(answer: httpx.Response) -> Any:  # noqa: ANN401 - whatever JSON the answer holds
    try:
        return answer.json()
    except ValueError:
        return None
