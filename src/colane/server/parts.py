"""What a scheduler consists of while it runs: what all who answer for it look at and act by."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx

from colane.server.board.read_model import ReadModel
from colane.server.config import ServiceConfig
from colane.server.ground.access import Caller
from colane.server.ground.sight import Sight
from colane.server.nodes.liveness import Liveness
from colane.server.samples.idle import IdleWatch
from colane.server.samples.keeper import SampleKeeper
from colane.server.samples.marks import DeviceMarks
from colane.server.store.identity import History
from colane.server.store.store import Store
from colane.server.writer.driver import LiveDriver
from colane.server.writer.feed import Feed


@dataclass(slots=True)
class Parts:
    """The parts, made by `assembly`.

    Attributes:
        store: Where everything is kept.
        config: See `ServiceConfig`.
        http: Talks to agents.
        driver: The only writer.
        feed: Published changes.
        liveness: When nodes were heard of.
        started_s: Unix time of the start.
        history: Whose records these are, and which starts there were.
        samples: How devices and jobs use what they have.
        idle: Which jobs use nothing of it.
        marks: From when to when devices were broken, or kept for jobs.
        stopping: Set when streams shall end.
        leads: Whether it is the one that writes; a standby is not yet.
        hands_over: Set when it shall end for a standby to lead.
    """

    store: Store
    config: ServiceConfig
    http: httpx.AsyncClient
    driver: LiveDriver
    feed: Feed
    liveness: Liveness
    started_s: float
    history: History
    samples: SampleKeeper
    idle: IdleWatch = field(default_factory=IdleWatch)
    marks: DeviceMarks = field(default_factory=DeviceMarks)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    leads: bool = True
    hands_over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def policy(self) -> str:
        """Name of the policy that decides."""
        return self.driver.decider.name

    @property
    def read_model(self) -> ReadModel:
        """What is durable now."""
        return self.driver.read_model

    def sight(self, caller: Caller) -> Sight:
        """Return what a caller may be told."""
        return Sight(caller, self.config.see)
