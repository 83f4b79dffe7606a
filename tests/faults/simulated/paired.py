"""Two schedulers on one store, one of which leads: faults of either, of their ways to the store, and of the store.

The laws are those of one scheduler, and that never two speak at once: every answer that reaches anybody is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from colane.agent.link import contact
from colane.client.agent_link import ELSEWHERE
from colane.client.errors import SchedulerUnreachable
from colane.core.config import CoreConfig
from colane.server.assembly import make_standby
from colane.server.board.clock import Clocks
from colane.server.config import ServiceConfig
from colane.server.ground.problems import RefusedError
from colane.server.http.leading import LAPSED
from colane.server.service import Service
from colane.server.store.store import (
    AuditLine,
    ConflictError,
    Document,
    Durability,
    Store,
    StoreError,
    StoreWriter,
    SupersededError,
    Transaction,
    Unreadable,
)
from colane.server.store.unreadable import refusal_of
from colane.server.writer.lead import Lead
from tests.faults.simulated.cluster import (
    NODE_TIMEOUT_S,
    OPERATOR,
    CrashingStore,
    FaultsAreProblems,
    FaultyCluster,
    ProcessDiedError,
)
from tests.faults.simulated.network import VirtualNetwork, Weather
from tests.faults.simulated.processes import VirtualProcess
from tests.memory_store import MemoryStore

LEADER_LEASE_S: Final = 5.0
RENEW_S: Final = 0.6
SCHEDULERS: Final = 2
ADOPT_AFTER_S: Final = 8.0
CALM_MAX_S: Final = 8.0
"""So long at most a scheduler is away where nothing else fails: with what a take-over takes less than nodes' lease."""
ENDED_FOR_US: Final = frozenset({"lease-run-out", "supervisor-died", "stopped", "node-fault", "no-memory"})
UNREACHABLE: Final = "the store could not be reached"
EMPTIED: Final = "the store was emptied"


@dataclass
class StoreLine:
    """One scheduler's way to the store.

    Attributes:
        store: Gives the store as it is now: another may have taken its place.
        is_cut: Nothing gets through.
        failure: Every commit fails with it.
        lost: What becomes of the next commit: its answer is lost (`after`), or it is delivered later (`late`).
        later: Lets something happen later.
        is_emptied: Nothing is in the store until it is brought back.
    """

    store: Callable[[], Store]
    later: Callable[[Callable[[], None]], None]
    is_cut: bool = False
    failure: str = ""
    lost: str = ""
    is_emptied: bool = False

    def _there(self) -> Store:
        if self.is_cut:
            raise StoreError(UNREACHABLE)
        return self.store()

    def _known(self) -> Store:
        store = self._there()
        if self.is_emptied:
            raise StoreError(EMPTIED)
        return store

    def _listed(self) -> Store:
        """What a server lists without looking at whose store it is."""
        return MemoryStore() if self.is_emptied else self._there()

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        store, lost = self._known(), self.lost
        if self.failure:
            raise StoreError(self.failure)
        self.lost = ""
        if lost == "late":
            self.later(lambda: _delivered(store, transaction, writer))
            raise StoreError("its connection broke: whether it was made is not known")
        number = store.commit(transaction, writer)
        if lost:
            raise StoreError("its connection broke: whether it was made is not known")
        return number

    def get(self, collection: str, key: str) -> Document | None:
        return self._known().get(collection, key)

    def remember(self, *collections: str) -> None:
        self._listed().remember(*collections)

    def count(self, collection: str) -> int:
        return self._listed().count(collection)

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        return self._listed().read_all(collection)

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        return self._listed().page(collection, after, limit)

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        return self._listed().page_back(collection, before, limit, containing)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        return self._listed().audit(after, limit)

    def last_audit_number(self) -> int:
        return self._known().last_audit_number()

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        self._there().take_lines(lines)

    def version(self) -> int:
        return self._known().version()

    def unreadable(self) -> Sequence[Unreadable]:
        return ()

    def note_unreadable(self, record: Unreadable) -> bool:
        return self.store().note_unreadable(record)

    def note_missing(self) -> None:
        self._listed().note_missing()

    def check(self) -> None:
        """As of one over a network."""

    def durability(self) -> Durability:
        return Durability("memory")

    def scrub(self) -> None:
        """There are no files."""

    def close(self) -> None:
        """There is nothing to close."""


