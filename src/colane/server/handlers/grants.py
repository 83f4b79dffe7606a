"""Leases: for how long what runs on a node goes on without word from this scheduler."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from colane.api.wire_nodes import ReportBody
from colane.model.job import JobKind
from colane.server.board.read_model import NodeRecord
from colane.server.ground.problems import RefusedError
from colane.server.nodes import liveness as leases
from colane.server.parts import Parts
from colane.server.store.identity import granted

GRANT_RETRY_S: Final = 5.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Grants:
    """Grants leases, and hears agents."""

    parts: Parts  # what the scheduler consists of
    granted_s: float | None = None  # what nodes are granted in place of the configured lease, by a scheduler that ends
    _told: set[str] = field(default_factory=set)
    _told_of_grant: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def held_longer_s(self) -> float:
        """By how much a lease that an agent may hold of a scheduler before is longer than the usual one of this one."""
        return max(0.0, self.parts.history.granted_s - self.parts.config.node_timeout_s)

    def lease_s(self, name: str) -> float:
        """What a node is granted now: longer where its jobs would end, or a server not answer, for want of word."""
        known = self.parts.read_model.nodes.get(name)
        is_usual = (
            known is not None
            and known.halts
            and not any(job.spec.kind is JobKind.INFERENCE for job in self.parts.read_model.assigned(name))
        )
        return max(
            self.parts.config.node_timeout_s if is_usual else self.parts.config.lease_max_s, self.granted_s or 0.0
        )

    def hear(self, name: str, now_s: float, body: ReportBody | None = None) -> None:
        """Note that an agent has spoken; one that knows of this start holds no lease of before but what it says."""
        current, left_s = self.parts.history.current, None
        if body is not None and body.epoch is not None and body.epoch["id"] == current.id:
            left_s = body.lease_left_s
        self.parts.liveness.hear(name, now_s, self.lease_s(name), left_s)

    async def lower(self) -> None:
        """Note that no longer leases are held than this scheduler grants, once those of before are over."""
        if self.parts.history.granted_s <= self.parts.config.lease_max_s:
            return
        await asyncio.sleep(
            self.parts.history.granted_s * (1 + leases.DRIFT_RATIO) + (self.parts.config.leader_lease_s or 0.0)
        )
        while self.granted_s is None:
            with suppress(RefusedError):
                await self.parts.driver.change(lambda turn: turn.puts.append(granted(self.parts.config.lease_max_s)))
                return
            await asyncio.sleep(GRANT_RETRY_S)

    async def farewell(self) -> None:
        """Before this scheduler ends by order: let jobs run on until another answers, for `leases.FAREWELL_S`.

        What is granted is durable first, so that a scheduler that starts counts no node as lost sooner.
        """
        if not (self.parts.leads and self.parts.driver.is_ready) or self.parts.hands_over.is_set():
            return
        nodes = [one for one in self.parts.read_model.nodes.values() if self._runs_by_lease(one)]
        lease_s = max(leases.FAREWELL_S, self.parts.config.lease_max_s)
        if not nodes:
            return
        try:
            await self.parts.driver.change(lambda turn: turn.puts.append(granted(lease_s)))
        except RefusedError as error:
            log.warning("jobs are halted once their lease is over: %s", error)
            return
        self.granted_s = lease_s
        self.parts.liveness.allow(lease_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(leases.FAREWELL_MAX_S):
                reached = await self.parts.driver.notifier.reach(one.door for one in nodes)
                awaited = {one.node.name for one, is_there in zip(nodes, reached, strict=True) if is_there}
                while not awaited <= self._told:
                    self._told_of_grant.clear()
                    await self._told_of_grant.wait()

    def answered(self, name: str) -> None:
        """Note that a node is told what it is granted now."""
        if self.granted_s is not None:
            self._told.add(name)
            self._told_of_grant.set()

    def _runs_by_lease(self, record: NodeRecord) -> bool:
        name = record.node.name
        is_heard = record.leased and not record.lost and self.parts.liveness.is_heard(name)
        return is_heard and any(self.parts.read_model.assigned(name))
