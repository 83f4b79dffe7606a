"""Between agents and the scheduler: requests and answers are delayed, lost, doubled, and overtake each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from colane.api.reports import FinishedObject, RegistrationObject, ReportObject
from colane.client.errors import SchedulerUnreachable, refused
from colane.server.ground.problems import RefusedError
from tests.faults.simulated.processes import VirtualClock, VirtualProcess

Object = dict[str, Any]
TIMEOUT_S = 10.0
URL = "http://scheduler"
Handler = Callable[..., Awaitable[Object]]


@dataclass
class Weather:
    """How messages of one node fare.

    Attributes:
        asks_lost: The part of the node's requests, and of nudges to it, that is lost.
        answers_lost: The part of answers that is lost.
        doubled: The part of requests that arrives twice.
        delay_s: The longest a message takes.
    """

    asks_lost: float = 0.0
    answers_lost: float = 0.0
    doubled: float = 0.0
    delay_s: float = 0.01


@dataclass
class VirtualNetwork(httpx.AsyncBaseTransport):
    """Every message between the scheduler and its agents; also the way of its nudges.

    Attributes:
        clock: Whose time passes.
        random: Of the seed.
        scheduler: Who is asked.
        weather: Of each node.
        answer: Carries out a request in the scheduler's process.
        nudged: Called when a nudge arrives at a node.
    """

    clock: VirtualClock
    random: Random
    scheduler: VirtualProcess
    weather: dict[str, Weather] = field(default_factory=dict)
    answer: Handler | None = None
    nudged: dict[str, Callable[[], None]] = field(default_factory=dict)

    def ask(self, node: str, asker: VirtualProcess, name: str, body: Any, answered: asyncio.Future[Object]) -> None:
        """Send a request; its answer, if there is one, goes to the future."""
        weather = self.weather[node]
        loop, text = asker.loop, json.dumps(body)

        def deliver(result: Object | Exception) -> None:
            if self.random.random() >= weather.answers_lost:
                self.clock.after(self._delay_s(weather), lambda: _settle(asker, loop, answered, result))

        def arrive() -> None:
            if not self.scheduler.is_alive:
                deliver(SchedulerUnreachable(URL, "connection refused"))
            else:
                self.scheduler.spawn(self._serve(name, json.loads(text), deliver))

        for _ in range(1 + (self.random.random() < weather.doubled)):
            if self.random.random() >= weather.asks_lost:
                self.clock.after(self._delay_s(weather), arrive)

    async def _serve(self, name: str, body: Any, deliver: Callable[[Object | Exception], None]) -> None:
        assert self.answer is not None
        try:
            result: Object | Exception = json.loads(json.dumps(await self.answer(name, body)))
        except RefusedError as error:
            refusal = refused(error.status, {"detail": [{"message": str(problem)} for problem in error.problems]})
            refusal.lease_s = error.lease_s
            result = refusal
        deliver(result)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """A nudge by the scheduler; the agent's log is not asked for here."""
        node = request.url.host
        weather = self.weather[node]
        if self.random.random() < weather.asks_lost:
            raise httpx.ConnectTimeout("lost")
        self.clock.after(self._delay_s(weather), self.nudged[node])
        return httpx.Response(200, json={"accepted": True})

    def _delay_s(self, weather: Weather) -> float:
        return self.random.uniform(0.001, weather.delay_s)


def _settle(asker: VirtualProcess, loop: object, answered: asyncio.Future[Object], result: Object | Exception) -> None:
    """Give the answer to the process that asked, if it is still that one, and still waits."""
    if not asker.is_alive or asker.loop is not loop or answered.done():
        return
    if isinstance(result, Exception):
        answered.set_exception(result)
    else:
        answered.set_result(result)


class VirtualLink:
    """The agent's side of the scheduler's API, over the virtual network: a `link.scheduler.Scheduler`."""

    def __init__(self, network: VirtualNetwork, node: str, asker: VirtualProcess, speaks: Callable[[Any], Any]) -> None:
        self._network, self._node, self._asker, self._speaks = network, node, asker, speaks

    async def register(self, node: RegistrationObject) -> Any:
        """See `Scheduler`."""
        return await self._ask("register", node)

    async def report(self, name: str, report: ReportObject) -> Any:
        """See `Scheduler`."""
        return await self._ask("report", [name, report])

    async def launch_info(self, job_id: int) -> Any:
        """See `Scheduler`."""
        return await self._ask("launch_info", job_id)

    async def finished(self, finished: FinishedObject) -> Any:
        """See `Scheduler`."""
        return await self._ask("finished", finished)

    async def finished_together(self, ends: Sequence[FinishedObject]) -> Any:  # noqa: ARG002
        """See `Scheduler`; agents here tell of each end alone."""
        raise refused(405, None)

    async def _ask(self, name: str, body: Any) -> Object:
        answered: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self._network.ask(self._node, self._asker, name, self._speaks(body), answered)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answered
        except TimeoutError as error:
            raise SchedulerUnreachable(URL, "timed out") from error