def _delivered(store: Store, transaction: Transaction, writer: StoreWriter | None) -> None:
    with suppress(ConflictError, SupersededError, StoreError):
        store.commit(transaction, writer)


@dataclass
class PairedNetwork(VirtualNetwork):
    """Agents know both schedulers, and ask the other where one does not answer or does not lead."""

    processes: Sequence[VirtualProcess] = ()
    at: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    answers: Sequence[Callable[..., Any]] = ()

    def ask(self, node: str, asker: VirtualProcess, name: str, body: Any, answered: asyncio.Future[Any]) -> None:
        former = self.waiting.get(node)
        if former is not None and _was_elsewhere(former):
            self.at[node] = (self.at.get(node, 0) + 1) % SCHEDULERS
        self.waiting[node] = answered
        which = self.at.get(node, 0)
        self.scheduler, self.answer = self.processes[which], self.answers[which]
        arriving, answer = self.scheduler, self.answer

        def chosen(do: Callable[[], None]) -> Callable[[], None]:
            def then() -> None:
                self.scheduler, self.answer = arriving, answer
                do()

            return then

        after = self.clock.after
        with patch.object(self.clock, "after", lambda seconds, do: after(seconds, chosen(do))):
            super().ask(node, asker, name, body, answered)


def _was_elsewhere(answered: asyncio.Future[Any]) -> bool:
    """Whether the other scheduler is to be asked next, as an agent's link does."""
    if not answered.done() or answered.cancelled():
        return True
    error = answered.exception()
    return isinstance(error, SchedulerUnreachable) or getattr(error, "status", 0) in ELSEWHERE


