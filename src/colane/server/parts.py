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
    """The parts, made by `assembly`."""

    store: Store  # where everything is kept
    config: ServiceConfig  # see `ServiceConfig`
    http: httpx.AsyncClient  # talks to agents
    driver: LiveDriver  # the only writer
    feed: Feed  # published changes
    liveness: Liveness  # when nodes were heard of
    started_s: float  # Unix time of the start
    history: History  # whose records these are, and which starts there were
    samples: SampleKeeper  # how devices and jobs use what they have
    idle: IdleWatch = field(default_factory=IdleWatch)  # which jobs use nothing of it
    marks: DeviceMarks = field(default_factory=DeviceMarks)  # from when to when devices were broken, or kept for jobs
    stopping: asyncio.Event = field(default_factory=asyncio.Event)  # set when streams shall end
    leads: bool = True  # whether it is the one that writes; a standby is not yet
    hands_over: asyncio.Event = field(default_factory=asyncio.Event)  # set when it shall end for a standby to lead

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
