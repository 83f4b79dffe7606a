"""Nodes that are drained, and spot machines with notice of their end; and what the scheduler has promised of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from colane.model.hardware import Drain
from colane.server.board.turn import Turn
from colane.server.nodes import draining

if TYPE_CHECKING:
    from tests.faults.simulated.cluster import FaultyCluster
    from tests.faults.simulated.machine import Machine

LOOK_S: Final = 0.5
BACK_S: Final = 20.0
"""A spot machine that has gone is there again after this long."""
LAST_AFTER_S: Final = 100.0
"""Faults that were under way when calm came are over."""
LAST_JOBS_S: Final = 8.0
"""So long before it some more jobs come, that there be some to go."""
LAST_DEADLINE_S: Final = 20.0
EMPTY_WITHIN_S: Final = 15.0
"""In calm, whoever is there at the deadline is gone by then: told with a report, killed after the grace time."""


class SeenDrain(NamedTuple):
    """A node when it was looked at last: how it is drained, how often that has ended."""

    drains: frozenset[Drain]
    ends: int


class DrainFaults:
    """Drains nodes and gives notice; demands that no attempt begins on a drained node.

    Args:
        cluster: Whose nodes.

    Attributes:
        is_over: Whether the last of them is, which comes in calm.
    """

    def __init__(self, cluster: FaultyCluster) -> None:
        self._cluster = cluster
        self._ends: dict[str, int] = defaultdict(int)
        self._seen: dict[str, SeenDrain] = {}
        self._stood: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._acknowledged: set[str] = set()
        self.is_over = False
        cluster.clock.after(LOOK_S, self._look)

    def drain(self, machine: Machine, lasts_s: float, deadline_s: float | None) -> None:
        """An operator drains a node, and lets it take jobs again later."""
        self._ask(machine, partial(self._drained, deadline_s=deadline_s), lambda: self._acknowledged.add(machine.name))
        self._cluster.clock.after(lasts_s, lambda: self.undrain(machine))

    def undrain(self, machine: Machine) -> None:
        """It takes jobs again."""
        self._ends[machine.name] += 1
        self._acknowledged.discard(machine.name)
        self._ask(machine, lambda _: None, lambda: None)

    def forget(self) -> None:
        """The scheduler knows of drains what it knew when a copy of its store was made, and nothing was promised."""
        self._seen.clear()
        self._stood.clear()
        self._acknowledged.clear()
        for machine in self._cluster.machines:
            self._ends[machine.name] += 1

    def _undrain_all(self) -> None:
        for machine in self._cluster.machines:
            self.undrain(machine)

    def notice(self, machine: Machine, left_s: float) -> None:
        """A spot machine hears when it goes, goes then, and comes back."""
        machine.goes_s = self._cluster.clock.now_s + left_s
        self._cluster.clock.after(left_s, lambda: self._go(machine))

    def heal(self) -> None:
        """No node drains any more, but for one last drain, by whose deadline the node is empty."""
        clock, machine = self._cluster.clock, self._cluster.machines[0]
        clock.after(LAST_AFTER_S - LAST_JOBS_S, self._cluster.submit)
        clock.after(LAST_AFTER_S - 1, self._undrain_all)
        lasts_s = LAST_DEADLINE_S + 2 * EMPTY_WITHIN_S
        clock.after(LAST_AFTER_S, lambda: self.drain(machine, lasts_s, LAST_DEADLINE_S))
        due_s = LAST_AFTER_S + LAST_DEADLINE_S + EMPTY_WITHIN_S
        clock.after(due_s, lambda: self._demand_empty(machine))

    def _go(self, machine: Machine) -> None:
        self._ends[machine.name] += 1
        machine.goes_s = None
        machine.reboot(BACK_S)

    def _drained(self, now_s: float, deadline_s: float | None) -> Drain:
        return Drain("operator", "", now_s, None if deadline_s is None else now_s + deadline_s)

    def _ask(self, machine: Machine, word: Callable[[float], Drain | None], told: Callable[[], None]) -> None:
        def change(turn: Turn) -> None:
            draining.drain(turn, machine.name, word(turn.now_s))

        ends = self._ends[machine.name]
        self._cluster.ask(lambda _: change, lambda _: told() if self._ends[machine.name] == ends else None)

    def _demand_empty(self, machine: Machine) -> None:
        self.is_over = True
        alive = [str(key) for key, attempt in machine.disk.attempts.items() if attempt.alive]
        if machine.name in self._acknowledged and alive:
            self._cluster.clock.problems.append(f"{machine.name} runs {alive} after the deadline of its drain")

    def _look(self) -> None:
        self._cluster.clock.after(LOOK_S, self._look)
        cluster = self._cluster
        if not cluster.server.is_alive or not cluster.service.driver.is_ready:
            return
        for name, record in cluster.service.read_model.nodes.items():
            drains = frozenset(record.node.drains)
            jobs = cluster.service.read_model.jobs.values()
            here = frozenset((int(j.id), j.attempt) for j in jobs if j.placement and name in j.placement.nodes)
            now = SeenDrain(drains, self._ends[name])
            before = self._seen.get(name)
            goes_on = before is not None and drains & before.drains and before.ends == now.ends
            began = sorted(here - self._stood[name])  # what was lost with a node and stands there goes on with it
            self._stood[name] |= here
            if goes_on and began:
                cluster.clock.problems.append(f"{name} is drained, and is given attempts {began}")
            if not drains and name in self._acknowledged:
                cluster.clock.problems.append(f"the drain of {name} is forgotten")
            self._seen[name] = now
