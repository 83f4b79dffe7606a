"""Nodes that go and come back, and limits that change, in virtual time, as the description of the cluster says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from colane.core import Core
from colane.core.events import Event, NodeDrained, NodeLost, NodeRegistered, NodeReserved, Tick
from colane.core.usage import UsedGpus, gpu_s_since, month_of
from colane.lab.simulate.agenda import Agenda
from colane.lab.simulate.meter import Meter
from colane.lab.traces.node_events import OWNER, NodeEvent, NodeEventKind
from colane.model.hardware import Drain, Node
from colane.model.limits import Quotas


class NodeChanges:
    """Tells the core what happens, when it does."""

    def __init__(self, core: Core, agenda: Agenda, meter: Meter) -> None:
        self._core, self._agenda, self._meter = core, agenda, meter
        self._nodes: dict[str, Node] = {name: known.node for name, known in core.state.nodes.items()}
        self._users = core.config.limits.users  # whose limits are asked for: they go before those of the description
        self.lost_s: dict[str, float] = {}  # when nodes were lost last, by name
        self._gone: set[str] = set()
        self._notices: dict[str, NodeEvent] = {}
        self.due: list[Event] = []  # what has happened, until the core is told

    def enter(self, events: Iterable[NodeEvent]) -> None:
        """Have these happen."""
        for event in events:
            self._agenda.at(event.at_s, self._happen, event)

    def _happen(self, event: NodeEvent, _serial: int) -> None:
        name, kind = event.node, event.kind
        if event.limits is not None:
            self._limit(event.limits, event)
        elif event.kept is not None:
            known, made = self._nodes[name].reservations, event.kept
            kept = tuple(one for one in known if one.name != made.name)
            if kind is NodeEventKind.RESERVE:
                kept = tuple(sorted([*known, made], key=lambda one: one.from_s))
            self._nodes[name] = replace(self._nodes[name], reservations=kept)
            self.due.append(NodeReserved(name, kept))
        elif kind is NodeEventKind.LOST:
            self._lose(name, event.at_s)
        elif kind is NodeEventKind.BACK:
            self._gone.discard(name)
            self._meter.resized(self._nodes[name], 1)
            self.due.append(NodeRegistered(self._nodes[name]))
        elif kind is NodeEventKind.UNDRAIN:
            self.due.append(NodeDrained(name, None))
        else:
            self._drain(event)

    def _limit(self, limits: Quotas, event: NodeEvent) -> None:
        """Have limits hold; what jobs that hold GPUs have had of the month is in what was said to be used of it."""
        core, month_s = self._core, month_of(event.at_s)[0]
        if event.used is not None:
            gpu_s = {**dict.fromkeys(core.state.usage.used, 0.0), **{name: 3600 * h for name, h in event.used.items()}}
            for job in core.state.jobs.values():
                gpu_s[job.spec.user] = gpu_s.get(job.spec.user, 0.0) - gpu_s_since(job, month_s, event.at_s)
            for user, used_s in gpu_s.items():
                known = core.state.usage.used.get(user) or UsedGpus(user, 0.0, event.at_s)
                core.state.usage.used[user] = known._replace(month_s=month_s, month_gpu_s=used_s)
        core.limit(replace(limits, users={**limits.users, **self._users}))
        self.due.append(Tick())

    def _drain(self, event: NodeEvent) -> None:
        ends_s = None if event.within_s is None else event.at_s + event.within_s
        is_notice = event.kind is NodeEventKind.NOTICE
        by = f"node {event.node}" if is_notice else OWNER
        self.due.append(NodeDrained(event.node, Drain(by, event.reason, event.at_s, ends_s), by_agent=is_notice))
        if is_notice and ends_s is not None:
            self._notices[event.node] = event
            self._agenda.at(ends_s, self._go, event)

    def _go(self, event: NodeEvent, _serial: int) -> None:
        if self._notices.get(event.node) is event:
            self._lose(event.node, event.at_s + (event.within_s or 0.0))

    def _lose(self, name: str, at_s: float) -> None:
        """Once: a node with notice of its end may be lost before it, and even be back by then."""
        self._notices.pop(name, None)
        if name not in self._gone:
            self._gone.add(name)
            self.lost_s[name] = at_s
            self._meter.resized(self._nodes[name], -1)
            self.due.append(NodeLost(name))
