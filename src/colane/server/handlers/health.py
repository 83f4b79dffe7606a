"""How the scheduler itself is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from colane.api.records import ForeseenObject, HealthDetailObject, ServiceHealthObject
from colane.facts.job import waiting
from colane.foresee.said import METHODS
from colane.model.words import percent
from colane.server.nodes.behind import BehindWatch
from colane.server.parts import Parts
from colane.server.store.unreadable import NAMED_MAX, public_names
from colane.server.views.mechanisms import mechanisms_view

HOLDS_MIN: Final = 0.7
HOLDS_MAX: Final = 0.9
BURSTS_JUDGED: Final = 30  # after so many separate bursts of quotes it is said where fewer or more hold

UNREADABLE_SHOWN_MAX: Final = 100  # of the records that cannot be read, `/health` shows no more


@dataclass(slots=True)
class Health:
    """Tells of the scheduler."""

    parts: Parts  # what the scheduler consists of
    behind: BehindWatch  # whether the store lacks what agents have heard of

    @property
    def _status(self) -> str:
        if (
            self.parts.driver.problem is not None
            or (self.parts.leads and not self.parts.driver.is_ready)
            or self.behind.lost
        ):
            return "store-unavailable"
        return "degraded" if self._degraded_by() else "ok"

    def _degraded_by(self) -> str:
        """What goes on without something that it should have, in a sentence; empty where nothing does."""
        lost = public_names(self.parts.store.unreadable())
        more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
        names = f"{', '.join(lost[:NAMED_MAX])}{more}"
        records = f"records cannot be read and are left out: {names} (colane check names them)" if lost else ""
        durability = self.parts.store.durability()
        known = [self.parts.driver.policy_problem, records, str(durability) if durability.risks else ""]
        return "; ".join(filter(None, known))

    def _astray(self) -> str:
        """Whether starts that were foreseen held too seldom or too often, once enough has been seen."""
        foresight = self.parts.driver.foresight
        found = foresight.judged().get(METHODS[-1])
        if found is None or foresight.bursts() < BURSTS_JUDGED or HOLDS_MIN <= found.holds <= HOLDS_MAX:
            return ""
        return f"of {found.quotes} starts that were foreseen {percent(found.holds)} came as said, where 80 % are to"

    def _mechanisms(self) -> dict[str, str]:
        seen = (
            self.parts.driver.core.state.nodes.values() if self.parts.driver.is_ready else ()
        )  # without its store it has none
        by = [node.bandwidth.by for node in seen if node.bandwidth is not None]
        here = [record.node for record in self.parts.read_model.nodes.values()]
        return dict(mechanisms_view(self.parts.driver.decider, self.parts.driver.config, here, by))

    def answer(self) -> ServiceHealthObject:
        """Return the service's state in numbers, and why it is not what it should be."""
        why = (
            self.parts.driver.problem or self.behind.problem or "the store cannot be read"
            if self._status == "store-unavailable"
            else ""
        )
        why = why or self._degraded_by() or self._astray()
        live = self.parts.read_model.jobs.values()
        lost = sum(record.lost for record in self.parts.read_model.nodes.values())
        detail: HealthDetailObject = {"detail": why} if why else {}
        kind, risks, unchecked = self.parts.store.durability()
        return {
            "status": self._status,
            **detail,
            "role": "leader" if self.parts.leads else "standby",
            "cluster_id": self.parts.history.cluster_id,
            "former_cluster_ids": list(self.parts.history.former),
            "epoch": self.parts.history.current.number,
            "policy": self.parts.policy,
            "mechanisms": self._mechanisms(),
            "queued": sum(map(waiting, live)),
            "running": sum(job.placement is not None for job in live),
            "nodes": len(self.parts.read_model.nodes) - lost,
            "lost_nodes": lost,
            "store": {"kind": kind, "risks": list(risks), "unchecked": list(unchecked)},
            "unreadable": public_names(self.parts.store.unreadable())[:UNREADABLE_SHOWN_MAX],
            "faults": self.parts.driver.faults.met,
            "state_version": self.parts.read_model.counters.version,
            "events": self.parts.feed.last_number,
            "started_s": self.parts.started_s,
            "longest_decision_cpu_s": self.parts.driver.meters.longest_decision_cpu_s,
            "foreseen": cast("list[ForeseenObject]", self.parts.driver.foresight.judged_rows()),
        }
