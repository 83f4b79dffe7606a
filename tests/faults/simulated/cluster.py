"""The whole: a scheduler, machines, clients, faults drawn from a seed, and the laws that hold throughout."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from colane.agent.link import contact
from colane.agent.reconcile import Key
from colane.api.job_request import SuspendBody
from colane.api.jobs import JobIdAnswer
from colane.api.nodes import FinishedAnswer, LaunchObject, NodeObject
from colane.api.wire import ProfileBody
from colane.api.wire_nodes import FinishedBody, NodeBody, ReportBody
from colane.core.config import CoreConfig
from colane.model.job import JobId, SuspendVia
from colane.model.sentences import sentence_of
from colane.scheduling.registry import NAMES
from colane.server.assembly import make_service
from colane.server.board.clock import Clocks
from colane.server.board.read_model import read_board
from colane.server.board.turn import Turn
from colane.server.config import ServiceConfig
from colane.server.ground.access import Caller, Role
from colane.server.ground.problems import RefusedError
from colane.server.planning.copies import CopyError
from colane.server.service import Service
from colane.server.store.identity import CLUSTER_KEY
from colane.server.store.store import (
    ASSIGNED_JOBS,
    EPOCHS,
    FINISHED_JOBS,
    META,
    NODES,
    StoreError,
    StoreWriter,
    Transaction,
    Unreadable,
    job_key,
)
from colane.server.writer import changes
from colane.server.writer.boundary import FaultLog
from colane.server.writer.driver import restore_state
from colane.verbs.of_jobs import RESUME, SUSPEND
from tests.core.audit import audit
from tests.faults.simulated.drains import DrainFaults
from tests.faults.simulated.machine import STEP_S, Machine, forget
from tests.faults.simulated.network import Object, VirtualNetwork, Weather
from tests.faults.simulated.processes import VirtualClock
from tests.faults.simulated.requests import FAMILIES, draw
from tests.faults.simulated.versions import AGENTS_WORDS, SCHEDULERS_WORDS, as_it_is, of_another
from tests.memory_store import MemoryStore

NODE_TIMEOUT_S: Final = 20.0
CHAOS_S: Final = 150.0
"""How long faults happen."""
CALM_S: Final = 900.0
"""Within this after the last fault every job has ended, or what is left is work that no order makes shorter."""
START_AGAIN_S: Final = 5.0
VITAL: Final = (ASSIGNED_JOBS, NODES, META, EPOCHS)
"""Collections without a record of which no scheduler starts."""
COPIES_EACH: Final = 8
"""In each so many worlds the scheduler foresees, by a process each time: three fifths of what a world takes."""
LAUNCH_MAX_S: Final = 10.0
"""Longest time between the end of an attempt and the first step of the next one, where nothing is wrong."""
TRIED: Final = (*sorted(NAMES), "f-sched:pays_back=false", "fifo:size=largest", "srtf:usage_half_life_s=60")
"""Every policy by its name, and those whose options let more happen."""
EXCLUSIVE: Final = frozenset({"fifo", "best-fit", "easy-backfill", "srtf", "las", "srsf"})
"""Policies under which no two jobs share a device."""


OPERATOR: Final = Caller("operator", Role.OPERATOR)
UNPROCESSABLE: Final = 422
MACHINES: Final = frozenset({"gpus", "gpu_type", "pool"})
"""What a job may be refused for while machines that it fits on are not there yet."""
USERS: Final = (Caller("ann", Role.USER), Caller("bob", Role.USER))


class CrashingStore(MemoryStore):
    """The scheduler may die just before a commit, or just after it."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: Callable[[], None] | None = None
        self.crashes_before = False
        self.lost: tuple[str, dict[str, str]] | None = None

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        """See `Store.commit`."""
        crash, self.crash = self.crash, None
        if crash is not None and self.crashes_before:
            crash()
            raise ProcessDiedError
        number = super().commit(transaction, writer)
        if crash is not None:
            crash()
            raise ProcessDiedError
        return number

    def copied(self) -> CrashingStore:
        """A copy of all that is in it."""
        made = CrashingStore()
        made._collections = {name: dict(rows) for name, rows in self._collections.items()}
        made._audit = list(self._audit)
        return made

    def lose(self, name: str, random: Random, part: float) -> bool:
        """Records of a collection are gone, as a durable store notices when it is opened; whether there were any."""
        rows = self._collections[name]
        gone = random.sample(sorted(rows), int(len(rows) * part + 0.5))
        if gone:
            self.lost = name, {key: rows.pop(key) for key in gone}
            self.note_unreadable(Unreadable(name, "", f"lacks {len(gone)} records of {len(gone) + len(rows)}"))
        return bool(gone)

    def bring_back(self) -> None:
        """An operator puts the records back that are gone."""
        if self.lost is not None:
            name, rows = self.lost
            self._collections[name] |= rows
            del self._unreadable[name, ""]
        self.lost = None

    def be_of_another_cluster(self) -> None:
        """As `copies.restore` has it: job ids are given a second time."""
        self._collections[META].pop(CLUSTER_KEY, None)


