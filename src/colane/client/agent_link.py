"""The agent's side of the scheduler's REST API."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import httpx

from colane.api.nodes import FinishedAnswer, FinishedJobsAnswer, LaunchObject, NodeObject
from colane.api.reports import FinishedObject, RegistrationObject, ReportObject
from colane.client.client import address_of
from colane.client.errors import Refused, SchedulerError, SchedulerUnreachable, refused
from colane.client.keep_alive import Answered, KeepAliveTransport, Origin, origin_of
from colane.client.locate import urls_of
from colane.client.tls import trusted

# -- What a report may leave out, so that both sides have less to do: what is said once, and what is not known.
#
# Devices change seldom, and are described at length: they are left out while they are as the scheduler was told last.
# Of samples every field that is null, or an empty text, stands for itself where it is left out.

SAMPLED: Final = ("progress", "use")


class ToldDevices:
    """What the scheduler knows of a node's devices.

    One that was started anew may go on from a store that lacks it: it is told once more.
    """

    def __init__(self) -> None:
        self._gpus: object = None
        self._epoch: object = None

    def sparing(self, report: ReportObject) -> dict[str, Any]:
        """Return a report without what the scheduler knows, or would take for the same where it is absent."""
        lean: dict[str, Any] = {**report, "jobs": [_known(job) for job in report["jobs"]]}
        if "devices" in report:
            lean["devices"] = [_said(use) for use in report["devices"]]
        if self._epoch is not None and report.get("gpus") == self._gpus:
            lean.pop("gpus", None)
        return lean

    def registered(self, node: RegistrationObject, answer: NodeObject) -> None:
        """The scheduler has taken in a registration."""
        self._gpus, self._epoch = node["gpus"], answer.get("epoch")

    def reported(self, report: ReportObject, answer: NodeObject) -> None:
        """The scheduler has taken in a report; by another start than the last, all is told once more."""
        if self._epoch is not None and answer.get("epoch") != self._epoch:
            self.forget()
        else:
            self._gpus, self._epoch = report.get("gpus"), answer.get("epoch")

    def forget(self) -> None:
        """Tell all with the next report."""
        self._gpus = self._epoch = None


def _known(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _said(value) if name in SAMPLED and value is not None else value for name, value in job.items()}


def _said(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if value is not None and value != ""}


TIMEOUT_S: Final = 10.0
"""A busy scheduler commits within milliseconds; after this it is as good as gone, and the agent asks again."""


SEVERAL_TIMEOUT_S: Final = 3.0
"""The same where others are known, one of which may lead by then: shorter than a leader's lease."""
SILENT_S: Final = 6.0
"""One that did not answer in time is asked again only after so long, and last, where another answers at all."""
NEXT_AFTER_S: Final = 1.0
"""The next one is asked, too, where one has not answered for so long: it may be frozen, and another lead."""
Body = Mapping[str, object] | Sequence[Mapping[str, object]]
ELSEWHERE: Final = frozenset({307, 503})  # answers of a scheduler that does not lead, or cannot tell whether it does


