"""Which scheduler leads, from which history, and whether its store lacks what agents have heard of."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from colane.api.nodes import ClusterObject
from colane.api.records import AdoptedAnswer
from colane.api.wire_nodes import FinishedBody, ReportBody
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers.grants import Grants
from colane.server.nodes import liveness as leases
from colane.server.nodes.behind import Ahead, BehindWatch
from colane.server.parts import Parts
from colane.server.store.identity import History, new_cluster_id
from colane.server.writer import changes
from colane.server.writer.driver import ReadBack

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Leadership:
    """Judges what agents have heard against what the store has."""

    parts: Parts  # what the scheduler consists of
    grants: Grants  # leases of nodes
    # what agents have heard of that the store lacks
    behind: BehindWatch = field(default_factory=lambda: BehindWatch(time.monotonic))

    def begin(self, history: History, found: ReadBack, now_s: float, *, hears: bool) -> None:
        """Lead from now on, from what was read; whether agents are heard before anything is changed."""
        self.parts.history, self.parts.started_s = history, now_s
        self.parts.liveness.begin(self.grants.held_longer_s)
        self.parts.driver.take_over(found)
        self.parts.driver.problem = None
        self.hear_first(None if hears else ())
        self.parts.leads = True

    def hear_first(self, nodes: Iterable[str] | None = None) -> None:
        """Change nothing before the agents, of all nodes by default, have said how much they know."""
        known = [name for name, record in self.parts.read_model.nodes.items() if not record.lost]
        self.behind.begin(known if nodes is None else nodes)
        self.parts.driver.waits_for = lambda: self.behind.problem

    async def refuse_while_behind(self, name: str, body: ReportBody) -> None:
        """Say nothing of what shall run while it is not known to be so; what runs goes on. Raises RefusedError: 503."""
        watch, record = self.behind, self.parts.read_model.nodes.get(name)
        if self.parts.config.leader_lease_s is None or watch.is_adopted:
            return
        was_hearing, was_lost = watch.is_hearing, watch.lost
        watch.awaited.discard(name)
        is_ours, lost = self.is_of_ours(name, body), self._lacked_of(name, body)
        if is_ours and not lost:
            watch.ahead.pop(name, None)
        else:  # where all events are known, so is what shall run there
            watch.ahead[name] = Ahead(name, lost, () if is_ours else tuple(job.id for job in body.jobs))
        if watch.lost != was_lost and watch.lost:
            log.error("%s", watch.problem)
        if was_hearing and not watch.is_hearing and not watch.lost:
            self.parts.driver.notifier.nudge(known.door for known in self.parts.read_model.nodes.values())
        if problem := watch.problem:
            self.grants.hear(name, self.parts.driver.now())
            refused = RefusedError.because(503, problem)
            if record is not None and name not in self.parts.driver.losing:
                refused.lease_s = leases.lease_s(self.parts.read_model, record, self.grants.lease_s(name))
            raise refused

    def _lacked_of(self, name: str, body: ReportBody) -> int:
        """How many changes an agent has heard of that the store lacks."""
        events, epoch = body.events_seen or 0, body.epoch
        if body.cluster_id != self.cluster_of(name):
            return 0
        if epoch is None:
            return max(0, events - self.parts.feed.last_number)
        version_now = self.parts.driver.lead.version
        changes = self.parts.history.lacks_changes(epoch["number"], epoch["id"], body.version_seen or 0, version_now)
        if changes or self.parts.history.has(epoch["number"], epoch["id"], events, self.parts.feed.last_number):
            return changes
        return self.parts.history.lacks(epoch["number"], epoch["id"], events, self.parts.feed.last_number)

    async def adopt(self, lost: int, caller: Caller) -> AdoptedAnswer:
        """Go on from a store that lacks what agents have heard of.

        Raises RefusedError: 409, it is not known to be so, or lacks another number of changes; 503.
        """
        watch = self.behind
        if not watch.lost:
            raise RefusedError.because(409, "no agent is known to have heard of more than this store has")
        if lost != watch.lost:
            raise RefusedError.because(
                409, f"{watch.lost} changes are lost, as far as is known, not {lost}: look again"
            )
        found = self.lacked()
        watch.is_adopted = True

        def prepare(turn: Turn) -> None:
            turn.record("store-adopted", by=caller.name, **found)

        try:
            await self.parts.driver.change(prepare)
        except RefusedError:
            watch.is_adopted = False
            raise
        nodes = ", ".join(found["nodes"])
        log.warning("%s has adopted the store without %d changes that %s have heard of", caller.name, lost, nodes)
        return found

    def lacked(self) -> AdoptedAnswer:
        """Return what the store is known to lack."""
        ahead = {} if self.behind.is_adopted else self.behind.ahead
        jobs = {job for one in ahead.values() for job in one.jobs}
        return {"lost": self.behind.lost, "nodes": sorted(ahead), "jobs": sorted(jobs)}

    async def set_apart_if_of_another_history(self, name: str, body: ReportBody) -> None:
        """Tell an agent another cluster than the others where it has heard what this store never knew.

        A copy of the store was put back, so ids of jobs are given a second time: what this agent has under them is not
        of these jobs, and it ends that and begins anew, as under any other cluster. What an agent claims concerns its
        own node alone; others may know of nothing but what the copy has, and go on. Raises SupersededError: it has
        followed a newer scheduler on this very store.
        """
        if self.is_of_ours(name, body):
            return
        made = new_cluster_id()

        def prepare(turn: Turn) -> bool:
            changes.agent_record(turn, name, body.agent_id)
            if self.is_of_ours(name, body) or name in turn.set_apart:  # another report of it has come first
                return False
            turn.set_apart[name] = made
            heard = {"epoch": body.epoch["number"]} if body.epoch is not None else {}
            turn.record("node-set-apart", node=name, **heard, events_seen=body.events_seen, cluster_id=made)
            return True

        if await self.parts.driver.change(prepare):
            log.warning(
                "node %s has heard %s events of this cluster that this store does not know: an older copy of the store "
                "was put back. What runs on it is ended, and it begins anew", name, body.events_seen,
            )  # fmt: skip

    def is_of_ours(self, name: str, body: ReportBody | FinishedBody) -> bool:
        """Whether what an agent has heard is of this store; of one that is of another cluster, that does not matter."""
        if body.cluster_id != self.cluster_of(name):
            return True
        events, now = body.events_seen or 0, self.parts.feed.last_number
        if body.epoch is None:  # an older agent
            return events <= now
        return self.parts.history.has(body.epoch["number"], body.epoch["id"], events, now)

    def cluster_of(self, name: str) -> str:
        """The cluster that the agent of a node is told to be of."""
        record = self.parts.read_model.nodes.get(name)
        return (record.cluster_id if record is not None else "") or self.parts.history.cluster_id

    def standing_of(self, name: str) -> ClusterObject:
        """What the agent of a node is told of this cluster, by which it knows a scheduler again."""
        current = self.parts.history.current
        return {
            "cluster_id": self.cluster_of(name),
            "epoch": {"number": current.number, "id": current.id},
            "events": self.parts.feed.last_number,
            "store_version": self.parts.driver.version_told,
        }