class PairedCluster(FaultyCluster):
    """One world of one seed with a leader and its standby."""

    def __init__(self, policy: str, seed: int, root: Path, *, calm: bool = False) -> None:
        self.is_calm = calm
        self.services: list[Service | None] = [None] * SCHEDULERS
        self.lines: list[StoreLine] = []
        self.processes: list[VirtualProcess] = []
        self.walls_s = [0.0] * SCHEDULERS
        self.replica: tuple[CrashingStore, frozenset[int], dict[int, Any]] | None = None
        super().__init__(policy, seed, root)

    # -- what the world of one scheduler asks for

    @property
    def _leads(self) -> int:
        """Which one leads; where none does, the one that led last."""
        for which, service in enumerate(self.services):
            if self.processes[which].is_alive and service is not None and service.leads and service.driver.lead.is_held:
                self._last = which
        return getattr(self, "_last", 0)

    @property
    def server(self) -> VirtualProcess:
        return self.processes[self._leads]

    @server.setter
    def server(self, first: VirtualProcess) -> None:
        self.processes = [first, *(self.clock.process(f"standby {n}") for n in range(1, SCHEDULERS))]
        for _ in self.processes:
            self.lines.append(StoreLine(lambda: self.store, lambda do: self.clock.after(self.random.uniform(1, 9), do)))

    @property
    def service(self) -> Service:  # type: ignore[override]
        return self.services[self._leads] or next(each for each in self.services if each is not None)

    def make_network(self) -> VirtualNetwork:
        answers = [self._answers(which) for which in range(SCHEDULERS)]
        return PairedNetwork(self.clock, self.random, self.processes[0], processes=self.processes, answers=answers)

    def start_server(self) -> None:
        """Both begin, where they do not live."""
        for which in range(SCHEDULERS):
            self._start(which)

    def _start(self, which: int) -> None:
        process, now, random = self.processes[which], self.clock, Random(f"{self.seed} {which}")
        if process.is_alive:
            return
        rate = 1 + random.uniform(-0.004, 0.004)
        clocks = Clocks(
            wall=lambda: 1.7e9 + now.now_s + self.walls_s[which],
            steady=lambda: now.now_s * rate,
            since_boot=lambda: now.now_s * rate,
            boot=lambda: f"boot of {which}",
        )
        core = CoreConfig(opaque_after_s=5.0, node_losses_max=50)
        config = ServiceConfig(
            policy=self.policy,
            workdir="/",
            tick_s=2.0,
            node_timeout_s=NODE_TIMEOUT_S,
            core=core,
            leader_lease_s=LEADER_LEASE_S,
            own_url=f"http://{which}",
        )

        async def main() -> None:
            with suppress(ProcessDiedError):
                try:
                    service, standby = make_standby(self.lines[which], config, clocks=clocks, agents=self.network)
                except StoreError as error:
                    self.note(f"scheduler {which} cannot start: {error}")
                    self._kill(which, 5.0)
                    return
                self.services[which] = service
                service.driver.faults = FaultsAreProblems(self.clock.problems)
                renewing = asyncio.get_running_loop().create_task(self._renew(which, service.driver.lead))
                try:
                    await standby.run()
                    self.note(f"scheduler {which} leads")
                    await service.run()
                except SupersededError:
                    self.note(f"scheduler {which} is superseded")
                    self._kill(which, 3.0)
                finally:
                    renewing.cancel()

        process.start(main)

    async def _renew(self, which: int, lead: Lead) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            service = self.services[which]
            if service is not None and service.leads:
                lead.renew()

    def _kill(self, which: int, again_after_s: float) -> None:
        self.processes[which].kill()
        self.services[which] = None if self.services.count(None) == 0 else self.services[which]
        self.clock.after(again_after_s, lambda: self._start(which))

    def kill_server(self, again_after_s: float) -> None:
        self._kill(self._leads, again_after_s)

    def _answers(self, which: int) -> Callable[..., Any]:
        """What a scheduler answers as at its door."""

        async def answer(name: str, body: Any) -> Any:
            service = self.services[which]
            if service is None or not service.leads:
                raise RefusedError.because(307, "a standby")
            if service.driver._core is None:
                raise RefusedError.because(503, "it begins")
            try:
                result = await FaultyCluster._carry_out(_Of(service), name, body)  # type: ignore[arg-type]
            except StoreError as error:
                raise refusal_of(error) from error
            finally:
                if not service.driver.lead.is_held:
                    raise RefusedError.because(503, LAPSED)
                self._look_at_leaders()
            return result

        return answer

    def _look_at_leaders(self) -> None:
        leaders = [
            which
            for which, service in enumerate(self.services)
            if self.processes[which].is_alive
            and self.processes[which].frozen_until_s <= self.clock.now_s
            and service is not None
            and service.leads
            and service.driver.lead.is_held
        ]
        if len(leaders) > 1:
            self.clock.problems.append(f"schedulers {leaders} lead at once")

    def _is_quiet(self) -> bool:
        is_up = self.server.is_alive and self.services[self._leads] is not None
        return bool(is_up and self.service.leads and super()._is_quiet())

    # -- faults

    def _fault(self) -> None:
        machine, random = self.random.choice(self.machines), self.random
        which = random.randrange(SCHEDULERS)
        line, lasts_s = self.lines[which], random.choice((1.0, 4.0, 7.0, 20.0)) * random.uniform(0.5, 1.5)
        if self.is_calm and not self._all_is_well():
            return
        lasts_s = min(lasts_s, CALM_MAX_S) if self.is_calm else lasts_s
        faults: dict[str, Callable[[], None]] = {
            "scheduler killed": lambda: self._kill(which, lasts_s),
            "leader killed": lambda: self.kill_server(lasts_s),
            "scheduler frozen": lambda: self._freeze(which, lasts_s),
            "leader frozen": lambda: self._freeze(self._leads, lasts_s),
            "its store cut off": lambda: self._cut(line, lasts_s),
            "the store cut off from the leader": lambda: self._cut(self.lines[self._leads], lasts_s),
            "a commit late": lambda: setattr(self.lines[self._leads], "lost", "late"),
            "an answer lost": lambda: setattr(self.lines[self._leads], "lost", "after"),
            "its store full": lambda: self._fail(lasts_s, "no space left"),
            "its store read-only": lambda: self._fail_for(line, lasts_s, "it is a replica"),
            "its store emptied": lambda: self._empty(lasts_s),
            "its wall clock set": lambda: self._set(which),
        }
        if not self.is_calm:
            faults |= {
                "cut off": lambda: self._weather(machine, lasts_s, Weather(1.0, 1.0)),
                "bad line": lambda: self._weather(machine, lasts_s, Weather(0.3, 0.3, 0.3, 8.0)),
                "agent killed": lambda: machine.kill_agent(lasts_s) if machine.agent.is_alive else None,
                "rebooted": lambda: machine.reboot(lasts_s),
                "replica falls behind": self._lag,
                "replica takes over": self._fail_over,
            }
        name = random.choice(sorted(faults))
        self.note(f"{name} ({machine.name}, {lasts_s:.1f} s)")
        faults[name]()

    def _all_is_well(self) -> bool:
        """Whether the next fault would be the only one."""
        now_s = self.clock.now_s
        are_up = all(one.is_alive and one.frozen_until_s + LEADER_LEASE_S < now_s for one in self.processes)
        are_reached = not any(line.is_cut or line.failure or line.is_emptied for line in self.lines)
        return are_up and are_reached and self.store.failure is None

    def ended_by_schedulers(self) -> list[str]:
        """Attempts that no job, user or operator has ended, and nodes that were given up."""
        told = self.store.audit(0, 100_000)
        kinds = {"attempt-ended": "outcome", "node-lost": "node", "node-set-apart": "node"}
        found = [(line.kind, line.body.get(kinds[line.kind])) for line in told if line.kind in kinds]
        return [f"{kind} {what}" for kind, what in found if kind != "attempt-ended" or what in ENDED_FOR_US]

    def _freeze(self, which: int, lasts_s: float) -> None:
        self.processes[which].frozen_until_s = self.clock.now_s + lasts_s

    def _cut(self, line: StoreLine, lasts_s: float) -> None:
        line.is_cut = True
        self.clock.after(lasts_s, lambda: setattr(line, "is_cut", False))

    def _fail_for(self, line: StoreLine, lasts_s: float, failure: str) -> None:
        line.failure = failure
        self.clock.after(lasts_s, lambda: setattr(line, "failure", ""))

    def _empty(self, lasts_s: float) -> None:
        """For both; an operator brings it back as it was."""
        for line in self.lines:
            line.is_emptied = True
            self.clock.after(lasts_s, lambda line=line: setattr(line, "is_emptied", False))  # type: ignore[misc]

    def _fail(self, lasts_s: float, failure: str) -> None:
        self.store.failure = failure
        self.clock.after(lasts_s, lambda: setattr(self.store, "failure", None))

    def _set(self, which: int) -> None:
        self.walls_s[which] += self.random.choice((-7200.0, -90.0, 90.0, 7200.0))

    def _lag(self) -> None:
        copied = self.store.copied()
        copied._version = self.store._version
        self.replica = (copied, frozenset(self.laws.acknowledged), dict(self.laws.owners))

    def _fail_over(self) -> None:
        """The replica is the store from now on; schedulers that know more are started again on it."""
        if self.replica is None:
            return
        store, acknowledged, owners = self.replica
        self.replica = None
        self.store = store
        self.laws.acknowledged, self.laws.owners = set(acknowledged), dict(owners)
        for which in range(SCHEDULERS):
            self._kill(which, self.random.uniform(0.1, 3.0))
        self.clock.after(ADOPT_AFTER_S, self._adopt)

    def _adopt(self) -> None:
        """An operator adopts what is there, as often as it takes until nothing is held back."""
        service, process = self.service, self.server
        if process.is_alive and service.leads and service.leading.behind.lost:
            lost = service.leading.behind.lost
            self.note(f"adopted without {lost}")
            process.spawn(_adopted(service, lost))
        if self.clock.now_s < 1000.0 + 600.0:
            self.clock.after(ADOPT_AFTER_S, self._adopt)

    def _heal(self) -> None:
        super()._heal()
        for line in self.lines:
            line.is_cut, line.failure, line.lost, line.is_emptied = False, "", "", False
        self.store.failure = None


async def _adopted(service: Service, lost: int) -> None:
    with suppress(RefusedError):
        await service.leading.adopt(lost, OPERATOR)


class _Of:
    """The cluster as one of its schedulers sees it."""

    def __init__(self, service: Service) -> None:
        self.service = service


def survive_paired(policy: str, seed: int, root: Path, *, calm: bool = False) -> tuple[list[str], list[str]]:
    """Run one world: what went wrong, and what happened in it; in a calm one nothing fails but the schedulers."""
    with patch.object(Lead, "keep", lambda _: None):
        cluster = PairedCluster(policy, seed, root, calm=calm)
        with patch.object(contact, "since_boot_s", cluster.since_boot_s):
            try:
                problems = [*cluster.run()]
                return problems + (cluster.ended_by_schedulers() if calm else []), cluster.story
            finally:
                cluster.close()