class AgentLink:
    """Talks to the scheduler that leads; keeps its connection open. Every method may be repeated safely.

    Every method raises `SchedulerUnreachable` when there is no answer and `Refused` when it is a refusal.

    Args:
        url: Base URL of the scheduler; of several, with commas between, the one that answered last is asked first.
        token: Sent where the scheduler wants one.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._token = token
        self._told: dict[str, ToldDevices] = {}
        self._places = [_LinkPlace.of(each) for each in urls_of(url)]
        limit_s = timeout_s if len(self._places) == 1 else min(timeout_s, SEVERAL_TIMEOUT_S)
        self._limits: dict[str, float | None] = {"connect": limit_s, "read": limit_s}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        for place in self._places:
            await place.transport.aclose()

    async def register(self, node: RegistrationObject) -> NodeObject:
        """Make a node known; refused with 409 while another live agent has its name."""
        answer: NodeObject = await self._ask("POST", "/node", node)
        self._told.setdefault(node["name"], ToldDevices()).registered(node, answer)
        return answer

    async def report(self, name: str, report: ReportObject) -> NodeObject:
        """Tell what is there, and return the node object: what shall be."""
        told = self._told.setdefault(name, ToldDevices())
        try:
            answer: NodeObject = await self._ask("POST", f"/node/{name}/report", told.sparing(report))
        except SchedulerError:
            told.forget()
            raise
        told.reported(report, answer)
        return answer

    async def launch_info(self, job_id: int) -> LaunchObject:
        """Return what is needed to start a job."""
        answer: LaunchObject = await self._ask("GET", f"/job/{job_id}/launch")
        return answer

    async def finished(self, finished: FinishedObject) -> FinishedAnswer:
        """Tell that an attempt has ended; to be repeated until it is heard."""
        answer: FinishedAnswer = await self._ask("POST", "/finished_job", finished)
        for told in self._told.values():
            told.forget()  # of a job that could not be started, devices are closed until they are told of
        return answer

    async def finished_together(self, ends: Sequence[FinishedObject]) -> FinishedJobsAnswer:
        """Tell that several attempts have ended, at most `ENDS_MAX`; a scheduler before 0.3 refuses it with 405."""
        answer: FinishedJobsAnswer = await self._ask("POST", "/finished_jobs", ends)
        for told in self._told.values():
            told.forget()
        return answer

    async def _ask(self, method: str, path: str, body: Body | None = None) -> Any:  # noqa: ANN401 - an object
        ask = partial(self._ask_one, method=method, path=path, body=body)
        if len(self._places) == 1:
            answer = await ask(self._places[0])
            if isinstance(answer, SchedulerUnreachable):
                raise answer
            return _content(answer)
        return await self._ask_several(ask)

    async def _ask_several(self, ask: Callable[[_LinkPlace], Awaitable[Answered | SchedulerUnreachable]]) -> Any:  # noqa: ANN401
        """Ask one after another until one answers that leads, the next one also where one takes long."""
        now_s = time.monotonic()
        met: SchedulerError = SchedulerUnreachable(self._places[0].url, "none was asked")
        waiting = [place for place in self._places if place.silent_until_s <= now_s]
        silent = [place for place in self._places if place not in waiting]
        asked: dict[asyncio.Future[Answered | SchedulerUnreachable], _LinkPlace] = {}
        try:
            while waiting or asked or (silent and isinstance(met, SchedulerUnreachable)):
                if not waiting and not asked:  # none of the others is there: the one that was silent may be busy
                    waiting, silent = silent, []
                if waiting:
                    place = waiting.pop(0)
                    asked[asyncio.ensure_future(ask(place))] = place
                limit_s = NEXT_AFTER_S if waiting else None
                done, _ = await asyncio.wait(asked, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    place, answer = asked.pop(each), each.result()
                    if isinstance(answer, SchedulerUnreachable):
                        met = answer
                        if isinstance(answer.__cause__, httpx.TimeoutException):
                            place.silent_until_s = time.monotonic() + SILENT_S
                            self._places.remove(place)
                            self._places.append(place)
                    elif answer.status not in ELSEWHERE or _lease_s(answer) is not None:
                        self._places.remove(place)
                        self._places.insert(0, place)
                        return _content(answer)
                    else:
                        met = refused(answer.status, _json(answer))
        finally:
            for each in asked:
                each.cancel()
        raise met

    async def _ask_one(
        self, place: _LinkPlace, *, method: str, path: str, body: Body | None
    ) -> Answered | SchedulerUnreachable:
        try:
            return await self._exchange(place, method, path, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            unreachable = SchedulerUnreachable(place.url, str(error) or type(error).__name__)
            unreachable.__cause__ = error
            return unreachable

    async def _exchange(self, place: _LinkPlace, method: str, path: str, body: Body | None) -> Answered:
        if place.heading is None:
            url = httpx.URL(place.base)
            pairs = {"Host": url.netloc.decode("ascii"), "Accept": "application/json", "Connection": "keep-alive"}
            if self._token:
                pairs["Authorization"] = f"Bearer {self._token}"
            lines = b"".join(b"%b: %b\r\n" % pair for pair in httpx.Headers(pairs).raw)
            place.heading = _Heading(origin_of(url), url.raw_path.rstrip(b"/"), lines)
        origin, before, headers = place.heading
        data = b"" if body is None else json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        first = b"%b %b%b HTTP/1.1\r\n" % (method.encode(), before, quote(path).encode())
        last = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(data) if data else b""
        return await place.transport.exchange(origin, b"".join([first, headers, last, b"\r\n", data]), self._limits)


@dataclass(slots=True)
class _LinkPlace:
    """One scheduler: its URL, what addresses there begin with, how it is reached, until when it is not asked first."""

    url: str
    base: str
    transport: KeepAliveTransport
    heading: _Heading | None = None
    silent_until_s: float = 0.0

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the one at a URL."""
        base, socket = address_of(url)
        return cls(url, base, KeepAliveTransport(trusted(), socket))


class _Heading(NamedTuple):
    """What all requests to a scheduler begin with: the server, what its paths begin with, the headers they share."""

    origin: Origin
    path: bytes
    headers: bytes


def _content(answer: Answered) -> dict[str, Any]:
    content = _json(answer)
    if not 200 <= answer.status < 300:
        error = refused(answer.status, content)
        error.lease_s = _lease_s(answer)
        raise error
    if not isinstance(content, dict):
        raise Refused(answer.status, refused(answer.status, None).problems)
    return content


def _lease_s(answer: Answered) -> float | None:
    """How long jobs go on by a scheduler that says nothing else."""
    for name, value in answer.headers:
        if name.lower() == b"colane-lease":
            try:
                found_s = float(value)
            except ValueError:
                return None
            return found_s if 0 < found_s < math.inf else None
    return None


def _json(answer: Answered) -> Any:  # noqa: ANN401 - whatever JSON the answer holds
    try:
        return json.loads(answer.body)
    except ValueError:
        return None