class FaultsAreProblems(FaultLog):
    """A fault that costs a request alone is one that no request should meet."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__()
        self._problems = problems

    def refuse(self, error: Exception) -> RefusedError:
        """See `FaultLog.refuse`."""
        self._problems.append(f"a request met {error!r}")
        return super().refuse(error)


class Copy(NamedTuple):
    """A store at one moment, which ids clients had been told by then, and whose jobs these are."""

    store: CrashingStore
    acknowledged: frozenset[int]
    owners: dict[int, Caller]


EMPTY: Final = Copy(CrashingStore(), frozenset(), {})


class ProcessDiedError(BaseException):
    """Nothing of the process goes on after this."""


class Laws:
    """What must hold at every moment; what does not is said once, and ends the run."""

    def __init__(self, cluster: FaultyCluster) -> None:
        self._cluster = cluster
        self._starts: dict[tuple[str, int, Key], int] = defaultdict(int)
        self.acknowledged: set[int] = set()
        self.owners: dict[int, Caller] = {}

    def touched(self, job: int, by: Caller) -> None:
        """A job was changed, and its caller was told so."""
        self._demand(self.owners[job] == by, f"{by} has changed job {job} of {self.owners[job]}")

    def started(self, machine: Machine, key: Key) -> None:
        """A process has begun."""
        start = (
            machine.name,
            machine.disk.joins,
            key,
        )  # of the same copy put back twice, it may join the same cluster again
        self._starts[start] += 1
        self._demand(self._starts[start] == 1, f"attempt {key} was started twice on {machine.name}")
        self.look()

    def look(self) -> None:
        """Who runs where: no job in two attempts, no device with two jobs that do not share."""
        attempts: dict[tuple[str, int], set[int]] = defaultdict(set)
        for machine in (machine for machine in self._cluster.machines if not machine.is_frozen):
            on_device: dict[int, list[Key]] = defaultdict(list)
            for key, attempt in machine.disk.attempts.items():
                if attempt.runs:
                    attempts[machine.disk.cluster_id, key.job].add(key.attempt)
                if attempt.runs and not attempt.is_parked:
                    for gpu in attempt.desired.gpus:
                        on_device[gpu].append(key)
            if self._cluster.is_exclusive:
                for gpu, keys in on_device.items():
                    self._demand(len(keys) <= 1, f"{machine.name}/{gpu} runs {[str(key) for key in keys]}")
        for (_, job), alive in attempts.items():
            self._demand(len(alive) <= 1, f"job {job} runs in attempts {sorted(alive)} at once")

    def known(self) -> None:
        """No job whose id was told is forgotten, and the records give back what the core has."""
        store = self._cluster.store
        read_model, ended = read_board(store), {key for key, _ in store.read_all(FINISHED_JOBS)}
        for job in sorted(self.acknowledged):
            self._demand(JobId(job) in read_model.jobs or job_key(JobId(job)) in ended, f"job {job} is forgotten")
        audit(restore_state(store, read_model, self._cluster.service.config.core))

    def _demand(self, holds: bool, problem: str) -> None:
        if not holds:
            self._cluster.clock.problems.append(problem)


class FaultyCluster:
    """One world of one seed.

    Args:
        policy: Registered name.
        seed: Of everything that is drawn.
        root: Where leases are kept.
        has_faults_of_all: There are some that befall all machines at once, or the store.
    """

    def __init__(self, policy: str, seed: int, root: Path, *, has_faults_of_all: bool = False) -> None:
        self.policy, self.seed = policy, seed
        self.has_faults_of_all, self.more = has_faults_of_all, Random(f"{policy} {seed} of all")
        self.random = Random(f"{policy} {seed}")
        self.clock = VirtualClock()
        self.story: list[str] = []
        self.laws = Laws(self)
        self.store = CrashingStore()
        self.speaks: Callable[[Any], Any] = as_it_is
        self.copy: Copy | None = None
        self.server = self.clock.process("scheduler")
        self.network = self.make_network()
        self.is_exclusive = policy.partition(":")[0] in EXCLUSIVE
        self.server_wall_s = 0.0
        self._has_room_for_copies = seed % COPIES_EACH == 0
        self._jobs = 0
        self.start_server()
        self.machines: list[Machine] = []
        for number in range(self.random.choice((1, 2, 3, 3))):
            self.network.weather[f"n{number}"] = Weather()
            self.machines.append(Machine(self, f"n{number}", self.random.choice((1, 2, 3)), root))
        self.drains = DrainFaults(self)

    def close(self) -> None:
        """Leave nothing."""
        self.clock.close()
        for machine in self.machines:
            forget(machine)

    def since_boot_s(self) -> float:
        """The clock of leases of the machine whose agent asks."""
        loop = asyncio.get_running_loop()
        return next(m.since_boot_s for m in self.machines if m.agent.is_alive and m.agent.loop is loop)

    def make_network(self) -> VirtualNetwork:
        """Return what lies between the scheduler and its agents."""
        return VirtualNetwork(self.clock, self.random, self.server, answer=self._answer)

    # -- the scheduler

    def start_server(self) -> None:
        """The scheduler begins, where none lives, from what is stored."""
        if self.server.is_alive:
            return
        now = self.clock
        clocks = Clocks(
            wall=lambda: 1.7e9 + now.now_s + self.server_wall_s,
            steady=lambda: now.now_s,
            since_boot=lambda: now.now_s,
            boot=lambda: "boot",
        )
        core = CoreConfig(opaque_after_s=5.0, node_losses_max=50)
        config = ServiceConfig(policy=self.policy, workdir="/", tick_s=2.0, node_timeout_s=NODE_TIMEOUT_S, core=core)

        async def main() -> None:
            with suppress(ProcessDiedError):
                try:
                    self.service = make_service(self.store, config, clocks=clocks, agents=self.network)
                except StoreError as error:  # it ends with a word on that, and is started again as a service is
                    self.note(f"the scheduler cannot start: {error}")
                    self.kill_server(START_AGAIN_S)
                    return
                if not self._has_room_for_copies:
                    self.service.forecasts.copies.begin = _no_room  # type: ignore[method-assign]
                if self.store.lost is not None:
                    self.clock.problems.append(f"the scheduler starts without records of {self.store.lost[0]}")
                self.service.driver.faults = FaultsAreProblems(self.clock.problems)
                await self.service.run()

        self.server.start(main)

    def kill_server(self, again_after_s: float) -> None:
        """The scheduler dies, and is started again later."""
        self.server.kill()
        self.clock.after(again_after_s, self.start_server)

    def upgrade_server(self, again_after_s: float) -> None:
        """The scheduler is ended by order, and one of another version started."""
        speaks = of_another(self.random, SCHEDULERS_WORDS)

        async def end() -> None:
            with suppress(ProcessDiedError):
                await self.service.grants.farewell()
                self.speaks = speaks
                self.kill_server(again_after_s)

        if self.server.is_alive and hasattr(self, "service"):
            self.server.spawn(end())

    def back_up(self) -> None:
        """An operator copies the store."""
        laws = self.laws
        if self.store.lost is not None:
            return  # nothing is copied of it
        self.copy = Copy(self.store.copied(), frozenset(laws.acknowledged), dict(laws.owners))

    def put_back(self, copy: Copy, again_after_s: float, *, by_hand: bool = False) -> None:
        """An operator ends the scheduler, puts a copy in the place of its store, and starts another one."""
        self.kill_server(again_after_s)
        self.store = copy.store.copied()
        if not by_hand:
            self.store.be_of_another_cluster()
        self.laws.acknowledged, self.laws.owners = set(copy.acknowledged), dict(copy.owners)
        self.drains.forget()

    async def _answer(self, name: str, body: Any) -> Object:
        answer: Object = self.speaks(await self._carry_out(name, body))
        return answer

    async def _carry_out(self, name: str, body: Any) -> NodeObject | LaunchObject | FinishedAnswer:
        service: Service = self.service
        if name == "register":
            node = NodeBody.model_validate(body)
            await service.driver.change(service.nodes.register(node))
            return service.nodes.node(node.name)
        if name == "report":
            return await service.nodes.report(body[0], ReportBody.model_validate(body[1]))
        if name == "launch_info":
            return await service.nodes.launch(JobId(body), OPERATOR)
        ended = FinishedBody.model_validate(body)
        believed = await service.driver.change(service.nodes.finish(ended))
        return {"believed": believed, **service.leading.standing_of(ended.node)}

    # -- clients

    def ask(self, doing: Callable[[Service], Any], told: Callable[[Any], None] = lambda _: None) -> None:
        """A client asks for a change; what comes of it is told if the scheduler lives that long."""

        async def change() -> None:
            try:
                answer = await self.service.driver.change(doing(self.service))
            except Exception as error:  # noqa: BLE001 - refused, as clients may be
                self.note(f"refused: {error}")
                asked = [problem.field.rpartition(".")[2] for problem in getattr(error, "problems", ())]
                if getattr(error, "status", 0) == UNPROCESSABLE and not MACHINES.issuperset(asked):
                    self.clock.problems.append(f"what clients may ask for is refused: {error}")
            else:
                told(answer)

        if self.server.is_alive:
            self.server.spawn(change())

    def declare(self) -> None:
        """It is known how fast jobs go on one device and on two, so that elastic ones may grow."""
        for family in FAMILIES:
            for gpus, step_s in ((1, STEP_S), (2, 0.55 * STEP_S), (3, 0.4 * STEP_S)):
                key = {"family": family, "gpus": gpus, "gpu_type": "cpu"}
                body = ProfileBody.model_validate({"key": key, "step_s": {"value": step_s, "samples": 10}})
                self.ask(partial(_declared, body=body))

    def submit(self) -> None:
        """Some jobs, now and then over several nodes."""
        gpus = [machine.gpus for machine in self.machines]
        count = self.random.randint(1, 4)
        requests = [draw(self.random, self._jobs + number, gpus) for number in range(1, count + 1)]
        self._jobs += count
        user = self.random.choice(USERS)
        self.ask(lambda service: service.submissions.submit(requests, user), partial(self._acknowledge, user))

    def _acknowledge(self, user: Caller, ids: list[JobId]) -> None:
        self.note(f"submitted {[int(job) for job in ids]}")
        self.laws.acknowledged.update(ids)
        self.laws.owners.update(dict.fromkeys(ids, user))

    def meddle(self) -> None:
        """A user suspends, resumes or cancels a job, or tries to: it may be another's."""
        jobs = sorted(self.laws.acknowledged)
        if not jobs:
            return
        job, act = JobId(self.random.choice(jobs)), self.random.choice(("suspend", "resume", "resume", "cancel"))
        via, user = self.random.choice((SuspendVia.LANE, SuspendVia.HOST)), self.random.choice(USERS)

        def told(_: Any) -> None:
            self.laws.touched(job, user)

        if act == "suspend":
            self.ask(
                lambda service: service.job_changes.of(
                    SUSPEND, job, user, user.name, SuspendBody(to_host=via is SuspendVia.HOST)
                ),
                told,
            )
        elif act == "resume":
            self.ask(lambda service: service.job_changes.of(RESUME, job, user, user.name), told)
        elif self.random.random() < 0.3:
            self.ask(lambda service: service.job_changes.cancel(job, user, user.name), told)

    def note(self, text: str) -> None:
        """Remember what happened, for whoever looks into a failure."""
        self.story.append(f"{self.clock.now_s - 1000.0:8.2f} {text}")

    # -- running

    def run(self) -> list[str]:
        """Chaos, then calm: what went wrong, if anything did."""
        self.clock.after(1.0, self.declare)
        for _ in range(self.random.randint(4, 8)):
            self.clock.after(self.random.uniform(0, CHAOS_S * 0.8), self.submit)
        for _ in range(6):
            self.clock.after(self.random.uniform(10, CHAOS_S), self.meddle)
        for _ in range(self.random.randint(4, 12)):
            self.clock.after(self.random.uniform(2, CHAOS_S), self._fault)
        for _ in range(self.more.randint(1, 3) if self.has_faults_of_all else 0):
            self.clock.after(self.more.uniform(2, CHAOS_S), self._fault_of_all)
        start_s = self.clock.now_s
        self.clock.run(start_s + CHAOS_S)
        self._heal()
        self.clock.run(start_s + CHAOS_S + CALM_S, self._is_quiet)
        more_s = self._work_left_s()
        self.clock.run(start_s + CHAOS_S + CALM_S + more_s, self._is_quiet)
        if not self.clock.problems:
            self.laws.known()
        if not self.clock.problems and not self._is_quiet():
            left = [f"{job.id} {job.state} ({sentence_of(job.reason) if job.reason else ''})" for job in self._left()]
            self.clock.problems.append(f"not ended within {CALM_S + more_s:g} s of calm: {'; '.join(left)}")
        return self.clock.problems

    def _work_left_s(self) -> float:
        """How long those that are left may take one after another, with every attempt they have, and its start."""
        return sum(
            [float((float(job.spec.labels["work_s"]) + LAUNCH_MAX_S) * (1 + job.spec.retries)) for job in self._left()]
        )

    def _left(self) -> list[Any]:
        return list(self.service.read_model.jobs.values()) if self.server.is_alive else []

    def _is_quiet(self) -> bool:
        is_up = self.server.is_alive and hasattr(self, "service") and self.service.driver.is_ready
        is_idle = is_up and self.drains.is_over and not self.service.read_model.jobs
        return is_idle and not any(m.disk.attempts for m in self.machines)

    def _fault(self) -> None:
        machine, random = self.random.choice(self.machines), self.random
        lasts_s = random.choice((2.0, 10.0, 30.0, 60.0)) * random.uniform(0.5, 1.5)
        faults: dict[str, Callable[[], None]] = {
            "cut off": lambda: self._weather(machine, lasts_s, Weather(1.0, 1.0)),
            "not heard": lambda: self._weather(machine, lasts_s, Weather(asks_lost=1.0)),
            "hears nothing": lambda: self._weather(machine, lasts_s, Weather(answers_lost=1.0)),
            "bad line": lambda: self._weather(machine, lasts_s, Weather(0.3, 0.3, 0.3, 8.0)),
            "frozen": lambda: machine.freeze(lasts_s),
            "agent frozen": lambda: self._freeze_agent(machine, lasts_s),
            "agent killed": lambda: machine.kill_agent(lasts_s) if machine.agent.is_alive else None,
            "rebooted": lambda: machine.reboot(lasts_s),
            "clock set": lambda: self._set_clock(machine),
            "scheduler frozen": lambda: self._freeze_server(lasts_s),
            "scheduler killed": lambda: self.kill_server(lasts_s / 3),
            "scheduler dies at a write": lambda: self._crash_at_write(lasts_s / 3),
            "disk full": lambda: self._fill_disk(lasts_s),
            "cancelled": self._cancel,
            "store copied": self.back_up,
            "older copy put back": lambda: self.put_back(self.copy or EMPTY, lasts_s / 3),
            "older copy put back by hand": lambda: self.put_back(self.copy or EMPTY, lasts_s / 3, by_hand=True),
            "store emptied": lambda: self.put_back(EMPTY, lasts_s / 3),
            "agent of another version": lambda: machine.upgrade_agent(of_another(random, AGENTS_WORDS), lasts_s / 3),
            "scheduler of another version": lambda: self.upgrade_server(lasts_s / 3),
            "drained": lambda: self.drains.drain(machine, lasts_s, None),
            "drained with a deadline": lambda: self.drains.drain(machine, 2 * lasts_s, lasts_s),
            "about to go": lambda: self.drains.notice(machine, lasts_s),
        }
        name = random.choice(sorted(faults))
        self.note(f"{name} ({machine.name}, {lasts_s:.1f} s)")
        faults[name]()

    def _fault_of_all(self) -> None:
        """What befalls all machines at once, or the store while no scheduler lives."""
        random = self.more
        lasts_s = random.choice((2.0, 10.0, 30.0, 60.0)) * random.uniform(0.5, 1.5)
        faults: dict[str, Callable[[], None]] = {
            "all cut off": lambda: self._weather_of_all(lasts_s, 1.0),
            "none hears": lambda: self._weather_of_all(lasts_s, 0.0),
            "all frozen": lambda: self._freeze_all(lasts_s),
            "all agents killed": lambda: self._kill_agents(lasts_s),
            "records absent": lambda: self._lose_records(lasts_s / 3),
        }
        name = random.choice(sorted(faults))
        self.note(f"{name} (n0, {lasts_s:.1f} s)")
        faults[name]()

    def _weather_of_all(self, lasts_s: float, asks_lost: float) -> None:
        for machine in self.machines:
            self._weather(machine, lasts_s, Weather(asks_lost, 1.0))

    def _freeze_all(self, lasts_s: float) -> None:
        for machine in self.machines:
            machine.freeze(lasts_s)

    def _kill_agents(self, lasts_s: float) -> None:
        for machine in self.machines:
            if machine.agent.is_alive:
                machine.kill_agent(lasts_s)

    def _lose_records(self, lasts_s: float) -> None:
        """Records are gone when a scheduler starts, and are put back later: until then none is to start."""
        if self.store.lost is None and self.store.lose(
            self.more.choice(VITAL), self.more, self.more.choice((0.5, 1.0))
        ):
            self.kill_server(START_AGAIN_S)
            self.clock.after(START_AGAIN_S + lasts_s, self.store.bring_back)

    def _cancel(self) -> None:
        """An operator cancels a job that has not ended, if there is any."""
        live = [job.id for job in self._left()]
        if live:
            job = self.random.choice(live)
            self.ask(lambda service: service.job_changes.cancel(job, OPERATOR, OPERATOR.name))

    def _weather(self, machine: Machine, lasts_s: float, weather: Weather) -> None:
        self.network.weather[machine.name] = weather
        self.clock.after(lasts_s, lambda: self.network.weather.__setitem__(machine.name, Weather()))

    def _freeze_agent(self, machine: Machine, lasts_s: float) -> None:
        machine.agent.frozen_until_s = self.clock.now_s + lasts_s

    def _freeze_server(self, lasts_s: float) -> None:
        self.server.frozen_until_s = self.clock.now_s + lasts_s

    def _set_clock(self, machine: Machine) -> None:
        machine.wall_offset_s += self.random.choice((-7200.0, -90.0, 90.0, 7200.0))
        self.server_wall_s += self.random.choice((0.0, -3600.0, 3600.0))

    def _crash_at_write(self, again_after_s: float) -> None:
        self.store.crashes_before = self.random.random() < 0.5
        self.store.crash = lambda: self.kill_server(again_after_s)

    def _fill_disk(self, lasts_s: float) -> None:
        self.store.failure = "no space left on device"
        self.clock.after(lasts_s, lambda: setattr(self.store, "failure", None))

    def _heal(self) -> None:
        """No fault happens any more; what was killed is started again, what is suspended is resumed."""
        self.note("calm")
        self.store.failure = self.store.crash = None
        self.store.bring_back()
        for machine in self.machines:
            self.network.weather[machine.name] = Weather()
        self.drains.heal()
        self.clock.after(90.0, self._resume_all)

    def _resume_all(self) -> None:
        for job in sorted(self.laws.acknowledged):
            self.ask(partial(_resumed, job=JobId(job)))


def _no_room(question: Callable[[], object]) -> asyncio.Future[Any]:
    raise CopyError(f"no room for a copy that answers {question}")


def _declared(_service: Service, body: ProfileBody) -> Callable[[Turn], None]:
    return partial(changes.declare, body=body)


def _resumed(service: Service, job: JobId) -> Callable[[Turn], JobIdAnswer]:
    return service.job_changes.of(RESUME, job, OPERATOR, "operator")


def survive(policy: str, seed: int, root: Path, *, has_faults_of_all: bool = False) -> tuple[list[str], list[str]]:
    """Run one world: what went wrong, and what happened in it."""
    cluster = FaultyCluster(policy, seed, root, has_faults_of_all=has_faults_of_all)
    with patch.object(contact, "since_boot_s", cluster.since_boot_s):
        try:
            return cluster.run(), cluster.story
        finally:
            cluster.close()
